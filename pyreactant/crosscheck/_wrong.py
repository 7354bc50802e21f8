"""A block that is wrong, and all that it may be compared with."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._sharding import Index
from ._oracle import InputOracle, OutputOracle
from ._summed import Way
from ._tiles import around, within
from ._values import Expected, Numbers, fits
from ._verdict import ArrayPlan

Oracle = InputOracle | OutputOracle

TILE = 2**12
"""Elements of a block that are compared to explain what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An array of a run, and all that its blocks may be compared with.

    Attributes:
        name: "input 0", "output 0".
        plan: Its shape, dtype and sharding.
        oracle: What it should hold.
        before: What it held in the calls before; None for inputs.
        inputs: What went in; a block may hold one of them.
        summed: Ways to leave out a part of its sums (see `_summed`).
    """

    name: str
    plan: ArrayPlan
    oracle: Oracle
    before: Oracle | None = None
    inputs: tuple[InputOracle, ...] = ()
    summed: Sequence[Way] = ()


@dataclass(frozen=True, slots=True)
class Wrong:
    """A block that is wrong.

    Attributes:
        subject: The array that it is of.
        device: Position of the device.
        got: What it holds.
        block: Which block it should be.
        numbers: How it differs.
    """

    subject: Subject
    device: int
    got: np.ndarray
    block: Index
    numbers: Numbers

    @property
    def oracle(self) -> Oracle:
        """What the array should hold."""
        return self.subject.oracle

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape of the array."""
        return self.subject.plan.shape

    @property
    def tile(self) -> Index:
        """Around the worst element, in global positions."""
        at = self.numbers.worst["element"] if self.numbers.worst else [s.start for s in self.block]
        length = max(2, math.floor(TILE ** (1 / max(1, len(self.block)))))
        return around(self.block, at, length)

    def seen(self, tile: Index) -> np.ndarray:
        """What the device holds of a tile."""
        return self.got[within(tile, self.block)]

    def holds(self, expected: Expected) -> bool:
        """Whether the tile around the worst element holds this."""
        return fits(self.seen(self.tile), expected)
