"""What any part of an array of a run should hold, and what it would hold if something broke."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._bounds.compare import Expected
from ..._bounds.model import Model
from ..._bounds.tracked import Tracked
from ..._core.sharding import Index
from ..._core.source import Source
from ...programs._case import Case
from .tiles import size

TILE_BYTES = 8 * 2**20
"""What a tile may need; each core checks one at a time."""

STREAM_BYTES = 256 * 2**20
"""The most that a tile may need that reads all inputs; two are checked at a time."""


def stream_bytes(own: int) -> int:
    """What a tile may need that reads all inputs, if the process's blocks have `own` bytes.

    Needs are estimated from above, so that two of these tiles are half of its own.
    """
    return max(min(own * 5 // 8, STREAM_BYTES), min(TILE_BYTES, STREAM_BYTES))


@dataclass(frozen=True, slots=True)
class InputOracle:
    """An input: what was placed, bit for bit.

    Attributes:
        source: Where it came from.
    """

    source: Source

    def block(self, index: Index) -> Expected:
        """What a part of the array holds."""
        return Expected(self.source.read(index), None)

    @property
    def limit(self) -> int:
        """Bytes that a tile may need."""
        return TILE_BYTES

    def cost(self, index: Index) -> int:
        """Bytes that `block` needs."""
        return 16 * size(index)


@dataclass(frozen=True, slots=True)
class OutputOracle:
    """An output, computed in float64 from just those parts of the inputs that it depends on.

    Attributes:
        case: The program.
        number: Which output.
        shape: Of the output.
        sources: Of the inputs.
        model: How the runtime rounds; None where results must be equal.
        stream_bytes: What a tile may need that reads all inputs.
    """

    case: Case
    number: int
    shape: tuple[int, ...]
    sources: tuple[Source, ...]
    model: Model | None
    stream_bytes: int = STREAM_BYTES

    def block(self, index: Index) -> Expected:
        """What a part of the array holds."""
        found = self.case.expected(
            self.number, index, self.sources, self.model, streamed=self.streamed
        )
        if isinstance(found, Tracked):
            return Expected(found.value, found.bound)
        return Expected(np.asarray(found), None)

    @property
    def streamed(self) -> bool:
        """Whether inputs are read piece by piece: one element depends on too much to hold."""
        if self.case.stream is None:
            return False
        first = self._needs(tuple(slice(0, min(1, n)) for n in self.shape))
        return self._each * sum(map(size, first)) > self.stream_bytes

    @property
    def limit(self) -> int:
        """Bytes that a tile may need; a streamed one reads everything, so there must be few."""
        return self.stream_bytes if self.streamed else TILE_BYTES

    def cost(self, index: Index) -> int:
        """Bytes that `block` needs: values and bounds, and as much again on the way."""
        if self.streamed and self.case.stream is not None:
            at_once = self.case.stream.elements(index, tuple(s.shape for s in self.sources))
            return self._each * (size(index) + at_once)
        return self._each * (size(index) + sum(map(size, self._needs(index))))

    @property
    def _each(self) -> int:
        return 16 if self.model is None else 48

    def _needs(self, index: Index) -> tuple[Index, ...]:
        return self.case.needs(self.number, index, tuple(s.shape for s in self.sources))

    def partial(self, index: Index, masks: Iterable[tuple[int, int, np.ndarray]]) -> Expected:
        """What it holds where only a part of a sum was summed.

        Args:
            index: Of the output.
            masks: Numbers of inputs, dimensions that are summed over, and which positions count.
        """
        sources = list(self.sources)
        for number, dimension, mask in masks:
            sources[number] = _Masked(sources[number], dimension, mask)
        return replace(self, sources=tuple(sources)).block(index)

    def shifted_halo(self, index: Index, block: Index, dimension: int, by: int) -> Expected:
        """What it holds where all that lies beside its block is taken `by` too far on.

        Args:
            index: Of the output, within `block`.
            block: What the device holds.
            dimension: Along which.
            by: 1 or -1.
        """
        sources = tuple(
            _Beside(source, block[dimension], dimension, by)
            if source.shape == self.shape
            else source
            for source in self.sources
        )
        return replace(self, sources=sources).block(index)

    def alone(self, index: Index, block: Index, dimension: int) -> Expected:
        """What it holds where a device knows only its own part of a dimension.

        Args:
            index: Of the output, within `block`.
            block: What the device holds.
            dimension: Of inputs and output.
        """
        own = block[dimension]
        sources = tuple(
            _Own(source, own, dimension) if source.shape == self.shape else source
            for source in self.sources
        )
        moved = list(index)
        moved[dimension] = slice(
            index[dimension].start - own.start, index[dimension].stop - own.start
        )
        return replace(self, sources=sources).block(tuple(moved))

    def has_halo(self, block: Index, dimension: int) -> bool:
        """Whether a block depends on what lies beside it, in inputs of the output's shape."""
        return any(
            source.shape == self.shape and need[dimension] != block[dimension]
            for need, source in zip(self._needs(block), self.sources, strict=True)
        )


class _Altered:
    """A source whose blocks are changed on the way."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.shape = source.shape
        self.dtype = source.dtype
        self.random = source.random


class _Masked(_Altered):
    """Zero but for some positions along a dimension."""

    def __init__(self, source: Source, dimension: int, mask: np.ndarray) -> None:
        super().__init__(source)
        self._mask = mask.reshape([-1 if d == dimension else 1 for d in range(len(self.shape))])
        self._dimension = dimension

    def read(self, index: Index) -> np.ndarray:
        everything = [slice(None)] * len(index)
        everything[self._dimension] = index[self._dimension]
        zero: Any = np.zeros((), self.dtype)
        return np.where(self._mask[tuple(everything)], self._source.read(index), zero)


class _Beside(_Altered):
    """What lies outside a range of a dimension comes from one position further on."""

    def __init__(self, source: Source, inside: slice, dimension: int, by: int) -> None:
        super().__init__(source)
        self._inside = inside
        self._dimension = dimension
        self._by = by

    def read(self, index: Index) -> np.ndarray:
        wanted = index[self._dimension]
        positions = np.arange(wanted.start, wanted.stop)
        outside = (positions < self._inside.start) | (positions >= self._inside.stop)
        last = self.shape[self._dimension] - 1
        taken = np.clip(positions + np.where(outside, self._by, 0), 0, last)
        first, end = int(np.min(taken)), int(np.max(taken)) + 1
        wide = list(index)
        wide[self._dimension] = slice(first, end)
        block = self._source.read(tuple(wide))
        return np.take(block, taken - first, axis=self._dimension)


class _Own(_Altered):
    """A range of a dimension as if there were no more."""

    def __init__(self, source: Source, own: slice, dimension: int) -> None:
        super().__init__(source)
        self._start = own.start
        self._dimension = dimension
        length = own.stop - own.start
        self.shape = tuple(length if d == dimension else n for d, n in enumerate(source.shape))

    def read(self, index: Index) -> np.ndarray:
        wanted = list(index)
        part = wanted[self._dimension]
        wanted[self._dimension] = slice(part.start + self._start, part.stop + self._start)
        return self._source.read(tuple(wanted))
