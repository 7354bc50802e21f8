"""The inputs of a cross-check, block by block, the same on every process and runtime."""

import numpy as np

from .._source import RandomSource, Source
from ..programs._case import Input


def source(what: Input, seed: int, stream: int) -> Source:
    """Where one input of a program comes from; nobody holds it as a whole.

    Args:
        what: Shape, dtype and how its elements are drawn.
        seed: Of the run.
        stream: Number of the input among the program's.
    """
    if what.kind == "indices":
        return _Below(what, seed, stream)
    if what.scale != 1:
        return _Scaled(what, seed, stream)
    return RandomSource(what.shape, what.dtype, seed, stream)


def sources(inputs: tuple[Input, ...], seed: int) -> tuple[Source, ...]:
    """One source for each input of a program."""
    return tuple(source(what, seed, stream) for stream, what in enumerate(inputs))


class _Scaled(RandomSource):
    """Numbers times a power of two, which keeps them exact."""

    def __init__(self, what: Input, seed: int, stream: int) -> None:
        super().__init__(what.shape, what.dtype, seed, stream)
        self._scale = what.scale

    def _numbers(self, bits: np.ndarray) -> np.ndarray:
        return super()._numbers(bits) * self._scale


class _Below(RandomSource):
    """Whole numbers from 0 and below a limit."""

    random = False

    def __init__(self, what: Input, seed: int, stream: int) -> None:
        super().__init__(what.shape, what.dtype, seed, stream)
        self._high = np.uint64(what.high)

    def _numbers(self, bits: np.ndarray) -> np.ndarray:
        return (bits * self._high) >> np.uint64(32)
