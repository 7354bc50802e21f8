"""A wrong block, and everything it may be compared with."""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ...arrays.dtypes import is_float, wide
from ...arrays.sharding import Index
from ..bounds.compare import compare, wrong_elements
from ..bounds.expected import Expected
from ..bounds.model import ulp
from ..bounds.verdict import Verdict
from ..oracle.oracle import InputOracle, OutputOracle
from ..records.verdict import ArrayPlan, Kind
from ..regions import around, within

Reason = tuple[Kind, str]
"""A kind of fault, and how it explains a block."""

Oracle = InputOracle | OutputOracle

_TILE = 2**12
"""Elements of a block that are compared to explain its fault."""


def side_of_tile(dimensions: int) -> int:
    """The length of a tile of a block in each dimension."""
    return max(2, math.floor(_TILE ** (1 / max(1, dimensions))))


_PATIENCE = 60.0
"""Seconds of processor time that the search for the kinds of an array's faults may take."""

_CALLS = 10
"""Calls of an oracle that a test for a kind of fault makes, about."""


@dataclass(slots=True)
class Search:
    """How long the kinds of an array's faults were searched.

    Attributes:
        seconds: The processor time until now.
        over: Whether a test was left out because its calls of the oracle would take too long.
        tests: The tests that explained a block.
    """

    seconds: float = 0.0
    over: bool = False
    tests: set[Any] = field(default_factory=set)


class Alterable(Protocol):
    """The operations of a user's oracle (`operations.Operations`)."""

    @property
    def known(self) -> bool: ...

    def explain(self, wrong: "Wrong") -> list[Reason]: ...

    def shorter(self) -> Iterator[tuple[str, np.ndarray]]: ...


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
        operations: Tells which operation of a user's oracle differs, if that explains a wrong
            block; None for a built-in program, whose oracle and body are the same.
        known: What `few` has computed, by index.
        search: How long the kinds of its faults were searched.
    """

    name: str
    plan: ArrayPlan
    oracle: Oracle
    before: Oracle | None = None
    inputs: tuple[InputOracle, ...] = ()
    input_plans: tuple[ArrayPlan, ...] = ()
    operations: Alterable | None = None
    known: dict[tuple[tuple[int, int], ...], Expected] = field(default_factory=dict, compare=False)
    search: Search = field(default_factory=Search, compare=False)

    def few(self, index: Index) -> Expected:
        """The right values of a few elements, computed once.

        Each wrong block is compared with a few elements of every other block.
        """
        key = tuple((part.start, part.stop) for part in index)
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
    def output(self) -> OutputOracle:
        """The right values of an output.

        Raises:
            LookupError: The array is an input, of which a program's faults explain nothing; or
                there is no time left to compute what faults do.
        """
        if not isinstance(self.oracle, OutputOracle):
            raise LookupError(f"{self.subject.name} is no output")
        self._check_time(self.oracle)
        return self.oracle

    @property
    def before(self) -> OutputOracle | None:
        """The values of the previous calls; None for inputs.

        Raises:
            LookupError: As for `output`.
        """
        if isinstance(self.subject.before, OutputOracle):
            self._check_time(self.subject.before)
            return self.subject.before
        return None

    def _check_time(self, oracle: OutputOracle) -> None:
        search, seconds = self.subject.search, oracle.case.seconds
        if search.seconds + _CALLS * (0.0 if seconds is None else seconds()) > _PATIENCE:
            search.over = True
            raise LookupError(f"no time left to explain {self.subject.name}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape of the array."""
        return self.subject.plan.shape

    @functools.cached_property
    def tile(self) -> Index:
        """Global index of a tile around the worst element."""
        at = self.verdict.worst["element"] if self.verdict.worst else [s.start for s in self.block]
        return around(self.block, at, side_of_tile(len(self.block)))

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
    got: np.ndarray,
    right: Expected,
    faulty: Expected,
    wrong: np.ndarray,
    free: int = 0,
    tries: int = 1,
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
        tries: Number of such faults that are tried; one of many fits by chance more often.
    """
    if not wrong.any() or faulty.value.shape != got.shape:
        return False
    if wrong_elements(got, faulty)[wrong].any():
        return False
    with np.errstate(all="ignore"):
        away = np.abs(wide(got[wrong]) - right.numbers[wrong])
        near: Any = 0.5 if faulty.bound is None else faulty.allowed(got.dtype)[wrong]
        if faulty.bound is None and is_float(got.dtype):
            near = ulp(np.abs(wide(got[wrong])), got.dtype)
        chances = np.where(np.isfinite(away), np.minimum(near / away, 1.0), 0.5)
    logs = np.sort(np.log(np.maximum(chances, 1e-300)))
    return bool(logs[free:].sum() < _CHANCE - math.log(tries))
