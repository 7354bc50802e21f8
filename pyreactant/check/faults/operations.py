"""Faults of one operation: a mask that is off by one, a factor left out, a sum over one part.

The oracle runs again with one of its operations altered, and the wrong values are compared with its
results. Its arguments are NumPy arrays of a class that numbers the operations on them.
"""

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays.dtypes import wide
from ...base.imports import users_line
from ..bounds.compare import wrong_elements
from ..bounds.expected import Expected
from ..bounds.tracked import UnknownOperationError
from ..records.verdict import Kind
from .alteration import Alteration, Cuts, is_factor, plain_numbers
from .rules import is_epsilon
from .subject import Reason, Wrong, explains
from .watched import Pick, Replay

_PATIENCE = 5.0
"""Seconds of processor time that the altered runs of an output may take."""

_KEPT = 2**23
"""Numbers of altered results that are kept for the other blocks of an output."""

_AS_NEAR = 1.5
"""Alterations that are this much farther off than the nearest one explain the values as well."""

_Choice = dict[int, Reason]
"""Alterations by the numbers of their operations."""


class _Family(NamedTuple):
    """Alterations of the same operations that differ in the part of an array only.

    Attributes:
        kind: Their kind.
        text: What they have in common.
        choices: Each of them.
        adds: Whether devices may add up their results (`Alteration.adds`).
    """

    kind: Kind
    text: str
    choices: list[_Choice]
    adds: bool


class _Match(NamedTuple):
    """An alteration that explained a block: how, its result, and how far that is off."""

    reason: Reason
    result: np.ndarray | None
    off: float
    family: _Family | None = None


class _Step(NamedTuple):
    """An operation: its alterations, and the line of the user's file that called it."""

    ways: list[Alteration]
    line: str


class Operations:
    """The operations of an oracle, each of which may be altered.

    Args:
        of_class: Computes all outputs with arrays of a class (`Case.of_class`).
        number: Number of the output.
        arrays: The arguments, whole.
        cuts: How the mesh may cut arrays.
        small: Whether the arguments are so small that the oracle may run many times.
    """

    def __init__(
        self,
        of_class: Callable[[Sequence[np.ndarray], type], tuple[np.ndarray, ...]],
        number: int,
        arrays: Callable[[], Sequence[np.ndarray]],
        cuts: Cuts,
        *,
        small: bool = True,
    ) -> None:
        self._of_class, self._number, self._small = of_class, number, small
        self._arrays = functools.cache(arrays)
        self._cuts = cuts
        self._matched: list[_Match] = []
        self._results: dict[tuple[tuple[int, Reason], ...], np.ndarray | None] = {}
        self._guards: set[int] = set()
        self._room, self._spent = _KEPT, 0.0

    def explain(self, wrong: Wrong) -> list[Reason]:
        """The alterations that give the values of a block, one of each kind, the nearest first."""
        target = _Target(wrong)
        fitting = [
            match
            for match in (
                target.match(old.reason, old.result, 1)
                for old in self._matched
                if old.result is not None
            )
            if match is not None
        ]
        if not fitting:
            like = [match.family for match in self._matched if match.family is not None]
            fitting = (
                self._tried(target, like)
                or self._tried(target, self._families)
                or self._with_other_constants(target)
            )
            self._matched += fitting
        fitting.sort(key=lambda match: match.off)
        near = [m.reason for m in fitting if m.off <= _AS_NEAR * fitting[0].off]
        return [*{reason[0]: reason for reason in reversed(near)}.values()][::-1]

    def shorter(self) -> Iterator[tuple[str, np.ndarray]]:
        """The output with the factors of products in a shorter type, and how."""
        for family in self._in_shorter:
            for choice in family.choices:
                result = self._result(choice)
                if result is not None:
                    yield self._reason(family, choice)[1], result

    def _tried(self, target: "_Target", families: Sequence[_Family]) -> list[_Match]:
        """All alterations that explain a block; combinations of them only if none does."""
        count = sum(len(family.choices) for family in families)
        fitting: list[_Match] = []
        for family in families:
            for choice in family.choices:
                reason = self._reason(family, choice)
                match = target.match(reason, self._result(choice), count)
                fitting += [] if match is None else [match._replace(family=family)]
        for combined in (_mixed, _added):
            if not fitting:
                fitting = [
                    match._replace(family=family)
                    for family in families
                    if len(family.choices) > 1
                    for match in self._combined(target, family, combined, count)
                ]
        return fitting

    def _combined(
        self, target: "_Target", family: _Family, combined: Any, count: int
    ) -> Iterator[_Match]:
        results = [self._result(choice) for choice in family.choices]
        alike = [r for r in results if r is not None and r.shape == target.wrong.shape]
        if len(alike) < len(results):
            return
        line = self._line(family.choices[0])
        for how, result, more in combined(target.wrong, family, alike):
            reason = family.kind, f"the oracle gives these values {family.text}, {how}{line}"
            match = target.match(reason, result, count * more)
            if match is not None:
                yield match._replace(result=None)

    def _reason(self, family: _Family, choice: _Choice) -> Reason:
        text = next(iter(choice.values()))[1]
        return family.kind, f"the oracle gives these values {text}{self._line(choice)}"

    def _line(self, choice: _Choice) -> str:
        line = self._steps[next(iter(choice))].line
        return f" ({line})" * bool(line)

    def _result(self, choice: _Choice) -> np.ndarray | None:
        """The output with some operations altered; None if the oracle cannot run."""
        key = tuple(choice.items())
        if key in self._results:
            return self._results[key]
        if self._spent > _PATIENCE:
            return None
        result = self._run(Replay(functools.partial(self._chosen, choice, ()), self._cuts))
        size = 1 if result is None else result.size
        if size <= self._room:
            self._room -= size
            self._results[key] = result
        return result

    def _chosen(
        self,
        choice: _Choice,
        constant: tuple[float, ...],
        number: int,
        alterations: Iterator[Alteration],
    ) -> Callable[[], Any] | None:
        """What to compute instead of an operation; None if it stays.

        Raises:
            UnknownOperationError: It is another operation than the one that had this number,
                because the oracle took another branch after an altered one.
        """
        reason = choice.get(number)
        if reason is None:
            return None
        if users_line() != self._steps[number].line:
            raise UnknownOperationError("the oracle took another branch")
        ways = (way for way in alterations if (way.kind, way.text) == reason)
        way = next(ways, None)
        return None if way is None else functools.partial(way.new, *constant)

    @property
    def known(self) -> bool:
        """Whether the oracle's operations are seen, so that one of them may be ruled out."""
        return self._seen is not None

    @property
    def _steps(self) -> list[_Step]:
        return self._seen or []

    @functools.cached_property
    def _seen(self) -> list[_Step] | None:
        """All operations; None of large arguments, or if too few would be tried in time."""
        steps: list[_Step] = []
        if not self._small:
            return None

        def note(number: int, alterations: Iterator[Alteration]) -> None:
            ways = [way._replace(new=_forgotten) for way in alterations]
            steps.append(_Step(ways, users_line() if ways else ""))

        replay = Replay(note, self._cuts)
        ran = self._run(replay)
        self._guards = replay.guards
        is_seen = steps or ran is not None
        return steps if is_seen and self._spent <= _PATIENCE / 20 else None

    @functools.cached_property
    def _families(self) -> list[_Family]:
        short = Kind.LOWER_PRECISION
        return _families(self._steps, lambda w: w.constant is None and w.kind != short)

    @functools.cached_property
    def _in_shorter(self) -> list[_Family]:
        return _families(self._steps, lambda w: w.kind == Kind.LOWER_PRECISION)

    def _run(self, replay: Replay) -> np.ndarray | None:
        """The output of a run of the oracle; None if it cannot run."""
        start = time.thread_time()
        try:
            with np.errstate(all="ignore"):
                return np.asarray(self._of_class(self._arrays(), replay.of_class())[self._number])
        except UnknownOperationError:
            return None
        finally:
            self._spent += time.thread_time() - start

    def _with_other_constants(self, target: "_Target") -> list[_Match]:
        """The matches of the oracle with another constant."""
        fitting: list[_Match] = []
        for number, step in enumerate(self._steps):
            for way in step.ways:
                if way.constant is not None:
                    with contextlib.suppress(LookupError):
                        fitting += self._with_other(target, number, way, way.constant)
        return fitting

    def _with_other(
        self, target: "_Target", number: int, way: Alteration, c: float
    ) -> Iterator[_Match]:
        """The match with the constant that gives the values best, by Gauss and Newton.

        Raises:
            LookupError: The oracle cannot run with another constant, or there is no time left.
        """
        choice = {number: (way.kind, way.text)}

        def at(value: float) -> np.ndarray:
            pick: Pick = functools.partial(self._chosen, choice, (value,))
            result = None if self._spent > _PATIENCE else self._run(Replay(pick, self._cuts))
            if result is None or result.shape != target.wrong.shape:
                raise LookupError("the oracle cannot run with another constant")
            return result

        got, tile = wide(target.wrong.values), target.wrong.tile
        value, result, apart, slope = c, at(c), math.inf, np.zeros(())
        for _ in range(_STEPS):
            rest = got - result[tile]
            size = float(np.linalg.norm(rest))
            if not size < apart * _NEARER:
                break
            apart = size
            more = 1e-4 * abs(value)
            slope = (at(value + more) - result)[tile] / more
            square = float(np.vdot(slope, slope).real)
            if not 0 < square < math.inf:
                break
            value += float(np.vdot(slope, rest).real) / square
            result = at(value)
        rest, change = got - result[tile], float(np.linalg.norm(slope))
        known = float(np.linalg.norm(rest)) / change if change else math.inf
        kind = way.kind
        if number in self._guards and is_epsilon(c, guards=True):
            kind = Kind.EPSILON
        # A constant that nobody writes may be anything else that moves as much.
        for plain in plain_numbers(value, known):
            lost = kind == Kind.FACTOR and not is_factor(plain / c)
            big = kind == Kind.EPSILON and not is_epsilon(plain, guards=True)
            text = way.text.format(f"{plain:.6g}")
            reason = (
                Kind.UNKNOWN if lost or big else kind,
                f"the oracle gives these values {text}{self._line(choice)}",
            )
            match = target.match(reason, at(plain), len(self._steps))
            if match is not None:
                yield match
                return


def _forgotten() -> None:
    """In place of what holds the arrays of a run."""


_STEPS = 8
"""Steps of the search for a constant."""

_NEARER = 0.7
"""A step that leaves more of the error than this leads nowhere."""

_FEW = 8
"""Wrong elements that are compared before all of a tile."""


class _Target:
    """A wrong block with what every candidate is compared with.

    Args:
        wrong: The block.
    """

    def __init__(self, wrong: Wrong) -> None:
        self.wrong = wrong
        right = wrong.right
        if right.typical is not None:
            right = right.limited(wrong.values)
        self._bound = right.bound
        self._few = np.flatnonzero(wrong.wrong)[:_FEW]
        self._got = wrong.values.ravel()[self._few]
        self._usual = 0.0
        if self._bound is not None:
            sizes = np.abs(right.numbers)
            some = (sizes > 0) & np.isfinite(self._bound)
            relative = self._bound[some] / sizes[some]
            self._usual = float(np.median(relative)) if relative.size else 0.0

    def match(self, reason: Reason, result: np.ndarray | None, tries: int) -> _Match | None:
        """The match if a result explains a block, also its elements that are right.

        Other values than the right ones have the same relative bound, as far as is known.
        """
        wrong = self.wrong
        if result is None or result.shape != wrong.shape:
            return None
        value = result[wrong.tile]
        with np.errstate(all="ignore"):
            if self._bound is None:
                faulty = Expected(value.astype(wrong.values.dtype), None)
            else:
                few = value.ravel()[self._few]
                near = np.maximum(self._bound.ravel()[self._few], self._usual * np.abs(few))
                if wrong_elements(self._got, Expected(few, near)).any():
                    return None
                faulty = Expected(value, np.maximum(self._bound, self._usual * np.abs(value)))
            if not explains(wrong.values, wrong.right, faulty, wrong.wrong, tries=tries):
                return None
            if wrong_elements(wrong.values, faulty).any():
                return None
            off = float(np.nansum(np.abs(wide(wrong.values) - faulty.numbers)))
            return _Match(reason, result, off)


def _families(steps: Sequence[_Step], chosen: Callable[[Alteration], bool]) -> list[_Family]:
    """Alterations of one operation, and the same ones of several that have them.

    One fault of a program may be in several operations, such as the dimension of a softmax.
    """
    families: dict[tuple[tuple[int, ...], Kind, str], _Family] = {}
    same: dict[Reason, tuple[str, bool, list[int]]] = {}

    def add(numbers: Sequence[int], reason: Reason, text: str, adds: bool) -> None:
        key = tuple(numbers), reason[0], text
        family = families.setdefault(key, _Family(reason[0], text, [], adds))
        family.choices.append(dict.fromkeys(numbers, reason))

    for number, step in enumerate(steps):
        for way in filter(chosen, step.ways):
            reason, text = (way.kind, way.text), way.family or way.text
            add([number], reason, text, way.adds)
            numbers = same.setdefault(reason, (text, way.adds, []))[2]
            if number not in numbers:
                numbers.append(number)
    for reason, (text, adds, numbers) in same.items():
        for some in _several(numbers):
            add(some, reason, text, adds)
    return list(families.values())


def _several(numbers: Sequence[int]) -> list[tuple[int, ...]]:
    """All operations, those of one turn or line of a loop, and two that follow each other."""
    count, some = len(numbers), []
    for turns in (1, 2, 3, 4):
        size = count // turns
        if count % turns == 0 and size > 1:
            some += [tuple(numbers[k : k + size]) for k in range(0, count, size)]
        if count % turns == 0 and turns > 1:
            some += [tuple(numbers[k::size]) for k in range(size)]
    if 2 < count <= _MOST_PAIRS:
        some += itertools.pairwise(numbers)
    return list(dict.fromkeys(some))


_MOST_PAIRS = 16
"""Of more operations that have the same alteration, pairs are not tried."""


def _mixed(
    wrong: Wrong, family: _Family, results: Sequence[np.ndarray]
) -> Iterator[tuple[str, np.ndarray, int]]:
    """Another part in each place of the result, as where devices have other shares of it."""
    value, more = np.array(results[0]), 1
    right, got = wrong.right.numbers, wide(wrong.values)
    value[wrong.tile] = right
    for piece in _pieces(wrong):
        inside = tuple(
            slice(s.start - t.start, s.stop - t.start)
            for s, t in zip(piece, wrong.tile, strict=True)
        )
        if wrong.wrong[inside].any():
            with np.errstate(all="ignore"):
                off = [float(np.nansum(np.abs(r[piece] - got[inside]))) for r in results]
            value[piece] = results[int(np.argmin(off))][piece]
            more *= len(results)
        elif family.kind == Kind.MISSING_REDUCTION:
            return  # what each device has alone is wrong everywhere
    yield "another one in each part of the result", value, more


def _pieces(wrong: Wrong) -> Iterator[tuple[slice, ...]]:
    """The tile, cut where a mesh may cut its array."""
    most = len(wrong.subject.plan.sharding.mesh.device_ids)
    each = []
    for size, own in zip(wrong.shape, wrong.tile, strict=True):
        step = size // most if size % most == 0 else size
        ends = [own.start, *range((own.start // step + 1) * step, own.stop, step), own.stop]
        each.append([slice(a, b) for a, b in itertools.pairwise(ends)])
    yield from itertools.product(*each)


def _added(
    wrong: Wrong, family: _Family, results: Sequence[np.ndarray]
) -> Iterator[tuple[str, np.ndarray, int]]:
    """What devices compute from their own parts, and then add up."""
    if family.adds:
        total = np.sum(results, axis=0)
        yield "and then the mean over all parts", total / len(results), 2
        yield "and then the sum over all parts", total, 2


def altered_operation(wrong: Wrong) -> Iterator[Reason]:
    """The values of the oracle with one of its operations altered."""
    operations = wrong.subject.operations if wrong.output else None
    if operations is not None:
        with np.errstate(all="ignore"):
            reasons = operations.explain(wrong)
        yield from reasons
