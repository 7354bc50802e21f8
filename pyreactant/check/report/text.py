"""A report in words: the verdict, and the table of all programs for a terminal and for a page."""

from collections.abc import Iterator, Sequence

from ...arrays.text import seconds_text, specs_text
from ...base.document.parts import Cell, Paragraph, Table
from ..bounds.verdict import FLOAT32_PRODUCTS
from ..inputs import ORDINARY, SETS
from ..records.verdict import Pair
from .data import (
    NOT_RUN,
    RIGHT,
    WRONG,
    GradientResult,
    Outcome,
    ProgramRow,
    ReportData,
    Result,
    SetResult,
)
from .results import percent


def verdict(report: ReportData) -> str:
    """One or two sentences: whether the report passed, and what was compared."""
    runtimes = [run.name for run in report.runs]
    if not report.rows:
        return f"Nothing was checked.{_failed_runs(report)}"
    several = f"{len(report.rows)} programs" if len(report.rows) > 1 else report.rows[0].program
    if not report.passed:
        return _failed(report)
    text = f"{several}: right on {_and(runtimes)}"
    if any(row.oracle for row in report.rows):
        text += ", against an independent NumPy reference"
    estimated = [row.program for row in report.rows if estimates(row)]
    if estimated and len(report.rows) > 1:
        text += f", with estimated tolerances for {_and(estimated)}"
    elif estimated:
        text += ", with an estimated tolerance"
    in_float32 = [row.program for row in report.rows if _by_float32(row)]
    if in_float32:
        text += f", with {FLOAT32_PRODUCTS}"
        text += f" for {_and(in_float32)}" if len(report.rows) > 1 else ""
    text += _coarsely(report)
    if len(runtimes) > 1:
        text += ", and they agree with each other"
    text += "."
    without = [row.program for row in report.rows if not row.oracle]
    if without:
        text = text if len(without) < len(report.rows) else f"{several}: {_and(runtimes)} agree."
        text += f" No oracle checks {_and(without)}: both runtimes may be wrong in the same way."
    if len(runtimes) == 1:
        text += f" Only {runtimes[0]} ran, so there was nothing to compare it with."
    return text


def _by_float32(row: ProgramRow) -> bool:
    """Whether products of its check, on ordinary inputs or others, were formed in float32."""
    methods = [r.values.method for r in row.results]
    methods += [of_set.values.method for r in row.results for of_set in r.sets]
    return any(FLOAT32_PRODUCTS in method for method in methods)


def _coarsely(report: ReportData) -> str:
    """How many right results have tolerances so wide that the reader must know."""
    coarse = [(r.sensitivity, row.program) for row in report.rows for r in row.results if r.coarse]
    programs = list(dict.fromkeys(program for _, program in coarse))
    if not programs:
        return ""
    size = percent(max(coarse)[0])
    if len(report.rows) == 1:
        return f", with errors below {size} not seen"
    return f", {len(programs)} of them with errors below {size} not seen ({_and(programs)})"


def gradient_lines(report: ReportData) -> Iterator[Paragraph]:
    """One line for each program and comparison of its gradient."""
    groups: dict[tuple[str, str], list[GradientResult]] = {}
    for gradient in report.gradients:
        groups.setdefault((gradient.program, gradient.against), []).append(gradient)
    for (program, against), group in groups.items():
        wrong = [gradient.argument for gradient in group if gradient.outcome == WRONG]
        head = f"gradient of {program} by Enzyme"
        if group[0].outcome == NOT_RUN:
            yield Paragraph(f"{head}: not run, because {group[0].text}", "warn")
            continue
        worst = max((gradient.values for gradient in group), key=lambda values: values.ratio)
        how = f"{worst.relative_norm:.0e}, {ratio_text(worst.ratio)} of allowed"
        text = f"{WRONG} {_and(wrong)}" if wrong else RIGHT
        look = (WRONG if wrong else RIGHT).look
        yield Paragraph(f"{head}, against {against}: {text} ({how})", look)


def _failed(report: ReportData) -> str:
    broken = [row for row in report.rows if not row.passed]
    gradients = [gradient.program for gradient in report.gradients if gradient.outcome == WRONG]
    if gradients and not broken:
        listed = _and(list(dict.fromkeys(gradients)))
        return f"Enzyme's gradient is wrong: {listed}.{_failed_runs(report)}"
    if not broken:
        return f"All programs are right, but a run failed.{_failed_runs(report)}"
    parts = []
    for row in broken[:5]:
        reasons = [
            f"{result.outcome} on {result.runtime}{f' ({result.kind})' if result.kind else ''}"
            for result in row.results
            if result.outcome not in row.accepted
        ]
        reasons = reasons or [
            f"{pair.first} and {pair.second} differ ({pair.kind})"
            for pair in row.pairs
            if not pair.passed
        ]
        name = f"{row.program} " if len(report.rows) > 1 else ""
        parts.append(f"{name}{' and '.join(reasons)}")
    more = f", and {len(broken) - 5} more" if len(broken) > 5 else ""
    total = len(report.rows)
    some = f"{len(broken)} of {total} programs" if total > 1 else broken[0].program
    return f"{some} did not pass: {'; '.join(parts)}{more}."


def _failed_runs(report: ReportData) -> str:
    runs = [f" The run on {r.name} failed: {r.ended.get('summary')}." for r in report.broken]
    return "".join(runs)


def text_parts(report: ReportData) -> Iterator[Paragraph | Table]:
    """What a terminal shows: the tables, one line per problem, and the verdict."""
    yield _table(report)
    if any(result.sets for row in report.rows for result in row.results):
        head = ["inputs", "programs", "right", "element types", "checked"]
        yield Table("", head, list(_summary_rows(report)), wraps=True)
    told = problems(report)
    for number, row in enumerate(report.rows):
        yield from (Paragraph(f"  {row.program}{rest}", "bad") for n, rest in told if n == number)
        notes = [f" on {r.runtime}: {r.values.note}" for r in row.results if r.values.note]
        notes += [f": {text}" for text in estimates(row)]
        yield from (Paragraph(f"  {row.program}{note}", "warn") for note in notes)
    yield from gradient_lines(report)
    for name, why in report.absent.items():
        yield Paragraph(f"{name} did not run: {why}", "warn")
    yield Paragraph(verdict(report), "good" if report.passed else "bad")


def _table(report: ReportData) -> Table:
    """One line for each program; the cells of the page's table are texts here."""
    results = [result for row in report.rows for result in row.results]
    pairs = report.rows[0].pairs if report.rows else ()
    explained = [_ERRORS] * any(map(has_error, results))
    explained += [_COLUMNS["time"]] * any("call" in result.seconds for result in results)
    rows: list[list[Cell | str]] = [
        [
            row.program,
            problem_text(row),
            *(Cell(_result_text(result), result.outcome.look) for result in row.results),
            *(Cell(_pair_text(pair), _outcome(pair).look) for pair in row.pairs),
        ]
        for row in report.rows
    ]
    head = ["program", "problem", *(run.name for run in report.runs)]
    head += [f"{pair.first} and {pair.second}" for pair in pairs]
    return Table(" ".join(explained), head, rows, wraps=True)


def _result_text(result: Result) -> str:
    """A result in a few words: outcome, accuracy and time."""
    texts = {name: cell.text for name, cell in _result_cells(result).items()}
    outcome, share = texts.pop("result"), texts.pop("share of allowed", "")
    if share:
        texts["error"] += f", {share} of {'the estimate' if result.values.estimated else 'allowed'}"
    elif "error" in texts:
        texts["error"] = "exactly"
    numbers = ", ".join(texts.values())
    return f"{outcome}{' ' if outcome == result.outcome else ', '}{numbers}" if numbers else outcome


def _pair_text(pair: Pair) -> str:
    """A comparison in a few words."""
    first, size = (cell.text for cell in _pair_cells(pair))
    return f"{first} to {size}" if pair.passed and pair.values.error else first


def _outcome(pair: Pair) -> Outcome:
    return RIGHT if pair.passed else WRONG if pair.compared else NOT_RUN


_ERRORS = (
    "Error in the worst block: its Euclidean norm relative to the result's, and its largest "
    "element as a fraction of what rounding allows."
)
_COLUMNS = {
    "error": "Error: Euclidean norm relative to the result's, of the worst block.",
    "share of allowed": "Share of allowed: the largest error of an element against what rounding "
    "allows.",
    "time": "Time: median of the timed calls.",
}
"""The numbers of a result that the table of all programs has if there are any."""

_DIFFERENCE = "Difference: Euclidean norm relative to the first runtime's result."
NONE = "-"
"""A number that a result does not have."""


def overview(report: ReportData, *, links: bool = True) -> Table:
    """One line for each program: its result on each runtime, and whether runtimes agree."""
    pairs = report.rows[0].pairs if report.rows else ()
    shown = [name for row in report.rows for r in row.results for name in _result_cells(r)]
    columns = ["result", *(name for name in _COLUMNS if name in shown)]
    groups = [("", 2), *((run.name, len(columns)) for run in report.runs)]
    groups += [(f"{p.first} and {p.second}", 2) for p in pairs]
    head = [
        "program",
        "problem",
        *columns * len(report.runs),
        *["result", "difference"] * len(pairs),
    ]
    words = ("program", "problem", "result")
    explained = [_COLUMNS[name] for name in columns[1:]] + [_DIFFERENCE] * bool(pairs)
    return Table(
        " ".join(explained) or "Results",
        head,
        [
            _overview_row(number, row, columns, links=links)
            for number, row in enumerate(report.rows)
        ],
        numbers=[place for place, title in enumerate(head) if title not in words],
        groups=groups,
    )


def _overview_row(
    number: int, row: ProgramRow, columns: Sequence[str], *, links: bool
) -> list[Cell | str]:
    oracle = "" if row.oracle or not row.problem else ", no oracle"
    name = Cell(row.program, link=f"program-{number}" if links else "")
    cells: list[Cell | str] = [name, problem_text(row) + oracle]
    for result in row.results:
        of_result = _result_cells(result)
        cells += [of_result.get(name, NONE) for name in columns]
    for pair in row.pairs:
        cells += _pair_cells(pair)
    return cells


def _result_cells(result: Result) -> dict[str, Cell]:
    """The cells of a result, by column, for what it has."""
    values, cells = result.values, {"result": Cell(_outcome_text(result), result.outcome.look)}
    if has_error(result):
        estimated = "of the estimate" if values.estimated else ""
        cells["error"] = Cell(f"{values.relative_norm:.0e}")
        share = Cell(ratio_text(values.ratio), share=values.ratio, detail=estimated)
        cells["share of allowed"] = share
    elif result.outcome == RIGHT and result.blocks:
        cells["error"] = Cell("exact")
    if "call" in result.seconds:
        cells["time"] = Cell(seconds_text(result.seconds["call"]))
    return cells


def _outcome_text(result: Result) -> str:
    """The outcome, with the kind of fault if it is wrong, and what is not seen if it is right."""
    if result.coarse:
        return f"{result.outcome}, errors below {percent(result.sensitivity)} not seen"
    wrong = result.outcome == WRONG and result.kind
    return f"{result.outcome}: {result.kind}" if wrong else result.outcome


def _pair_cells(pair: Pair) -> list[Cell]:
    look = _outcome(pair).look
    if not pair.passed:
        return [Cell(pair.kind, look), Cell(NONE)]
    if pair.values.error == 0:
        return [Cell("same bits", look), Cell("0")]
    return [Cell("agree", look), Cell(f"{pair.values.relative_norm:.0e}")]


def problem_text(row: ProgramRow) -> str:
    """Size, element type and partition specs of the inputs."""
    if not row.problem:
        return "-"
    problem = row.problem
    return f"n={problem['size']} {problem['dtype']} {specs_text(problem['in_specs'])}"


def has_error(result: Result) -> bool:
    """Whether a result has numbers that say how close it is: it is right, but not exact.

    An oracle with products in float32 may round as the program does, which is not exact.
    """
    rounded = result.values.error != 0 or FLOAT32_PRODUCTS in result.values.method
    return result.outcome == RIGHT and bool(result.blocks) and rounded


def ratio_text(ratio: float) -> str:
    """A ratio with two digits."""
    return f"{ratio:.2f}" if 0.005 <= ratio < 100 or ratio == 0 else f"{ratio:.0e}"


def problems(report: ReportData) -> list[tuple[int, str]]:
    """Number of a program's row and what follows its name, once where several have the same."""
    names: dict[str, list[int]] = {}
    for number, row in enumerate(report.rows):
        texts = [r.text for r in row.results if r.outcome not in row.accepted]
        texts += [
            f"{row.program}, {p.first} and {p.second}: {p.text}"
            for p in row.pairs
            if not p.passed and p.compared
        ]
        for text in texts:
            names.setdefault(text.removeprefix(row.program), []).append(number)
    return [
        (first, "".join(f", {report.rows[n].program}" for n in others) + rest)
        for rest, (first, *others) in names.items()
    ]


def estimates(row: ProgramRow) -> list[str]:
    """Why tolerances of a program are estimated."""
    reasons = dict.fromkeys(r.values.estimated for r in row.results if r.values.estimated)
    return [f"the tolerance is estimated, not derived, because {r}" for r in reasons]


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _summary_rows(report: ReportData) -> Iterator[tuple[str, ...]]:
    """For each set of inputs: how many programs passed it, and in how many runs of what."""
    for name in SETS:
        checked = [
            (row, result)
            for row in report.rows
            for of_runtime in row.results
            for result in (*_ordinary(row, of_runtime), *of_runtime.sets)
            if result.inputs == name
        ]
        if not checked:
            continue
        results = [result for _, result in checked]
        right = [result.values for result in results if result.outcome != WRONG]
        worst = max((values.ratio for values in right), default=0.0)
        methods = ", ".join(dict.fromkeys(r.values.method for r in results if r.values.method))
        yield (
            name,
            str(len({row.program for row, _ in checked})),
            f"{len(right)} of {len(results)}",
            ", ".join(dict.fromkeys(result.dtype for result in results)),
            f"{methods}; at most {worst:.2g} of allowed" if worst else methods,
        )


def _ordinary(row: ProgramRow, result: Result) -> Iterator[SetResult]:
    """The result on ordinary inputs as that of a set; a wrong further set does not change it."""
    if row.problem and result.values.method:
        wrong = result.outcome == WRONG and any(not block.passed for block in result.blocks)
        outcome = WRONG if wrong else RIGHT
        yield SetResult(ORDINARY, "", row.problem["dtype"], "", outcome, values=result.values)
