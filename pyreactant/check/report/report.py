"""The report of a cross-check: built from the folders of finished runs, and shown.

It is shown as JSON, as a page, in a terminal and in a notebook.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from ..._version import __version__
from ...base.document.page import HasPage
from ...base.document.parts import Document, Part
from ...base.document.terminal import HasText
from ...base.errors import FileError
from ...base.files import json_lines, read_json
from ...base.outputs import marked, write_output
from ...runs.supervisor.output import own_lines
from ..compare import compare_program
from ..records.records import SCHEMA, Run, check_version
from ..records.verdict import ProgramFacts, ProgramRecord
from .data import (
    ProgramRow,
    ReportData,
    RunFacts,
)
from .html import document, notebook
from .results import result_of
from .text import text_parts, verdict


@dataclass(frozen=True, slots=True)
class Report(ReportData, HasPage, HasText):
    """The results of a cross-check; rich's `print` and notebooks display it.

    Each of its `rows` is a program, with `program` (its name), `passed`, `results` (one for each
    runtime) and `pairs` (comparisons of runtimes). A result has `runtime`, `outcome`, `kind` and
    `text` of what is wrong, `values` (the largest errors), `ratio` and `blocks`, each with its
    `kinds`. docs/crosscheck.md has all fields.

    Examples:
        >>> [(row.program, str(row.results[0].outcome)) for row in report.rows]
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
        return marked("crosscheck report", head | ReportData.to_dict(self))

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

    def parts(self) -> Iterator[Part]:
        """What a terminal shows: the table, one line per problem, and the verdict."""
        return text_parts(self)

    def _repr_html_(self) -> str:
        return notebook(self)


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
    named = (p if isinstance(p, str) else p["name"] for r in requests for p in r["programs"])
    rows = tuple(_row(runs, names, program) for program in dict.fromkeys([*asked, *named]))
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
    results = tuple(result_of(run, name, program) for run, name in zip(runs, names, strict=True))
    pairs = tuple(
        compare_program(one, two, program, (a, b))
        for (one, a), (two, b) in combinations(zip(runs, names, strict=True), 2)
    )
    records = [record for run in runs for record in run.of(program)]
    known = next((r for r in records if r.error is None), ProgramRecord(program=program))
    about = {field.name: getattr(known, field.name) for field in fields(ProgramFacts)}
    return ProgramRow(**about, results=results, pairs=pairs)


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
    logs = {}
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
        logs[path.stem.removeprefix("process-")] = "\n".join(lines)
    return logs
