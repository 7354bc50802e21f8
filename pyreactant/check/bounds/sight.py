"""What a comparison can see, by its tolerances and the right values, and where it sees errors.

The sight of a block is a small histogram, so that those of all processes can be combined; the
places of wrong elements in a block are a small grid of counts.
"""

import functools
import itertools
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays.dtypes import finfo

FINE, FINE_SHORT = 1e-2, 0.25
"""Up to this sensitivity a result is right; the second for types of two bytes or fewer."""

COARSE = 0.5
"""Up to this sensitivity a result is right with a remark; above it is unchecked."""

FEW = 0.01
"""Up to this part of the elements that are not trivial may be blind in a right result."""

_DROPPED = np.int64(49)
"""Bits of a float64 that a bin ignores: it keeps the exponent and three bits, 12 %."""

SAMPLE = 2**11
"""Tolerances counted of one tile; more are thinned out."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What the comparison of some elements can see.

    Attributes:
        tolerances: Number of elements by the bin of their tolerance; bin 0 is a tolerance of zero.
        squares: Sum of the squares of the right values that are finite.
        finite: Number of these values.
        absolute: The same as `squares` for the sums of absolute values, if all values are zero.
        elements: Number of compared elements.
        blind: Number of elements of which almost any value passes (`blind`).
        trivial: Number of elements that are the same constant in oracle and result. `tolerances`,
            `squares` and `finite` leave them out.
    """

    tolerances: Mapping[int, int] = field(default_factory=dict)
    squares: float = 0.0
    finite: int = 0
    absolute: float = 0.0
    elements: int = 0
    blind: int = 0
    trivial: int = 0

    @property
    def seen(self) -> int:
        """Number of elements that are neither blind nor trivial."""
        return self.elements - self.blind - self.trivial

    @property
    def blinded(self) -> bool:
        """Whether so many elements are blind that the comparison shows too little."""
        return self.blind > FEW * (self.elements - self.trivial)

    @property
    def median(self) -> float:
        """The median tolerance, within 6 %; infinite without any, or if half have no bound."""
        half, seen = sum(self.tolerances.values()) / 2, 0
        for number, count in sorted(self.tolerances.items()):
            seen += count
            if seen >= half:
                return _middle(number)
        return math.inf

    @property
    def unbounded(self) -> int:
        """Number of elements without a bound: any value of them passes."""
        return sum(count for number, count in self.tolerances.items() if number >= _INFINITE)

    @property
    def sensitivity(self) -> float:
        """The median tolerance over the root mean square of the right values.

        For a zero result it is over that of the sums of absolute values, or over 1, the size of
        the inputs, if these are zero as well.
        """
        if not self.tolerances and self.trivial:
            return 0.0
        median = self.median
        if median in (0.0, math.inf):
            return median
        squares = self.squares or self.absolute or float(self.finite)
        if not squares or not self.finite:
            return math.inf
        # Squares of very large numbers overflow; then this is an upper limit.
        return median / math.sqrt(min(squares, sys.float_info.max) / self.finite)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Sight":
        """What `bounds.verdict.plain` made of it; ValueError for numbers that none has."""
        tolerances = {int(number): int(count) for number, count in data["tolerances"].items()}
        sums = float(data["squares"]), float(data["absolute"])
        counted = [int(data.get(name, 0)) for name in ("elements", "blind", "trivial")]
        numbers = (*tolerances, *tolerances.values(), int(data["finite"]), *sums, *counted)
        if not all(number >= 0 for number in numbers):
            raise ValueError(f"numbers of a sight must not be negative, got {dict(data)}")
        return cls(tolerances, sums[0], int(data["finite"]), sums[1], *counted)


def exact(elements: int) -> Sight:
    """The sight of a comparison of bits."""
    return Sight({0: elements}, elements=elements)


@functools.lru_cache(maxsize=32)
def sample(shape: tuple[int, ...]) -> tuple[tuple[Any, ...], int]:
    """The index of the elements whose tolerances are counted, and how many each stands for.

    Taking them by this index is several times faster than by a step through `numpy.ndarray.flat`.
    """
    if not shape:
        return (None,), 1
    elements = math.prod(shape)
    each = max(1, elements // SAMPLE) | 1  # odd, so that it falls on all columns of most arrays
    return np.unravel_index(np.arange(0, elements, each), shape), each


def counts(allowed: np.ndarray, value: np.ndarray, each: int, unbounded: int = 0) -> dict[int, int]:
    """The number of elements by the bin of their tolerance.

    Args:
        allowed: Tolerances of a sample of the elements, float64.
        value: Right values of the same shape.
        each: Number of elements that one of these stands for.
        unbounded: Number of elements without a tolerance, of all and not of the sample: a single
            one must not stay unseen.
    """
    # NaN and certain infinities are compared exactly; the others are among the unbounded.
    allowed = np.where(np.isfinite(value), allowed, 0.0)
    bits = np.ascontiguousarray(allowed[np.isfinite(allowed)]).view(np.int64) >> _DROPPED
    low = int(bits.min(initial=_INFINITE))
    counted = np.bincount(bits - low)
    at = np.flatnonzero(counted)
    bins = dict(zip((at + low).tolist(), (counted[at] * each).tolist(), strict=True))
    return bins | ({_INFINITE: unbounded} if unbounded else {})


def smallest(dtype: np.dtype[Any]) -> float:
    """The largest bound of a zero: what underflows after a product with 0, and no rounding."""
    info = finfo(dtype)
    return math.sqrt(float(info.tiny) * float(info.eps))


def frequent(some: np.ndarray) -> np.ndarray:
    """The finite values of a sample that are in 1 % of it or more, and at least twice."""
    values, times = np.unique(some[np.isfinite(some)], return_counts=True)
    return np.asarray(values[times >= max(2, FEW * some.size)])


def constants(
    value: np.ndarray, bound: np.ndarray, got: np.ndarray, known: np.ndarray
) -> np.ndarray:
    """Which elements are the same constant in oracle and result, as padding and masks are.

    Their bound is at most the distance to their rounded value, as of a number that is written into
    the array and not computed; that of a zero may be underflow. The result has this rounded value,
    and many elements have it; or they are rightly NaN or certainly infinite. Whole numbers and
    booleans are none.

    Args:
        value: Right values, float64 or complex128.
        bound: Their bounds.
        got: The results.
        known: The values that many elements have (`frequent`).
    """
    if got.dtype.kind in "biu":
        return np.zeros(value.shape, bool)
    certain: np.ndarray = np.isnan(value) | (np.isinf(value) & ~np.isinf(bound))
    if not known.size:
        return certain
    rounded = value.astype(got.dtype)
    last = np.abs(rounded.astype(value.dtype) - value)
    exact = np.isfinite(bound) & (bound <= np.where(value == 0, smallest(got.dtype), last))
    return certain | (exact & (got == rounded) & np.isin(value, known))


def blind(
    value: np.ndarray, allowed: np.ndarray, trivial: np.ndarray, absolute: float | None
) -> int:
    """The number of elements of which almost any value passes.

    Their tolerance is above half of the root mean square of what is compared together, and above
    half of that of their row. Zeros and trivial elements are left out of both.

    Args:
        value: Right values, float64 or complex128.
        allowed: Their tolerances.
        trivial: Elements that are not judged.
        absolute: Root mean square of the sums of absolute values; used if all values are zero.
    """
    sizes = np.where(np.isfinite(value) & ~trivial, np.abs(value), 0.0)
    squares, filled = np.square(sizes), sizes > 0
    block = squares.sum() / max(1, np.count_nonzero(filled))
    if value.ndim:
        row = squares.sum(-1, keepdims=True) / np.maximum(1, filled.sum(-1, keepdims=True))
        block = np.maximum(block, row)
    # Zeros are measured by what cancels; or by 1, the size of the inputs.
    size = np.sqrt(block) if filled.any() else absolute or 1.0
    return int(np.count_nonzero(~trivial & ~(allowed <= COARSE * size)))


def combined(sights: Iterable[Sight]) -> Sight:
    """The sight of several comparisons together."""
    parts, tolerances = list(sights), Counter[int]()
    for part in parts:
        tolerances.update(part.tolerances)
    sums = {name: sum(getattr(part, name) for part in parts) for name in _SUMMED}
    return Sight(dict(tolerances), **sums)


def _middle(number: int) -> float:
    if number == 0 or number >= _INFINITE:
        return 0.0 if number == 0 else math.inf
    ends = np.array([number, number + 1]) << _DROPPED
    return float(ends.view(np.float64).mean())


_SUMMED = ("squares", "finite", "absolute", "elements", "blind", "trivial")

_INFINITE = int(np.array(np.inf).view(np.int64) >> _DROPPED)


def squares_of(array: np.ndarray | None) -> float:
    """Sum of the squares of the finite elements."""
    if array is None:
        return 0.0
    sizes = np.where(np.isfinite(array), np.abs(array), 0.0)
    return float(np.vdot(sizes, sizes))


MOST = 16
"""Most lines, and most columns, of the grid."""


def grid_of(shape: Sequence[int]) -> tuple[int, int]:
    """Lines and columns of the grid of a block; all dimensions but the last run down."""
    columns = shape[-1] if shape else 1
    return min(math.prod(shape[:-1]), MOST), min(columns, MOST)


def cell_sizes(length: int, cells: int) -> list[int]:
    """The number of positions in each cell, of lines or columns of this length."""
    ends = [-(-cell * length // cells) for cell in range(cells + 1)]
    return [stop - start for start, stop in itertools.pairwise(ends)]


def count_wrong(wrong: np.ndarray, start: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """The number of wrong elements in each cell of a block's grid.

    Args:
        wrong: Which elements of a tile are wrong.
        start: Position of the tile's first element in the block.
        shape: Shape of the block.

    Returns:
        Counts, of shape `grid_of(shape)` and dtype int64.
    """
    counts = np.zeros(grid_of(shape), np.int64)
    if not wrong.any():
        return counts
    # Two dimensions at least: a vector is one line, a scalar one line of one element.
    more = [1] * (2 - len(shape))
    whole, first = (*more, *shape), (*(0 for _ in more), *start)
    at = np.nonzero(wrong.reshape((*more, *wrong.shape)))
    *leading, columns = (place + begin for place, begin in zip(at, first, strict=True))
    lines = np.ravel_multi_index(leading, whole[:-1])
    cells = lines * counts.shape[0] // math.prod(whole[:-1]), columns * counts.shape[1] // whole[-1]
    np.add.at(counts, cells, 1)
    return counts


def total(parts: Iterable[np.ndarray | None]) -> np.ndarray | None:
    """The sum of the grids of one block's tiles; None if no element was counted."""
    counted = [part for part in parts if part is not None]
    return np.sum(counted, axis=0) if counted else None
