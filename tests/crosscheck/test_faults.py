"""Forty more kinds of faults: each is caught, and named as what it is or as unknown."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.dtypes import as_dtype
from pyreactant.check.programs import layers, stencil
from pyreactant.check.records.verdict import Kind

from . import user_programs
from .faults import (
    Blocks,
    Fault,
    Scene,
    by_blocks,
    cut_along,
    every,
    halo,
    instead,
    only_on,
    stale,
    weighted,
    wide,
)
from .trials import diagnosis_of

pytestmark = pytest.mark.usefixtures("backend")


def rows(x: np.ndarray) -> Any:
    return x.sum(axis=1)


def columns(x: np.ndarray) -> Any:
    return x.sum(axis=0)


def total(x: np.ndarray) -> Any:
    return x.sum()


def product(x: np.ndarray, y: np.ndarray) -> Any:
    return x @ y


def gram(x: np.ndarray) -> Any:
    return x.T @ x


def affine(x: np.ndarray, w: np.ndarray, c: np.ndarray) -> Any:
    return x @ w + c


def gelu(x: np.ndarray) -> Any:
    return np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)) * x / 2 + x / 2


def with_old_parameters(x: np.ndarray, w: np.ndarray, c: np.ndarray) -> Any:
    """A second step from the gradient of the first."""
    return user_programs.two_steps(x, w, c, again=False)


def one_changed(block: np.ndarray) -> np.ndarray:
    block.flat[3] *= 1.01
    return block


def stale_weights(scene: Scene) -> Blocks:
    """The product with an input of the call before."""
    x, _, c = wide(scene.inputs)
    return scene.cut(affine(x, wide(scene.before)[1], c))


def own_part(scene: Scene, device: int) -> Any:
    """The product of a device's block of x, without those of the other devices."""
    x, w, c = scene.inputs
    plan = scene.run.plans["input 0"]
    part = np.zeros(x.shape)
    index = plan.sharding.devices_indices_map(plan.shape)[device]
    part[index] = x[index]
    return affine(part, w, c)[scene.index(device)]


def read_by_columns(block: np.ndarray) -> np.ndarray:
    return block.ravel().reshape(block.shape, order="F")


def one_more(block: np.ndarray) -> np.ndarray:
    block[1, 2] = 3 if block[1, 2] != 3 else 2
    return block


def two_exchanged(block: np.ndarray) -> np.ndarray:
    block.flat[[2, 5]] = block.flat[[5, 2]]
    return block


def one_bit(block: np.ndarray) -> np.ndarray:
    block.reshape(-1)[2:3].view(np.uint32)[0] ^= 1 << 20
    return block


def zero_line(block: np.ndarray) -> np.ndarray:
    block[1, :] = 0
    return block


def nan_line(block: np.ndarray) -> np.ndarray:
    block[1, :] = np.nan
    return block


def short(block: np.ndarray) -> np.ndarray:
    return block.astype(as_dtype("bfloat16")).astype(block.dtype)


def moved(by: int, axis: int) -> Any:
    return every(lambda block: np.roll(block, by, axis))


def moved_row(block: np.ndarray) -> np.ndarray:
    block[2] = np.roll(block[2], 3)
    return block


def unscaled_rows(x: np.ndarray) -> Any:
    return np.exp(x - x.max(axis=1, keepdims=True))


def normalised(x: np.ndarray, gain: Any, shift: Any, *, epsilon: float, less: int) -> Any:
    variance = x.var(axis=1, ddof=less, keepdims=True)
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(variance + epsilon) * gain + shift


def unbiased(x: np.ndarray, gain: np.ndarray, shift: np.ndarray) -> Any:
    return normalised(x, gain, shift, epsilon=layers.EPSILON, less=1)


def other_epsilon(x: np.ndarray, gain: np.ndarray, shift: np.ndarray) -> Any:
    return normalised(x, gain, shift, epsilon=1e-2, less=0)


def no_gain(x: np.ndarray, gain: np.ndarray, shift: np.ndarray) -> Any:
    return layers.layer_norm_oracle(x, np.ones_like(gain), shift)


PARTS, FACTOR, UNKNOWN = Kind.PARTS, Kind.FACTOR, Kind.UNKNOWN
MEMORY, SHIFTED, HALO = Kind.UNINITIALISED, Kind.SHIFTED, Kind.HALO

OF_ROWS: list[Fault] = [
    ("a part lost", PARTS, weighted(rows, {5: 0})),
    ("a part doubled", PARTS, weighted(rows, {5: 2})),
    ("a part instead of another", PARTS, weighted(rows, {1: 0, 2: 2})),
    ("a part subtracted", UNKNOWN, weighted(rows, {3: -1})),  # or a wrong sign
    ("a part lost on one copy", PARTS, only_on(2, weighted(rows, {1: 0}))),
    ("a mean instead of a sum", FACTOR, instead(lambda x: x.mean(axis=1))),
    ("the sign changed", FACTOR, every(np.negative)),
    ("one element off", UNKNOWN, only_on(1, every(one_changed))),
    ("two elements exchanged", UNKNOWN, only_on(1, every(two_exchanged))),
    ("one bit flipped", UNKNOWN, only_on(6, every(one_bit))),
]

OF_PRODUCT: list[Fault] = [
    ("a part lost", PARTS, weighted(product, {5: 0})),
    ("a part doubled", PARTS, weighted(product, {2: 2})),
    ("a part lost on one device", PARTS, only_on(0, weighted(product, {1: 0}))),
    ("one row moved", SHIFTED, only_on(1, every(moved_row))),
]

OF_GRAM: list[Fault] = [
    ("half of it lost", Kind.MISSING_REDUCTION, weighted(gram, {7: 0})),
    ("a part doubled", PARTS, instead(lambda x: x.T @ x + x[16:].T @ x[16:])),
]

OF_TOTAL: list[Fault] = [
    ("a part lost", PARTS, weighted(total, {5: 0})),
    ("a part doubled", PARTS, weighted(total, {6: 2})),
    ("two parts lost", UNKNOWN, weighted(total, {1: 0, 4: 0})),
    ("rounded", UNKNOWN, every(short)),
]

OF_COLUMNS: list[Fault] = [
    ("a part lost", PARTS, weighted(columns, {4: 0})),
    ("a part doubled", PARTS, weighted(columns, {0: 2})),
]

OF_AFFINE: list[Fault] = [
    ("no sum over devices", Kind.MISSING_REDUCTION, by_blocks(own_part)),
    ("row-major as column-major", Kind.TRANSPOSED, every(read_by_columns)),
    ("a part lost", PARTS, weighted(affine, {5: 0})),
    ("stale weights", MEMORY, stale_weights),
    ("the product scaled", FACTOR, instead(lambda x, w, c: 0.5 * (x @ w) * 1.1 + c)),
]

OF_SOFTMAX: list[Fault] = [
    ("nine tenths", FACTOR, every(lambda block: 0.9 * block)),
    ("nine tenths on one device", FACTOR, only_on(1, every(lambda block: 0.9 * block))),
    ("rows without a denominator", UNKNOWN, instead(unscaled_rows)),
    ("such rows on one device", UNKNOWN, only_on(1, instead(unscaled_rows))),
    ("one element off", UNKNOWN, only_on(1, every(one_changed))),
    ("a stale cache line", MEMORY, stale((2, slice(0, 16)), layers.softmax_oracle)),
    ("a stale row", MEMORY, stale((slice(0, 1),), layers.softmax_oracle)),
    ("a stale half", MEMORY, stale((slice(8, 16),), layers.softmax_oracle)),
    ("a cache line of zeros", MEMORY, only_on(1, every(zero_line))),
    ("a cache line of NaN", Kind.NON_FINITE, only_on(1, every(nan_line))),
    ("shifted by two", SHIFTED, moved(2, 1)),
    ("shifted by five", SHIFTED, moved(5, 1)),
    ("shifted back by three rows", SHIFTED, moved(-3, 0)),
    ("one device shifted by four", SHIFTED, only_on(1, moved(4, 1))),
    ("bfloat16", Kind.LOWER_PRECISION, every(short)),
]

OF_NORMALISATION: list[Fault] = [
    ("an unbiased variance", Kind.VARIANCE, instead(unbiased)),
    ("another epsilon", Kind.EPSILON, instead(other_epsilon)),
    ("another epsilon on one device", Kind.EPSILON, only_on(3, instead(other_epsilon))),
    ("no gain", UNKNOWN, instead(no_gain)),
    ("half more gain", FACTOR, instead(lambda x, g, s: layers.layer_norm_oracle(x, 1.5 * g, s))),
]

OF_HEAT: list[Fault] = [
    ("halos exchanged", HALO, halo("exchanged", 4, stencil.heat_oracle)),
    ("stale halos", HALO, halo("stale", 0, stencil.heat_oracle)),
    ("stale halos of one device", HALO, only_on(2, halo("stale", 0, stencil.heat_oracle))),
]

OF_GELU: list[Fault] = [
    ("without the approximation", UNKNOWN, instead(gelu)),
    ("bfloat16", Kind.LOWER_PRECISION, every(short)),
]

OF_STEPS: list[Fault] = [
    ("stale parameters", UNKNOWN, instead(with_old_parameters)),
    (
        "inputs in bfloat16",
        Kind.LOWER_PRECISION,
        instead(lambda *inputs: user_programs.two_steps(*(short(x) for x in inputs))),
    ),
]

OF_STENCIL: list[Fault] = [
    ("halos exchanged", HALO, halo("exchanged", 1, user_programs.numpy_stencil)),
    ("stale halos", HALO, halo("stale", 0, user_programs.numpy_stencil)),
]

OF_INTEGERS: list[Fault] = [
    ("shifted by three", SHIFTED, moved(3, 1)),
    ("one element off", UNKNOWN, only_on(1, every(one_more))),
]

ALL: dict[str, tuple[Any, int, Sequence[Fault]]] = {
    "row_sum": ("row_sum", 64, OF_ROWS),
    "matmul": ("matmul", 32, OF_PRODUCT),
    "gram": ("gram", 32, OF_GRAM),
    "full_sum": ("full_sum", 32, OF_TOTAL),
    "sums of columns": (user_programs.sums_of_columns, 32, OF_COLUMNS),
    "affine": (user_programs.of_affine, 32, OF_AFFINE),
    "softmax": ("softmax", 64, OF_SOFTMAX),
    "layer_norm": ("layer_norm", 32, OF_NORMALISATION),
    "heat": ("heat", 32, OF_HEAT),
    "gelu": (user_programs.of_gelu, 32, OF_GELU),
    "steps": (user_programs.of_steps, 32, OF_STEPS),
    "stencil": (user_programs.of_stencil, 32, OF_STENCIL),
    "transpose": ("transpose", 32, OF_INTEGERS),
}
LAYOUTS = {"row_sum": (0, 1), "matmul": (0, 1), "gram": (0, 0), "full_sum": (0, 1)}


@pytest.mark.parametrize("name", ALL)
def test_faults_are_named(name: str) -> None:
    program, size, faults = ALL[name]
    layout = cut_along(name, size, *LAYOUTS[name]) if name in LAYOUTS else None
    scene = Scene.of(program, size, layout, **({"dtype": "int32"} if name == "transpose" else {}))
    assert diagnosis_of(scene.run).passed
    wrong = []
    for fault, kind, change in faults:
        found = diagnosis_of(scene.with_blocks(change(scene)))
        if found.kind != kind:
            wrong.append(f"{fault}: {found.kind} {found.also}, not {kind}: {found.text}")
    assert not wrong, "\n".join(wrong)


def test_half_of_a_users_product_is_no_halo() -> None:
    scene = Scene.of(user_programs.of_affine, 32, mesh=pr.Mesh((2, 2), ("x", "y"), range(4)))
    half = instead(lambda x, w, c: x[:, :16] @ w[:16] + c)
    found = diagnosis_of(scene.with_blocks(half(scene)))
    assert found.kind in (PARTS, Kind.MISSING_REDUCTION)
    assert "sum over part 0 of 2 only" in found.text


def test_there_are_forty() -> None:
    assert sum(len(faults) for _, _, faults in ALL.values()) >= 40
