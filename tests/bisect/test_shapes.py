"""A part of fixed shapes is cut down to small ones, as far as it still fails."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from pyreactant.check.bisect.child import Outcome
from pyreactant.check.bisect.judge import Failure, Module, Ways
from pyreactant.check.bisect.module import Editor, Part, Search
from pyreactant.check.bisect.shapes import with_small_shapes
from pyreactant.check.bisect.way import INTERPRETER, parse_way
from tests.bisect.compilers import wrong_python
from tests.bisect.test_bisect import LONG, check_script, found

pytestmark = pytest.mark.slow

SINE = [["stablehlo.tanh", "stablehlo.sine"]]
LARGEST = [["stablehlo.add", "stablehlo.maximum"]]

FIXED = """
module @fixed {
  func.func @main(%x: tensor<64x48xf32>, %y: tensor<64xf32>) -> tensor<64x48xf32> {
    %rows = stablehlo.broadcast_in_dim %y, dims = [0] : (tensor<64xf32>) -> tensor<64x48xf32>
    %sum = stablehlo.add %x, %rows : tensor<64x48xf32>
    %all = stablehlo.tanh %sum : tensor<64x48xf32>
    return %all : tensor<64x48xf32>
  }
}
"""
PROGRAM = """
import pyreactant as pr

program = pr.Program("fixed", stablehlo="fixed.mlir", inputs=((64, 48), (64,)))
"""

TANH = """
func.func @main(%x: tensor<64x48xf32>) -> tensor<64x48xf32> {
  %y = stablehlo.tanh %x : tensor<64x48xf32>
  return %y : tensor<64x48xf32>
}
"""
SUM_OF_PRODUCT = """
func.func @main(%x: tensor<64x32xf32>, %y: tensor<32x48xf32>) -> tensor<64xf32> {
  %xy = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
      : (tensor<64x32xf32>, tensor<32x48xf32>) -> tensor<64x48xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%xy init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
  return %sum : tensor<64xf32>
}
"""
RESHAPED = """
func.func @main(%x: tensor<8x6xf32>) -> tensor<48xf32> {
  %y = stablehlo.reshape %x : (tensor<8x6xf32>) -> tensor<48xf32>
  %z = stablehlo.tanh %y : tensor<48xf32>
  return %z : tensor<48xf32>
}
"""
SLICED = """
func.func @main(%x: tensor<64x48xf32>) -> tensor<32x48xf32> {
  %y = stablehlo.slice %x [32:64, 0:48] : (tensor<64x48xf32>) -> tensor<32x48xf32>
  %z = stablehlo.tanh %y : tensor<32x48xf32>
  return %z : tensor<32x48xf32>
}
"""
SUM_OF_ALL_BEFORE = """
func.func @main(%x: tensor<24x3xf32>) -> tensor<24x3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = "stablehlo.reduce_window"(%x, %zero) <{
      padding = dense<[[23, 0], [0, 0]]> : tensor<2x2xi64>,
      window_dimensions = array<i64: 24, 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
  }) : (tensor<24x3xf32>, tensor<f32>) -> tensor<24x3xf32>
  return %y : tensor<24x3xf32>
}
"""
JOINED = """
func.func @main(%x: tensor<24x3xf32>, %y: tensor<5x3xf32>) -> tensor<29x3xf32> {
  %z = stablehlo.concatenate %x, %y, dim = 0
      : (tensor<24x3xf32>, tensor<5x3xf32>) -> tensor<29x3xf32>
  %t = stablehlo.tanh %z : tensor<29x3xf32>
  return %t : tensor<29x3xf32>
}
"""


@pytest.mark.parametrize(("only", "shape"), [("", "1x1"), (r"tanh[^\n]*x48x", "1x48")])
def test_a_module_with_fixed_shapes(only: str, shape: str, tmp_path: Path) -> None:
    """Where only 48 columns are wrong, they stay."""
    (tmp_path / "fixed.mlir").write_text(FIXED)
    (tmp_path / "fixed.py").write_text(PROGRAM)
    python = wrong_python(tmp_path / "wrong", replace=SINE, only=only)
    options = ("--bad", f"python={python}", "--good", "platform=cpu")
    result = found(tmp_path, *options, program="fixed.py:program")
    assert result["operations"] == ["stablehlo.tanh"]
    assert {*re.findall(r"tensor<(\w+)xf32>", result["module"])} == {shape}
    check_script(tmp_path / "bisect", python)


def small(folder: Path, text: str, rule: list[list[str]], *inputs: np.ndarray) -> Part:
    """A module with the smallest shapes that are wrong by a rule."""
    bad = parse_way([f"python={wrong_python(folder / 'wrong', replace=rule)}"], "--bad")
    with Ways(folder / "runs", 1, LONG, math.inf) as ways, Editor(ways.ask) as editor:
        right = ways.run(INTERPRETER, Module(text, inputs, ()))
        assert right.outcome is Outcome.RAN, right.message
        shapes = [{"shape": list(x.shape), "dtype": x.dtype.name} for x in right.results]
        part = Part(Module(text, inputs, tuple(shapes)), right.results, ("",), 1)
        failure = Failure(Outcome.RAN, 0.1)
        return with_small_shapes(part, Search(ways, editor, bad, failure), INTERPRETER)


def test_the_interpreter_takes_arrays_without_dimensions(tmp_path: Path) -> None:
    """A part has the start of a reduction as a parameter, for instance."""
    text = """
func.func @main(%x: tensor<4xf32>, %zero: tensor<f32>) -> tensor<f32> {
  %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %sum : tensor<f32>
}
"""
    part = small(tmp_path, text, [["stablehlo.add", "stablehlo.multiply"]], ones(4), ones())
    assert [x.shape for x in part.module.inputs] == [(1,), ()]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("text", "rule", "inputs", "types"),
    [
        # The largest of one number is its sum: two columns are left.
        (SUM_OF_PRODUCT, LARGEST, (ones(64, 32), ones(32, 48)), ["1x1", "1x2", "1x2", "1"]),
        (RESHAPED, SINE, (ones(8, 6),), ["1x1", "1", "1"]),
        (SLICED, SINE, (ones(64, 48),), ["2x1", "1x1"]),
        (SUM_OF_ALL_BEFORE, LARGEST, (ones(24, 3),), ["2x1"]),
        (JOINED, SINE, (ones(24, 3), ones(5, 3)), ["1x1", "2x1"]),
    ],
)
def test_shapes_that_depend_on_each_other(
    text: str,
    rule: list[list[str]],
    inputs: tuple[np.ndarray, ...],
    types: list[str],
    tmp_path: Path,
) -> None:
    part = small(tmp_path, text, rule, *inputs)
    assert set(re.findall(r"tensor<([\dx]+)xf32>", part.module.text)) == set(types)
    assert part.wanted[0].shape == tuple(part.module.results[0]["shape"])


def test_the_one_element_that_is_wrong_stays(tmp_path: Path) -> None:
    x = np.zeros((64, 48), np.float32)  # where sine and tanh are alike
    x[37, 20] = 1
    part = small(tmp_path, TANH, SINE, x)
    assert [array.tolist() for array in part.module.inputs] == [[[1.0]]]
