"""The results of a cross-check as plain data: programs, runtimes, runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ...base.errors import ExitCode
from ..bounds.verdict import Verdict
from ..records.plain import Plain
from ..records.verdict import BlockVerdict, Pair, ProgramFacts


class Outcome(StrEnum):
    """What became of a program on a runtime.

    It is unchecked without an oracle, or with one whose tolerances are so wide that they show
    nothing.
    """

    RIGHT = "right"
    WRONG = "wrong"
    RAISED = "raised"
    NOT_RUN = "not run"
    UNCHECKED = "unchecked"

    @property
    def look(self) -> str:
        """Its look in a document."""
        return {Outcome.RIGHT: "good", Outcome.NOT_RUN: "warn", Outcome.UNCHECKED: "warn"}.get(
            self, "bad"
        )


RIGHT, WRONG, RAISED, NOT_RUN, UNCHECKED = Outcome


@dataclass(frozen=True, slots=True)
class SetResult(Plain):
    """A further set of inputs of one program on one runtime, or another layout or element type.

    Attributes:
        inputs: Name of the set: "ordinary", "wide", "special" or "exact".
        text: What its elements are; "" for ordinary ones.
        outcome: Right or wrong.
        kind: Kind of fault; "" if there is none.
        complaint: Description of the fault; "" if there is none.
        values: The verdict on all blocks of the outputs (`results.on_all`).
        sensitivity: See `Result`; that of further sets changes no outcome.
    """

    inputs: str
    text: str
    dtype: str
    specs: str
    outcome: Outcome
    kind: str = ""
    complaint: str = ""
    values: Verdict = field(default_factory=Verdict)
    sensitivity: float = 0.0


@dataclass(frozen=True, slots=True)
class Result(Plain):
    """One program on one runtime.

    Attributes:
        runtime: Name of the runtime or folder.
        kind: Kind of fault; "" if there is none.
        text: Description of the fault with program, runtime, process, device, block and element,
            or of the exception with its process; "" if there is none.
        exit_code: Exit code of the exception or of the failed run.
        values: The verdict on all blocks of the outputs (`results.on_all`). Its note is a remark
            that makes nothing wrong: copies that may differ, and do; a block with much larger
            errors than the others; elements that were not seen. Its sight counts copies once.
        sensitivity: The median tolerance over the root mean square of the result, in the output
            where it is worst: the relative size of the smallest errors that are seen.
        derived_sensitivity: The same by the derived bounds alone, without the typical limit.
        coarse: Whether the result is right with the remark that smaller errors are not seen.
        seconds: Seconds for placing, compiling, calls and checking, of the slowest process.
        blocks: The verdicts on all blocks of the outputs and on wrong blocks of inputs.
        sets: Further sets of inputs, and further layouts and element types.
    """

    runtime: str
    outcome: Outcome
    kind: str = ""
    text: str = ""
    exit_code: int = 0
    values: Verdict = field(default_factory=Verdict)
    sensitivity: float = 0.0
    derived_sensitivity: float = 0.0
    coarse: bool = False
    seconds: Mapping[str, Any] = field(default_factory=dict)
    blocks: tuple[BlockVerdict, ...] = ()
    sets: tuple[SetResult, ...] = ()

    @property
    def ratio(self) -> float:
        """The largest error over the tolerance, that of `values`."""
        return self.values.ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRow(ProgramFacts):
    """One program on all runtimes.

    Attributes:
        results: One result for each runtime.
        pairs: One comparison for each pair of runtimes.
    """

    results: tuple[Result, ...]
    pairs: tuple[Pair, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the program is right on each runtime and the runtimes agree."""
        return all(r.outcome in self.accepted for r in self.results) and all(
            p.passed for p in self.pairs
        )

    @property
    def accepted(self) -> tuple[Outcome, ...]:
        """Outcomes that pass; only a program without an oracle is compared between runtimes."""
        return (RIGHT, UNCHECKED) if self.pairs and not self.oracle else (RIGHT,)


@dataclass(frozen=True, slots=True)
class RunFacts(Plain):
    """Facts about one run: runtime, machines, versions and how it ended.

    Attributes:
        name: The run's name in the report.
        platform: "" if no process got far enough to report it.
        devices: All devices, as `pyreactant.devices()` returns them.
        facts: Versions and settings of process 0.
        ended: How the supervised run ended: cause, exit code, summary, seconds, started, git.
        logs: The last lines of each process's log, by process.
    """

    name: str
    backend: str
    platform: str
    folder: str
    num_processes: int
    hosts: tuple[str, ...]
    devices: tuple[Mapping[str, Any], ...]
    facts: Mapping[str, str]
    ended: Mapping[str, Any]
    logs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GradientResult(Plain):
    """Enzyme's gradient of a Julia body inside JAX, by one argument.

    Attributes:
        argument: The argument, in words.
        against: What the gradient is compared with.
        text: Why it did not run, if Enzyme or the function cannot be differentiated.
    """

    program: str
    argument: str
    against: str
    values: Verdict = field(default_factory=Verdict)
    text: str = ""

    @property
    def outcome(self) -> Outcome:
        """Right, wrong or not run."""
        if self.text:
            return NOT_RUN
        return RIGHT if self.values.passed else WRONG

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return Plain.to_dict(self) | {"outcome": self.outcome}


@dataclass(frozen=True, slots=True)
class ReportData(Plain):
    """The data of a cross-check's report; `Report` adds the ways to show it.

    Attributes:
        absent: Runtimes that are not available, with how to install them.
        created: Time of creation in UTC, ISO 8601.
        gradients: Gradients of Julia bodies by Enzyme, if they were compared.
    """

    rows: tuple[ProgramRow, ...]
    runs: tuple[RunFacts, ...]
    absent: Mapping[str, str]
    created: str
    gradients: tuple[GradientResult, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all programs and gradients are right, runtimes agree, and no run failed."""
        wrong = self.broken or any(gradient.outcome == WRONG for gradient in self.gradients)
        return bool(self.rows) and all(row.passed for row in self.rows) and not wrong

    @property
    def broken(self) -> tuple[RunFacts, ...]:
        """Runs that failed, including those that failed after the last program."""
        return tuple(run for run in self.runs if run.ended.get("exit_code"))

    @property
    def exit_code(self) -> int:
        """0 if passed, 5 if something is wrong, otherwise that of the first failure."""
        if self.passed:
            return ExitCode.DONE
        results = [result for row in self.rows for result in row.results]
        if WRONG in [
            *(r.outcome for r in results),
            *(gradient.outcome for gradient in self.gradients),
        ]:
            return ExitCode.MISMATCH
        if any(not pair.passed for row in self.rows for pair in row.pairs if pair.compared):
            return ExitCode.MISMATCH
        codes = [r.exit_code for r in results if r.outcome in (RAISED, NOT_RUN) and r.exit_code]
        codes += [int(run.ended["exit_code"]) for run in self.broken]
        if codes:
            return codes[0]
        unchecked = any(r.outcome == UNCHECKED for r in results)
        return ExitCode.MISSING if unchecked else ExitCode.FAILED
