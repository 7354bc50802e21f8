"""The HTML page: one file without scripts or external resources."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from ..._core.text import seconds_text, spec_text
from ..._version import __version__
from .._records.verdict import Pair
from .data import NOT_RUN, RAISED, RIGHT, UNCHECKED, WRONG, ReportData, Result, Row, RunFacts
from .figures import accuracy, communicated, placement, times
from .sensitivity import percent
from .sets import rows_of
from .svg import Picture, check_matplotlib
from .text import (
    EXPLAINED,
    complaints,
    detail_text,
    estimates,
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
    """An outcome with sign, colour and words, so that none of them is needed alone."""
    sign, look = _LOOKS[outcome]
    return (
        f'<span class="is-{look}"><span class="icon" aria-hidden="true">{sign}</span>'
        f"{escape(text)}</span>"
    )


def programs_table(report: ReportData) -> str:
    """The table of programs and runtimes; on a narrow screen each program is a card."""
    runtimes = [run.name for run in report.runs]
    pairs = report.rows[0].pairs if report.rows else ()
    heads = ["program", *runtimes, *(f"{p.first} and {p.second}" for p in pairs)]
    # Explicit roles: screen readers ignore tables that are displayed as cards.
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
    """One sentence per problem; "" if there is none."""
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
    """A table whose first column names the rows; it scrolls separately if it is too wide."""
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
    """A figure with its drawing and a folded table of the same numbers."""
    return (
        f"<figure><figcaption>{escape(drawn.title)}</figcaption>{drawn.svg}<details><summary>as a "
        f"table</summary>{table(drawn.head, drawn.rows, drawn.title)}</details></figure>"
    )


def folded(title: str, content: str, *, shown: bool = False, name: str = "") -> str:
    """Content that opens when its title is clicked; `title` is HTML."""
    identity = f' id="{name}"' if name else ""
    opened = " open" if shown else ""
    return f"<details{identity}{opened}><summary>{title}</summary>{content}</details>"


def program_part(number: int, row: Row, pictures: Sequence[Picture]) -> str:
    """The part of one program: facts, problems and pictures."""
    outcome = RIGHT if row.passed else WRONG
    title = f"{mark(outcome, row.program)} <span class='small'>{escape(row.summary)}</span>"
    facts = [
        ("arrays", _arrays(row)),
        ("requested precision", row.precision or "-"),
        ("tolerance", _tolerance(row)),
    ]
    facts += [(r.runtime, _method_and_times(r)) for r in row.results]
    facts += [(f"note on {r.runtime}", r.note) for r in row.results if r.note]
    facts += [(f"{p.first} and {p.second}", p.text) for p in row.pairs]
    wrong = "".join(f'<p class="is-bad">{escape(text)}</p>' for text in complaints(row))
    drawn = f'<div class="figures">{"".join(map(picture, pictures))}</div>' if pictures else ""
    further = rows_of(row)
    if further:
        heads = ["runtime", "inputs", "type and cut", "elements", "checked"]
        drawn = table(heads, further, f"Further inputs of {row.program}") + drawn
    content = wrong + table(["fact", "value"], facts, f"About {row.program}") + drawn
    return folded(title, content, shown=not row.passed, name=f"program-{number}")


def _tolerance(row: Row) -> str:
    if row.exact:
        return "none: results are exact"
    return "; ".join(estimates(row)) or "derived from rounding"


def _arrays(row: Row) -> str:
    return "; ".join(
        f"{name} {plan.dtype}[{', '.join(map(str, plan.shape))}] cut "
        f"{spec_text(plan.sharding.spec) or '-'}"
        for name, plan in row.plans.items()
    )


def _method_and_times(result: Result) -> str:
    """How the values were checked, and the times of all steps."""
    times = [f"{key} {seconds_text(value)}" for key, value in result.seconds.items()]
    sees = [f"sees errors above {percent(result.sensitivity)}"] if result.sensitivity else []
    return ", ".join([f"checked by {result.method or 'nothing'}", *sees, *times])


def provenance(report: ReportData) -> str:
    """A table of versions, devices, settings and commit, with one column per runtime."""
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
    """The last lines of each process's log, folded."""
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
<h2>Versions, devices and settings</h2>
{provenance(report)}
</section>
<section>
<h2>Output of the processes</h2>
{logs(report.runs)}
</section>
</main>
<footer class="small">
<p>The allowed error is a bound on rounding, from the element type, the length of sums and the
inputs; docs/checks.md derives it. 1 ULP is the distance of an element to the next number of its
type.</p>
</footer>
</body>
</html>
"""


def fragment(report: ReportData) -> str:
    """Verdict and table for a notebook, without styles of its own."""
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
    absent = "".join(f" {escape(name)} was not available." for name in report.absent)
    return f"""<header class="verdict {look}">
<p class="word"><span aria-hidden="true">{sign}</span> {word}</p>
<h1>{escape(_subject(report))}</h1>
<p>{escape(verdict(report))}{absent}</p>
<p class="small">{escape(report.created)} · {escape(where)}
{escape(f"({platforms})" if platforms else "")} · pyreactant {__version__}</p>
</header>"""


STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #f6f7f9; --ink: #16202b; --muted: #566270; --line: #d5dae1;
  --good: #146c2e; --good-card: #e6f4ea; --bad: #b3261e; --bad-card: #fce8e6;
  --warn: #7a4d00; --warn-card: #fdf1dc; --link: #0b57d0;
  --series-1: #0b62b8; --series-2: #c2410c; --series-3: #0f766e; --series-4: #7e22ce;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12171d; --card: #1b222b; --ink: #e8edf3; --muted: #a3b0be; --line: #36414e;
    --good: #6fd58c; --good-card: #14301d; --bad: #ff9b90; --bad-card: #401a17;
    --warn: #f2c46d; --warn-card: #38290b; --link: #8ab8ff;
    --series-1: #6cb2ff; --series-2: #ff9d66; --series-3: #4fd1c2; --series-4: #cf9bff;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: .2rem 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1rem 0 .4rem; }
p { margin: .3rem 0; max-width: 46rem; }
a { color: var(--link); }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .85em; }
.verdict { border-radius: .6rem; padding: 1rem 1.2rem; border-left: .5rem solid; }
.verdict p, .verdict h1 { max-width: none; }
.verdict.good { background: var(--good-card); border-color: var(--good); }
.verdict.bad { background: var(--bad-card); border-color: var(--bad); }
.verdict .word { font-weight: 700; letter-spacing: .02em; }
.good .word, .is-good { color: var(--good); }
.bad .word, .is-bad { color: var(--bad); font-weight: 600; }
.is-warn { color: var(--warn); font-weight: 600; }
.small { color: var(--muted); font-size: .875rem; font-weight: 400; }
section { margin-top: 1.2rem; }
p.is-bad { font-weight: 400; max-width: none; }
.complaints li { margin: .4rem 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
caption { text-align: left; color: var(--muted); font-size: .875rem; padding-bottom: .4rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .7rem .4rem 0; }
thead th { border-bottom: 2px solid var(--line); }
tbody tr { border-bottom: 1px solid var(--line); }
tbody th { font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td, .cards th, summary, figcaption, p { overflow-wrap: anywhere; }
tbody th { min-width: 6rem; }
.cards tbody th { min-width: 12rem; }
.icon { display: inline-block; width: 1.2em; font-weight: 700; }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 23rem), 1fr)); }
figure { margin: 0; padding: .8rem; background: var(--card); border-radius: .6rem; min-width: 0; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
svg { display: block; width: 100%; height: auto; stroke-linejoin: round; stroke-linecap: butt; }
details { border-bottom: 1px solid var(--line); }
summary { cursor: pointer; padding: .6rem 0; }
summary:focus-visible, a:focus-visible, .scroll:focus-visible { outline: 3px solid var(--link); }
details > :not(summary) { margin-bottom: .8rem; }
figure details { border: 0; font-size: .875rem; }
figure summary { color: var(--muted); padding: .3rem 0; }
pre {
  background: var(--card); border-radius: .4rem; padding: .7rem; margin: 0 0 .8rem;
  white-space: pre-wrap; overflow-wrap: anywhere; max-height: 30rem; overflow-y: auto;
}
@media (max-width: 40rem) {
  body { padding: .7rem; }
  .cards thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .cards, .cards caption, .cards tbody, .cards tr, .cards th, .cards td { display: block; }
  .cards tr { padding: .5rem 0; }
  .cards th, .cards td { padding: .1rem 0; }
  .cards td > .small { display: inline; padding-left: .4rem; }
  .cards td[data-label]::before { content: attr(data-label) ": "; color: var(--muted); }
}
@media print { details::details-content { content-visibility: visible; } }
"""  # noqa: E501 - one rule, one line
