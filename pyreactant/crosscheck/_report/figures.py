"""The page's pictures: accuracy, times and communicated bytes, and blocks on the mesh."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._core.mesh import Mesh
from ..._core.text import block_text, bytes_text, seconds_text
from .._records.verdict import ArrayPlan, BlockVerdict
from .data import RIGHT, WRONG, ReportData, Result, Row
from .svg import BAD, INK, MUTED, PAPER, SERIES, Picture, new_figure, styled, to_svg
from .text import ratio_text

_WIDTH = 4.4
"""Width in inches (420 pixels), so that text keeps its size on a phone."""

_MARKERS = "os^D"
_SMALLEST = 1e-8
"""Smaller ratios of error to tolerance, and zero, are drawn here."""


def accuracy(report: ReportData) -> Picture:
    """Error over tolerance for every program and runtime, on a logarithmic axis."""
    points = {
        run.name: [_ratio(_result(row, run.name)) for row in report.rows] for run in report.runs
    }

    def draw(axes: Any) -> None:
        axes.set_xlim(_SMALLEST / 3, 3e3)
        axes.axvspan(1, 3e3, color=BAD, alpha=0.12, linewidth=0)
        axes.axvline(1, color=BAD, linewidth=1.2)
        axes.text(1.4, -0.9, "wrong", color=BAD, fontsize=8)
        ticks = [_SMALLEST, 1e-6, 1e-4, 1e-2, 1, 1e2]
        axes.set_xticks(ticks, ["exact", "10⁻⁶", "10⁻⁴", "0.01", "1", "100"])
        axes.set_xlabel("error / allowed")

    svg = _dots(
        report, points, draw, "accuracy", "Error against tolerance", _describe_points(points)
    )
    rows = [
        [row.program, *(_word(_ratio(_result(row, run.name))) for run in report.runs)]
        for row in report.rows
    ]
    return Picture(
        "Error against tolerance", svg, ["program", *(run.name for run in report.runs)], rows
    )


def times(report: ReportData) -> Picture:
    """Median time of a call for every program and runtime."""
    points = {
        run.name: [_result(row, run.name).seconds.get("call") for row in report.rows]
        for run in report.runs
    }

    def draw(axes: Any) -> None:
        axes.xaxis.set_major_formatter(lambda value, _: seconds_text(value))
        axes.set_xlabel("median time of a call")

    title = "Time of a call"
    svg = _dots(report, points, draw, "times", title, _describe_points(points))
    rows = [
        [
            row.program,
            *(
                seconds_text(s["call"]) if "call" in s else "-"
                for s in (_result(row, run.name).seconds for run in report.runs)
            ),
        ]
        for row in report.rows
    ]
    return Picture(title, svg, ["program", *(run.name for run in report.runs)], rows)


def communicated(report: ReportData) -> Picture | None:
    """Bytes that each device receives, for programs with a closed form."""
    known = [row for row in report.rows if row.communicated is not None]
    if not known:
        return None
    title = "Bytes that each device receives"
    with styled():
        figure, axes = _chart(len(known), 0.55)
        places = range(len(known))
        sizes = [max(row.communicated or 0, 1) for row in known]
        bars = [size if row.communicated else 0 for size, row in zip(sizes, known, strict=True)]
        axes.barh(places, bars, left=0.5, color=SERIES[0], height=0.55)
        axes.set_xscale("log")
        right = 0.5 * (max(sizes) / 0.5) ** 1.4  # room for the number beside the longest bar
        axes.set_xlim(0.5, right)
        powers = [2**n for n in (0, 10, 20, 30, 40) if 2**n < right]
        axes.set_xticks(powers, [bytes_text(n) for n in powers])
        axes.minorticks_off()
        for place, row in zip(places, known, strict=True):
            axes.text(sizes[place] * 1.4, place, bytes_text(row.communicated), va="center")
        _programs(axes, [row.program for row in known])
        axes.set_xlabel("closed form, per call")
        svg = to_svg(
            figure,
            "communicated",
            title,
            f"Bars: the most is {bytes_text(max(sizes))}, of "
            f"{max(known, key=lambda r: r.communicated or 0).program}.",
        )
    rows = [[row.program, bytes_text(row.communicated)] for row in report.rows]
    return Picture(title, svg, ["program", "received by each device"], rows)


def _dots(
    report: ReportData,
    points: Mapping[str, Sequence[float | None]],
    draw: Callable[[Any], None],
    name: str,
    title: str,
    description: str,
) -> str:
    """A chart with one line per program and one mark per runtime, on a logarithmic axis."""
    with styled():
        figure, axes = _chart(len(report.rows), 0.8)
        axes.set_xscale("log")
        for number, (runtime, values) in enumerate(points.items()):
            shift = (number - (len(points) - 1) / 2) * 0.26
            there = [(v, i + shift) for i, v in enumerate(values) if v is not None]
            if there:
                axes.plot(
                    *zip(*there, strict=True),
                    _MARKERS[number % 4],
                    color=SERIES[number % 4],
                    markersize=5,
                    label=runtime,
                    linestyle="none",
                )
        draw(axes)
        axes.grid(axis="x", linewidth=0.6)
        axes.minorticks_off()
        _programs(axes, [row.program for row in report.rows])
        if len(points) > 1:
            figure.legend(loc="lower center", ncols=4, handletextpad=0.1)
        return to_svg(figure, name, title, description)


def _chart(lines: int, below: float) -> tuple[Any, Any]:
    """A figure with one line per program and room for the names."""
    height = 0.35 + 0.23 * lines + below
    figure = new_figure(_WIDTH, height)
    left, right = 1.5, 0.12
    width = _WIDTH - left - right
    box = (left / _WIDTH, below / height, width / _WIDTH, (0.12 + 0.23 * lines) / height)
    return figure, figure.add_axes(box)


def _programs(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [n if len(n) < 24 else f"…{n[-22:]}" for n in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _result(row: Row, runtime: str) -> Result:
    return next(r for r in row.results if r.runtime == runtime)


def _ratio(result: Result) -> float | None:
    """Error over tolerance, clipped to the axis; None if nothing was checked."""
    if result.outcome not in (RIGHT, WRONG):
        return None
    if result.outcome == WRONG:
        return min(max(result.ratio, 10.0), 1e3)
    return max(result.ratio, _SMALLEST)


def _word(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return "wrong" if ratio > 1 else "exact" if ratio <= _SMALLEST else ratio_text(ratio)


def _describe_points(points: Mapping[str, Sequence[float | None]]) -> str:
    """A text alternative for the picture, with the range of each runtime."""
    parts = []
    for runtime, values in points.items():
        there = [v for v in values if v is not None]
        if there:
            parts.append(f"{runtime}: from {min(there):.1e} to {max(there):.1e}")
    return f"One mark for each program. {'; '.join(parts) or 'Nothing to show'}."


_LEFT, _RIGHT = 0.55, 0.08
_MOST = 64
"""Most cells with text; with more, the cells are too small and only the table has numbers."""


def placement(row: Row, result: Result, number: int) -> list[Picture]:
    """One picture per output: the mesh with its blocks, and the error of each block."""
    return [
        _picture(row, result, array, f"p{number}-{result.runtime}-{place}")
        for place, array in enumerate(name for name in row.plans if name.startswith("output"))
        if any(block.array == array for block in result.blocks)
    ]


@dataclass(frozen=True, slots=True)
class _Panel:
    """A grid of equal cells; all lengths are inches from the figure's upper left corner."""

    axes: Any
    top: float
    lines: int
    columns: int
    height: float

    @property
    def width(self) -> float:
        return (_WIDTH - _LEFT - _RIGHT) / self.columns

    def corners(self, line: int, column: int) -> list[tuple[float, float]]:
        left, top, gap = _LEFT + column * self.width, self.top + line * self.height, 0.015
        right, bottom = left + self.width - gap, top + self.height - gap
        return [(left, top), (right, top), (right, bottom), (left, bottom)]

    def fill(self, cells: Sequence[tuple[int, int]], **looks: Any) -> None:
        from matplotlib.collections import PolyCollection

        if cells:
            self.axes.add_collection(PolyCollection([self.corners(*c) for c in cells], **looks))

    def write(self, cell: tuple[int, int], text: str, **looks: Any) -> None:
        """Write text in the middle of a cell."""
        line, column = cell
        self.axes.text(
            _LEFT + (column + 0.5) * self.width,
            self.top + (line + 0.5) * self.height,
            text,
            ha="center",
            va="center",
            **looks,
        )

    def frame(self, title: str, down: Sequence[str], across: Sequence[str]) -> None:
        """Write the title and the labels of lines and columns."""
        self.axes.text(0.05, self.top - 0.29, title, va="center", weight="bold")
        for line, text in enumerate(down):
            self.axes.text(
                _LEFT - 0.06,
                self.top + (line + 0.5) * self.height,
                text,
                ha="right",
                va="center",
                color=MUTED,
                fontsize=8,
            )
        for column, text in enumerate(across):
            self.axes.text(
                _LEFT + (column + 0.5) * self.width,
                self.top - 0.09,
                text,
                ha="center",
                va="center",
                color=MUTED,
                fontsize=8,
            )


def _picture(row: Row, result: Result, array: str, name: str) -> Picture:
    plan = row.plans[array]
    blocks = [block for block in result.blocks if block.array == array]
    mesh_grid = grid(plan.sharding.mesh.shape)
    block_grid = grid(plan.sharding.cuts(len(plan.shape)))
    tall = 0.44 if mesh_grid[0] <= 16 else 0.16
    low = 0.3 if block_grid[0] <= 16 else 0.12
    upper, lower = 0.42, 0.42 + mesh_grid[0] * tall + 0.48
    height = lower + block_grid[0] * low + 0.05
    title = f"{row.program} on {result.runtime}: {array}"
    with styled():
        figure = new_figure(_WIDTH, height)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, _WIDTH)
        axes.set_ylim(height, 0)
        _draw_mesh(_Panel(axes, upper, *mesh_grid, tall), plan.sharding.mesh, blocks)
        _draw_errors(_Panel(axes, lower, *block_grid, low), plan, blocks)
        name = "".join(c if c.isalnum() else "-" for c in name)
        svg = to_svg(figure, name, title, _describe_blocks(blocks))
    rows = [
        [
            str(b.device),
            str(b.process),
            block_text(b.index),
            "right" if b.passed else ", ".join(b.kinds) or "wrong",
            f"{b.error:.2e}",
            f"{b.allowed:.2e}",
            f"{b.ulps:.3g}",
        ]
        for b in blocks
    ]
    head = ["device", "process", "block", "verdict", "error", "allowed", "ULP"]
    return Picture(title, svg, head, rows)


def _describe_blocks(blocks: Sequence[BlockVerdict]) -> str:
    wrong = [str(block.device) for block in blocks if not block.passed]
    text = f"The mesh with the block of each of {len(blocks)} devices, and the error of each block"
    if wrong:
        return f"{text}; wrong on devices {', '.join(wrong)}."
    largest = max(block.ratio for block in blocks)
    return f"{text}; all right, the largest error is {largest:.2g} of what is allowed."


def _draw_mesh(panel: _Panel, mesh: Mesh, blocks: Sequence[BlockVerdict]) -> None:
    """Draw each device at its mesh position; each block of the array has its own shade."""
    found = {block.device: block for block in blocks}
    order = list(dict.fromkeys(block_text(block.expected_index) for block in blocks))
    places: dict[str, list[tuple[int, int]]] = {}
    wrong = []
    for place, device in enumerate(mesh.device_ids):
        where = divmod(place, panel.columns)
        block = found.get(device)
        if block is None or not block.placed:
            wrong.append(where)
        else:
            places.setdefault(block_text(block.index), []).append(where)
        if mesh.size <= _MOST:
            text, colour = _device_text(device, block, panel.columns)
            panel.write(where, text, color=colour, fontsize=7.5, linespacing=1.2)
    for text, cells in places.items():
        depth = order.index(text) / max(len(order) - 1, 1) if text in order else 0.0
        panel.fill(cells, facecolor=SERIES[0], edgecolor="none", alpha=0.1 + 0.3 * depth)
    panel.fill(wrong, facecolor="none", edgecolor=BAD, linewidth=1.5)
    names = mesh.axis_names
    if len(names) == 1:
        down, across = [f"{names[0]}={i}" for i in range(panel.lines)], []
    else:
        across = [f"{names[-1]}={i}" for i in range(panel.columns)]
        first = f"{names[0]}=" if len(names) == 2 else ""
        down = [first + ".".join(map(str, at)) for at in np.ndindex(mesh.shape[:-1])]
    panel.frame("devices of the mesh, and their blocks", down, across if mesh.size <= _MOST else [])


def _device_text(device: int, block: BlockVerdict | None, columns: int) -> tuple[str, str]:
    if block is None:
        return f"device {device}\nno block", BAD
    short = columns > 3
    who = f"d{device} p{block.process}" if short else f"device {device}, process {block.process}"
    where = "no block" if block.index is None else block_text(block.index)[1:-1] or "all of it"
    if short:
        where = where.replace(", ", "\n")
    if block.placed:
        return f"{who}\n{where}", INK
    return f"✗ {who}{'' if short else ', misplaced'}\n{where}", BAD


def _draw_errors(panel: _Panel, plan: ArrayPlan, blocks: Sequence[BlockVerdict]) -> None:
    """Draw each block at its place in the array, shaded by error or hatched if wrong."""
    import matplotlib as mpl

    shades = mpl.colormaps["cividis"]
    cuts = plan.sharding.cuts(len(plan.shape))
    ratios: dict[int, float] = {}
    for block in blocks:  # the worst of several copies counts
        place = 0
        where = block.expected_index or block.index or []
        for (start, _), cut, size in zip(where, cuts, plan.shape, strict=False):
            place = place * cut + (start * cut // size if size else 0)
        ratios[place] = max(ratios.get(place, 0.0), block.ratio if block.passed else math.inf)
    wrong = [divmod(p, panel.columns) for p, ratio in ratios.items() if math.isinf(ratio)]
    panel.fill(wrong, facecolor=PAPER, edgecolor=BAD, hatch="////", linewidth=1.2)
    for place, ratio in ratios.items():
        cell = divmod(place, panel.columns)
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
        label, looks = "wrong", {"weight": "bold", "color": BAD, "bbox": box}
        if not math.isinf(ratio):
            red, green, blue, _ = shades(_depth(ratio))
            light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.5
            label = ratio_text(ratio) if ratio else "exact"
            looks = {"color": "#000000" if light else "#ffffff"}
            panel.fill([cell], facecolor=(red, green, blue), edgecolor="none")
        if len(ratios) <= _MOST:
            panel.write(cell, label, fontsize=8, **looks)
    down = [".".join(map(str, at)) for at in np.ndindex(tuple(cuts[:-1]))]
    across = [str(i) for i in range(panel.columns)] if cuts and panel.columns <= 16 else []
    if len(cuts) <= 2:
        down = [str(i * plan.shape[0] // panel.lines) for i in range(panel.lines)] if cuts else [""]
    if len(cuts) >= 2 and across:
        across = [str(i * plan.shape[-1] // panel.columns) for i in range(panel.columns)]
    panel.frame("error / allowed in each block of the array", down, across)


def _depth(ratio: float) -> float:
    """Position on the colour scale: 0.25 up to a ratio of 1e-6, then logarithmic up to 1."""
    return 0.25 + 0.75 * max(0.0, 1 + math.log10(ratio) / 6) if ratio > 0 else 0.25


def grid(sizes: Sequence[int]) -> tuple[int, int]:
    """Lines and columns for any number of axes; one axis runs down, so that text has room."""
    if len(sizes) < 2:
        return (sizes[0] if sizes else 1), 1
    return math.prod(sizes[:-1]), sizes[-1]
