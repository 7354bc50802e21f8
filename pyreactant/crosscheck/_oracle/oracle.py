"""Expected values of any part of an array of a run, if it is right and under given faults."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._bounds.compare import Expected
from ..._bounds.model import Model
from ..._bounds.tracked import Estimated, Tracked
from ..._core.sharding import Index
from ..._core.source import Source
from ...programs._case import Case
from .tiles import size

TILE_BYTES = 8 * 2**20
"""Bytes that a tile may need; each core checks one at a time."""

STREAM_BYTES = 256 * 2**20
"""Most bytes that a tile which reads all inputs may need; two are checked at a time."""


def stream_bytes(own: int) -> int:
    """Bytes that a tile which reads all inputs may need.

    Estimates are upper bounds: two such tiles really use about half of `own`.

    Args:
        own: Total bytes of the process's blocks.
    """
    return max(min(own * 5 // 8, STREAM_BYTES), min(TILE_BYTES, STREAM_BYTES))


@dataclass(frozen=True, slots=True)
class InputOracle:
    """Exact expected values of an input.

    Attributes:
        source: The source of the input.
    """

    source: Source

    def block(self, index: Index) -> Expected:
        """The expected values of a part of the array."""
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
    """Expected values of an output, computed in float64 from only the needed parts of the inputs.

    Attributes:
        case: The program.
        number: Index of the output.
        shape: Shape of the output.
        sources: Sources of the inputs.
        model: Rounding model of the runtime; None if results must be exact.
        stream_bytes: Bytes that a tile which reads all inputs may need.
    """

    case: Case
    number: int
    shape: tuple[int, ...]
    sources: tuple[Source, ...]
    model: Model | None
    stream_bytes: int = STREAM_BYTES

    def block(self, index: Index) -> Expected:
        """The expected values of a part of the array."""
        found = self.case.expected(
            self.number, index, self.sources, self.model, streamed=self.streamed
        )
        if isinstance(found, Tracked):
            estimated = found.reason if isinstance(found, Estimated) else ""
            return Expected(found.value, found.bound, estimated=estimated)
        return Expected(np.asarray(found), None)

    @property
    def streamed(self) -> bool:
        """Whether inputs are read in pieces: those of one element do not fit in memory."""
        if self.case.stream is None:
            return False
        first = self._needs(tuple(slice(0, min(1, n)) for n in self.shape))
        return self._each * sum(map(size, first)) > self.stream_bytes

    @property
    def limit(self) -> int:
        """Bytes that a tile may need; more if each tile reads all inputs, so tiles are few."""
        return self.stream_bytes if self.streamed else TILE_BYTES

    def cost(self, index: Index) -> int:
        """Bytes that `block` needs: values, bounds and temporaries of the same size."""
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
        """Values of a tile if only a part of a sum was computed.

        Args:
            index: Index of the tile in the output.
            masks: Input numbers, summed dimensions, and which positions are summed.
        """
        sources = list(self.sources)
        for number, dimension, mask in masks:
            sources[number] = _Masked(sources[number], dimension, mask)
        return replace(self, sources=tuple(sources)).block(index)

    def shifted_halo(self, index: Index, block: Index, dimension: int, by: int) -> Expected:
        """Values of a tile if elements outside the device's block are read `by` positions off.

        Args:
            index: Index of the tile in the output, within `block`.
            block: Index of the device's block.
            dimension: Dimension of the offset.
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
        """Values of a tile if the device uses only its own part of a dimension.

        Args:
            index: Index of the tile in the output, within `block`.
            block: Index of the device's block.
            dimension: Dimension of inputs and output.
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
        """Whether a block depends on elements outside it, in inputs of the output's shape."""
        return any(
            source.shape == self.shape and need[dimension] != block[dimension]
            for need, source in zip(self._needs(block), self.sources, strict=True)
        )


class _Altered:
    """Base class of sources that change the blocks of another source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.shape = source.shape
        self.dtype = source.dtype
        self.random = source.random


class _Masked(_Altered):
    """A source with zeros except at some positions along a dimension."""

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
    """A source whose elements outside a range of a dimension are shifted by one position."""

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
    """A source restricted to a range of a dimension."""

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
