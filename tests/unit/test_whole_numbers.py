"""Products of whole numbers: the same bits everywhere, and a check without a tolerance."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreactant.check.product.whole import (
    LARGEST,
    Whole,
    checked,
    key_of,
    largest_operand,
    made,
    operands,
    product,
    reference,
    weights,
    wrong_rows,
)

pytestmark = pytest.mark.usefixtures("backend")

SEEDS = st.integers(0, 2**63)
DTYPES = ("float32", "bfloat16", "float16", "int8")

make = jax.jit(made, static_argnames=("shape", "largest", "dtype"))
check = jax.jit(checked)


def on_device(matrix: Whole, dtype: str) -> Any:
    """A matrix as a device makes it."""
    key = np.full((1, 1), key_of(matrix), np.uint32)
    return make(key, shape=matrix.shape, largest=matrix.largest, dtype=dtype)


def host_product(x: Whole, y: Whole) -> np.ndarray:
    return x.rows(0, x.shape[0]).astype(np.int64) @ y.rows(0, y.shape[0])


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, stream=st.integers(0, 1), dtype=st.sampled_from(DTYPES))
def test_host_and_device_make_the_same_bits(seed: int, stream: int, dtype: str) -> None:
    matrix = Whole((23, 40), seed, stream, largest_operand(dtype, 40))
    host, device = matrix.rows(0, 23), np.asarray(on_device(matrix, dtype)).astype(np.int64)
    assert np.array_equal(host, device)
    assert (host != 0).all()
    assert (np.abs(host) <= matrix.largest).all()


def test_rows_do_not_depend_on_the_others() -> None:
    matrix = Whole((50, 7), 3, 0, 9)
    assert np.array_equal(matrix.rows(20, 30), matrix.rows(0, 50)[20:30])
    other = Whole((50, 7), 3, 1, 9)
    assert (matrix.rows(0, 50) != other.rows(0, 50)).mean() > 0.8
    sizes, counts = np.unique(Whole((100, 100), 4, 0, 4).rows(0, 100), return_counts=True)
    assert sizes.tolist() == [-4, -3, -2, -1, 1, 2, 3, 4]
    assert counts.min() > 1100
    assert counts.max() < 1400


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, dtype=st.sampled_from(DTYPES))
def test_a_right_product_passes(seed: int, dtype: str) -> None:
    x, y = operands(dtype, (23, 40, 17), seed)
    c = product(on_device(x, dtype), on_device(y, dtype))
    assert np.array_equal(np.asarray(c).astype(np.int64), host_product(x, y))
    v = weights(17, seed)
    residues, strange = map(np.asarray, check(c, v))
    assert wrong_rows(residues, strange, reference(x, y, v)).size == 0


def test_every_order_of_sums_has_the_same_bits() -> None:
    k = 4096
    x, y = operands("float32", (3, k, 5), 1)
    a, b = (w.rows(0, w.shape[0]).astype(np.float32) for w in (x, y))
    in_order = np.zeros((3, 5), np.float32)
    backwards = in_order.copy()
    for i in range(k):
        in_order += a[:, i : i + 1] * b[i : i + 1]
        backwards += a[:, k - 1 - i : k - i] * b[k - 1 - i : k - i]
    assert in_order.tobytes() == backwards.tobytes() == (a @ b).tobytes()
    assert largest_operand("float32", k) ** 2 * k <= LARGEST
    assert (largest_operand("float32", k) + 1) ** 2 * k > LARGEST


def verdict(wrong: np.ndarray) -> list[int]:
    """The rows that the check names of a product that was changed to this."""
    x, y = operands("float32", (6, 8, 10), 5)
    v = weights(10, 5)
    residues, strange = check(wrong, v)
    return wrong_rows(np.asarray(residues), np.asarray(strange), reference(x, y, v)).tolist()


def right() -> np.ndarray:
    x, y = operands("float32", (6, 8, 10), 5)
    return host_product(x, y).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(row=st.integers(0, 5), column=st.integers(0, 9), bit=st.integers(0, 31))
def test_every_flipped_bit_shows(row: int, column: int, bit: int) -> None:
    c = right()
    c.view(np.uint32)[row, column] ^= np.uint32(1 << bit)
    assert verdict(c) == ([row] if c[row, column] != right()[row, column] else [])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.5, LARGEST + 2.0, 2.0**40, 1e38])
def test_what_is_not_a_whole_number_shows(value: float) -> None:
    c = right()
    c[4, 2] = value
    assert verdict(c) == [4]
    c[:, 3] = value  # a stuck column
    assert verdict(c) == [0, 1, 2, 3, 4, 5]


def test_a_wrong_row_escapes_as_often_as_the_documentation_says() -> None:
    """Two errors of 2**23 escape with 2**-(31 - 23), those of 2**10 hardly ever."""
    trials = 2**13
    v = np.array([weights(2, seed) for seed in range(trials)])
    big = np.array([2**23, 2**24], np.uint32)
    escaped = int(((v * big).sum(axis=1, dtype=np.uint32) == 0).sum())
    # Of 2**23 and 2**24 times odd numbers the sum has the power 2**23: it never is 0.
    assert escaped == 0
    even = np.array([2**23, 2**23], np.uint32)
    escaped = int(((v * even).sum(axis=1, dtype=np.uint32) == 0).sum())
    assert 0.4 < escaped / (trials * 2**-8) < 1.8
    small = np.array([2**10, 2**10], np.uint32)
    assert int(((v * small).sum(axis=1, dtype=np.uint32) == 0).sum()) <= 1
