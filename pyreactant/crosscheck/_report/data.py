"""The results of a cross-check as plain data: programs, runtimes, runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._records.verdict import ArrayPlan, BlockVerdict, Pair

RIGHT, WRONG, RAISED, NOT_RUN, UNCHECKED = "right", "wrong", "raised", "not run", "unchecked"


@dataclass(frozen=True, slots=True)
class Result:
    """One program on one runtime.

    Attributes:
        runtime: Its name.
        outcome: "right", "wrong", "raised", "not run", or "unchecked" (there is no oracle).
        kind: What kind of wrong it looks like; "" where it does not.
        text: What is wrong: program, runtime, process, device, block, element; or who raised
            what.
        exit_code: Of what was raised.
        method: How values were checked.
        error: Largest distance from the oracle.
        allowed: What rounding can make where error over allowed is largest.
        ratio: That quotient.
        ulps: Largest error in units in the last place.
        relative_norm: Largest of a block.
        seconds: Placing, compiling, calls, checking; of the slowest process.
        blocks: The verdict on each block of each output, and on inputs that are wrong.
    """

    runtime: str
    outcome: str
    kind: str = ""
    text: str = ""
    exit_code: int = 0
    method: str = ""
    error: float = 0.0
    allowed: float = 0.0
    ratio: float = 0.0
    ulps: float = 0.0
    relative_norm: float = 0.0
    seconds: Mapping[str, Any] = field(default_factory=dict)
    blocks: tuple[BlockVerdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One program on all runtimes.

    Attributes:
        program: Its name.
        summary: What it computes, in a few words.
        oracle: Whether a right answer is known.
        exact: Whether it is the same to the last bit.
        problem: Size, dtype, seed, mesh and partition specs.
        precision: With which products were compiled.
        communicated: Bytes that each device receives, by the closed form; None without one.
        plans: Shape, dtype and sharding of inputs and outputs, by array name.
        results: One for each runtime.
        pairs: One for each two of them.
    """

    program: str
    summary: str
    oracle: bool
    exact: bool
    problem: Mapping[str, Any]
    precision: str | None
    communicated: int | None
    plans: Mapping[str, ArrayPlan]
    results: tuple[Result, ...]
    pairs: tuple[Pair, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether each runtime is right, and all agree."""
        wanted = (RIGHT, UNCHECKED) if self.pairs else (RIGHT,)
        return all(r.outcome in wanted for r in self.results) and all(p.passed for p in self.pairs)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Where the results of a runtime come from.

    Attributes:
        name: What the report calls it.
        backend: Runtime.
        platform: "cpu", "gpu" or "tpu"; "" where no process came as far as to say it.
        folder: Its files.
        num_processes: How many there were.
        hosts: Their machines.
        devices: All devices, as `pyreactant.devices()` gives them.
        facts: Versions and settings of process 0.
        ended: How the supervised run ended: cause, exit code, summary, seconds, started, git.
        logs: The last lines that each process printed, by process.
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
class ReportData:
    """What a cross-check found, without the ways to show it.

    Attributes:
        rows: One for each program.
        runs: One for each runtime.
        absent: Runtimes that were not there, with how to get them.
        created: When, in UTC.
    """

    rows: tuple[Row, ...]
    runs: tuple[RunFacts, ...]
    absent: Mapping[str, str]
    created: str

    @property
    def passed(self) -> bool:
        """Whether every program is right on every runtime, all agree, and all runs ended well."""
        return bool(self.rows) and all(row.passed for row in self.rows) and not self.broken

    @property
    def broken(self) -> tuple[RunFacts, ...]:
        """The runs that did not end well, be it after the last program."""
        return tuple(run for run in self.runs if run.ended.get("exit_code"))

    @property
    def exit_code(self) -> int:
        """0 passed, 5 something is wrong, else that of what was raised or broke a run."""
        if self.passed:
            return 0
        results = [result for row in self.rows for result in row.results]
        if any(r.outcome == WRONG for r in results):
            return 5
        if any(not pair.passed for row in self.rows for pair in row.pairs if pair.compared):
            return 5
        codes = [r.exit_code for r in results if r.outcome in (RAISED, NOT_RUN) and r.exit_code]
        codes += [int(run.ended["exit_code"]) for run in self.broken]
        return codes[0] if codes else 3 if any(r.outcome == UNCHECKED for r in results) else 1
