"""A wrong block, and everything it may be compared with."""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays.dtypes import is_float, wide
from ...arrays.sharding import Index, NamedSharding
from ...arrays.source import Source
from ..bounds.compare import compare, wrong_elements
from ..bounds.expected import Expected, ulp
from ..bounds.verdict import Verdict
from ..execute import CaseRun
from ..oracle.oracle import InputOracle, OutputOracle
from ..oracle.parts import around, masked, within
from ..records.verdict import ArrayPlan, Kind

Reason = tuple[Kind, str]
"""A kind of fault, and how it explains a block."""

Mask = tuple[int, int, np.ndarray]
"""Number of an input, one of its dimensions, and which positions along it are summed."""


@dataclass(frozen=True, slots=True)
class PartialSum:
    """The part of a sum over devices that remains if a reduction is missing.

    Attributes:
        masks: Positions of the inputs that are summed.
        where: Mesh position by axis, for the axes that are not summed over.
        text: Description of the fault.
    """

    masks: tuple[Mask, ...]
    where: Mapping[str, int]
    text: str

    def masked(self, sources: Sequence[Source]) -> list[Source]:
        """What is summed of each input."""
        changed = list(sources)
        for number, dimension, mask in self.masks:
            changed[number] = masked(changed[number], dimension, mask)
        return changed


_MOST = 256  # partial sums to try


def partial_sums(run: CaseRun, output: int) -> list[PartialSum]:
    """Sums that a device may hold instead of the whole one, for one output of a run."""
    contracted: dict[int, list[int]] = {}
    for number, dimension in run.case.contracted(output):
        contracted.setdefault(number, []).append(dimension)
    plans = [run.plans[name] for name in run.named("input")]
    found = (
        partial
        for number, dimensions in contracted.items()
        for partial in _partial_sums(
            number, plans[number].shape, plans[number].sharding, dimensions
        )
    )
    return list(itertools.islice(found, _MOST))


def _partial_sums(
    number: int, shape: Sequence[int], sharding: NamedSharding, dimensions: Sequence[int]
) -> Iterator[PartialSum]:
    mesh, cut = sharding.mesh, sharding.axes(len(shape))
    axes = [axis for dimension in dimensions for axis in cut[dimension]]
    for count in range(len(axes), 0, -1):
        for kept in itertools.combinations(axes, count):
            for place in itertools.product(*(range(mesh.axis_size(axis)) for axis in kept)):
                where = dict(zip(kept, place, strict=True))
                masks = tuple(
                    (number, d, positions_along(shape[d], cut[d], sharding, where))
                    for d in dimensions
                    if set(cut[d]) & set(kept)
                )
                place_text = ", ".join(f"{axis}={at}" for axis, at in where.items())
                text = (
                    f"it holds the sum over {place_text} only, not over all of {' and '.join(kept)}"
                )
                yield PartialSum(masks, where, text)


def positions_along(
    size: int, axes: Sequence[str], sharding: NamedSharding, where: Mapping[str, int]
) -> np.ndarray:
    """Which positions of a dimension lie on the devices at these mesh positions."""
    sizes = [sharding.mesh.axis_size(axis) for axis in axes]
    keep = np.ones(sizes, bool)
    for number, axis in enumerate(axes):
        if axis in where:
            shape = [-1 if n == number else 1 for n in range(len(sizes))]
            keep &= (np.arange(sizes[number]) == where[axis]).reshape(shape)
    return np.repeat(keep.ravel(), size // keep.size)


Oracle = InputOracle | OutputOracle

TILE = 2**12
"""Elements of a block that are compared to explain its fault."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An array of a run, and everything its blocks may be compared with.

    Attributes:
        name: "input 0", "output 0".
        plan: Its shape, dtype and sharding.
        oracle: The right values.
        before: The values of the previous calls; None for inputs.
        inputs: The program's inputs; a block may hold one of them by mistake.
        input_plans: Their shapes and shardings.
        partial_sums: Sums that its blocks may hold if a reduction is missing.
        known: What `few` has computed, by index.
    """

    name: str
    plan: ArrayPlan
    oracle: Oracle
    before: Oracle | None = None
    inputs: tuple[InputOracle, ...] = ()
    input_plans: tuple[ArrayPlan, ...] = ()
    partial_sums: Sequence[PartialSum] = ()
    known: dict[tuple[tuple[int, int], ...], Expected] = field(default_factory=dict, compare=False)

    def few(self, index: Index) -> Expected:
        """The right values of a few elements, computed once.

        Each wrong block is compared with a few elements of every other block.
        """
        key = tuple((one.start, one.stop) for one in index)
        if key not in self.known:
            self.known[key] = self.oracle.block(index)
        return self.known[key]


@dataclass(frozen=True)
class Wrong:
    """A wrong block.

    Attributes:
        subject: Its array.
        device: Position of the device.
        got: The values on the device.
        block: Global index of the block that the device should hold.
        verdict: Result of comparing the values with the oracle.
    """

    subject: Subject
    device: int
    got: np.ndarray
    block: Index
    verdict: Verdict

    @property
    def oracle(self) -> Oracle:
        """The right values of the array."""
        return self.subject.oracle

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape of the array."""
        return self.subject.plan.shape

    @functools.cached_property
    def tile(self) -> Index:
        """Global index of a tile around the worst element."""
        at = self.verdict.worst["element"] if self.verdict.worst else [s.start for s in self.block]
        length = max(2, math.floor(TILE ** (1 / max(1, len(self.block)))))
        return around(self.block, at, length)

    @functools.cached_property
    def values(self) -> np.ndarray:
        """The device's values of the tile."""
        return self.seen(self.tile)

    @functools.cached_property
    def right(self) -> Expected:
        """The right values of the tile."""
        return self.oracle.block(self.tile)

    @functools.cached_property
    def wrong(self) -> np.ndarray:
        """Which elements of the tile are wrong."""
        return wrong_elements(self.values, self.right)

    def seen(self, tile: Index) -> np.ndarray:
        """The device's values of a tile."""
        return self.got[within(tile, self.block)]

    def holds(self, expected: Expected, free: int = 0) -> bool:
        """Whether the wrong elements of the tile have these values, and not by chance.

        Args:
            expected: Values of the tile under a fault.
            free: Number of elements that the values were fitted to.
        """
        return explains(self.values, self.right, expected, self.wrong, free)


def fits(got: np.ndarray, expected: Expected) -> bool:
    """Whether a tile has these values."""
    return compare(got, expected).wrong == 0


_CHANCE = math.log(0.02)
"""A match that is likelier than this, for values without a relation, shows nothing."""


def explains(
    got: np.ndarray, right: Expected, faulty: Expected, wrong: np.ndarray, free: int = 0
) -> bool:
    """Whether all wrong elements have the values of a fault, and not by chance.

    An unrelated value that is off by d comes within a of another one with a probability of about
    a / d; few elements with wide tolerances fit anything.

    Args:
        got: Values of a tile.
        right: The right ones.
        faulty: Those under the fault.
        wrong: Which elements are wrong.
        free: Number of elements that `faulty` was fitted to.
    """
    if not wrong.any() or faulty.value.shape != got.shape:
        return False
    if wrong_elements(got, faulty)[wrong].any():
        return False
    with np.errstate(all="ignore"):
        away = np.abs(wide(got[wrong]) - wide(np.asarray(right.value)[wrong]))
        near: Any = 0.5 if faulty.bound is None else faulty.allowed(got.dtype)[wrong]
        if faulty.bound is None and is_float(got.dtype):
            near = ulp(np.abs(wide(got[wrong])), got.dtype)
        chances = np.where(np.isfinite(away), np.minimum(near / away, 1.0), 0.5)
    logs = np.sort(np.log(np.maximum(chances, 1e-300)))
    return bool(logs[free:].sum() < _CHANCE)
