"""The outcome of a program on a runtime: right, right with a remark, wrong, or unchecked.

Sights and ratios of all processes are combined here, when the report is made: what a check cannot
see is unchecked. Further sets of inputs count, and have a summary.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...arrays.dtypes import as_dtype
from ...arrays.text import block_text, percent_text, spec_text
from ...base.document.parts import Table
from ..bounds.sight import COARSE, FINE, FINE_SHORT, Sight, combined
from ..bounds.verdict import BY_FLOAT32, Verdict, join
from ..faults.diagnose import diagnose, differing, must_be_equal
from ..inputs import EXACT, ORDINARY, SETS
from ..records.records import Run
from ..records.verdict import UNCOMPARED, ArrayPlan, BlockVerdict, ProgramRecord, SetRecord
from .data import RIGHT, UNCHECKED, WRONG, ProgramRow, ReportData, Result, SetResult

_FAR = 4.0
"""A block is an outlier if its largest ratio is this many times that of every other block."""


class Seen(NamedTuple):
    """What the checks of a program's outputs can see.

    Attributes:
        sensitivity: The largest sensitivity of an output.
        coarse: Whether it is so large that the report must say so.
        unchecked: Why the result counts as unchecked; "" if it does not.
        note: Elements without a bound, in a few words; "" if there are none.
    """

    sensitivity: float = 0.0
    coarse: bool = False
    unchecked: str = ""
    note: str = ""


def seen(
    blocks: Iterable[BlockVerdict], plans: Mapping[str, ArrayPlan], *, probed: bool = False
) -> Seen:
    """Combine the sights of the blocks of each output, from all processes.

    Args:
        blocks: Verdicts on the blocks of the outputs.
        plans: Plans of the arrays.
        probed: Whether the program is linear and its exact probe passed: then it is right whatever
            the tolerances of its rounded results.
    """
    sights: dict[str, list[Sight]] = {}
    for block in blocks:
        empty = any(start == stop for start, stop in block.index or ())
        if block.values.method != UNCOMPARED and not empty:
            sights.setdefault(block.array, []).append(block.values.sight)
    found = {name: combined(of_array) for name, of_array in sights.items()}
    if not found:
        return Seen()
    # The output that is seen worst, by what its type allows.
    name = max(found, key=lambda n: found[n].sensitivity / _fine(plans[n].dtype))
    worst, dtype = found[name].sensitivity, plans[name].dtype
    why = "" if probed or worst <= COARSE else _why(name, worst, dtype)
    if not found[name].tolerances:
        why = f"no element of {name} was compared"
    return Seen(
        sensitivity=worst,
        coarse=not probed and _fine(dtype) < worst <= COARSE,
        unchecked=why,
        note=_unbounded(found),
    )


def _fine(dtype: str) -> float:
    found = as_dtype(dtype)
    return FINE_SHORT if found.itemsize // (2 if found.kind == "c" else 1) <= 2 else FINE


def _why(name: str, sensitivity: float, dtype: str) -> str:
    if math.isinf(sensitivity):
        why = (
            f"half of the elements of {name} or more have no error bound (a division by what may "
            "be zero, an overflow), so any value of them passes"
        )
    else:
        size = f"{percent(sensitivity)} of" if sensitivity < 10 else f"{sensitivity:.0e} times"
        why = (
            f"rounding in {dtype} may change {name} by {size} its root mean square, so smaller "
            f"errors are not seen; only up to {percent(COARSE)} counts as right"
        )
    longer = (
        "" if as_dtype(dtype).itemsize >= 8 else "with a longer element type (--dtype float64), "
    )
    return (
        f"{why}; run it {longer}with a smaller --size, or check its parts as programs of their own"
    )


def _unbounded(found: Mapping[str, Sight]) -> str:
    """How many elements pass whatever their value; "" if none."""
    parts = [
        f"{sight.unbounded} of {sum(sight.tolerances.values())} elements of {name}"
        for name, sight in found.items()
        if sight.unbounded
    ]
    return f"{', '.join(parts)} have no error bound and are not checked" if parts else ""


def percent(part: float) -> str:
    """A fraction in per cent, with two digits: bounds are not known better."""
    return percent_text(part, digits=2)


def on_all(blocks: Sequence[BlockVerdict]) -> Verdict:
    """The verdict on the values of several blocks; its relative norm is that of the worst block.

    The places of wrong elements are those of single blocks.
    """
    if not blocks:
        return Verdict()
    values = [block.values for block in blocks]
    worst = max(values, key=lambda one: one.relative_norm)
    methods = dict.fromkeys(one.method for one in values if one.method != UNCOMPARED)
    return replace(
        join(replace(one, places=None) for one in values),
        method=", ".join(methods),
        error_squares=worst.error_squares,
        value_squares=worst.value_squares,
    )


def outliers(blocks: Sequence[BlockVerdict]) -> str:
    """The block whose errors are much larger than those of all others, in a few words; or "".

    Where the oracle's products are in float32, its own errors are as large, and none is named.
    """
    found = []
    for name in dict.fromkeys(block.array for block in blocks):
        ratios: dict[str, tuple[float, BlockVerdict]] = {}
        for block in blocks:
            if block.array == name and block.values.method not in (BY_FLOAT32, UNCOMPARED):
                key = str(block.index)
                before = ratios.get(key, (-1.0, block))
                ratios[key] = max(before, (block.values.ratio, block), key=lambda pair: pair[0])
        if len(ratios) < 2:
            continue
        (next_ratio, _), (ratio, block) = sorted(ratios.values(), key=lambda pair: pair[0])[-2:]
        if ratio > _FAR * next_ratio:
            found.append(
                f"block {block_text(block.index)} of {name} on device {block.device} (process "
                f"{block.process}) is suspicious: its largest error is {ratio:.2g} of what "
                f"rounding allows, that of every other block at most {next_ratio:.2g}"
            )
    return "; ".join(found)


def unless_empty(result: Result, program: str) -> Result:
    """A result that is unchecked if an output of the oracle has no finite element."""
    if result.outcome != RIGHT:
        return result
    finite: dict[str, int] = {}
    for block in result.blocks:
        size = math.prod(_lengths(block))
        finite[block.array] = finite.get(block.array, 0) + size - block.values.non_finite
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
    return all(probes) and all(b.passed and b.values.method == "whole numbers" for b in blocks)


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
        values=on_all(outputs),
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


def rows_of(row: ProgramRow) -> list[tuple[str, ...]]:
    """The further sets of a program, for a table: runtime, inputs, problem, elements, result."""
    return [
        (result.runtime, one.inputs, f"{one.dtype} {one.specs}", one.text, checked_text(one))
        for result in row.results
        for one in result.sets
    ]


def summary(report: ReportData) -> Iterator[Table]:
    """For each set of inputs: how many programs passed it, and in how many runs of what."""
    if any(result.sets for row in report.rows for result in row.results):
        head = ["inputs", "programs", "right", "element types", "checked"]
        yield Table("", head, _summary_rows(report), wraps=True)


def _summary_rows(report: ReportData) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in SETS:
        found = [
            (row.program, one.dtype, one.outcome, one.values)
            for row in report.rows
            for result in row.results
            for one in result.sets
            if one.inputs == name
        ]
        if name == ORDINARY:
            found += [
                (row.program, row.problem["dtype"], _own_outcome(r), r.values)
                for row in report.rows
                for r in row.results
                if row.problem and r.values.method
            ]
        if found:
            right = [one for one in found if one[2] != WRONG]
            dtypes = ", ".join(dict.fromkeys(one[1] for one in found))
            programs = len({one[0] for one in found})
            worst = max((one[3].ratio for one in right), default=0.0)
            methods = ", ".join(dict.fromkeys(one[3].method for one in found if one[3].method))
            checked = f"{methods}; at most {worst:.2g} of allowed" if worst else methods
            rows.append((name, str(programs), f"{len(right)} of {len(found)}", dtypes, checked))
    return rows


def _own_outcome(result: Result) -> str:
    """The outcome of the ordinary inputs, which a wrong further set does not change."""
    wrong = result.outcome == WRONG and any(not block.passed for block in result.blocks)
    return WRONG if wrong else RIGHT
