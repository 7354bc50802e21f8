"""The fewest operations of a module that are wrong: delta debugging on StableHLO.

A part of the module gets the right values of what it does not compute as parameters, so that what
is wrong in it is wrong by itself. Its right results are known from one run of the whole module.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.dtypes import as_dtype
from ...base.child import LAUNCHERS, import_path, without
from ...base.steps import step
from .child import Child, Outcome
from .judge import Failure, Module, Ways, distance
from .passes import smallest
from .way import Way


class Editor:
    """Changes modules in a process of its own.

    Args:
        left: Gives the seconds that the next request may take.
    """

    def __init__(self, left: Callable[[], float]) -> None:
        environment = without(*LAUNCHERS)
        environment |= {"PYTHONPATH": import_path(), "JAX_PLATFORMS": "cpu"}
        argv = [sys.executable, "-P", "-m", "pyreactant.check.bisect.edit_child"]
        self._child, self._left = Child(argv, environment), left

    def __enter__(self) -> "Editor":
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def ask(self, **request: Any) -> dict[str, Any] | None:
        """The answer; None if the module cannot be changed so."""
        answer = self._child.ask(request, self._left())
        return answer if answer["outcome"] == Outcome.RAN else None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a module that fails.

    Attributes:
        wanted: Its right results.
        operations: Names of its operations.
        of: Number of operations of the whole module.
        makers: How each input is made in a script; "" for one that is only known by its values.
    """

    module: Module
    wanted: tuple[np.ndarray, ...]
    operations: tuple[str, ...]
    of: int
    makers: tuple[str, ...] = ()


class _Flat:
    """A module as one function, whose values are all known."""

    def __init__(self, described: Mapping[str, Any], module: Module, editor: Editor) -> None:
        self.text, self._editor = described["text"], editor
        self.operations = described["operations"]
        self.types, self.returns = described["types"], described["returns"]
        self.maker = {n: k for k, op in enumerate(self.operations) for n in op["makes"]}
        self.values: dict[int, np.ndarray] = dict(enumerate(module.inputs))
        self._partitions = module.partitions

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


def cut(
    ways: Ways, editor: Editor, module: Module, failure: Failure, bad: Way, goods: Sequence[Way]
) -> tuple[Part | None, Way | None]:
    """The smallest part that fails.

    Args:
        goods: Ways that are right, the best one first.

    Returns:
        The part, and the way that said what is right; None without a part that fails, as where
        only the whole module is wrong, or no good way runs its parts.
    """
    for unsharded in (True, False) if module.partitions > 1 else (True,):
        described = editor.ask(do="flat", text=module.text, unsharded=unsharded)
        if described is None:
            continue
        one = replace(module, partitions=1) if unsharded else module
        flat = _Flat(described, one, editor)
        for good in goods:
            if not _know(flat, ways, good):
                continue
            part = _smallest(flat, ways, failure, bad)
            if part is not None:
                return _with_plain_inputs(part, ways, failure, bad, good), good
    return None, None


def _know(flat: _Flat, ways: Ways, good: Way) -> bool:
    """Run the whole module in the good way, and keep what each operation gives."""
    step(f"right values of {len(flat.operations)} operations: {good.text}")
    made = [n for op in flat.operations for n in op["makes"] if flat.types[n]]
    whole = flat.part(range(len(flat.operations)), made)
    ran = whole and ways.run(good, whole)
    if not ran or ran.outcome is not Outcome.RAN:
        return False
    flat.values |= dict(zip(made, ran.results, strict=True))
    return True


def _smallest(flat: _Flat, ways: Ways, failure: Failure, bad: Way) -> Part | None:
    def outputs_of(operation: int) -> list[int]:
        return [n for n in flat.operations[operation]["makes"] if flat.types[n]]

    def fails_with(keep: Sequence[int], last: int) -> bool:
        part = flat.part([*keep, last], outputs_of(last)) if outputs_of(last) else None
        step(f"{len(keep) + 1} of {len(flat.operations)} operations")
        wanted = [flat.values[n] for n in outputs_of(last)]
        return part is not None and ways.fails(bad, part, failure, differing(failure, wanted))

    def maker_that_fails(values: Sequence[int]) -> int | None:
        makers = dict.fromkeys(flat.maker[n] for n in values if n in flat.maker)
        return next((k for k in makers if fails_with(flat.ancestors(k), k)), None)

    last = next((k for k in range(len(flat.operations)) if fails_with([], k)), None)
    kept: list[int] = []
    if last is None:  # no operation is wrong by itself: back from a wrong result, as far as it goes
        before = maker_that_fails(flat.returns)
        if before is None:
            return None
        while before is not None:
            last = before
            before = maker_that_fails(flat.operations[last]["uses"])
        kept = smallest(flat.ancestors(last), lambda some: fails_with(some, last))
    module = flat.part([*kept, last], outputs_of(last))
    assert module is not None
    names = tuple(flat.operations[k]["name"] for k in sorted([*kept, last]))
    wanted = tuple(flat.values[n] for n in outputs_of(last))
    return Part(module, wanted, names, len(flat.operations))


def differing(
    failure: Failure, wanted: Sequence[np.ndarray]
) -> Callable[[Sequence[np.ndarray]], bool]:
    """Whether results differ from right ones as the program's do."""

    def wrong(results: Sequence[np.ndarray]) -> bool:
        pairs = zip(results, wanted, strict=True)
        return any(distance(got, right) > failure.limit(right.dtype) for got, right in pairs)

    return wrong


_MAKERS = (
    "np.ones({shape}, {dtype!r})",
    "(np.arange({size}) % 7 - 3).astype({dtype!r}).reshape({shape})",
    "np.random.default_rng(0).uniform(-1, 1, {shape}).astype({dtype!r})",
)
"""How a script makes an array, the simplest one first."""


def made(text: str) -> np.ndarray:
    """The array that one of `_MAKERS` makes; evaluated as the script does."""
    return np.asarray(eval(text, {"np": np}))  # noqa: S307 - text of `_MAKERS` alone


def _makers(array: np.ndarray) -> Iterator[str]:
    kind = as_dtype(array.dtype.name)
    if kind.kind not in "fiu":  # a script without further packages has NumPy's types alone
        return
    for form in _MAKERS[: 3 if kind.kind == "f" else 2 if kind.kind == "i" else 1]:
        yield form.format(shape=array.shape, dtype=kind.name, size=array.size)


def _with_plain_inputs(part: Part, ways: Ways, failure: Failure, bad: Way, good: Way) -> Part:
    """The part with inputs that a line of a script makes, as far as it still fails."""
    makers = [""] * len(part.module.inputs)
    for number, array in enumerate(part.module.inputs):
        for text in _makers(array):
            step(f"plain inputs: {text}")
            inputs = list(part.module.inputs)
            inputs[number] = made(text)
            module = replace(part.module, inputs=tuple(inputs))
            right = ways.run(good, module)
            if right.outcome is not Outcome.RAN:
                continue
            if ways.fails(bad, module, failure, differing(failure, right.results)):
                part = replace(part, module=module, wanted=right.results)
                makers[number] = text
                break
    return replace(part, makers=tuple(makers))
