"""The page of a cross-check, and its table for a notebook."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..._core.text import bytes_text, seconds_text, spec_text
from ..._pages.page import render
from ..._pages.parts import Cell, Table, commit_text
from .._records.verdict import Pair
from .blocks import figures
from .data import NOT_RUN, RAISED, RIGHT, UNCHECKED, WRONG, ReportData, Result, Row, RunFacts
from .outcome import percent, rows_of
from .text import (
    estimates,
    has_error,
    outcome_text,
    problem_text,
    problems,
    ratio_text,
    verdict,
)

_LOOKS = {RIGHT: "good", WRONG: "bad", RAISED: "bad", NOT_RUN: "warn", UNCHECKED: "warn"}

_COLUMNS = {
    "error": "Error: Euclidean norm relative to the result's, of the worst block.",
    "share of allowed": "Share of allowed: the largest error of an element against what rounding "
    "allows.",
    "time": "Time: median of the timed calls.",
}
"""The numbers of a result that the table of all programs has if there are any."""

_DIFFERENCE = "Difference: Euclidean norm relative to the first runtime's result."
_NONE = "-"


def page(report: ReportData) -> str:
    """The whole page.

    Raises:
        RequirementError: jinja2 is not installed.
    """
    word = "passed" if report.passed else "did not pass"
    return render(
        "crosscheck.html",
        title=f"Cross-check {word}: {_subject(report)}",
        mark=Cell(word.capitalize(), "good" if report.passed else "bad"),
        heading=_subject(report),
        summary=verdict(report),
        small=[report.created, _where(report)],
        absent=report.absent,
        complaints=_complaints(report),
        overview=overview(report),
        gradients=_gradients(report),
        programs=[_program(number, row) for number, row in enumerate(report.rows)],
        provenance=_provenance_table(report),
        logs=[(run.name, name, text) for run in report.runs for name, text in _in_order(run.logs)],
    )


def fragment(report: ReportData) -> str:
    """Verdict and table for a notebook, without styles of its own.

    Raises:
        RequirementError: jinja2 is not installed.
    """
    look = "good" if report.passed else "bad"
    return render(
        "fragment.html", mark=Cell(verdict(report), look), table=overview(report, links=False)
    )


def _subject(report: ReportData) -> str:
    names = [row.program for row in report.rows]
    some = names[0] if len(names) == 1 else f"{len(names)} programs"
    return f"{some} on {' and '.join(run.name for run in report.runs)}"


def _where(report: ReportData) -> str:
    devices = {len(run.devices) for run in report.runs if run.devices}
    platforms = " and ".join(dict.fromkeys(r.platform for r in report.runs if r.platform))
    where = f"{max(devices)} devices" if devices else "no devices"
    return f"{where} ({platforms})" if platforms else where


def _complaints(report: ReportData) -> list[tuple[str, str, str]]:
    """Link, program and the rest of the sentence, for each problem."""
    return [
        (f"program-{number}", report.rows[number].program, rest)
        for number, rest in problems(report)
    ]


def overview(report: ReportData, *, links: bool = True) -> Table:
    """One line for each program: its result on each runtime, and whether runtimes agree."""
    pairs = report.rows[0].pairs if report.rows else ()
    received = any(row.communicated is not None for row in report.rows)
    shown = [_result_cells(result) for row in report.rows for result in row.results]
    columns = ["result", *(name for name in _COLUMNS if any(one[name] != _NONE for one in shown))]
    groups = [("", 2), *((run.name, len(columns)) for run in report.runs)]
    groups += [(f"{p.first} and {p.second}", 2) for p in pairs]
    groups += [("", 1)] if received else []
    head = [
        "program",
        "problem",
        *columns * len(report.runs),
        *["result", "difference"] * len(pairs),
    ]
    words = ("program", "problem", "result")
    head += ["received by each device"] if received else []
    explained = [_COLUMNS[name] for name in columns[1:]] + [_DIFFERENCE] * bool(pairs)
    return Table(
        " ".join(explained) or "Results",
        head,
        [
            _overview_row(number, row, columns, links=links, received=received)
            for number, row in enumerate(report.rows)
        ],
        numbers=[place for place, title in enumerate(head) if title not in words],
        groups=groups,
    )


def _overview_row(
    number: int, row: Row, columns: Sequence[str], *, links: bool, received: bool
) -> list[Cell | str]:
    oracle = "" if row.oracle or not row.problem else ", no oracle"
    name = Cell(row.program, link=f"program-{number}" if links else "")
    cells: list[Cell | str] = [name, problem_text(row) + oracle]
    for result in row.results:
        found = _result_cells(result)
        cells += [found[name] for name in columns]
    for pair in row.pairs:
        cells += _pair_cells(pair)
    return cells + ([bytes_text(row.communicated)] if received else [])


def _result_cells(result: Result) -> dict[str, Cell | str]:
    """The cells of a result, by column; `_NONE` for a number that it does not have."""
    found: dict[str, Cell | str] = {
        "result": Cell(outcome_text(result), _LOOKS[result.outcome]),
        "error": _NONE,
        "share of allowed": _NONE,
        "time": seconds_text(result.seconds["call"]) if "call" in result.seconds else _NONE,
    }
    if has_error(result):
        estimated = "of the estimate" if result.estimated else ""
        share = Cell(ratio_text(result.ratio), share=result.ratio, detail=estimated)
        found |= {"error": f"{result.relative_norm:.0e}", "share of allowed": share}
    elif result.outcome == RIGHT and result.blocks:
        found["error"] = "exact"
    return found


def _pair_cells(pair: Pair) -> list[Cell | str]:
    outcome = RIGHT if pair.passed else WRONG if pair.compared else NOT_RUN
    if not pair.passed:
        return [Cell(pair.kind, _LOOKS[outcome]), "-"]
    if pair.difference == 0:
        return [Cell("same bits", _LOOKS[outcome]), "0"]
    return [Cell("agree", _LOOKS[outcome]), f"{pair.relative_norm:.0e}"]


def _gradients(report: ReportData) -> Table:
    rows = [
        [
            one.program,
            one.argument,
            one.against,
            Cell(one.outcome, _LOOKS[one.outcome], detail=one.text),
            "-" if one.outcome == NOT_RUN else f"{one.relative_norm:.0e}",
            "-" if one.outcome == NOT_RUN else Cell(ratio_text(one.ratio), share=one.ratio),
        ]
        for one in report.gradients
    ]
    head = ["program", "by argument", "against", "result", "error", "share of allowed"]
    return Table("Gradients of Julia bodies by Enzyme", head, rows, numbers=(4, 5))


def _program(number: int, row: Row) -> dict[str, Any]:
    """The part of one program, for the template."""
    further = Table(
        f"Further inputs of {row.program}",
        ["runtime", "inputs", "type and sharding", "elements", "checked"],
        rows_of(row),
    )
    return {
        "id": f"program-{number}",
        "mark": Cell(row.program, "good" if row.passed else "bad"),
        "summary": row.summary,
        "open": not row.passed,
        "tables": [_arrays(row), _checks(row)],
        "further": further,
        "tolerance": _tolerance(row),
        "precision": row.precision,
        "notes": [f"{r.runtime}: {r.note}" for r in row.results if r.note],
        "pairs": [f"{p.first} and {p.second}: {p.text}" for p in row.pairs if p.passed],
        "figures": [figure for result in row.results for figure in figures(row, result)],
    }


def _tolerance(row: Row) -> str:
    if row.exact:
        return "none, because results are exact"
    return "; ".join(estimates(row)) or "derived from rounding"


def _arrays(row: Row) -> Table:
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


def _checks(row: Row) -> Table:
    """How each runtime's values were checked, and the times of all steps."""
    steps = list(dict.fromkeys(key for r in row.results for key in r.seconds))
    seen = ["errors seen above"] if any(r.sensitivity for r in row.results) else []
    rows = [
        [
            r.runtime,
            r.method or "nothing",
            *[percent(r.sensitivity) if r.sensitivity else _NONE for _ in seen],
            *(seconds_text(r.seconds[step]) if step in r.seconds else _NONE for step in steps),
        ]
        for r in row.results
    ]
    head = ["runtime", "checked by", *seen, *steps]
    caption = f"Checks and times of {row.program}, of the slowest process"
    return Table(caption, head, rows, numbers=range(2, len(head)))


def _provenance_table(report: ReportData) -> Table:
    """Versions, devices, settings and commit, with one column per runtime."""
    columns = [_provenance(run) for run in report.runs]
    keys = dict.fromkeys(key for column in columns for key, value in column.items() if value)
    rows = [[key, *(column.get(key) or "-" for column in columns)] for key in keys]
    return Table("Where the results come from", ["fact", *(r.name for r in report.runs)], rows)


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


def _in_order(found: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(found.items(), key=lambda item: (len(item[0]), item[0]))
