"""The page's pictures of all programs: how exact, how fast, how much is communicated."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._report import RIGHT, WRONG, Report, Result, Row
from ._svg import BAD, SERIES, Picture, new_figure, styled, to_svg
from ._words import bytes_text, ratio_text, seconds_text

_WIDTH = 4.4
"""Inches: 420 pixels, so that text keeps its size on a phone."""

_MARKERS = "os^D"
_SMALLEST = 1e-8
"""Where quotients of error and tolerance that are smaller, or zero, are drawn."""


def accuracy(report: Report) -> Picture:
    """Error over what is allowed, for every program and runtime, on a logarithmic axis."""
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

    svg = _dots(report, points, draw, "accuracy", "Error against tolerance", _describe(points))
    rows = [
        [row.program, *(_word(_ratio(_result(row, run.name))) for run in report.runs)]
        for row in report.rows
    ]
    return Picture(
        "Error against tolerance", svg, ["program", *(run.name for run in report.runs)], rows
    )


def times(report: Report) -> Picture:
    """Time of a call, for every program and runtime."""
    points = {
        run.name: [_result(row, run.name).seconds.get("call") for row in report.rows]
        for run in report.runs
    }

    def draw(axes: Any) -> None:
        axes.xaxis.set_major_formatter(lambda value, _: seconds_text(value))
        axes.set_xlabel("median time of a call")

    title = "Time of a call"
    svg = _dots(report, points, draw, "times", title, _describe(points))
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


def communicated(report: Report) -> Picture | None:
    """Bytes that each device receives, where a closed form says how many."""
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
    report: Report,
    points: Mapping[str, Sequence[float | None]],
    draw: Callable[[Any], None],
    name: str,
    title: str,
    description: str,
) -> str:
    """One line for each program, one mark for each runtime, a logarithmic axis."""
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
    """A figure with a line for each program, and room for their names."""
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
    """Error over allowed, within the picture's axis; None where nothing was checked."""
    if result.outcome not in (RIGHT, WRONG):
        return None
    if result.outcome == WRONG:
        return min(max(result.ratio, 10.0), 1e3)
    return max(result.ratio, _SMALLEST)


def _word(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return "wrong" if ratio > 1 else "exact" if ratio <= _SMALLEST else ratio_text(ratio)


def _describe(points: Mapping[str, Sequence[float | None]]) -> str:
    """What one sees, in a sentence for each runtime."""
    parts = []
    for runtime, values in points.items():
        there = [v for v in values if v is not None]
        if there:
            parts.append(f"{runtime}: from {min(there):.1e} to {max(there):.1e}")
    return f"One mark for each program. {'; '.join(parts) or 'Nothing to show'}."
