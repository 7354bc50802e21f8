"""The report of a cross-check: plain data, and how it is read on a terminal."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from .._errors import FileError
from ._files import SCHEMA, check_version, read_json, write_text
from ._pair import Pair
from ._plain import plain
from ._verdict import ArrayPlan, BlockVerdict

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
class Report:
    """What a cross-check found.

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

    @property
    def verdict(self) -> str:
        """One or two sentences."""
        from ._words import verdict

        return verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        said = {
            "schema": SCHEMA,
            "pyreactant": __version__,
            "passed": self.passed,
            "exit_code": self.exit_code,
            "verdict": self.verdict,
        }
        return said | {name: plain(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Report":
        """The report that `to_dict` described."""
        runs = (
            {**run, "hosts": tuple(run["hosts"]), "devices": tuple(run["devices"])}
            for run in data["runs"]
        )
        return cls(
            tuple(map(_row, data["rows"])),
            tuple(RunFacts(**run) for run in runs),
            data["absent"],
            data["created"],
        )

    def to_json(self, path: str | Path | None = None) -> str:
        """The report as JSON, and into a file if one is named.

        Raises:
            FileError: It cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        if path is not None:
            write_text(text, Path(path))
        return text

    @classmethod
    def from_json(cls, path: str | Path) -> "Report":
        """The report in a file that `to_json` wrote.

        Raises:
            FileError: It is missing, damaged or of another version.
        """
        what = "a report of pyreactant crosscheck"
        data = read_json(Path(path), what)
        check_version(data, Path(path))
        try:
            return cls.from_dict(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(f"{path}: not {what} ({error!r})") from None

    def to_html(self, path: str | Path | None = None) -> str:
        """The report as one page with pictures that needs nothing else, and into a file.

        Raises:
            RequirementError: matplotlib, which draws the pictures, is not installed.
            FileError: It cannot be written.
        """
        from ._html import page

        text = page(self)
        if path is not None:
            write_text(text, Path(path))
        return text

    def to_text(self, width: int = 120) -> str:
        """The report as a terminal without colours shows it."""
        from rich.console import Console

        console = Console(width=width, highlight=False, no_color=True, force_terminal=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get()

    def __rich__(self) -> Any:
        from ._words import renderable

        return renderable(self)

    def _repr_html_(self) -> str:
        from ._html import fragment

        return fragment(self)


def _row(data: Mapping[str, Any]) -> Row:
    results = (
        Result(**_floats(r) | {"blocks": tuple(map(BlockVerdict.from_dict, r["blocks"]))})
        for r in data["results"]
    )
    return Row(
        **{
            **data,
            "plans": {name: ArrayPlan.from_dict(plan) for name, plan in data["plans"].items()},
            "results": tuple(results),
            "pairs": tuple(Pair(**_floats(pair)) for pair in data["pairs"]),
        }
    )


def _floats(data: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers again, also where they were not finite and so are text."""
    names = {"error", "allowed", "ratio", "ulps", "relative_norm", "difference"}
    return {key: float(value) if key in names else value for key, value in data.items()}


def outcomes(report: Report, outcome: str) -> Sequence[tuple[Row, Result]]:
    """The results with this outcome, each with its row."""
    return [(row, r) for row in report.rows for r in row.results if r.outcome == outcome]
