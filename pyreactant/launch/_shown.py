"""What the text and the page of a run both show: how processes ended, and the first failure."""

from collections.abc import Mapping, Sequence
from typing import Any

from ._output import own_lines

Row = Mapping[str, Any]
"""A process of the report."""


def texts(error: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the process that broke the run left, with titles: the traceback, or its last lines."""
    process, trace = error.get("process"), str(error.get("traceback") or "")
    printed, left_out = own_lines(str(error.get("log_tail") or ""))
    without = f" (without {left_out} of Gloo)" if left_out else ""
    found = [
        (f"traceback of process {process}", trace),
        (f"last lines that process {process} printed{without}", "" if trace else printed),
        (f"Python stacks of process {process}", str(error.get("stacks") or "")),
    ]
    return [(title, text) for title, text in found if text.strip()]


def ends(rows: Sequence[Row], culprit: int | None) -> list[tuple[str, list[Row]]]:
    """The processes by how they ended: what broke the run, other failures, and then the rest."""
    order = sorted(
        rows,
        key=lambda r: (
            r["index"] != culprit,
            r["exit_code"] == 0,
            r["by_supervisor"],
            r["index"],
        ),
    )
    found: dict[str, list[Row]] = {}
    for row in order:
        found.setdefault(str(row["state"]), []).append(row)
    return list(found.items())
