"""The page of a cross-check, and its table for a notebook.

The page has one line for each program, then each program with its figures: the blocks of an output
on the mesh, the numbers of each block, and where in a wrong block the wrong elements are.
"""

import math
from collections.abc import Sequence

import numpy as np

from ...arrays.mesh import Mesh
from ...arrays.text import block_text, ranges_text, seconds_text, spec_text
from ...base.counted import counted
from ...base.document.page import fragment
from ...base.document.parts import (
    Cell,
    Document,
    Figure,
    Folded,
    Group,
    Items,
    Lines,
    Paragraph,
    Part,
    Picture,
    Rectangle,
    Section,
    Table,
    commit_text,
)
from ..bounds.sight import cell_sizes
from ..records.verdict import BlockVerdict
from .data import NOT_RUN, WRONG, ProgramRow, ReportData, Result, RunFacts, SetResult
from .results import percent
from .text import (
    NONE,
    estimates,
    overview,
    problems,
    ratio_text,
    verdict,
)


def document(report: ReportData) -> Document:
    """What the page shows."""
    word = "passed" if report.passed else "did not pass"
    absent = [f"{name} did not run: {why}" for name, why in report.absent.items()]
    programs = [_program(number, row) for number, row in enumerate(report.rows)]
    return Document(
        title=f"Cross-check {word}: {_subject(report)}",
        mark=Cell(word.capitalize(), "good" if report.passed else "bad"),
        heading=_subject(report),
        summary=verdict(report),
        small=[report.created, _where(report)],
        sections=[
            Section("Not run", [Paragraph(text, "warn") for text in absent], titled=False),
            Section("What is wrong", _complaints(report)),
            Section("Programs", [overview(report), _gradients(report)], titled=False),
            Section("Each program", programs),
            Section("Versions, devices and settings", [_provenance_table(report)]),
            Section("Output of the processes", _logs(report) or [Paragraph("There is none.")]),
        ],
        footer=_FOOTER,
    )


_FOOTER = (
    "The allowed error is a bound on rounding, from the element type, the length of sums and the "
    "inputs; docs/checks.md derives it. 1 ULP is the distance of an element to the next number of "
    "its type."
)


def notebook(report: ReportData) -> str:
    """Verdict and table for a notebook, without styles of its own."""
    table = overview(report, links=False)._replace(look="facts")
    return fragment(Cell(verdict(report), "good" if report.passed else "bad"), table)


def _subject(report: ReportData) -> str:
    names = [row.program for row in report.rows]
    some = names[0] if len(names) == 1 else f"{len(names)} programs"
    return f"{some} on {' and '.join(run.name for run in report.runs)}"


def _where(report: ReportData) -> str:
    devices = {len(run.devices) for run in report.runs if run.devices}
    platforms = " and ".join(dict.fromkeys(r.platform for r in report.runs if r.platform))
    where = counted(max(devices), "device") if devices else "no devices"
    return f"{where} ({platforms})" if platforms else where


def _complaints(report: ReportData) -> list[Part]:
    """One item for each problem."""
    items = [
        (Cell(report.rows[number].program, link=f"program-{number}"), rest)
        for number, rest in problems(report)
    ]
    return [Items(items, look="complaints")] if items else []


def _logs(report: ReportData) -> list[Part]:
    return [
        Folded(
            Cell(f"{run.name}, process {process}"),
            [Lines(text) if text.strip() else Paragraph("It printed nothing.")],
        )
        for run in report.runs
        for process, text in run.logs.items()
    ]


def _gradients(report: ReportData) -> Table:
    rows: list[list[Cell | str]] = []
    for gradient in report.gradients:
        outcome, values = gradient.outcome, gradient.values
        numbers: list[Cell | str] = [NONE, NONE]
        if outcome != NOT_RUN:
            share = Cell(ratio_text(values.ratio), share=values.ratio)
            numbers = [f"{values.relative_norm:.0e}", share]
        result = Cell(outcome, outcome.look, detail=gradient.text)
        rows.append([gradient.program, gradient.argument, gradient.against, result, *numbers])
    head = ["program", "by argument", "against", "result", "error", "share of allowed"]
    return Table("Gradients of Julia bodies by Enzyme", head, rows, numbers=(4, 5))


def _program(number: int, row: ProgramRow) -> Folded:
    """The part of one program."""
    asked = f" Requested precision of products: {row.precision}." if row.precision else ""
    notes = [f"Note on {r.runtime}: {r.values.note}" for r in row.results if r.values.note]
    notes += [f"{p.first} and {p.second}: {p.text}" for p in row.pairs if p.passed]
    further = Table(
        f"Further inputs of {row.program}",
        ["runtime", "inputs", "type and sharding", "elements", "checked"],
        [
            [r.runtime, each.inputs, f"{each.dtype} {each.specs}", each.text, _checked_text(each)]
            for r in row.results
            for each in r.sets
        ],
    )
    drawn = [figure for result in row.results for figure in _figures(row, result)]
    return Folded(
        Cell(row.program, "good" if row.passed else "bad"),
        [
            Paragraph(f"Tolerance: {_tolerance(row)}.{asked}"),
            *map(Paragraph, notes),
            Group([_arrays(row), _checks(row)], "side"),
            further,
            Group(drawn, "figures"),
        ],
        note=row.summary,
        id=f"program-{number}",
        open=not row.passed,
    )


def _checked_text(result: SetResult) -> str:
    """How results of a set were checked, and how far they were off."""
    if result.outcome == WRONG:
        return f"wrong: {result.kind}"
    values = result.values
    if values.error == 0:
        how = {"exact oracle": "equal bits", "whole numbers": "equal numbers"}
        text = how.get(values.method, "no error")
    else:
        text = f"{values.ratio:.2g} of {'the estimate' if values.estimated else 'allowed'}"
        text += f", sees errors above {percent(result.sensitivity)}"
    if values.non_finite:
        text += f", {values.non_finite} NaN or infinities in place"
    return text


def _tolerance(row: ProgramRow) -> str:
    if row.exact:
        return "none, because results are exact"
    return "; ".join(estimates(row)) or "derived from rounding"


def _arrays(row: ProgramRow) -> Table:
    rows = [
        [
            name,
            plan.dtype,
            " x ".join(map(str, plan.shape)) or "scalar",
            spec_text(plan.sharding.spec) or "not cut",
        ]
        for name, plan in row.plans.items()
    ]
    return Table(f"Arrays of {row.program}", ["array", "type", "shape", "sharded by"], rows)


def _checks(row: ProgramRow) -> Table:
    """How each runtime's values were checked, and the times of all steps."""
    steps = list(dict.fromkeys(key for r in row.results for key in r.seconds))
    seen = ["errors seen above"] if any(r.sensitivity for r in row.results) else []
    sights = {r.runtime: r.values.sight for r in row.results}
    counted = {
        "elements not seen": {name: sight.blind for name, sight in sights.items()},
        "constant elements": {name: sight.trivial for name, sight in sights.items()},
    }
    shown = {title: counts for title, counts in counted.items() if any(counts.values())}
    rows = [
        [
            r.runtime,
            r.values.method or "nothing",
            *[percent(r.sensitivity) if r.sensitivity else NONE for _ in seen],
            *(f"{counts[r.runtime]} of {sights[r.runtime].elements}" for counts in shown.values()),
            *(seconds_text(r.seconds[step]) if step in r.seconds else NONE for step in steps),
        ]
        for r in row.results
    ]
    head = ["runtime", "checked by", *seen, *shown, *steps]
    caption = f"Checks and times of {row.program}, of the slowest process"
    return Table(caption, head, rows, numbers=range(2, len(head)))


def _provenance_table(report: ReportData) -> Table:
    """Versions, devices, settings and commit, with one column per runtime."""
    columns = [_provenance(run) for run in report.runs]
    keys = dict.fromkeys(key for column in columns for key, value in column.items() if value)
    rows = [[key, *(column.get(key) or "-" for column in columns)] for key in keys]
    return Table(
        "Where the results come from", ["fact", *(r.name for r in report.runs)], rows, look="facts"
    )


def _provenance(run: RunFacts) -> dict[str, str]:
    kinds = dict.fromkeys(f"{d['platform']} ({d['kind']})" for d in run.devices)
    return {
        "runtime": run.backend,
        "devices": f"{len(run.devices)}: {', '.join(kinds)}" if kinds else "",
        "processes": f"{run.num_processes} on {', '.join(run.hosts)}" if run.hosts else "",
        **{key: value for key, value in run.facts.items() if value},
        "commit": commit_text(run.ended.get("git") or {}),
        "started": str(run.ended.get("started", "")),
        "duration": seconds_text(run.ended["seconds"]) if "seconds" in run.ended else "",
        "ended": f"{run.ended.get('cause')}: {run.ended.get('summary')}" if run.ended else "",
        "folder": run.folder,
    }


_WITH_TEXT = 64
"""Most devices of a mesh whose cells have text; with more, a cell is only a sign."""

_DRAWN = 1024
"""Most devices of a mesh that is drawn."""

_MAPS = 8
"""Most maps of wrong elements that are drawn; equal ones are one."""

_ROWS = 64
"""Most blocks in the table of their numbers."""


_ON_MESH = "Devices (d) and processes (p) on the mesh, with their blocks"
_ON_MAPS = (
    "Wrong elements within the block, on a grid of at most 16 x 16 cells; a stronger colour is "
    "more of them. All dimensions but the last run down."
)


def _figures(row: ProgramRow, result: Result) -> list[Figure]:
    """For each output that has blocks: its devices on the mesh, the wrong elements, the numbers."""
    outputs = (name for name in row.plans if name.startswith("output"))
    blocks_of = ((name, [b for b in result.blocks if b.array == name]) for name in outputs)
    return [
        Figure(f"{result.runtime}: {name}", _parts_of(row, result.runtime, name, blocks))
        for name, blocks in blocks_of
        if blocks
    ]


def _parts_of(
    row: ProgramRow, runtime: str, name: str, blocks: Sequence[BlockVerdict]
) -> list[Part]:
    mesh = row.plans[name].sharding.mesh
    parts: list[Part] = [_on_mesh(mesh, blocks)] if mesh.size <= _DRAWN else []
    alike: dict[str, list[BlockVerdict]] = {}
    for block in blocks:
        if block.values.places is not None:
            alike.setdefault(f"{_shape(block)} {block.values.places}", []).append(block)
    groups = list(alike.values())
    if groups:
        parts += [Paragraph(_ON_MAPS, "small"), Group(list(map(_map, groups[:_MAPS])), "maps")]
    if groups[_MAPS:]:
        more = sum(map(len, groups[_MAPS:]))
        parts.append(Paragraph(f"and {more} more wrong blocks", "small"))
    return [*parts, Folded(Cell("numbers of each block"), [_numbers(f"{runtime}: {name}", blocks)])]


def _shape(block: BlockVerdict) -> list[int]:
    return [stop - start for start, stop in block.index or []]


def _map(blocks: Sequence[BlockVerdict]) -> Picture:
    """The picture of blocks that are wrong in the same places."""
    block, shape = blocks[0], _shape(blocks[0])
    places = np.array(block.values.places, np.int64)
    height, width = places.shape
    across = np.array(cell_sizes(shape[-1] if shape else 1, width))
    down = np.array(cell_sizes(math.prod(shape[:-1]), height))
    parts = places / np.outer(down, across)
    lines, columns = (np.flatnonzero(places.any(axis)) for axis in (1, 0))
    where = [f"{at[0]} to {at[-1]}" for at in (lines, columns) if at.size]
    wrong, elements = block.values.wrong, math.prod(shape)
    every = wrong == elements
    some = (
        "every element is"
        if every
        else f"{wrong} of {elements} elements {'is' if wrong == 1 else 'are'}"
    )
    several = len(blocks) > 1
    who = f"device{'s' * several} {ranges_text(b.device for b in blocks)}"
    return Picture(
        text=f"wrong in lines {' and columns '.join(where)} of {height} x {width}",
        width=width,
        height=height,
        rectangles=[
            Rectangle(int(j), int(i), 1, 1, 0, max(0.25, round(float(parts[i, j]), 3)))
            for i, j in np.argwhere(places)
        ],
        caption=f"{who}: {some} wrong{' in each' if several and not every else ''}",
        look="map",
    )


def _on_mesh(mesh: Mesh, blocks: Sequence[BlockVerdict]) -> Table:
    """Each device at its place on the mesh: the last axis runs across, all others down.

    A mesh of one axis runs down, so that text has room.
    """
    names, shape = mesh.axis_names, mesh.shape
    if len(names) == 1:
        shape = (*shape, 1)
    first = f"{names[0]}=" if len(names) < 3 else ""
    down = [first + ".".join(map(str, at)) for at in np.ndindex(shape[:-1])]
    across = [f"{names[-1]}={i}" if len(names) > 1 else "" for i in range(shape[-1])]
    by_device = {block.device: block for block in blocks}
    text = mesh.size <= _WITH_TEXT
    cells = [_cell(device, by_device.get(device), text) for device in mesh.device_ids]
    lines = [cells[at : at + shape[-1]] for at in range(0, len(cells), shape[-1])]
    bars = any(cell.share is not None for cell in cells)
    return Table(
        f"{_ON_MESH}{'; bars show the share of allowed' if bars else ''}.",
        ["", *across],
        [[label, *line] for label, line in zip(down, lines, strict=True)],
        look="mesh",
    )


def _cell(device: int, block: BlockVerdict | None, text: bool) -> Cell:
    if block is None:
        return Cell(f"d{device}" if text else "", "bad", detail="no block" if text else "")
    look = "" if block.passed else "bad"
    if not text:
        return Cell("" if look else "·", look)
    where = block_text(block.index).strip("[]") or "all of it"
    share = block.values.ratio if block.passed else None
    return Cell(f"d{device} p{block.process}", look, detail=where, share=share)


def _numbers(title: str, blocks: Sequence[BlockVerdict]) -> Table:
    order = sorted(blocks, key=lambda b: (b.passed, -b.values.ratio, b.device))
    rows: list[list[Cell | str]] = [
        [
            str(b.device),
            str(b.process),
            block_text(b.index),
            Cell("right", "good") if b.passed else Cell(", ".join(b.kinds) or "wrong", "bad"),
            f"{b.values.error:.2e}",
            f"{b.values.allowed:.2e}",
            ratio_text(b.values.ratio),
            f"{b.values.ulps:.3g}",
        ]
        for b in (order[:_ROWS] if len(order) > _ROWS else blocks)
    ]
    return Table(
        f"Blocks of {title}",
        ["device", "process", "block", "verdict", "error", "allowed", "share of allowed", "ULP"],
        rows,
        numbers=(4, 5, 6, 7),
        left_out=len(order) - len(rows),
    )
