"""What the further sets of inputs of a program showed, and the summary of all sets."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..._core.text import spec_text
from .._faults.diagnose import diagnose, differing, must_be_equal
from .._inputs import EXACT, ORDINARY, SETS
from .._records.records import ProgramRecord, Run
from .._records.verdict import BlockVerdict, SetRecord
from .data import RIGHT, UNCHECKED, WRONG, ReportData, Result, Row, SetResult
from .sensitivity import percent, seen

if TYPE_CHECKING:
    from rich.table import Table


def unless_empty(result: Result, program: str) -> Result:
    """A result that is unchecked if an output of the oracle has no finite element."""
    if result.outcome != RIGHT:
        return result
    finite: dict[str, int] = {}
    for block in result.blocks:
        size = math.prod(_lengths(block))
        finite[block.array] = finite.get(block.array, 0) + size - block.non_finite
    empty = [array for array, count in finite.items() if not count]
    if not empty:
        return result
    elements = any(0 not in _lengths(b) for b in result.blocks if b.array == empty[0])
    why = "must be NaN or infinite in every element" if elements else "has no elements"
    text = (
        f"{program} on {result.runtime}: {empty[0]} {why}, so no number was checked; correct the "
        "oracle, or the shapes in inputs="
    )
    return replace(result, outcome=UNCHECKED, text=text)


def probed(records: Sequence[ProgramRecord]) -> bool:
    """Whether the exact probe of the program's first layout and type passed on every process.

    It is one of whole numbers, for sums of products; a program that moves elements needs none.
    """
    probes = [
        [one for one in record.sets if one.inputs == EXACT and one.dtype == record.problem["dtype"]]
        for record in records
    ]
    blocks = [block for found in probes for one in found[:1] for block in one.blocks]
    return all(probes) and all(b.passed and b.method == "whole numbers" for b in blocks)


def _lengths(block: BlockVerdict) -> list[int]:
    return [stop - start for start, stop in block.index or []]


def with_sets(result: Result, run: Run, program: str) -> Result:
    """A program's result with those of its further sets; the first wrong one makes it wrong."""
    if result.outcome not in (RIGHT, WRONG, UNCHECKED):
        return result
    records = run.of(program)
    sets = tuple(_set_result(run, result.runtime, records, i) for i in range(_count(records)))
    result = replace(result, sets=sets)
    wrong = next((one for one in sets if one.outcome == WRONG), None)
    if result.outcome == WRONG or wrong is None:
        return result
    return replace(result, outcome=WRONG, kind=wrong.kind, text=wrong.complaint)


def _count(records: Sequence[ProgramRecord]) -> int:
    """Number of further sets; processes of one run have the same."""
    return min((len(record.sets) for record in records), default=0)


def _set_result(run: Run, runtime: str, records: Sequence[ProgramRecord], number: int) -> SetResult:
    parts = [record.sets[number] for record in records]
    first = parts[0]
    blocks = [block for part in parts for block in part.blocks]
    equal = must_be_equal(run.records)
    found = diagnose(
        blocks,
        first.plans,
        program=f"{records[0].program} ({set_text(first)})",
        runtime=runtime,
        num_processes=run.records[0].num_processes,
        copies=differing(blocks, equal),
        repeats=[one for part in parts for one in part.repeats] if equal else (),
    )
    outputs = [block for block in blocks if block.array.startswith("output")]
    return SetResult(
        inputs=first.inputs,
        text=first.text,
        dtype=first.dtype,
        specs=specs_text(first),
        outcome=RIGHT if found.passed else WRONG,
        kind=str(found.kind or ""),
        complaint=found.text if not found.passed else "",
        method=", ".join(dict.fromkeys(b.method for b in outputs if b.method != "none")),
        estimated=next((b.estimated for b in outputs if b.estimated), ""),
        error=max((b.error for b in outputs), default=0.0),
        ratio=max((b.ratio for b in outputs), default=0.0),
        relative_norm=max((b.relative_norm for b in outputs), default=0.0),
        non_finite=sum(b.non_finite for b in outputs),
        sensitivity=seen(outputs, first.plans).sensitivity,
    )


def specs_text(record: SetRecord) -> str:
    """The partition specs of the inputs."""
    return " ".join(spec_text(spec) or "-" for spec in record.specs["in_specs"])


def set_text(record: SetRecord) -> str:
    """A set in a few words: inputs, element type and layout."""
    return f"{record.inputs} inputs, {record.dtype} {specs_text(record)}"


def checked_text(result: SetResult) -> str:
    """How results of a set were checked, and how far they were off."""
    if result.outcome == WRONG:
        return f"wrong: {result.kind}"
    if result.error == 0:
        how = {"exact oracle": "equal bits", "whole numbers": "equal numbers"}
        text = how.get(result.method, "no error")
    else:
        text = f"{result.ratio:.2g} of {'the estimate' if result.estimated else 'allowed'}"
        text += f", sees errors above {percent(result.sensitivity)}"
    if result.non_finite:
        text += f", {result.non_finite} NaN or infinities in place"
    return text


def rows_of(row: Row) -> list[tuple[str, ...]]:
    """The further sets of a program, for a table: runtime, inputs, problem, elements, result."""
    return [
        (result.runtime, one.inputs, f"{one.dtype} {one.specs}", one.text, checked_text(one))
        for result in row.results
        for one in result.sets
    ]


def summary(report: ReportData) -> "Table | None":
    """For each set of inputs: how many programs passed it, and in how many runs of what."""
    from rich import box
    from rich.table import Table

    if not any(result.sets for row in report.rows for result in row.results):
        return None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("inputs", "programs", "right", "element types", "checked"):
        table.add_column(head)
    for one in _summary_rows(report):
        table.add_row(*one)
    return table


def _summary_rows(report: ReportData) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in SETS:
        found = [
            (row.program, one.dtype, one.outcome, one.ratio, one.method)
            for row in report.rows
            for result in row.results
            for one in result.sets
            if one.inputs == name
        ]
        if name == ORDINARY:
            found += [
                (row.program, row.problem["dtype"], _own_outcome(r), r.ratio, r.method)
                for row in report.rows
                for r in row.results
                if row.problem and r.method
            ]
        if found:
            right = [one for one in found if one[2] != WRONG]
            dtypes = ", ".join(dict.fromkeys(one[1] for one in found))
            programs = len({one[0] for one in found})
            worst = max((one[3] for one in right), default=0.0)
            methods = ", ".join(dict.fromkeys(one[4] for one in found if one[4]))
            checked = f"{methods}; at most {worst:.2g} of allowed" if worst else methods
            rows.append((name, str(programs), f"{len(right)} of {len(found)}", dtypes, checked))
    return rows


def _own_outcome(result: Result) -> str:
    """The outcome of the ordinary inputs, which a wrong further set does not change."""
    wrong = result.outcome == WRONG and any(not block.passed for block in result.blocks)
    return WRONG if wrong else RIGHT
