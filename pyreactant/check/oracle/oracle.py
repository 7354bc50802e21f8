"""Expected values of any part of an array of a run, if it is right and under given faults.

Blocks are cut into tiles, so that a check needs little extra memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...arrays.dtypes import wide
from ...arrays.sharding import Index
from ...arrays.source import Source
from ..bounds.expected import Expected
from ..bounds.model import Float32Products, Model
from ..bounds.tracked import Estimated, Tracked
from ..programs.case import Case
from .parts import Absolute, Beside, Exchanged, Masked, Only, Own, Stale, Widened, size

TILE_BYTES = 4 * 2**20
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
        whole: Whether the inputs are whole numbers for which float64 and every right runtime have
            the same results, without rounding; they are compared as numbers, not by bits.
    """

    case: Case
    number: int
    shape: tuple[int, ...]
    sources: tuple[Source, ...]
    model: Model | None
    stream_bytes: int = STREAM_BYTES
    whole: bool = False

    def block(self, index: Index) -> Expected:
        """The expected values of a part of the array."""
        sources = tuple(map(Widened, self.sources)) if self.whole else self.sources
        given = index, sources, self.model
        found = self.case.expected(self.number, *given, streamed=self.streamed)
        if self.whole and np.asarray(found).dtype.kind in "fc":
            value = wide(np.asarray(found))  # an oracle may convert to a shorter type
            return Expected(value, np.zeros(value.shape), last_rounding=True)
        if isinstance(found, Tracked):
            estimated = found.reason if isinstance(found, Estimated) else ""
            absolute = None if found.value.any() else self._absolute(index)
            return Expected(found.value, found.bound, estimated=estimated, absolute=absolute)
        return Expected(np.asarray(found), None)

    def in_float32(self, products: Float32Products) -> "OutputOracle":
        """The same oracle with large products in float32; its results are rounded ones."""
        assert self.model is not None
        return replace(self, model=replace(self.model, float32_products=products))

    def _absolute(self, index: Index) -> np.ndarray:
        """Values for the absolute values of the inputs: those of sums before they cancel."""
        sources = tuple(Absolute(source) for source in self.sources)
        found = self.case.expected(self.number, index, sources, self.model, streamed=self.streamed)
        return np.abs(found.value if isinstance(found, Tracked) else np.asarray(found))

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
        if self.streamed:
            return self.stream_bytes
        if self.case.staged is not None:
            return self.stream_bytes // 4
        return TILE_BYTES

    def cost(self, index: Index) -> int:
        """Bytes that `block` needs: values, bounds and temporaries of the same size."""
        shapes = tuple(s.shape for s in self.sources)
        if self.streamed and self.case.stream is not None:
            at_once = self.case.stream.elements(index, shapes)
            return self._each * (size(index) + at_once)
        if self.case.staged is not None and self.model is not None:
            return self._each * self.case.staged.elements(self.number, index, shapes)
        return self._each * (size(index) + sum(map(size, self._needs(index))))

    @property
    def _each(self) -> int:
        return 48 if self.model is not None or self.whole else 16

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
            sources[number] = Masked(sources[number], dimension, mask)
        return replace(self, sources=tuple(sources)).block(index)

    def only(self, index: Index, number: int, block: Index | None) -> Expected:
        """Values of a tile if an input is zero outside a block, or everywhere if it is None."""
        sources = list(self.sources)
        sources[number] = Only(sources[number], block)
        return replace(self, sources=tuple(sources)).block(index)

    def exchanged_halos(self, index: Index, block: Index, dimension: int, width: int) -> Expected:
        """Values of a tile if the elements on both sides of the device's block are exchanged.

        Args:
            index: Index of the tile in the output, within `block`.
            block: Index of the device's block.
            dimension: Dimension along which the block has neighbours.
            width: Number of exchanged elements on each side.
        """
        sources = tuple(
            Exchanged(source, block[dimension], dimension, width)
            if source.shape == self.shape
            else source
            for source in self.sources
        )
        return replace(self, sources=sources).block(index)

    def stale_halo(
        self, index: Index, block: Index, dimension: int, before: "OutputOracle"
    ) -> Expected:
        """Values of a tile if elements outside the device's block are those of other inputs.

        Args:
            index: Index of the tile in the output, within `block`.
            block: Index of the device's block.
            dimension: Dimension along which the block has neighbours.
            before: The oracle of the other inputs.
        """
        sources = tuple(
            Stale(source, block[dimension], dimension, old)
            if source.shape == self.shape
            else source
            for source, old in zip(self.sources, before.sources, strict=True)
        )
        return replace(self, sources=sources).block(index)

    def shifted_halo(self, index: Index, block: Index, dimension: int, by: int) -> Expected:
        """Values of a tile if elements outside the device's block are read `by` positions off.

        Args:
            index: Index of the tile in the output, within `block`.
            block: Index of the device's block.
            dimension: Dimension of the offset.
            by: 1 or -1.
        """
        sources = tuple(
            Beside(source, block[dimension], dimension, by)
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
            Own(source, own, dimension) if source.shape == self.shape else source
            for source in self.sources
        )
        moved = list(index)
        moved[dimension] = slice(
            index[dimension].start - own.start, index[dimension].stop - own.start
        )
        return replace(self, sources=sources).block(tuple(moved))

    def halo(self, block: Index, dimension: int) -> int:
        """How far beyond a block it needs elements of inputs of the output's shape."""
        own = block[dimension]
        return max(
            (
                max(own.start - need[dimension].start, need[dimension].stop - own.stop)
                for need, source in zip(self._needs(block), self.sources, strict=True)
                if source.shape == self.shape
            ),
            default=0,
        )


_WORTH_IT = 0.8
"""Cut or merge only if the cost falls below this fraction of the previous cost."""


def cut(index: Index, cost: Callable[[Index], int], limit: int) -> Iterator[Index]:
    """Cut a block into equal tiles (the last one along each dimension may be smaller).

    Args:
        index: Index of the block.
        cost: Bytes that a tile needs, including its inputs.
        limit: Bytes a tile should need at most. A tile needs more only if smaller tiles would
            hardly be cheaper, as with a Fourier transform, which reads everything.
    """
    lengths = [s.stop - s.start for s in index]
    while (now := _dearest(index, lengths, cost)) > limit:
        halves = [
            (_dearest(index, [*lengths[:d], -(-n // 2), *lengths[d + 1 :]], cost), -n, d)
            for d, n in enumerate(lengths)
            if n > 1
        ]
        if not halves or min(halves)[0] > _WORTH_IT * now:
            break
        lengths[min(halves)[2]] = -(-lengths[min(halves)[2]] // 2)
    yield from _grid(index, lengths)


def merge(blocks: Sequence[Index], cost: Callable[[Index], int]) -> list[Index]:
    """Merge blocks that share many of their inputs into larger regions.

    Args:
        blocks: Distinct blocks with the same number of dimensions.
        cost: As for `cut`.
    """
    regions = list(blocks)
    for d in range(len(blocks[0]) if blocks else 0):
        rows: dict[str, list[Index]] = {}
        for one in regions:
            rows.setdefault(str((*one[:d], *one[d + 1 :])), []).append(one)
        regions = [region for row in rows.values() for region in _merged(row, d, cost)]
    return regions


def _merged(row: list[Index], d: int, cost: Callable[[Index], int]) -> list[Index]:
    """Regions that differ in one dimension only, merged if that is cheaper."""
    whole = list(row[0])
    whole[d] = slice(min(one[d].start for one in row), max(one[d].stop for one in row))
    together = tuple(whole)
    cheaper = cost(together) < _WORTH_IT * sum(map(cost, row))
    return [together] if cheaper else row


def _dearest(index: Index, lengths: Sequence[int], cost: Callable[[Index], int]) -> int:
    """The larger cost of the first and last tiles; for a cumulative sum the last costs most."""
    first = tuple(slice(s.start, s.start + n) for s, n in zip(index, lengths, strict=True))
    last = tuple(slice(s.stop - n, s.stop) for s, n in zip(index, lengths, strict=True))
    return max(cost(first), cost(last))


def _grid(index: Index, lengths: Sequence[int]) -> Iterator[Index]:
    if not index:
        yield ()
        return
    head, length = index[0], lengths[0]
    for start in range(head.start, head.stop, max(length, 1)):
        for rest in _grid(index[1:], lengths[1:]):
            yield (slice(start, min(start + length, head.stop)), *rest)
