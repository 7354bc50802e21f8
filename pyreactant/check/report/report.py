"""The report of a cross-check: built from the folders of finished runs, and shown.

It is shown as JSON, as a page, in a terminal and in a notebook.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from ..._version import __version__
from ...base.document.page import HasPage, can_render
from ...base.document.parts import Document, Part
from ...base.document.terminal import HasText
from ...base.errors import ExitCode, FileError
from ...base.files import json_lines, read_json
from ...base.outputs import marked, write_output
from ...runs.supervisor.output import own_lines
from ..bounds.verdict import plain
from ..compare import compare_program
from ..faults.diagnose import (
    Differing,
    copies_text,
    diagnose,
    differing,
    must_be_equal,
    repeats_text,
)
from ..records.records import SCHEMA, ProcessRecord, Run, check_version
from ..records.verdict import RAISED as RECORD_RAISED
from ..records.verdict import ArrayPlan, Diagnosis, Kind, Pair, ProgramRecord
from .data import (
    NOT_RUN,
    RAISED,
    RIGHT,
    UNCHECKED,
    WRONG,
    GradientResult,
    ProgramRow,
    ReportData,
    Result,
    RunFacts,
)
from .html import document, notebook
from .outcome import Seen, on_all, outliers, probed, seen, unless_empty, with_sets
from .text import text_parts, verdict


@dataclass(frozen=True, slots=True)
class Report(ReportData, HasPage, HasText):
    """The results of a cross-check; rich's `print` and notebooks display it.

    Examples:
        >>> [(row.program, row.results[0].outcome) for row in report.rows]
        [('transpose', 'right')]
    """

    @property
    def verdict(self) -> str:
        """The verdict in one or two sentences."""
        return verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        head = {
            "schema": SCHEMA,
            "pyreactant": __version__,
            "passed": self.passed,
            "exit_code": self.exit_code,
            "verdict": self.verdict,
        }
        names = (field.name for field in fields(self))
        return marked(
            "crosscheck report", head | {name: plain(getattr(self, name)) for name in names}
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Report":
        """The report that `to_dict` described."""
        runs = (
            {**run, "hosts": tuple(run["hosts"]), "devices": tuple(run["devices"])}
            for run in data["runs"]
        )
        return cls(
            tuple(map(_row_from, data["rows"])),
            tuple(RunFacts(**run) for run in runs),
            data["absent"],
            data["created"],
            tuple(GradientResult(**_floats(one)) for one in data.get("gradients", ())),
        )

    def to_json(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """The report as JSON; also written to `path` if given.

        Args:
            path: The file; an earlier report in it is replaced. "-" is standard output.
            overwrite: Whether to replace a file with other content, too.

        Raises:
            FileError: The file cannot be written, or must not be replaced.
        """
        text = json_lines(self.to_dict()) + "\n"
        if path is not None:
            write_output(text, Path(path), overwrite=overwrite)
        return text

    @classmethod
    def from_json(cls, path: str | Path) -> "Report":
        """The report in a file that `to_json` wrote.

        Raises:
            FileError: The file is missing, damaged or of another version.
        """
        what = "a report of pyreactant crosscheck"
        data = read_json(Path(path), what)
        check_version(data, Path(path))
        try:
            return cls.from_dict(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(f"{path}: not {what} ({error!r})") from None

    def document(self) -> Document:
        """What the page shows."""
        return document(self)

    def parts(self, width: int) -> Iterator[Part]:
        """What a terminal shows: the table, one line per problem, and the verdict."""
        return text_parts(self)

    def _repr_html_(self) -> str | None:
        return notebook(self) if can_render() else None  # a notebook shows the text then


def _row_from(data: Mapping[str, Any]) -> ProgramRow:
    return ProgramRow(
        **{
            **data,
            "plans": {name: ArrayPlan.from_dict(plan) for name, plan in data["plans"].items()},
            "results": tuple(map(Result.from_dict, data["results"])),
            "pairs": tuple(Pair(**_floats(pair)) for pair in data["pairs"]),
        }
    )


def _floats(data: Mapping[str, Any]) -> dict[str, Any]:
    """Convert numbers back, including those that were not finite and became strings."""
    names = {"allowed", "ratio", "ulps", "relative_norm", "difference"}
    return {key: float(value) if key in names else value for key, value in data.items()}


_LOG_LINES, _LOG_BYTES = 60, 12_000
_ENDED = ("cause", "exit_code", "summary", "seconds", "started", "git", "command")


def build_report(
    runs: Sequence[Run], absent: Mapping[str, str], asked: Sequence[str] = ()
) -> Report:
    """The report on finished runs of one cross-check.

    Args:
        runs: One run for each runtime or machine.
        absent: Runtimes that are not available, with how to install them.
        asked: Requested programs, needed if no process got far enough to record them.

    Raises:
        FileError: Files of a run are missing or damaged.
    """
    names = _names(runs)
    requests = [run.records[0].request for run in runs if run.records]
    found = (p if isinstance(p, str) else p["name"] for r in requests for p in r["programs"])
    rows = tuple(_row(runs, names, program) for program in dict.fromkeys([*asked, *found]))
    facts = tuple(_facts(run, name) for run, name in zip(runs, names, strict=True))
    return Report(rows, facts, dict(absent), datetime.now(UTC).isoformat(timespec="seconds"))


def _names(runs: Sequence[Run]) -> list[str]:
    """A name for each run: the runtime, or the folder if two runs have the same runtime."""
    names = [run.name for run in runs]
    if len(set(names)) == len(names):
        return names
    folders = [run.folder.resolve() for run in runs]
    for depth in (1, 2, 3):
        longer = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(longer)) == len(longer):
            return longer
    return [f"{name} {number}" for number, name in enumerate(names, 1)]


def _row(runs: Sequence[Run], names: Sequence[str], program: str) -> ProgramRow:
    results = tuple(
        with_sets(unless_empty(_result(run, name, program), program), run, program)
        for run, name in zip(runs, names, strict=True)
    )
    pairs = tuple(
        compare_program(one, two, program, (a, b))
        for (one, a), (two, b) in combinations(zip(runs, names, strict=True), 2)
    )
    found = [record for run in runs for record in run.of(program)]
    ran = next((r for r in found if r.outcome != RECORD_RAISED), None)
    known = ran or ProgramRecord(program, RECORD_RAISED)
    return ProgramRow(
        program=program,
        summary=known.summary,
        oracle=known.oracle,
        exact=known.exact,
        problem=known.problem,
        precision=known.precision,
        communicated=known.communicated,
        plans=known.plans,
        results=results,
        pairs=pairs,
    )


def _result(run: Run, name: str, program: str) -> Result:
    records = run.of(program)
    if run.exit_code and any(record.running == program for record in run.records):
        return _interrupted(run, name, program)
    raised = [(p, r) for p in run.records if (r := p.program(program)) and r.error]
    if raised:
        return _raised(name, program, raised)
    if not records or len(records) < run.records[0].num_processes:
        return _not_run(run, name, program)
    blocks = [block for record in records for block in record.blocks]
    equal = must_be_equal(run.records)
    copies = differing(blocks, equal)
    repeats = [one for record in records for one in record.repeats]
    found = diagnose(
        blocks,
        records[0].plans,
        program=program,
        runtime=name,
        num_processes=run.records[0].num_processes,
        copies=copies,
        repeats=repeats if equal else (),
        hosts={record.process: record.host for record in run.records},
    )
    shown = [b for b in blocks if b.array.startswith("output") or not b.passed]
    outputs = [b for b in shown if b.array.startswith("output")]
    sight = seen(outputs, records[0].plans, probed=probed(records))
    outcome, text = _outcome(f"{program} on {name}", found, records[0].oracle, sight)
    differences = _note([] if copies else differing(blocks), [] if equal else repeats)
    more = [sight.note, outliers(outputs)] if outcome != WRONG else []
    return Result(
        name,
        outcome,
        kind=str(found.kind or ""),
        text=text,
        values=replace(on_all(outputs), note="; ".join(filter(None, [differences, *more]))),
        sensitivity=sight.sensitivity,
        coarse=outcome == RIGHT and sight.coarse,
        seconds=_slowest(records),
        blocks=tuple(sorted(shown, key=lambda b: (b.array, b.device))),
    )


def _outcome(what: str, found: Diagnosis, oracle: bool, sight: Seen) -> tuple[str, str]:
    """The outcome of a program that ran, and the text about it."""
    if not found.passed:
        return WRONG, found.text
    if not oracle:
        text = f"{what} has no oracle: only the placement was checked, not the values"
        return UNCHECKED, text
    if sight.unchecked:
        return UNCHECKED, f"{what} is unchecked: {sight.unchecked}"
    return RIGHT, ""


def _note(copies: Sequence[Differing], repeats: Sequence[Mapping[str, Any]]) -> str:
    """What differs and may, in one sentence; "" if nothing does."""
    found = [f"copies differ: {copies_text(copies)}"] if copies else []
    return "; ".join(found + ([repeats_text(repeats)] if repeats else []))


def _raised(
    name: str, program: str, raised: Sequence[tuple[ProcessRecord, ProgramRecord]]
) -> Result:
    """The result of a program that raised, with the process and the exception.

    The cause is preferred to messages that only report the failure of another process.
    """
    process, record = min(
        raised, key=lambda pair: " failed on process " in (pair[1].error or {})["message"]
    )
    error = record.error or {}
    messages = {(r.error or {})["message"] for _, r in raised}
    everyone = len(raised) == process.num_processes > 1 == len(messages)
    who = "every process" if everyone else f"process {process.process} on {process.host}"
    text = f"{program} on {name}: {who} raised {error['exception']}: {error['message']}"
    outcome = WRONG if error["exit_code"] == ExitCode.MISMATCH else RAISED
    kind = str(Kind.STRUCTURE) if outcome == WRONG else ""
    return Result(name, outcome, kind, text, exit_code=int(error["exit_code"]))


def _interrupted(run: Run, name: str, program: str) -> Result:
    """The result of the program during which the run failed, with the supervisor's cause."""
    text = f"{program} on {name} did not end: {(run.ended or {}).get('summary')}"
    return Result(name, RAISED, text=text, exit_code=run.exit_code)


def _not_run(run: Run, name: str, program: str) -> Result:
    """The result of a program that the run did not reach."""
    summary = (run.ended or {}).get("summary", f"no process left a record of {program}")
    text = f"{program} did not run on {name} because its run ended before: {summary}"
    return Result(name, NOT_RUN, text=text, exit_code=run.exit_code or ExitCode.FAILED)


def _slowest(records: Sequence[ProgramRecord]) -> dict[str, Any]:
    """The longest time of any process for each step."""
    numbers = [
        {key: value for key, value in r.seconds.items() if isinstance(value, (int, float))}
        for r in records
    ]
    return {key: max(n.get(key, 0.0) for n in numbers) for key in numbers[0]}


def _facts(run: Run, name: str) -> RunFacts:
    first = run.records[0] if run.records else None
    ended = {key: (run.ended or {})[key] for key in _ENDED if key in (run.ended or {})}
    processes = first.num_processes if first else len((run.ended or {}).get("processes", []))
    hosts = dict.fromkeys(record.host for record in run.records)
    return RunFacts(
        name=name,
        backend=first.backend if first else run.folder.name,
        platform=first.platform if first else "",
        folder=str(run.folder),
        num_processes=processes,
        hosts=tuple(hosts),
        devices=tuple(first.devices) if first else (),
        facts=first.facts if first else (run.ended or {}).get("facts", {}),
        ended=ended,
        logs=_logs(run.logs),
    )


def _logs(folder: Path) -> dict[str, str]:
    """The last lines of each process's log, without terminal escape sequences."""
    found = {}
    paths = folder.glob("process-*.log")
    for path in sorted(paths, key=lambda p: int("0" + re.sub("[^0-9]", "", p.stem))):
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _LOG_BYTES))
                text = file.read().decode(errors="replace")
        except OSError as error:
            text = f"cannot be read ({error.strerror})"
        plain = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", text)
        printable = "".join(c for c in plain if c.isprintable() or c in "\n\t")
        own, left_out = own_lines(printable)
        lines = own.splitlines()[-_LOG_LINES:]
        lines += [f"({left_out} of Gloo left out)"] if left_out else []
        found[path.stem.removeprefix("process-")] = "\n".join(lines)
    return found
