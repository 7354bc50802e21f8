"""Named sets of inputs: ordinary ones, and harder ones that the program's domain allows.

Any block of an input can be computed without the rest: each element depends only on the seed, the
number of the input and its position. docs/checks.md says what each set shows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.dtypes import as_dtype, finfo, is_float, wide
from ..arrays.sharding import Index
from ..arrays.source import RandomSource, Source
from .oracle.sources import Absolute
from .programs.case import Case, Input
from .programs.ordinary import source as source
from .regions import whole_index

ORDINARY, WIDE, SPECIAL, EXACT = "ordinary", "wide", "special", "exact"

SETS = (ORDINARY, WIDE, SPECIAL, EXACT)
"""The names of all sets, in the order in which a program gets them."""

Make = Callable[[Input, int, int], Source]
"""Makes the source of an input from its description, the seed, and its number."""


@dataclass(frozen=True, slots=True)
class InputSet:
    """A way to make the inputs of a program.

    Attributes:
        name: One of `SETS`.
        text: What the elements are, for the report.
        random: Whether the elements have no structure, so that rounding errors have random signs.
        whole: Whether all elements are whole numbers so small that sums of products are exact;
            results are then compared as numbers.
        make: Makes the source of one input.
    """

    name: str = ORDINARY
    text: str = "random numbers in [-1, 1)"
    random: bool = True
    whole: bool = False
    make: Make = source


ORDINARY_SET = InputSet()


def sources(
    inputs: tuple[Input, ...], seed: int, data: InputSet = ORDINARY_SET, *, first: int = 0
) -> tuple[Source, ...]:
    """One source for each input of a program; `first` is the number of the first one's stream."""
    return tuple(data.make(what, seed, stream) for stream, what in enumerate(inputs, first))


def input_sets(case: Case, size: int, dtype: str) -> tuple[InputSet, ...]:
    """The sets beyond the ordinary one that a program defines at a size and element type."""
    if not any(what.is_data for what in case.inputs(size, dtype)):
        return ()
    sets = (_wide(case, size, dtype), _special(case, size, dtype), _exact(case, size, dtype))
    return tuple(data for data in sets if data is not None)


class _Bits(RandomSource):
    """Random words of 32 bits."""

    def _numbers(self, bits: np.ndarray) -> np.ndarray:
        return bits


class _Placed:
    """Base class of sources whose elements depend on their row and column.

    The rows are those of the array's last dimension; all dimensions before it number them.
    """

    random = False

    def __init__(self, what: Input, seed: int, stream: int) -> None:
        self.shape = what.shape
        self.dtype = as_dtype(what.dtype)
        self._what, self._seed, self._stream = what, seed, stream

    def read(self, index: Index) -> np.ndarray:
        """One block, the same each time."""
        rows, columns = _places(self.shape, index)
        block: np.ndarray = np.empty(tuple(s.stop - s.start for s in index), self.dtype)
        # NumPy's views of the parts do not exist for bfloat16.
        parts = (block.real, block.imag) if self.dtype.kind == "c" else (block,)
        with np.errstate(all="ignore"):
            for part, into in enumerate(parts):
                into[...] = self._values(index, rows, columns, part)
        return block

    def _values(self, index: Index, rows: np.ndarray, columns: np.ndarray, part: int) -> np.ndarray:
        raise NotImplementedError

    def _words(self, index: Index, number: int) -> np.ndarray:
        """Random words of 32 bits for each element."""
        stream = self._stream + (1 + number << 40)
        return _Bits(self.shape, np.uint32, self._seed, stream).read(index)

    def _of_row(self, rows: np.ndarray) -> np.ndarray:
        """A random word of 64 bits for each row (Steele, Lea and Flood, OOPSLA 2014)."""
        z = rows.astype(np.uint64) + np.uint64((self._seed * 1_000_003 + self._stream) % 2**64)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _places(shape: tuple[int, ...], index: Index) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each element of a block, as arrays that broadcast to it."""
    rows = np.zeros((1,) * len(index), np.int64)
    for dimension, part in enumerate(index[:-1]):
        along = [-1 if d == dimension else 1 for d in range(len(index))]
        rows = rows * shape[dimension] + np.arange(part.start, part.stop).reshape(along)
    return rows, np.arange(index[-1].start, index[-1].stop) if index else rows


def _significand(dtype: str) -> int:
    """Bits of the significand of a type, or of its parts."""
    return int(finfo(as_dtype(dtype)).nmant) + 1


# Wide inputs.


def _wide(case: Case, size: int, dtype: str) -> InputSet | None:
    kind = as_dtype(dtype)
    if kind.kind == "b" or (kind.kind in "iu" and not _takes_all_integers(case, size, dtype)):
        return None
    if kind.kind in "iu":
        text = f"all integers of {8 * kind.itemsize} bits"
        return InputSet(WIDE, text, random=False, make=_maker(_AllIntegers))
    low, high = exponents(case, size, dtype)
    if high - low < 2:
        return None
    text = (
        f"magnitudes from 2^{low} to 2^{high}, rows with offsets, rows that cancel, "
        f"{_significand(dtype)} random bits"
    )

    def make(what: Input, seed: int, stream: int) -> Source:
        return _Wide(what, seed, stream, low, high)

    return InputSet(WIDE, text, random=False, make=_maker(make))


def _takes_all_integers(case: Case, size: int, dtype: str) -> bool:
    """Whether results are right modulo 2^bits, as those of sums of products are."""
    if case.domain.sums:
        case.sums(size, dtype)  # raises if a user's statement is wrong
        return all(kind.kind in "biu" for kind in _types(case, size, dtype))
    return case.domain.moves


def _types(case: Case, size: int, dtype: str) -> list[np.dtype[Any]]:
    """The element types of inputs, and those that results may have."""
    results = () if case.outputs is None else case.outputs(size, dtype)
    names = [what.dtype for what in case.inputs(size, dtype)]
    return [*map(as_dtype, names), *(as_dtype(name) for one in results for name in one.dtypes)]


def exponents(case: Case, size: int, dtype: str) -> tuple[int, int]:
    """Range [low, high) of the exponents of wide inputs: no partial result overflows."""
    most = min(int(finfo(kind).maxexp) for kind in _types(case, size, dtype) if is_float(kind))
    limit = min(20, most // 3)
    low, high = case.domain.magnitudes
    room = (most - 3 - math.ceil(math.log2(case.sums(size, dtype)[0]))) // case.domain.degree
    return max(low, -limit), min(high, limit, room)


def _maker(other: Make) -> Make:
    """Make what holds no data as always, and other inputs by `other`."""

    def make(what: Input, seed: int, stream: int) -> Source:
        return (other if what.is_data else source)(what, seed, stream)

    return make


class _AllIntegers(_Placed):
    """Integers over the whole range of their type."""

    def _values(self, index: Index, rows: np.ndarray, columns: np.ndarray, part: int) -> np.ndarray:
        return _joined(self._words(index, 0), self._words(index, 1)).astype(self.dtype)


class _Wide(_Placed):
    """Rows of four kinds: mixed magnitudes, an offset, an offset of alternating sign, one size."""

    def __init__(self, what: Input, seed: int, stream: int, low: int, high: int) -> None:
        super().__init__(what, seed, stream)
        self._low, self._high = low, high

    def _values(self, index: Index, rows: np.ndarray, columns: np.ndarray, part: int) -> np.ndarray:
        bits = _joined(self._words(index, 2 * part), self._words(index, 2 * part + 1))
        fraction = (bits >> np.uint64(11)) * 2.0**-53
        # The other 11 bits choose sign and exponent.
        sign = np.where(bits & np.uint64(1), -1.0, 1.0)
        span = np.uint64(self._high - self._low)
        row = self._of_row(rows)
        size = np.ldexp(1.0, ((row >> np.uint64(8)) % span).astype(np.int64) + self._low)
        # A vector is one row.
        kind = row % np.uint64(4) if len(self.shape) > 1 else np.zeros(rows.shape)
        turn = np.where((kind == 2) & (columns % 2 == 1), -1.0, 1.0)
        own = ((bits >> np.uint64(1)) & np.uint64(0x3FF)) % span
        mixed = sign * (1 + fraction) * np.ldexp(1.0, own.astype(np.int64) + self._low)
        offset = size * turn * (1 + fraction * 2.0 ** -(_significand(self.dtype.name) * 2 // 5))
        even = size * (2 * fraction - 1)
        values = np.where(kind == 0, mixed, np.where(kind == 3, even, offset))
        return values * self._what.scale


def _joined(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return np.asarray((high.astype(np.uint64) << np.uint64(32)) | low)


# Special values.


def _special(case: Case, size: int, dtype: str) -> InputSet | None:
    domain = case.domain
    if not is_float(as_dtype(dtype)):
        return None

    def chosen(what: Input, number: int) -> tuple[str, ...]:
        some = domain.specials(number, what.kind)
        return some if is_float(as_dtype(what.dtype)) else ()

    inputs = enumerate(case.inputs(size, dtype))
    kinds = dict.fromkeys(kind for number, what in inputs for kind in chosen(what, number))
    if not kinds:
        return None
    words = {"nan": "NaN", "inf": "infinities", "zero": "signed zeros", "denormal": "denormals"}
    text = f"ordinary ones with {', '.join(words.get(kind, kind) for kind in kinds)}"

    def make(what: Input, seed: int, stream: int) -> Source:
        some = chosen(what, stream)
        return _Special(what, seed, stream, some) if some else source(what, seed, stream)

    return InputSet(SPECIAL, text, random=False, make=make)


class _Special(_Placed):
    """Ordinary elements; every second row also has special values, all of one kind."""

    def __init__(self, what: Input, seed: int, stream: int, kinds: tuple[str, ...]) -> None:
        super().__init__(what, seed, stream)
        self._kinds = kinds

    def _values(self, index: Index, rows: np.ndarray, columns: np.ndarray, part: int) -> np.ndarray:
        usual = source(self._what, self._seed, self._stream).read(index)
        if self.dtype.kind == "c":
            usual = (usual.real, usual.imag)[part]
        values = usual.astype(np.float64)
        if part:
            return values
        length = self.shape[-1] if self.shape else 1
        if self.shape and math.prod(self.shape[:-1]) == 1:  # a vector: one of eight elements
            rows, columns = columns // 8 * 2 + 1, columns + 1
        chosen = (rows % 2 == 1) & ((rows + columns) % min(8, max(1, length)) == 0)
        number = rows // 2
        which, sign = number % len(self._kinds), 1.0 - 2 * (number // len(self._kinds) % 2)
        turn = 1.0 - 2 * ((rows + columns) // 8 % 2)
        small = float(finfo(self.dtype).tiny) / 2
        special = {
            "nan": np.nan,
            "inf": sign * np.inf,
            "-inf": -np.inf,
            "zero": turn * 0.0,
            "denormal": turn * small,
        }
        for place, kind in enumerate(self._kinds):
            values = np.where(chosen & (which == place), special[kind], values)
        return values


# Whole numbers.


def _exact(case: Case, size: int, dtype: str) -> InputSet | None:
    kind = as_dtype(dtype)
    if case.domain.moves and kind.kind != "b":
        return InputSet(EXACT, "different whole numbers", random=False, make=_maker(_Numbered))
    if not case.domain.sums or not is_float(kind):
        return None
    degree, (summands, lost) = case.domain.degree, case.sums(size, dtype)
    types = [own.name for own in _types(case, size, dtype) if is_float(own)]
    bits = min(map(_significand, types)) - lost
    if case.tried is None and kind.kind == "c" and degree > 1:
        bits -= 2  # a complex product has four real ones
    shape = case.inputs(size, dtype)[0].shape
    if bits < 1 or summands > 2**bits * math.prod(shape):
        return None
    most = 2**bits // summands  # the largest product of `degree` elements
    step = 1 if most else -(-summands // 2**bits)
    largest = min(_MOST, max(1, math.floor(most ** (1 / degree) + 1e-9)))
    everything = sum(number == 0 for number, _ in case.contracted(0)) == len(shape)

    def make(what: Input, seed: int, stream: int) -> Source:
        own = 1 if stream and degree > 1 else step
        return _Whole(what, seed, stream, largest, own, shape[-1] if everything and shape else 1)

    zeros = "" if step == 1 else f", 1 of {step} is not zero"
    text = f"whole numbers from -{largest} to {largest}{zeros}"
    probe = InputSet(EXACT, text, random=False, whole=True, make=_maker(make))
    known = step == 1 or case.tried is None
    return probe if known or _shows(case, size, dtype, probe, 2**bits) else None


def _shows(case: Case, size: int, dtype: str, data: InputSet, limit: int) -> bool:
    """Whether no result of an oracle for whole arrays is above a limit, and half have a term."""
    signed = sources(case.inputs(size, dtype), 0, data)
    for i, output in enumerate(case.outputs(size, dtype) if case.outputs is not None else ()):
        both = (signed, tuple(map(Absolute, signed)))
        index = whole_index(output.shape)
        results = [case.expected(i, index, some, None, in_full=True) for some in both]
        sizes = np.abs([wide(np.asarray(x)) for x in results])
        if np.max(sizes, initial=0.0) > limit or np.mean(sizes[1] > 0) < 0.5:
            return False
    return True


_MOST = 2**15
"""Largest whole number; two bfloat16 numbers represent it."""


class _Whole(_Placed):
    """Whole numbers that are not zero, except for all but one of `step` along each dimension."""

    def __init__(
        self, what: Input, seed: int, stream: int, largest: int, step: int, apart: int
    ) -> None:
        super().__init__(what, seed, stream)
        self._largest, self._step, self._apart = largest, step, apart

    def _values(self, index: Index, rows: np.ndarray, columns: np.ndarray, part: int) -> np.ndarray:
        words = self._words(index, part)
        size = 1 + (words >> np.uint32(1)) % np.uint32(self._largest)
        values = np.where(words & np.uint32(1), -1.0, 1.0) * size
        kept = (rows * self._apart + columns) % self._step == 0
        return np.where(kept, values, 0.0)


class _Numbered(_Placed):
    """Whole numbers that differ within as many elements as the type can tell apart."""

    def _values(self, index: Index, rows: np.ndarray, columns: np.ndarray, part: int) -> np.ndarray:
        bits = 8 * self.dtype.itemsize - 1
        if is_float(self.dtype):
            bits = _significand(self.dtype.name)
        length = self.shape[-1] if self.shape else 1
        place = (rows * length + columns).astype(np.uint64) + np.uint64(part)
        # An odd factor permutes the numbers below a power of two, so that no row is sorted.
        return (place * np.uint64(0x9E3779B1) % np.uint64(2 ** min(bits, 53))).astype(np.float64)
