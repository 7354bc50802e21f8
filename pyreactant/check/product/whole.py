"""Products of whole numbers, whose bits do not depend on the order of the sums.

The operands are whole numbers other than 0, made from a counter by the same lines on the host and
on the devices, and so small that every partial sum is exact in float32. So a right product has the
same bits on every device, in every order and algorithm, and one without a tolerance is checked:
``C v = X (Y v)`` modulo 2**32, as R. Freivalds does (MFCS 1979). The right side is computed by
NumPy, once for each set of inputs; the device reads C once. docs/checks.md has what escapes.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.mixed import mixed
from ...arrays.program import Program
from ..regions import pieces

LARGEST = 2**24
"""Up to here float32 has every whole number."""

_REPRESENTED = {
    **dict.fromkeys(("float32", "bfloat16", "float16"), 2**8),  # in bfloat16, and so in TF32
    "int8": 2**7 - 1,
}
"""Element types of operands, and up to which whole number each has all, as matrix units read it."""

_TILE = 2**18  # elements; they stay in a core's cache

MAKE = Program("whole numbers", jax="pyreactant.check.product.whole:made")
MULTIPLY = Program("product of whole numbers", jax="pyreactant.check.product.whole:product")
CHECK = Program("check of whole numbers", jax="pyreactant.check.product.whole:checked")


@dataclass(frozen=True, slots=True)
class Whole:
    """A matrix of whole numbers, none of them 0, that is made from a counter.

    Attributes:
        shape: Rows and columns.
        seed: A whole number from 0.
        stream: Number of the matrix; different ones of a product need different streams.
        largest: Largest size of an element (`largest_operand`).
    """

    shape: tuple[int, int]
    seed: int
    stream: int
    largest: int

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Some of its rows, as int32."""
        rows = np.arange(start, stop, dtype=np.uint32)[:, None]
        columns = np.arange(self.shape[1], dtype=np.uint32)[None]
        return _numbers(np.full((1, 1), key_of(self), np.uint32), rows, columns, self.largest)

    def times(self, vector: np.ndarray) -> np.ndarray:
        """The matrix times a vector of uint32, modulo 2**32."""
        step = max(1, _TILE // max(1, self.shape[1]))
        parts = [
            (self.rows(some.start, some.stop).astype(np.uint32) * vector).sum(
                axis=1, dtype=np.uint32
            )
            for some in pieces(slice(0, self.shape[0]), step)
        ]
        return np.concatenate(parts)


def largest_operand(dtype: str, k: int) -> int:
    """The largest element for which every sum of k products is exact; k is at most `LARGEST`.

    Examples:
        >>> largest_operand("float32", 4096), largest_operand("int8", 256)
        (64, 127)
    """
    return min(_REPRESENTED[dtype], math.isqrt(LARGEST // k))


def operands(dtype: str, shape: tuple[int, int, int], seed: int) -> tuple[Whole, Whole]:
    """The operands X and Y of a product of m, k and n."""
    m, k, n = shape
    largest = largest_operand(dtype, k)
    return Whole((m, k), seed, 0, largest), Whole((k, n), seed, 1, largest)


def key_of(matrix: Whole) -> int:
    """The 32 bits of a seed and a stream, which `made` takes."""
    both = np.array([matrix.seed % 2**32, matrix.seed // 2**32, matrix.stream], np.uint32)
    key = np.zeros(1, np.uint32)
    for part in both:
        key = mixed(key + part + np.uint32(0x9E3779B9))
    return int(key[0])


def weights(n: int, seed: int) -> np.ndarray:
    """The vector v of a check: n random odd numbers of 32 bits, as uint32."""
    bits = np.random.Philox(key=[seed % 2**64, 2]).random_raw(n)
    return (bits >> np.uint64(32)).astype(np.uint32) | np.uint32(1)


def reference(x: Whole, y: Whole, v: np.ndarray) -> np.ndarray:
    """``X (Y v)`` modulo 2**32 by NumPy: what a right product times v is."""
    return x.times(y.times(v))


def wrong_rows(residues: np.ndarray, strange: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Rows of a product that are wrong.

    Args:
        residues: C v modulo 2**32, as `checked` gives it.
        strange: Number of elements of each row that are not whole, or above `LARGEST`.
        expected: As `reference` gives it.
    """
    return np.flatnonzero((residues != expected) | (strange != 0))


def made(key: Any, *, shape: tuple[int, int], largest: int, dtype: str) -> Any:
    """The JAX body that makes a matrix on a device; key has shape (1, 1)."""
    from jax import lax

    rows, columns = (lax.broadcasted_iota(np.uint32, shape, axis) for axis in (0, 1))
    return _numbers(key, rows, columns, largest).astype(dtype)


def product(x: Any, y: Any) -> Any:
    """The JAX body of the product, with sums and results in float32, of int8 in int32."""
    import jax.numpy as jnp

    sums = "int32" if jnp.issubdtype(x.dtype, jnp.integer) else "float32"
    return jnp.matmul(x, y, preferred_element_type=sums)


def checked(c: Any, v: Any) -> Any:
    """The JAX body of the check: C v modulo 2**32, and how many elements of a row are strange."""
    import jax.numpy as jnp

    whole = (jnp.abs(c) <= LARGEST) & (c == jnp.round(c))  # False for NaN
    bits = jnp.where(whole, c, 0).astype(jnp.int32).astype(jnp.uint32)
    residues = (bits * v[None]).sum(axis=1, dtype=jnp.uint32)
    return residues, (~whole).sum(axis=1, dtype=jnp.int32)


def _numbers(key: Any, rows: Any, columns: Any, largest: int) -> Any:
    """Elements at these places, as int32 of NumPy or JAX; `key` has shape (1, 1)."""
    bits = mixed(mixed(key ^ rows) + columns)
    sizes = ((bits >> np.uint32(1)) % np.uint32(largest) + np.uint32(1)).astype(np.int32)
    return sizes * (np.int32(1) - np.int32(2) * (bits & np.uint32(1)).astype(np.int32))
