"""The page of a plan."""

from typing import TYPE_CHECKING

from ..._core.text import bytes_text, seconds_text
from ..._pages.page import render
from ..._pages.parts import Cell, Table
from .commands import remarks
from .pictures import WIDTH, placement, times
from .words import (
    LEGEND,
    MEASURED_LEGEND,
    considered_text,
    mesh_text,
    remarks_on_rows,
    shapes_text,
    verdict_text,
    where_text,
)

if TYPE_CHECKING:
    from .report import Candidate, Plan


def page(found: "Plan") -> str:
    """The whole page.

    Raises:
        RequirementError: jinja2 is not installed.
    """
    best, where, lines = found.best, where_text(found), times(found)
    word = "Nothing fits" if best is None else "Fastest layout"
    if len(found.tied) > 1:
        word = "Layouts tie"
    if found.interrupted:
        word += " so far"
    return render(
        "plan.html",
        title=f"Plan of {found.program} on {where}",
        mark=Cell(word, "bad" if best is None else "good"),
        heading=f"{found.program} {shapes_text(found)} {found.dtype} on {where}",
        summary=_summary(found),
        small=["measured" if found.measured else "compiled, not run: all times are estimates"],
        table=_table(found),
        times=lines,
        bar_names=list(dict.fromkeys(bar[:2] for line in lines for bar in line.bars)),
        placement=placement(found),
        width=WIDTH,
        more=_remarks(found),
        commands=found.commands(),
        remarks=list(remarks(found)),
    )


def _summary(found: "Plan") -> str:
    best = found.best
    if best is None or best.seconds is None:
        limit = "" if found.hbm_bytes is None else f" the {bytes_text(found.hbm_bytes)} of"
        return f"No layout was found that fits{limit} a device."
    least = "at least " if best.at_least else ""
    specs, seconds = "; ".join(best.texts()), seconds_text(best.seconds)
    return f"{mesh_text(best)}, sharded by {specs}: {least}{seconds}. {verdict_text(found)}."


def _remarks(found: "Plan") -> list[str]:
    columns = MEASURED_LEGEND if found.measured else LEGEND
    legend = [f"{name}: {meaning}" for name, meaning in columns.items()]
    bars = "Bars under times are shares of the longest one"
    if found.hbm_bytes:
        bars += f"; bars under bytes are shares of a device's {bytes_text(found.hbm_bytes)}"
    return [f"{considered_text(found)}.", *legend, f"{bars}.", *remarks_on_rows(found)]


def _table(found: "Plan") -> Table:
    rows = found.rows
    matmul = found.program == "matmul"
    names = ["x", "y", "product"] if matmul else [f"argument {i}" for i in range(len(found.shapes))]
    times = ["measured"] if found.measured else ["estimate", "XLA", "links"]
    head = ["rank", "mesh", *names, *times, "sends", "per device"]
    first = 2 + len(names)
    troubles = any(one.trouble for _, one in rows)
    most = max((one.seconds or 0.0 for _, one in rows), default=0.0) or 1.0
    return Table(
        "Layouts, the fastest first",
        head + (["trouble"] if troubles else []),
        [_row(found, label, one, most)[: len(head) + troubles] for label, one in rows],
        numbers=range(first, first + len(times) + 2),
    )


def _row(found: "Plan", label: str, one: "Candidate", most: float) -> list[Cell | str]:
    times = [one.seconds] if found.measured else [one.seconds, one.xla_seconds, one.link_seconds]
    texts = ["-" if value is None else seconds_text(value) for value in times]
    first = f"> {texts[0]}" if one.at_least else texts[0]
    size, hbm = one.bytes_per_device, found.hbm_bytes
    memory = Cell(bytes_text(size), share=size / hbm if size and hbm else None)
    specs = list(one.texts())
    specs += ["-"] * ((3 if found.program == "matmul" else len(found.shapes)) - len(specs))
    return [
        Cell(label, "good" if one is found.best else ""),
        mesh_text(one),
        *specs[: 3 if found.program == "matmul" else len(found.shapes)],
        Cell(first, share=None if one.seconds is None else one.seconds / most),
        *texts[1:],
        bytes_text(one.sent_bytes),
        memory,
        one.trouble,
    ]
