"""The sum of all elements of a matrix, as an array without dimensions.

Communicated bytes: each device sums its block, then these numbers are summed (all-reduce).
"""

from typing import Any

from .._core.sharding import Index
from ._build import NUMBERS, letter_case, reduced
from ._case import Read, Shape, Stream, pieces
from ._subscripts import Letters
from .row_sum import kept


def body(x: Any) -> Any:
    """JAX."""
    return x.sum(dtype=kept(x))


def oracle(x: Any) -> Any:
    """NumPy."""
    return x.sum()


LETTERS = Letters("ij->")

_ROWS = 64  # that are summed at a time


def _by_rows(output: int, index: Index, read: Read, shapes: tuple[Shape, ...]) -> Any:
    from .._bounds.sums import sum_of

    rows, columns = shapes[0]
    return sum_of(read(0, (some, slice(0, columns))) for some in pieces(rows, _ROWS))


def _held(index: Index, shapes: tuple[Shape, ...]) -> int:
    return _ROWS * shapes[0][1]


CASE = letter_case(
    "full_sum",
    "sum of all elements",
    LETTERS,
    oracle,
    dtypes=NUMBERS,
    default_size=32,
    communicated=reduced(LETTERS),
    stream=Stream(_by_rows, _held),
)
