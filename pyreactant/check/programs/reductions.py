"""Sums of matrices whose rows may be sharded."""

from typing import Any

import numpy as np

from ...arrays.domain import Domain
from ...arrays.sharding import Index
from ..bounds.rules.reductions import sum_of
from ..regions import pieces
from .build import NUMBERS, Subscripts, subscript_case
from .case import Inputs, Oracle, Shape


def _kept(x: Any) -> Any:
    """The dtype argument for `jax.numpy.sum`: integers keep their dtype.

    Floats get none: short floats would be rounded after each addition; without a dtype they are
    summed in float32 and rounded once.
    """
    return x.dtype if x.dtype.kind in "iu" else None


def row_sum(x: Any) -> Any:
    """The sum of each row, in JAX."""
    return x.sum(axis=1, dtype=_kept(x))


def row_sum_oracle(x: Any) -> Any:
    """NumPy."""
    return x.sum(axis=1)


ROW_SUM = subscript_case(
    row_sum,
    "sum of each row",
    Subscripts("ij->i"),
    row_sum_oracle,
    domain=Domain(sums=True, special=("nan", "inf")),
    dtypes=NUMBERS,
)


def full_sum(x: Any) -> Any:
    """The sum of all elements as a zero-dimensional array, in JAX."""
    return x.sum(dtype=_kept(x))


def full_sum_oracle(x: Any) -> Any:
    """NumPy."""
    return x.sum()


_ROWS = 64  # rows summed at a time


def _by_rows(output: int, index: Index, inputs: Inputs) -> Any:
    rows, columns = inputs.shapes[0]
    some = pieces(slice(0, rows), _ROWS)
    return sum_of(inputs.read(0, (part, slice(0, columns))) for part in some)


def _elements_at_once(output: int, index: Index, shapes: tuple[Shape, ...]) -> int:
    return _ROWS * shapes[0][1]


FULL_SUM = subscript_case(
    full_sum,
    "sum of all elements",
    Subscripts("ij->"),
    full_sum_oracle,
    domain=Domain(sums=True),
    dtypes=NUMBERS,
    default_size=32,
    oracle=Oracle(_by_rows, _elements_at_once),
)


def cumsum(x: Any) -> Any:
    """The cumulative sum along each row, in JAX."""
    return x.cumsum(axis=1, dtype=x.dtype)


def cumsum_oracle(x: Any) -> Any:
    """NumPy."""
    return np.cumsum(x, axis=1)


def _cumsum_needs(output: int, index: Index, shapes: tuple[Shape, ...]) -> tuple[Index, ...]:
    return ((index[0], slice(0, index[1].stop)),)


CUMSUM = subscript_case(
    cumsum,
    "cumulative sum along each row",
    Subscripts("ij->ij", whole="j"),
    cumsum_oracle,
    domain=Domain(sums=True, special=("nan",)),
    dtypes=("float32", "float64", "int32"),
    needs=_cumsum_needs,
)
