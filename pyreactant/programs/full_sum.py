"""The sum of all elements of a matrix, as a zero-dimensional array.

Communicated bytes: each device sums its block, then these numbers are summed (all-reduce).
"""

from typing import Any

from .._core.sharding import Index
from ._build import NUMBERS, Subscripts, reduced, subscript_case
from ._case import ALL_EXPONENTS, Domain, Read, Shape, Stream, pieces
from .row_sum import kept


def body(x: Any) -> Any:
    """JAX."""
    return x.sum(dtype=kept(x))


def oracle(x: Any) -> Any:
    """NumPy."""
    return x.sum()


SUBSCRIPTS = Subscripts("ij->")

_ROWS = 64  # rows summed at a time


def _by_rows(output: int, index: Index, read: Read, shapes: tuple[Shape, ...]) -> Any:
    from .._bounds.rules.reductions import sum_of

    rows, columns = shapes[0]
    return sum_of(read(0, (some, slice(0, columns))) for some in pieces(rows, _ROWS))


def _elements_at_once(index: Index, shapes: tuple[Shape, ...]) -> int:
    return _ROWS * shapes[0][1]


CASE = subscript_case(
    "full_sum",
    "sum of all elements",
    SUBSCRIPTS,
    oracle,
    domain=Domain(ALL_EXPONENTS, linear=True),
    dtypes=NUMBERS,
    default_size=32,
    communicated=reduced(SUBSCRIPTS),
    stream=Stream(_by_rows, _elements_at_once),
)
