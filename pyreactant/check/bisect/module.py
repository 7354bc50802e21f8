"""The fewest operations of a module that are wrong: delta debugging on StableHLO.

A part of the module gets the right values of what it does not compute as parameters, so that what
is wrong in it is wrong by itself. Its right results are known from one run of the whole module.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...base.child import LAUNCHERS, import_path, without
from ...base.steps import step
from .child import Child, Outcome
from .judge import Failure, Module, Ways, distance
from .passes import smallest
from .way import Way

_LOOP = "stablehlo.while"


class Editor:
    """Changes modules in a process of its own.

    Args:
        ask: Gives a process's answer.
    """

    def __init__(self, ask: Callable[[Child, Mapping[str, Any]], dict[str, Any]]) -> None:
        environment = without(*LAUNCHERS)
        environment |= {"PYTHONPATH": import_path(), "JAX_PLATFORMS": "cpu"}
        argv = [sys.executable, "-P", "-m", "pyreactant.check.bisect.edit_child"]
        self._child, self._ask = Child(argv, environment), ask

    def __enter__(self) -> "Editor":
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def ask(self, **request: Any) -> dict[str, Any] | None:
        """The answer; None if the module cannot be changed so."""
        answer = self._ask(self._child, request)
        return answer if answer["outcome"] == Outcome.RAN else None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a module that fails.

    Attributes:
        wanted: Its right results.
        operations: Names of its operations.
        of: Number of operations of the whole module.
        trips: The trip of each loop that it is in, the outermost first.
    """

    module: Module
    wanted: tuple[np.ndarray, ...]
    operations: tuple[str, ...]
    of: int
    trips: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """What looks for parts that fail in the bad way as the whole program does."""

    ways: Ways
    editor: Editor
    bad: Way
    failure: Failure

    def fails(self, module: Module, wanted: Sequence[np.ndarray], *, once: bool = False) -> bool:
        """Whether a module fails so; in one attempt, or in as many as the program needs."""

        def wrong(results: Sequence[np.ndarray]) -> bool:
            pairs = zip(results, wanted, strict=True)
            return any(distance(got, x) > self.failure.limit(x.dtype) for got, x in pairs)

        failure = replace(self.failure, rate=1.0) if once else self.failure
        return self.ways.fails(self.bad, module, failure, wrong)


class _Flat:
    """A module as one function, whose values are all known."""

    def __init__(self, described: Mapping[str, Any], module: Module, editor: Editor) -> None:
        self.text, self._editor = described["text"], editor
        self.operations = described["operations"]
        self.types, self.returns = described["types"], described["returns"]
        self.maker = {n: k for k, op in enumerate(self.operations) for n in op["makes"]}
        self.values: dict[int, np.ndarray] = dict(enumerate(module.inputs))
        self._partitions = module.partitions
        self.made: list[int] = []
        self.whole: Module | None = None

    def part(self, keep: Sequence[int], outputs: Sequence[int]) -> Module | None:
        """The module of some operations; None if it is none, or needs a value that is no array."""
        answer = self._editor.ask(do="slice", text=self.text, keep=sorted(keep), outputs=outputs)
        if answer is None or any(n not in self.values for n in answer["parameters"]):
            return None
        return Module(
            answer["text"],
            tuple(self.values[n] for n in answer["parameters"]),
            tuple(self.types[n] for n in outputs),
            self._partitions,
        )

    def ancestors(self, number: int) -> list[int]:
        """The operations that one depends on, without itself."""
        seen: set[int] = set()
        waiting = [number]
        while waiting:
            for value in self.operations[waiting.pop()]["uses"]:
                maker = self.maker.get(value)
                if maker is not None and maker not in seen:
                    seen.add(maker)
                    waiting.append(maker)
        return sorted(seen)


def cut(search: Search, module: Module, goods: Sequence[Way]) -> tuple[Part | None, Way | None]:
    """The smallest part that fails.

    Args:
        goods: Ways that are right, the best one first.

    Returns:
        The part, and the way that said what is right; None without a part that fails, as where
        only the whole module is wrong, or no good way runs its parts.
    """
    for unsharded in (True, False) if module.partitions > 1 else (True,):
        described = search.editor.ask(do="flat", text=module.text, unsharded=unsharded)
        if described is None:
            continue
        one = replace(module, partitions=1) if unsharded else module
        flat = _Flat(described, one, search.editor)
        for good in goods:
            if not _know(flat, search.ways, good):
                continue
            part = _smallest(flat, search, good)
            if part is not None:
                return _within(part, search, good), good
    return None, None


_TRIPS = 64
"""The most trips of a loop that are tried."""


def _within(part: Part, search: Search, good: Way) -> Part:
    """If a part is a loop, the part of a trip of it that fails, if there is one."""
    module = part.module
    trip = search.editor.ask(do="trip", text=module.text) if part.operations == (_LOOP,) else None
    if trip is None:
        return part
    state = [module.inputs[n] for n in trip["state"]]
    for number in range(1, _TRIPS + 1):
        inputs = (*module.inputs, *state)
        one = replace(module, text=trip["text"], inputs=inputs)
        right = search.ways.run(good, one)
        if right.outcome is not Outcome.RAN:
            break
        step(f"trip {number} of a loop")
        if search.fails(one, right.results):
            inner, _ = cut(search, one, [good])
            return (inner and replace(inner, of=part.of, trips=(number, *inner.trips))) or part
        state = list(right.results)
        if not any(map(distance, state, part.wanted)):
            break
    return part


def _know(flat: _Flat, ways: Ways, good: Way) -> bool:
    """Run the whole module in the good way, and keep what each operation gives."""
    step(f"right values of {len(flat.operations)} operations: {good.text}")
    flat.made = [n for op in flat.operations for n in op["makes"] if flat.types[n]]
    flat.whole = flat.part(range(len(flat.operations)), flat.made)
    ran = flat.whole and ways.run(good, flat.whole)
    if not ran or ran.outcome is not Outcome.RAN:
        return False
    flat.values |= dict(zip(flat.made, ran.results, strict=True))
    return True


def _suspects(flat: _Flat, search: Search) -> list[int]:
    """Operations whose results are wrong, and operands right, where the bad way gives them all."""
    failure = search.failure
    for attempt in range(failure.attempts if failure.outcome is Outcome.RAN else 0):
        assert flat.whole is not None
        ran = search.ways.run(search.bad, flat.whole, attempt=attempt)
        wrong = {
            n
            for n, got in zip(flat.made, ran.results, strict=False)
            if distance(got, flat.values[n]) > failure.limit(got.dtype)
        }
        if wrong:
            each = enumerate(flat.operations)
            return [k for k, op in each if wrong & {*op["makes"]} and not wrong & {*op["uses"]}]
    return []


def _smallest(flat: _Flat, search: Search, good: Way) -> Part | None:
    def outputs_of(operation: int) -> list[int]:
        return [n for n in flat.operations[operation]["makes"] if flat.types[n]]

    def fails_with(keep: Sequence[int], last: int, *, once: bool = False) -> bool:
        part = flat.part([*keep, last], outputs_of(last)) if outputs_of(last) else None
        step(f"{len(keep) + 1} of {len(flat.operations)} operations")
        wanted = [flat.values[n] for n in outputs_of(last)]
        if part is None or not search.fails(part, wanted, once=once):
            return False
        # Every compiler refuses some parts, as where a region uses what is a parameter here.
        ran = Outcome.RAN
        return search.failure.outcome is ran or search.ways.run(good, part).outcome is ran

    def maker_that_fails(values: Sequence[int]) -> int | None:
        makers = dict.fromkeys(flat.maker[n] for n in values if n in flat.maker)
        return next((k for k in makers if fails_with(flat.ancestors(k), k)), None)

    suspects = _suspects(flat, search)
    others = (k for k in range(len(flat.operations)) if k not in suspects)
    last = next((k for k in suspects if fails_with([], k)), None)
    if last is None:  # one that comes and goes is tried once here, and often only in larger parts
        last = next((k for k in others if fails_with([], k, once=True)), None)
    kept: list[int] = []
    if last is None:  # no operation is wrong by itself: back from a wrong result, as far as it goes
        last = maker_that_fails(flat.returns)
        if last is None:
            return None
        while (before := maker_that_fails(flat.operations[last]["uses"])) is not None:
            last = before
        end = last
        kept = smallest(flat.ancestors(end), lambda some: fails_with(some, end))
    module = flat.part([*kept, last], outputs_of(last))
    assert module is not None
    names = tuple(flat.operations[k]["name"] for k in sorted([*kept, last]))
    wanted = tuple(flat.values[n] for n in outputs_of(last))
    return Part(module, wanted, names, len(flat.operations))
