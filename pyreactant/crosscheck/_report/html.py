"""The page: everything in one file, with no script and nothing to fetch."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from ..._core.text import seconds_text, spec_text
from ..._version import __version__
from .._records.verdict import Pair
from .data import NOT_RUN, RAISED, RIGHT, UNCHECKED, WRONG, ReportData, Result, Row, RunFacts
from .figures import accuracy, communicated, placement, times
from .style import STYLE
from .svg import Picture, check_matplotlib
from .text import (
    EXPLAINED,
    complaints,
    detail_text,
    outcome_text,
    pair_text,
    problem_text,
    result_text,
    verdict,
)

_LOOKS = {
    RIGHT: ("✓", "good"),
    WRONG: ("✗", "bad"),
    RAISED: ("!", "bad"),
    NOT_RUN: ("-", "warn"),
    UNCHECKED: ("?", "warn"),
}


def mark(outcome: str, text: str) -> str:
    """A sign, a colour and words: none of them alone says it."""
    sign, look = _LOOKS[outcome]
    return (
        f'<span class="is-{look}"><span class="icon" aria-hidden="true">{sign}</span>'
        f"{escape(text)}</span>"
    )


def programs_table(report: ReportData) -> str:
    """Programs and runtimes; on a narrow screen each program is a card."""
    runtimes = [run.name for run in report.runs]
    pairs = report.rows[0].pairs if report.rows else ()
    heads = ["program", *runtimes, *(f"{p.first} and {p.second}" for p in pairs)]
    # Roles, as a table that is shown as cards would be none to screen readers.
    head = "".join(f'<th scope="col" role="columnheader">{escape(h)}</th>' for h in heads)
    rows = "".join(_program_line(number, row) for number, row in enumerate(report.rows))
    return (
        f'<table class="cards" role="table"><caption>{EXPLAINED}</caption><thead role="rowgroup">'
        f'<tr role="row">{head}</tr></thead><tbody role="rowgroup">{rows}</tbody></table>'
    )


def _program_line(number: int, row: Row) -> str:
    cells = [(r.runtime, _result_cell(r)) for r in row.results]
    cells += [(f"{p.first} and {p.second}", _pair_mark(p)) for p in row.pairs]
    rest = "".join(
        f'<td role="cell" data-label="{escape(label)}">{cell}</td>' for label, cell in cells
    )
    oracle = "" if row.oracle or not row.problem else ", no oracle"
    return (
        f'<tr role="row"><th scope="row" role="rowheader"><a href="#program-{number}">'
        f'{escape(row.program)}</a><div class="small">{escape(problem_text(row) + oracle)}</div>'
        f"</th>{rest}</tr>"
    )


def _result_cell(result: Result) -> str:
    detail = f'<div class="small">{escape(detail_text(result))}</div>'
    return mark(result.outcome, outcome_text(result)) + detail


def _pair_mark(pair: Pair) -> str:
    outcome = RIGHT if pair.passed else WRONG if pair.compared else NOT_RUN
    return mark(outcome, pair_text(pair))


def complaint_list(report: ReportData) -> str:
    """What is wrong, one sentence each; nothing where nothing is."""
    items = [
        f'<li><a href="#program-{number}">{escape(row.program)}</a>'
        f"{escape(text.removeprefix(row.program))}</li>"
        for number, row in enumerate(report.rows)
        for text in complaints(row)
    ]
    if not items:
        return ""
    return f'<h2>What is wrong</h2><ul class="complaints">{"".join(items)}</ul>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A table whose first column names the rows; it scrolls by itself where it is too wide."""
    top = "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
        "</table></div>"
    )


def picture(drawn: Picture) -> str:
    """A figure with its drawing and, folded, the same as a table."""
    return (
        f"<figure><figcaption>{escape(drawn.title)}</figcaption>{drawn.svg}<details><summary>as a "
        f"table</summary>{table(drawn.head, drawn.rows, drawn.title)}</details></figure>"
    )


def folded(title: str, content: str, *, shown: bool = False, name: str = "") -> str:
    """Something that opens when its title is chosen; `title` is HTML."""
    identity = f' id="{name}"' if name else ""
    opened = " open" if shown else ""
    return f"<details{identity}{opened}><summary>{title}</summary>{content}</details>"


def program_part(number: int, row: Row, pictures: Sequence[Picture]) -> str:
    """One program: what it is, what is wrong with it, and its pictures."""
    outcome = RIGHT if row.passed else WRONG
    title = f"{mark(outcome, row.program)} <span class='small'>{escape(row.summary)}</span>"
    facts = [
        ("arrays", _arrays(row)),
        ("precision asked for", row.precision or "-"),
        ("allowed", "nothing: exact" if row.exact else "what rounding may make"),
    ]
    facts += [(r.runtime, _how(r)) for r in row.results]
    facts += [(f"{p.first} and {p.second}", p.text) for p in row.pairs]
    wrong = "".join(f'<p class="is-bad">{escape(text)}</p>' for text in complaints(row))
    drawn = f'<div class="figures">{"".join(map(picture, pictures))}</div>' if pictures else ""
    content = wrong + table(["fact", "value"], facts, f"About {row.program}") + drawn
    return folded(title, content, shown=not row.passed, name=f"program-{number}")


def _arrays(row: Row) -> str:
    return "; ".join(
        f"{name} {plan.dtype}[{', '.join(map(str, plan.shape))}] cut "
        f"{spec_text(plan.sharding.spec) or '-'}"
        for name, plan in row.plans.items()
    )


def _how(result: Result) -> str:
    """How it was checked, and all that was timed."""
    times = [f"{key} {seconds_text(value)}" for key, value in result.seconds.items()]
    return ", ".join([f"checked by {result.method or 'nothing'}", *times])


def provenance(report: ReportData) -> str:
    """Versions, devices, settings, commit: a row each, a column for each runtime."""
    keys = dict.fromkeys(key for run in report.runs for key in _provenance(run))
    columns = [_provenance(run) for run in report.runs]
    rows = [[key, *(column.get(key) or "-" for column in columns)] for key in keys]
    head = ["fact", *(run.name for run in report.runs)]
    absent = "".join(
        f'<p class="is-warn">{escape(name)} did not run: {escape(why)}</p>'
        for name, why in report.absent.items()
    )
    return absent + table(head, rows, "Where the results come from")


def _provenance(run: RunFacts) -> dict[str, str]:
    kinds = dict.fromkeys(f"{d['platform']} ({d['kind']})" for d in run.devices)
    git = run.ended.get("git") or {}
    changed = git.get("changed_files", [])
    return {
        "runtime": run.backend,
        "devices": f"{len(run.devices)}: {', '.join(kinds)}" if kinds else "",
        "processes": f"{run.num_processes} on {', '.join(run.hosts)}" if run.hosts else "",
        **{key: value for key, value in run.facts.items() if value},
        "commit": f"{git['commit'][:12]}, {len(changed)} files changed" if git else "",
        "started": str(run.ended.get("started", "")),
        "seconds": str(run.ended.get("seconds", "")),
        "ended": f"{run.ended.get('cause')}: {run.ended.get('summary')}" if run.ended else "",
        "folder": run.folder,
    }


def logs(runs: Sequence[RunFacts]) -> str:
    """The end of each process's log, folded."""
    parts = [
        folded(f"{escape(run.name)}, process {escape(process)}", _log(text))
        for run in runs
        for process, text in _in_order(run.logs)
    ]
    return "".join(parts) or "<p>There are none.</p>"


def _in_order(found: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(found.items(), key=lambda item: (len(item[0]), item[0]))


def _log(text: str) -> str:
    return f"<pre>{escape(text)}</pre>" if text.strip() else "<p>It printed nothing.</p>"


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: ReportData) -> str:
    """The whole page.

    Raises:
        RequirementError: matplotlib is not installed.
    """
    check_matplotlib()
    word = "passed" if report.passed else "did not pass"
    programs = "".join(
        program_part(number, row, [p for r in row.results for p in placement(row, r, number)])
        for number, row in enumerate(report.rows)
    )
    overview: list[Picture | None] = [accuracy(report), times(report), communicated(report)]
    pictures = "".join(picture(drawn) for drawn in overview if drawn is not None)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>Cross-check {word}: {escape(_subject(report))}</title>
<style>{STYLE}</style>
</head>
<body>
{_header(report)}
<main>
{complaint_list(report)}
<section aria-label="Programs">
{programs_table(report)}
</section>
<section>
<h2>All programs in pictures</h2>
<div class="figures">{pictures}</div>
</section>
<section>
<h2>Each program: its blocks on the mesh, and how exact they are</h2>
{programs}
</section>
<section>
<h2>Where this comes from</h2>
{provenance(report)}
</section>
<section>
<h2>What the processes printed</h2>
{logs(report.runs)}
</section>
</main>
<footer class="small">
<p>Allowed is what rounding can make, from the element type, the length of sums and the inputs;
it is derived in docs/checks.md, and is never loosened. 1 ULP is the distance of an element to the
next number of its type.</p>
</footer>
</body>
</html>
"""


def fragment(report: ReportData) -> str:
    """Verdict and table for a notebook, in its own style."""
    heads = ["program", "problem", *(run.name for run in report.runs)]
    heads += [f"{p.first} and {p.second}" for p in (report.rows[0].pairs if report.rows else ())]
    rows = [
        [row.program, problem_text(row), *map(result_text, row.results), *map(pair_text, row.pairs)]
        for row in report.rows
    ]
    outcome = RIGHT if report.passed else WRONG
    return f"<div><p>{mark(outcome, verdict(report))}</p>{table(heads, rows, 'Cross-check')}</div>"


def _subject(report: ReportData) -> str:
    names = [row.program for row in report.rows]
    some = names[0] if len(names) == 1 else f"{len(names)} programs"
    return f"{some} on {' and '.join(run.name for run in report.runs)}"


def _header(report: ReportData) -> str:
    look, sign, word = ("good", "✓", "Passed") if report.passed else ("bad", "✗", "Did not pass")
    devices = {len(run.devices) for run in report.runs if run.devices}
    where = f"{max(devices)} devices" if devices else "no devices"
    platforms = " and ".join(dict.fromkeys(r.platform for r in report.runs if r.platform))
    absent = "".join(f" {escape(name)} was not here." for name in report.absent)
    return f"""<header class="verdict {look}">
<p class="word"><span aria-hidden="true">{sign}</span> {word}</p>
<h1>{escape(_subject(report))}</h1>
<p>{escape(verdict(report))}{absent}</p>
<p class="small">{escape(report.created)} · {escape(where)}
{escape(f"({platforms})" if platforms else "")} · pyreactant {__version__}</p>
</header>"""
