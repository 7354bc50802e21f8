"""The ordinary inputs of a program: random numbers of which any block is drawn without the rest."""

import numpy as np

from ...arrays.dtypes import wide
from ...arrays.source import RandomSource, Source
from .case import Input


def source(what: Input, seed: int, stream: int) -> Source:
    """The ordinary source of one input of a program; no process holds the whole input.

    Args:
        what: Shape, dtype and distribution of the input.
        seed: Seed of the run.
        stream: Index of the input among the program's inputs.
    """
    if what.kind == "indices":
        return _Below(what, seed, stream)
    if what.kind == "ranged":
        return _Ranged(what, seed, stream)
    if what.scale != 1:
        return _Scaled(what, seed, stream)
    return RandomSource(what.shape, what.dtype, seed, stream)


class _Scaled(RandomSource):
    """Random numbers times a power of two, so that they stay exact."""

    def __init__(self, what: Input, seed: int, stream: int) -> None:
        super().__init__(what.shape, what.dtype, seed, stream)
        self._scale = what.scale

    def _numbers(self, bits: np.ndarray) -> np.ndarray:
        return super()._numbers(bits) * self._scale


class _Below(RandomSource):
    """Random integers from a lowest one up to, but not including, a limit."""

    random = False

    def __init__(self, what: Input, seed: int, stream: int) -> None:
        super().__init__(what.shape, what.dtype, seed, stream)
        self._low, self._count = int(what.low), np.uint64(int(what.high) - int(what.low))

    def _numbers(self, bits: np.ndarray) -> np.ndarray:
        return ((bits * self._count) >> np.uint64(32)).astype(np.int64) + self._low


class _Ranged(RandomSource):
    """Random numbers from a lowest one up to, but not including, a limit."""

    random = False

    def __init__(self, what: Input, seed: int, stream: int) -> None:
        super().__init__(what.shape, what.dtype, seed, stream)
        self._low, self._size = what.low, what.high - what.low
        ends = np.array([what.low, what.high]).astype(self.dtype)
        up, down = (np.array(end, self.dtype) for end in (np.inf, -np.inf))
        # The ends are rounded to the type; none of its numbers is outside of the range.
        self._least = np.nextafter(ends[0], up) if wide(ends)[0] < what.low else ends[0]
        self._most = np.nextafter(ends[1], down) if wide(ends)[1] >= what.high else ends[1]

    def _numbers(self, bits: np.ndarray) -> np.ndarray:
        numbers = (self._low + self._size * (bits * 2.0**-32)).astype(self.dtype)
        return np.clip(numbers, self._least, self._most)
