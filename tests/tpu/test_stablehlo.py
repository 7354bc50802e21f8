"""What is read from a StableHLO module's text, and what is refused before any compiler."""

from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.tpu._hlo.stablehlo import (
    Tensor,
    mhlo_cuts,
    read_module,
    reverse,
    unknown_custom_calls,
)

FOLDER = Path(__file__).parent / "stablehlo"
REACTANT = (FOLDER / "reactant_matmul.mlir").read_text()


def test_reactants_form() -> None:
    module = read_module(REACTANT)
    assert module.name == "reactant_mul"
    assert module.from_reactant
    assert module.num_partitions == 16
    assert module.mesh == pr.Mesh((4, 4), ("x", "y"))
    assert module.arguments == (
        Tensor((1024, 4096), "bfloat16", (("y",), ("x",))),
        Tensor((2048, 1024), "bfloat16", (("y",), ("x",))),
    )
    assert module.results == (Tensor((2048, 4096), "bfloat16", (("y",), ("x",))),)
    assert reverse(module.arguments[0]) == Tensor((4096, 1024), "bfloat16", (("x",), ("y",)))


def test_mhlo_shardings() -> None:
    module = read_module((FOLDER / "reactant_matmul_mhlo.mlir").read_text())
    assert module.mesh is None
    assert module.arguments[1].mhlo == "{devices=[4,4]<=[4,4]T(1,0)}"
    assert mhlo_cuts("{devices=[4,2,2]<=[16] last_tile_dim_replicate}", 2) == (4, 2)
    assert mhlo_cuts("{replicated}", 3) == (1, 1, 1)
    assert mhlo_cuts("{manual}", 2) is None


def test_other_ways_to_write_it() -> None:
    module = read_module(
        """
module @jit_f attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @other = <["q"=2]>
  sdy.mesh @grid = <["a"=4, "b"=2], device_ids=[1, 0, 2, 3, 4, 5, 6, 7]>
  func.func public @main(%arg0: tensor<8x4x3xf8E4M3FN> {sdy.sharding = #sdy.sharding<@grid, \
[{"a":(1)2, "b"}, {?}, {}p1]>, jax.arg = "a), (b"}, %arg1: tensor<complex<f32>>, \
%arg2: tensor<4xui8> loc("x")) -> tensor<8xi1> {
    %0:2 = stablehlo.while(%i = %c) : tensor<i32>, tensor<8xi1>
    return %0#1 : tensor<8xi1>
  }
}"""
    )
    assert module.mesh == pr.Mesh((4, 2), ("a", "b"), [1, 0, 2, 3, 4, 5, 6, 7])
    assert not module.from_reactant
    assert module.arguments == (
        Tensor((8, 4, 3), "float8_e4m3fn", (("a:(1)2", "b"), (), ())),
        Tensor((), "complex64", None),
        Tensor((4,), "uint8", None),
    )
    assert module.results == (Tensor((8,), "bool", None),)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "stablehlo.transpose %2, dims = [1, 0]",
            '"enzymexla.kernel_call"(%2)',
            "uses operations that are not StableHLO: enzymexla.kernel_call; take its text after",
        ),
        (
            "tensor<1024x4096xbf16> {enz",
            "tensor<?x4096xbf16> {enz",
            r"line 6 of the module has the dynamic shape tensor<\?x4096xbf16>; a TPU program's",
        ),
        ("@main", "@other", "with a function @main; this one begins with"),
        ('["x"=4', '["a b"=4', "the module's sdy.mesh <.*axis names must be identifiers"),
    ],
)
def test_refused(before: str, after: str, message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        read_module(REACTANT.replace(before, after))


def test_unknown_custom_calls() -> None:
    calls = """
    %3 = stablehlo.custom_call @tpu_custom_call(%2) : (tensor<2xf32>) -> tensor<2xf32>
    %4 = stablehlo.custom_call @"cublas$gemm"(%2) : (tensor<2xf32>) -> tensor<2xf32>
    %5 = "stablehlo.custom_call"(%4) <{call_target_name = "mine"}> : (tensor<2xf32>)
    %6 = stablehlo.custom_call @Sharding(%2) : (tensor<2xf32>) -> tensor<2xf32>"""
    assert unknown_custom_calls(calls) == ("cublas$gemm", "mine")


def test_no_module() -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"as text is needed.*begins with ''"):
        read_module("")
    with pytest.raises(pr.InvalidArgumentError, match="begins with MLIR bytecode"):
        read_module(b"ML\xefR\r\x01".decode(errors="replace"))
    with pytest.raises(pr.InvalidArgumentError, match="does not parse: it ends within @main"):
        read_module("module @a { func.func @main(%arg0: tensor<2xf32>")
