"""`pyreactant bisect`: from a program that fails to the operations that are wrong."""

import contextlib
import math
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.dtypes import as_dtype, wide
from ...base.counted import counted
from ...base.errors import (
    DeadlineError,
    FileError,
    InvalidArgumentError,
    PyReactantError,
    RequirementError,
    argument,
    from_data,
)
from ...base.files import read_json, write_json, write_text, writing
from ...base.outputs import marked
from ...base.steps import step
from ..bounds.expected import Expected
from ..records.records import read_run, record_name
from .child import Outcome
from .judge import Failure, Module, Ways, distance, rounding
from .module import Editor, Search, cut
from .passes import part_that
from .script import SCRIPT, command_of, worst, write_script
from .shapes import with_small_shapes
from .shrink import Lowered, Problem, lower, shrunk
from .way import COMPILED, INTERPRETER, NOT_OPTIMIZED, Way, parse_way

RESULT, TEXT, RUNS = "bisect.json", "report.md", "runs"
"""In the folder of a bisection: the result, the text of a bug report, and what each run gave."""

_PASS = re.compile(r"\.after_(?!pipeline-)([^.]+)")
"""The pass that changed the module, in the name of a dump's file."""

_ONE_DEVICE = {"axis_names": ["x", "y"], "shape": [1, 1]}

Result = dict[str, Any]
"""What a bisection found, as plain data."""


def problem_of(folder: Path) -> tuple[Problem, Way]:
    """The first problem that failed in the folder of a cross-check, and the way that ran it.

    Raises:
        InvalidArgumentError: Nothing failed there, or only what bisecting cannot run.
        FileError: It is no such folder.
    """
    here = [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
    runs = [read_run(one) for one in here if (one / record_name(0)).exists()] or [read_run(folder)]
    other: list[str] = []
    for record in (record for run in runs for record in run.records):
        given = record.request["programs"]
        plain = {one if isinstance(one, str) else one["name"]: one for one in given}
        for program in record.programs:
            if program.error is not None:
                other.append(f"{program.program} raised {program.error['exception']}")
                continue
            about = program.problem
            sets = [("ordinary", about["dtype"], about, program.blocks)]
            sets += [(one.inputs, one.dtype, one.specs, one.blocks) for one in program.sets]
            for inputs, dtype, specs, blocks in sets:
                if all(block.passed for block in blocks):
                    continue
                problem = Problem(
                    program=plain[program.program],
                    size=about["size"],
                    dtype=dtype,
                    mesh={name: about["mesh"][name] for name in ("axis_names", "shape")},
                    specs=specs["in_specs"],
                    seed=about["seed"],
                    inputs=inputs,
                )
                words = [f"backend={record.backend}"] if record.backend != "jax" else []
                words.append(f"platform={record.platform}")
                return problem, parse_way(words, argument("bad"))
    if other:
        raise InvalidArgumentError(
            f"{folder}: bisect takes wrong values from a cross-check, got only: "
            f"{', '.join(dict.fromkeys(other))}; give a program's name with {argument('bad')}"
        )
    raise InvalidArgumentError(
        f"{folder}: nothing failed in this cross-check, so there is nothing to cut down; give the "
        "folder of one that failed"
    )


class _Bisection:
    """The steps of a bisection, which share its processes."""

    def __init__(self, ways: Ways, editor: Editor, good: Way | None, bad: Way) -> None:
        self._ways, self._editor, self._good, self._bad = ways, editor, good, bad
        runs_modules = good is not None and not good.backend
        self._goods = [good] if good and runs_modules else [INTERPRETER, NOT_OPTIMIZED]

    def size(self, lowered: Lowered, results: Sequence[np.ndarray]) -> float:
        """How far results are off, 0 if they are right: by the oracle, or by the good way.

        Without an oracle two ways may round differently: a difference counts from half the digits
        of the element type on.
        """
        if lowered.expected is not None:
            if lowered.is_right(results):
                return 0.0
            return max(map(distance, results, rounded(lowered))) or math.inf
        assert self._good is not None
        right = self._ways.run(self._good, lowered.module)
        if right.outcome is not Outcome.RAN:
            return 0.0
        sizes = ((distance(a, b), b.dtype) for a, b in zip(results, right.results, strict=True))
        return max(
            (size for size, dtype in sizes if size > math.sqrt(rounding(dtype))), default=0.0
        )

    def first(self, problem: Problem, where: str) -> tuple[Lowered, Failure]:
        """The given problem and how it fails; ten runs say how often, if some of three pass.

        Raises:
            InvalidArgumentError: It does not fail, or nothing says what is right.
        """
        try:
            lowered = lower(problem, self._ways)
        except InvalidArgumentError:  # such as sizes that the default mesh does not divide
            if problem.mesh:
                raise
            lowered = lower(replace(problem, mesh=_ONE_DEVICE), self._ways)
        if lowered.expected is None and self._good is None:
            raise InvalidArgumentError(
                f"program {lowered.name!r} has no oracle, so nothing says what is right; give it "
                f"oracle=, or a way that is right with {argument('good')}"
            )
        step(f"running {lowered.name} on {self._bad.text}")
        failed, sizes = None, list[float]()
        for attempt in range(10):
            hung = failed is not None and failed.outcome is Outcome.HANG
            each = self._ways.soon if hung else math.inf
            ran = self._ways.run(self._bad, lowered.module, (), attempt, each)
            own = self.size(lowered, ran.results) if ran.outcome is Outcome.RAN else math.inf
            sizes.append(own)
            failed = failed or (ran if own else None)
            if ran.outcome is not Outcome.RAN:  # which does not tell how long it should take
                there = self._ways.run(self._good or NOT_OPTIMIZED, lowered.module)
                if self._good and there.outcome is ran.outcome:
                    raise InvalidArgumentError(
                        f"{self._good.text} fails as {self._bad.text} does ({there.outcome}): "
                        f"{there.message}; give a way that is right with {argument('good')}"
                    )
            if attempt == 2 and (all(sizes) or not any(sizes)):
                break
        if failed is None:
            right = self._good.text if self._good and lowered.expected is None else "its oracle"
            raise InvalidArgumentError(
                f"{where}: three runs of {lowered.name!r} ({lowered.problem.text}) on "
                f"{self._bad.text} agree with {right}, so the failure does not repeat and there is "
                f"nothing to cut down; give the way that fails with {argument('bad')}"
            )
        if failed.outcome is Outcome.INVALID and self._good is None:
            raise InvalidArgumentError(
                f"{self._bad.text} refuses program {lowered.name!r}: {failed.message}; give "
                f"{argument('good')}, a way that takes it, to find the part that is refused"
            )
        wrong = [size for size in sizes if size]
        size = wrong[0] if failed.outcome is Outcome.RAN else 0.0
        rate = len(wrong) / len(sizes)
        return lowered, Failure(failed.outcome, size, rate, failed.message.partition("\n")[0])

    def smallest(self, lowered: Lowered, failure: Failure) -> Lowered:
        """The smallest problem that fails so."""
        return shrunk(lowered, self._ways, lambda one: self.fails(one, failure))

    def fails(self, lowered: Lowered, failure: Failure) -> bool:
        """Whether a problem fails as the first one."""
        return self._ways.fails(
            self._bad, lowered.module, failure, lambda results: self.size(lowered, results) > 0
        )

    def own_fault(self, lowered: Lowered, failure: Failure) -> str:
        """The way in which the program is wrong although nothing optimizes it; "" if none."""
        if lowered.expected is None or failure.outcome is not Outcome.RAN:
            return ""
        for way in self._goods:
            module = lowered.module
            if way.interpret:
                flat = self._editor.ask(do="flat", text=module.text, unsharded=True)
                module = replace(module, text=flat["text"] if flat else module.text, partitions=1)
            step(f"running {lowered.name} on {way.text}")
            ran = self._ways.run(way, module)
            if ran.outcome is Outcome.RAN:
                return "" if lowered.is_right(ran.results) else way.text
        return ""

    def dumps(self, lowered: Lowered, failure: Failure, folder: Path) -> list[Path]:
        """The module after each pass that changed it, of a run that failed."""
        for attempt in range(failure.attempts):
            dump = folder / f"{lowered.module.digest[:12]}-{attempt}"
            dump.mkdir(parents=True, exist_ok=True)
            options = [("xla_dump_to", str(dump)), ("xla_dump_hlo_pass_re", ".*")]
            each = self._ways.limit(failure)
            ran = self._ways.run(self._bad, lowered.module, options, attempt, each)
            if ran.outcome is not Outcome.RAN or self.size(lowered, ran.results):
                break
        return sorted(dump.glob("*.after_*.before_*.txt"))

    def first_wrong(self, lowered: Lowered, dumps: Sequence[Path]) -> str:
        """The pass whose dump is the first that is wrong as a program of its own; "" if unknown."""

        def is_right(dump: Path) -> bool | None:
            step(f"running the dump {dump.name}")
            back = self._editor.ask(do="from_hlo", text=dump.read_text())
            if back is None:
                return None
            for way in self._goods:
                ran = self._ways.run(way, replace(lowered.module, text=back["text"]))
                if ran.outcome is Outcome.RAN:
                    return not self.size(lowered, ran.results)
            return None

        first = bisect_left(dumps, True, key=lambda dump: not is_right(dump))
        if first in (0, len(dumps)) or is_right(dumps[first]) is None:
            return ""
        return "".join(_PASS.findall(dumps[first].name))

    def passes(self, lowered: Lowered, failure: Failure, dumps: Sequence[Path]) -> list[str] | None:
        """The fewest passes without which the results are right; None if there are none such."""
        each = self._ways.soon  # without some passes a compilation never ends
        names = [*dict.fromkeys(name for dump in dumps for name in _PASS.findall(dump.name))]

        def is_right(disabled: Sequence[str]) -> bool:
            step(f"without {counted(len(disabled), 'pass', 'passes')} of {len(names)}")
            off = [("xla_disable_hlo_passes", ",".join(disabled))] if disabled else []
            runs = (
                self._ways.run(self._bad, lowered.module, off, n, each)
                for n in range(failure.attempts)
            )
            return all(
                ran.outcome is Outcome.RAN and not self.size(lowered, ran.results) for ran in runs
            )

        return part_that(names, is_right) if names else None

    def show(
        self,
        folder: Path,
        module: Module,
        failure: Failure,
        wanted: Sequence[np.ndarray],
        allowed: Sequence[Any],
    ) -> Result:
        """Write the script, and give the element that it looks at."""
        wrong = None
        if failure.outcome is Outcome.RAN:
            runs = [self._ways.run(self._bad, module, (), n) for n in range(failure.attempts)]
            results = [run.results for run in runs if run.outcome is Outcome.RAN]
            far = max(results, key=lambda one: max(map(distance, one, wanted)))
            wrong = worst(far, wanted, allowed)
        write_script(folder, module, wrong, self._bad, failure.attempts)
        command = {"command": command_of(self._bad, module.partitions)}
        if wrong is None:
            return command
        return command | {
            "element": wrong["element"],
            "got": str(wrong["got"]),
            "right": str(wrong["right"]),
        }

    def as_lowered(self, small: Lowered) -> Lowered:
        """A problem with the module that the bad way's runtime lowers.

        Raises:
            PyReactantError: It lowers none.
        """
        step(f"lowering {small.name} on {self._bad.backend}")
        own = lower(small.problem, self._ways, self._bad)
        if not own.ordered:
            raise InvalidArgumentError("its results have names, which each runtime orders anew")
        expected = small.expected
        if expected is None:
            assert self._good is not None
            right = self._ways.run(self._good, small.module).results
            expected = tuple(
                Expected(wide(x), np.full(x.shape, math.sqrt(rounding(x.dtype)) * _largest(x)))
                if rounding(x.dtype)
                else Expected(x, None)
                for x in right
            )
        module = replace(own.module, problem={})
        if self._bad.backend == "reactant":  # whose sizes are reversed
            module = replace(
                module,
                inputs=tuple(x.T for x in module.inputs),
                results=tuple({**x, "shape": x["shape"][::-1]} for x in module.results),
            )
            expected = tuple(
                replace(x, value=x.value.T, bound=None if x.bound is None else x.bound.T)
                for x in expected
            )
        return replace(own, module=module, expected=expected)

    def of_runtime(
        self, small: Lowered, failure: Failure, out: Path, save: Callable[..., None]
    ) -> None:
        """Find what is wrong in the module that a runtime lowers, if JAX's compiler shows it."""
        try:
            lowered = self.as_lowered(small)
        except (DeadlineError, RequirementError):
            raise
        except PyReactantError as error:
            save(cause="runtime", lowered=f"none: {error}")
            return
        inner = _Bisection(self._ways, self._editor, None, COMPILED)
        jax = f"{COMPILED.text} (jax {self._ways.versions(COMPILED)['versions']['jax']})"
        if inner.fails(lowered, failure):
            save(lowered=f"it fails on {jax}, too")
            inner.cause(lowered, failure, out, save)
            return
        ran = self._ways.run(COMPILED, lowered.module)
        what = f"{jax} does not run it ({ran.outcome}): {ran.message.partition(chr(10))[0]}"
        save(cause="runtime", lowered=what if ran.message else f"it is right on {jax}")

    def cause(self, small: Lowered, failure: Failure, out: Path, save: Callable[..., None]) -> None:
        """Find what is wrong, and save it step by step."""
        if self._bad.backend:
            self.of_runtime(small, failure, out, save)
            return
        if own := self.own_fault(small, failure):
            assert small.expected is not None
            wanted = rounded(small)
            limits = [
                0.0 if want.bound is None else want.allowed(array.dtype)
                for want, array in zip(small.expected, wanted, strict=True)
            ]
            save(cause="program", good=own)
            save(**self.show(out, small.module, failure, wanted, limits))
            return
        save(cause="compiler")
        dumps = self.dumps(small, failure, out / "dump")
        compares = failure.outcome is Outcome.RAN and small.module.partitions == 1
        if first := compares and self.first_wrong(small, dumps):
            save(first_wrong=first)
        else:
            save(passes=self.passes(small, failure, dumps))
        search = Search(self._ways, self._editor, self._bad, failure)
        part, good = cut(search, small.module, self._goods)
        if part is None or good is None:
            return
        there, here = (self._ways.versions(way)["versions"]["jax"] for way in (good, self._bad))
        right = good.text if there == here else f"{good.text} (jax {there})"
        save(good=right, operations=part.operations, operations_of=part.of, trips=part.trips)
        part = with_small_shapes(part, search, good)
        save(module=part.module.text)
        limits = [failure.limit(x.dtype) * _largest(x) for x in part.wanted]
        save(**self.show(out, part.module, failure, part.wanted, limits))


def rounded(lowered: Lowered) -> list[np.ndarray]:
    """What the oracle expects, in the types of the results."""
    assert lowered.expected is not None
    pairs = zip(lowered.expected, lowered.module.results, strict=True)
    with np.errstate(all="ignore"):
        return [np.asarray(e.value).astype(as_dtype(r["dtype"])) for e, r in pairs]


def _largest(array: np.ndarray) -> float:
    if not rounding(array.dtype):
        return 0.0
    return float(np.max(np.abs(array).astype(float), initial=0.0, where=np.isfinite(array)))


def bisect(
    problem: Problem,
    *,
    good: Way | None,
    bad: Way,
    out: Path,
    where: str,
    each: float = 120.0,
    timeout: float = math.inf,
) -> Result:
    """Cut a program that fails down to what is wrong.

    Args:
        problem: The program and what it runs on.
        good: The way that is right; None means the program's oracle, and for parts of it jaxlib's
            reference interpreter, or the CPU without optimizations.
        bad: The way that fails.
        out: Folder of the result; what an earlier call left there is used.
        where: What was given, for messages.
        each: Seconds that one run may take.
        timeout: Seconds for all.

    Raises:
        InvalidArgumentError: The program does not fail, or cannot be lowered.
        RequirementError: A way does not start here, or the folder cannot be written.
        DeadlineError: The time is over; the folder has the partial result.
    """
    devices = math.prod(problem.mesh["shape"]) if problem.mesh else 8
    until = time.monotonic() + timeout
    with (
        writing(out, "give another folder with --out"),
        Ways(out / RUNS, devices, each, until) as ways,
        Editor(ways.ask) as editor,
    ):
        question = {**asdict(problem), "good": good and good.text, "bad": bad.text}
        if _question_of(out) != question:
            _remove_result(out)
        for way in filter(None, (good, bad)):
            started = ways.versions(way)
            if "error" in started:
                raise from_data(started["error"])
            if started["outcome"] != Outcome.RAN:
                raise RequirementError(
                    f"{way.text} does not start here ({started['outcome']}): {started['message']}; "
                    f"correct what {argument('good')} and {argument('bad')} say"
                )
            if problem.mesh and started["devices"] < devices:
                raise RequirementError(
                    f"{way.text} has {counted(started['devices'], 'device')}, but {where} ran on "
                    f"{devices}; give a way that has them, or the program itself"
                )
            ways.devices = min(ways.devices, started["devices"])
        steps = _Bisection(ways, editor, good, bad)
        try:
            first, failure = steps.first(problem, where)
        except InvalidArgumentError:  # nothing fails, or not any more
            _remove_result(out)
            raise
        _remove_result(out)
        result: Result = {
            "question": question,
            "program": first.name,
            "bad": bad.text,
            "versions": started["versions"],
            "outcome": failure.outcome,
            "rate": failure.rate,
            "message": failure.message,
            "problem": first.problem.text,
            "smallest": first.problem.text,
            "complete": False,
        }

        def save(**more: Any) -> None:
            result.update(more)
            write_json(marked("bisect", result), out / RESULT)
            write_text(report(result, out), out / TEXT)

        save()
        small = steps.smallest(first, failure)
        save(smallest=small.problem.text)
        steps.cause(small, failure, out, save)
        ends = {end: ways.ends[bad, end] for end in (Outcome.CRASH, Outcome.HANG)}
        others = {end: n for end, n in ends.items() if n and end is not failure.outcome}
        save(complete=True, others=others)
    return result


def _question_of(folder: Path) -> Any:
    """What was asked when a folder got its result; None without one."""
    with contextlib.suppress(FileError):
        return read_json(folder / RESULT, "a result of pyreactant bisect").get("question")
    return None


def _remove_result(folder: Path) -> None:
    """Remove an earlier result, which would look like this one; its runs are kept."""
    for name in (RESULT, TEXT, SCRIPT):
        (folder / name).unlink(missing_ok=True)


_HOW = {
    Outcome.RAN: "wrong values",
    Outcome.CRASH: "the process crashes",
    Outcome.HANG: "no answer within the deadline",
    Outcome.INVALID: "the compiler or the runtime refuses it",
}


def _versions_text(result: Mapping[str, Any]) -> str:
    own = result["versions"].items()
    return ", ".join(text if name == "device" else f"{name} {text}" for name, text in own)


def lines_of(result: Mapping[str, Any]) -> list[str]:
    """A result in a few lines."""
    rate, get = result["rate"], result.get
    why = f" ({result['message'][:200]})" if result["message"] else ""
    often = f", in {rate:.0%} of the runs" if rate < 1 else ""
    lines = [
        f"program     {result['program']}, {result['problem']}",
        f"fails on    {result['bad']}: {_versions_text(result)}",
        f"failure     {_HOW[result['outcome']]}{often}{why}",
        f"smallest    {result['smallest']}",
    ]
    if get("lowered"):
        lines.append(f"its module  {get('lowered')}")
    if get("cause") == "program":
        lines.append(f"cause       the program or its oracle: as wrong on {result['good']}")
    elif get("good"):
        lines.append(f"right on    {result['good']}")
    if get("passes"):
        lines.append(f"pass        {', '.join(result['passes'])}: right without")
    if get("first_wrong"):
        lines.append(f"pass        {get('first_wrong')}: the first after which it is wrong")
    if get("operations"):
        names = result["operations"]
        count = f"{len(names)} of {result['operations_of']}"
        where = "".join(f", in trip {trip} of a loop" for trip in get("trips", ()))
        lines.append(f"operations  {count}: {', '.join(names[-8:])}{where}")
    elif result["complete"] and get("cause") == "compiler":
        lines.append("operations  no part of the module is wrong by itself")
    if get("got"):
        at = list(result["element"])
        lines.append(f"element     {at} is {result['got']}, right is {result['right']}")
    for end, count in get("others", {}).items():
        lines.append(f"besides     {counted(count, 'smaller program')}: {_HOW[end]}")
    if not result["complete"]:
        lines.append("unfinished  the same command goes on here")
    return lines


def report(result: Mapping[str, Any], folder: Path) -> str:
    """The text of a bug report."""
    names, good = result.get("operations"), result.get("good")
    what = f"module of {', '.join(names[-4:])}" if names else f"program {result['program']}"
    how, at = _HOW[result["outcome"]].capitalize(), _versions_text(result)
    parts = [f"# {how}: {what} on {at}"]
    if result.get("got"):
        by = "its oracle expects it" if result["cause"] == "program" else f"{good} gives it"
        by = by.replace("interpreter", "jaxlib's reference interpreter")
        parts.append(
            f"Element {list(result['element'])} of a result of this {what} is {result['got']}. "
            f"Right is {result['right']}: {by}, with the same inputs."
        )
    if result.get("cause") == "program":
        parts.append(
            f"It is as wrong on {good}, so XLA's optimizations are not to blame: correct the "
            "program's body, or its oracle."
        )
    if result["complete"] and result.get("command"):
        parts.append(
            f"The script needs jax and NumPy, and the files beside it if it opens some. It ends "
            f"with 0 only if nothing is wrong: `{result['command']}`"
        )
        parts.append(f"```python\n{(folder / SCRIPT).read_text()}```")
    if result.get("module"):
        parts.append(f"The module (StableHLO):\n\n```mlir\n{result['module'].strip()}\n```")
    parts.append("It was found by making a larger program smaller, as long as it failed so:")
    parts.append("```text\n" + "\n".join(lines_of(result)) + "\n```")
    return "\n\n".join(parts) + "\n"
