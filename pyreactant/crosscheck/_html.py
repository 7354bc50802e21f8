"""The page: everything in one file, with no script and nothing to fetch."""

from html import escape

from .. import __version__
from ._figures import accuracy, communicated, times
from ._figures_blocks import placement
from ._html_parts import (
    complaint_list,
    logs,
    mark,
    picture,
    program_part,
    programs_table,
    provenance,
    table,
)
from ._html_style import STYLE
from ._report import RIGHT, WRONG, Report
from ._svg import Picture, check_matplotlib
from ._words import pair_text, problem_text, result_text

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Report) -> str:
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


def fragment(report: Report) -> str:
    """Verdict and table for a notebook, in its own style."""
    heads = ["program", "problem", *(run.name for run in report.runs)]
    heads += [f"{p.first} and {p.second}" for p in (report.rows[0].pairs if report.rows else ())]
    rows = [
        [row.program, problem_text(row), *map(result_text, row.results), *map(pair_text, row.pairs)]
        for row in report.rows
    ]
    outcome = RIGHT if report.passed else WRONG
    return f"<div><p>{mark(outcome, report.verdict)}</p>{table(heads, rows, 'Cross-check')}</div>"


def _subject(report: Report) -> str:
    names = [row.program for row in report.rows]
    some = names[0] if len(names) == 1 else f"{len(names)} programs"
    return f"{some} on {' and '.join(run.name for run in report.runs)}"


def _header(report: Report) -> str:
    look, sign, word = ("good", "✓", "Passed") if report.passed else ("bad", "✗", "Did not pass")
    devices = {len(run.devices) for run in report.runs if run.devices}
    where = f"{max(devices)} devices" if devices else "no devices"
    platforms = " and ".join(dict.fromkeys(r.platform for r in report.runs if r.platform))
    absent = "".join(f" {escape(name)} was not here." for name in report.absent)
    return f"""<header class="verdict {look}">
<p class="word"><span aria-hidden="true">{sign}</span> {word}</p>
<h1>{escape(_subject(report))}</h1>
<p>{escape(report.verdict)}{absent}</p>
<p class="small">{escape(report.created)} · {escape(where)}
{escape(f"({platforms})" if platforms else "")} · pyreactant {__version__}</p>
</header>"""
