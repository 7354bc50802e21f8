"""The report of a cross-check: JSON, HTML, terminal and notebook."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..._errors import FileError
from ..._pages.page import HasPage, can_render
from ..._system.files import json_lines, read_json, write_text
from ..._version import __version__
from .._records.records import SCHEMA, check_version
from .._records.verdict import ArrayPlan, BlockVerdict, Pair, plain
from .data import GradientResult, ReportData, Result, Row, RunFacts, SetResult
from .html import fragment, page
from .text import renderable, verdict


@dataclass(frozen=True, slots=True)
class Report(ReportData, HasPage):
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
        return head | {
            name: plain(getattr(self, name)) for name in (field.name for field in fields(self))
        }

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
            tuple(GradientResult(**_floats(one)) for one in data.get("gradients", ())),
        )

    def to_json(self, path: str | Path | None = None) -> str:
        """The report as JSON; also written to `path` if given.

        Raises:
            FileError: The file cannot be written.
        """
        text = json_lines(self.to_dict()) + "\n"
        if path is not None:
            write_text(text, Path(path))
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

    def _page(self) -> str:
        return page(self)

    def to_text(self, width: int = 120) -> str:
        """The report as plain text for a terminal of this width."""
        from rich.console import Console

        console = Console(width=width, highlight=False, no_color=True, force_terminal=False)
        with console.capture() as captured:
            console.print(self)
        return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())

    def __str__(self) -> str:
        return self.to_text()

    def __rich__(self) -> Any:
        return renderable(self)

    def _repr_html_(self) -> str | None:
        return fragment(self) if can_render() else None  # a notebook shows the text then


def _row(data: Mapping[str, Any]) -> Row:
    results = (
        Result(
            **_floats(r)
            | {
                "blocks": tuple(map(BlockVerdict.from_dict, r["blocks"])),
                "sets": tuple(SetResult(**_floats(one)) for one in r["sets"]),
            }
        )
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
    """Convert numbers back, including those that were not finite and became strings."""
    names = {"error", "allowed", "ratio", "ulps", "relative_norm", "difference", "sensitivity"}
    return {key: float(value) if key in names else value for key, value in data.items()}
