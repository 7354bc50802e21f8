"""The result of a program on a runtime: right, right with a remark, wrong, or unchecked.

Verdicts, sights and ratios of all processes are combined here, when the report is made: what a
check cannot see is unchecked. Further sets of inputs count, too.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...arrays.dtypes import as_dtype
from ...arrays.text import block_text, percent_text, specs_text
from ...base.counted import counted
from ...base.errors import ExitCode
from ..bounds.sight import COARSE, FEW, FINE, FINE_SHORT, Sight, combined
from ..bounds.typical import together
from ..bounds.verdict import BY_FLOAT32, Verdict, join
from ..faults.diagnose import copies_text, diagnose, differing, must_be_equal, repeats_text
from ..inputs import EXACT
from ..records.records import ProcessRecord, Run
from ..records.verdict import (
    UNCOMPARED,
    ArrayPlan,
    BlockVerdict,
    Diagnosis,
    Kind,
    ProgramRecord,
    SetRecord,
)
from .data import NOT_RUN, RAISED, RIGHT, UNCHECKED, WRONG, Outcome, Result, SetResult


def result_of(run: Run, name: str, program: str) -> Result:
    """The result of a program in a run, which has this name in the report."""
    records = run.of(program)
    if run.exit_code and any(record.running == program for record in run.records):
        text = f"{program} on {name} did not end: {(run.ended or {}).get('summary')}"
        return Result(name, RAISED, text=text, exit_code=run.exit_code)
    raised = [(p, r) for p in run.records if (r := p.program(program)) and r.error]
    if raised:
        return _raised(name, program, raised)
    if not records or len(records) < run.records[0].num_processes:
        summary = (run.ended or {}).get("summary", f"no process left a record of {program}")
        text = f"{program} did not run on {name} because its run ended before: {summary}"
        return Result(name, NOT_RUN, text=text, exit_code=run.exit_code or ExitCode.FAILED)
    diagnosis, blocks, note = _judge(run, name, program, records)
    outputs = [block for block in blocks if block.array.startswith("output")]
    sight = seen(outputs, records[0].plans, probed=_probed(records))
    outcome, text = _outcome(f"{program} on {name}", diagnosis, records[0].oracle, sight, outputs)
    derived = seen(map(_by_derived, outputs), records[0].plans)
    notes = [note, _typical_note(outputs, derived)]
    notes += [sight.note, outliers(outputs)] if outcome != WRONG else []
    count = min(len(record.sets) for record in records)
    sets = tuple(_set_result(run, name, records, number) for number in range(count))
    wrong_set = next((of_set for of_set in sets if of_set.outcome == WRONG), None)
    kind = str(diagnosis.kind or "")
    coarse = outcome == RIGHT and sight.coarse
    if outcome != WRONG and wrong_set is not None:
        outcome, kind, text = WRONG, wrong_set.kind, wrong_set.complaint
    return Result(
        name,
        outcome,
        kind=kind,
        text=text,
        values=replace(on_all(outputs), note="; ".join(filter(None, notes)), sight=sight.sight),
        sensitivity=sight.sensitivity,
        derived_sensitivity=derived.sensitivity,
        coarse=coarse,
        seconds=_slowest(records),
        blocks=tuple(sorted(blocks, key=lambda b: (b.array, b.device))),
        sets=sets,
    )


def _outcome(
    what: str, diagnosis: Diagnosis, oracle: bool, sight: "Seen", outputs: Sequence[BlockVerdict]
) -> tuple[Outcome, str]:
    """The outcome of a program that ran, and the text about it."""
    if not diagnosis.passed:
        return WRONG, diagnosis.text
    if not oracle:
        text = f"{what} has no oracle: only the placement was checked, not the values"
        return UNCHECKED, text
    if sight.unchecked:
        return UNCHECKED, f"{what} is unchecked: {sight.unchecked}"
    for array in dict.fromkeys(block.array for block in outputs):
        blocks = [block for block in outputs if block.array == array]
        elements = sum(math.prod(b - a for a, b in block.index or []) for block in blocks)
        if elements == sum(block.values.non_finite for block in blocks):
            why = "must be NaN or infinite in every element" if elements else "has no elements"
            return UNCHECKED, (
                f"{what}: {array} {why}, so no number was checked; correct the oracle, or the "
                "shapes in inputs="
            )
    return RIGHT, ""


class _Judged(NamedTuple):
    """The diagnosis on one set of inputs, the verdicts on outputs and on wrong blocks of inputs.

    The note says what differs between copies or calls and may, in one sentence.
    """

    diagnosis: Diagnosis
    blocks: list[BlockVerdict]
    note: str


def _judge(
    run: Run, runtime: str, program: str, parts: Sequence[ProgramRecord | SetRecord]
) -> _Judged:
    """Combine what the processes recorded; `program` is what the text calls the program."""
    blocks = [block for part in parts for block in part.blocks]
    repeats = [repeat for part in parts for repeat in part.repeats]
    equal = must_be_equal(run.records)
    copies = differing(blocks, equal)
    diagnosis = diagnose(
        blocks,
        parts[0].plans,
        program=program,
        runtime=runtime,
        num_processes=run.records[0].num_processes,
        copies=copies,
        repeats=repeats if equal else (),
        hosts={record.process: record.host for record in run.records},
    )
    others = [] if copies else differing(blocks)
    notes = [f"copies differ: {copies_text(others)}"] if others else []
    notes += [repeats_text(repeats)] if repeats and not equal else []
    shown = [block for block in blocks if block.array.startswith("output") or not block.passed]
    return _Judged(diagnosis, shown, "; ".join(notes))


def _set_result(run: Run, runtime: str, records: Sequence[ProgramRecord], number: int) -> SetResult:
    parts = [record.sets[number] for record in records]
    first = parts[0]
    specs = specs_text(first.specs["in_specs"])
    program = f"{records[0].program} ({first.inputs} inputs, {first.dtype} {specs})"
    diagnosis, blocks, _ = _judge(run, runtime, program, parts)
    outputs = [block for block in blocks if block.array.startswith("output")]
    return SetResult(
        inputs=first.inputs,
        text=first.text,
        dtype=first.dtype,
        specs=specs,
        outcome=RIGHT if diagnosis.passed else WRONG,
        kind=str(diagnosis.kind or ""),
        complaint="" if diagnosis.passed else diagnosis.text,
        values=on_all(outputs),
        sensitivity=seen(outputs, first.plans).sensitivity,
    )


def _raised(
    name: str, program: str, raised: Sequence[tuple[ProcessRecord, ProgramRecord]]
) -> Result:
    """The result of a program that raised, with the process and the exception.

    The cause is preferred to messages that only report the failure of another process.
    """
    process, record = min(
        raised, key=lambda pair: (pair[1].error or {})["failed_process"] is not None
    )
    error = record.error or {}
    messages = {(r.error or {})["message"] for _, r in raised}
    everyone = len(raised) == process.num_processes > 1 == len(messages)
    who = "every process" if everyone else f"process {process.process} on {process.host}"
    text = f"{program} on {name}: {who} raised {error['exception']}: {error['message']}"
    outcome = WRONG if error["exit_code"] == ExitCode.MISMATCH else RAISED
    kind = str(Kind.STRUCTURE) if outcome == WRONG else ""
    return Result(name, outcome, kind, text, exit_code=int(error["exit_code"]))


def _slowest(records: Sequence[ProgramRecord]) -> dict[str, Any]:
    """The longest time of any process for each step."""
    numbers = [
        {key: value for key, value in r.seconds.items() if isinstance(value, (int, float))}
        for r in records
    ]
    return {key: max(n.get(key, 0.0) for n in numbers) for key in numbers[0]}


_FAR = 4.0
"""A block is an outlier if its largest ratio is this many times that of every other block."""


class Seen(NamedTuple):
    """What the checks of a program's outputs can see.

    Attributes:
        sensitivity: The largest sensitivity of an output.
        coarse: Whether it is so large that the report must say so.
        unchecked: Why the result counts as unchecked; "" if it does not.
        note: Elements that were not seen, in a few words; "" if there are none.
        sight: What the checks of all outputs see together; copies of a block count once.
    """

    sensitivity: float = 0.0
    coarse: bool = False
    unchecked: str = ""
    note: str = ""
    sight: Sight = Sight()


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
    by_output = _distinct(blocks)
    sights = {name: combined(b.values.sight for b in own) for name, own in by_output.items()}
    if not sights:
        return Seen()
    # The output that is seen worst, by what its type allows.
    name = max(sights, key=lambda n: sights[n].sensitivity / _fine(plans[n].dtype))
    worst, dtype = sights[name].sensitivity, plans[name].dtype
    why = "" if probed else _unseen(by_output, sights, name, plans)
    if not sights[name].tolerances and not sights[name].trivial:
        why = f"no element of {name} was compared"
    return Seen(
        sensitivity=worst,
        coarse=not probed and _fine(dtype) < worst <= COARSE,
        unchecked=why,
        note=_remark(by_output, sights, told=bool(why) or probed),
        sight=combined(sights.values()),
    )


def _distinct(blocks: Iterable[BlockVerdict]) -> dict[str, list[BlockVerdict]]:
    """The compared blocks of each output; of the copies of a block, the one that is seen worst."""
    by_output: dict[str, dict[str, BlockVerdict]] = {}
    for block in blocks:
        empty = any(start == stop for start, stop in block.index or ())
        if block.values.method != UNCOMPARED and not empty:
            own, place = by_output.setdefault(block.array, {}), str(block.index)
            other = own.setdefault(place, block)
            if block.values.sight.blind > other.values.sight.blind:
                own[place] = block
    return {name: [*own.values()] for name, own in by_output.items()}


def _by_derived(block: BlockVerdict) -> BlockVerdict:
    """The verdict on a block with what its derived bound alone can see."""
    typical = block.values.typical
    if typical is None or typical.missing:
        return block
    return replace(block, values=replace(block.values, sight=typical.derived))


def _typical_note(blocks: Sequence[BlockVerdict], derived: Seen) -> str:
    """What the typical limit adds or why there is none, in a few words; "" if nothing.

    Args:
        derived: What the derived bounds alone can see.
    """
    typical = together(block.values.typical for block in blocks)
    if typical is None:
        return ""
    notes = []
    if typical.missing:
        notes.append(f"no typical limit of rounding: {typical.missing}")
    elif derived.unchecked or derived.coarse:
        notes.append(
            "errors are seen by the typical limit of rounding, which proves nothing; the derived "
            f"bound alone sees {_seen_above(derived.sensitivity)}"
        )
    if typical.undecided:
        notes.append(
            f"{counted(typical.undecided, 'element depends', 'elements depend')} on a comparison "
            "that rounding may turn; right is either of its outcomes"
        )
    return "; ".join(notes)


def _seen_above(sensitivity: float) -> str:
    if math.isinf(sensitivity):
        return "none"
    size = percent(sensitivity) if sensitivity < 10 else f"{sensitivity:.0e} times the result"
    return f"none below {size}"


def _fine(dtype: str) -> float:
    kind = as_dtype(dtype)
    return FINE_SHORT if kind.itemsize // (2 if kind.kind == "c" else 1) <= 2 else FINE


def _unseen(
    by_output: Mapping[str, Sequence[BlockVerdict]],
    sights: Mapping[str, Sight],
    worst: str,
    plans: Mapping[str, ArrayPlan],
) -> str:
    """Why the outputs count as unchecked; "" if they do not.

    Args:
        worst: The output that is seen worst.
    """
    if sights[worst].sensitivity > COARSE:
        return _why(worst, sights[worst].sensitivity, plans[worst].dtype)
    for name, sight in sights.items():
        dtype = plans[name].dtype
        if sight.blinded:
            return (
                f"{_blind_text(name, by_output[name])}, so wrong values pass there; only "
                f"{percent(FEW)} of the elements may be so. Rounding in {dtype} may change each "
                "of them by more than half of the root mean square of its block and of its row"
                f"{_advice(dtype)}"
            )
        for block in by_output[name]:
            values = block.values
            if values.error_squares > COARSE**2 * values.sight.squares > 0:
                part = math.sqrt(values.error_squares / values.sight.squares)
                return (
                    f"block {block_text(block.index)} of {name} is off by {percent(part)} of its "
                    f"norm, which rounding in {dtype} may explain; only up to {percent(COARSE)} "
                    f"counts as right{_advice(dtype)}"
                )
    return ""


def _blind_text(name: str, blocks: Sequence[BlockVerdict]) -> str:
    """How many elements of an output were not seen, and where most of them are."""
    sight = combined(block.values.sight for block in blocks)
    most = max(blocks, key=lambda block: block.values.sight.blind)
    trivial = f" ({sight.trivial} more {_be(sight.trivial)} constant)" if sight.trivial else ""
    seen = counted(sight.elements - sight.trivial, "element")
    return (
        f"{sight.blind} of the {seen} of {name}{trivial} {'was' if sight.blind == 1 else 'were'} "
        f"not seen, most of them in block {block_text(most.index)}"
    )


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
    return why + _advice(dtype)


def _advice(dtype: str) -> str:
    longer = (
        "" if as_dtype(dtype).itemsize >= 8 else "with a longer element type (--dtype float64), "
    )
    return f"; run it {longer}with a smaller --size, or check its parts as programs of their own"


def _remark(
    by_output: Mapping[str, Sequence[BlockVerdict]], sights: Mapping[str, Sight], *, told: bool
) -> str:
    """How many elements pass whatever their value, and how many are constant; "" if none.

    Args:
        told: Whether blind elements are told elsewhere, or a probe has seen them.
    """
    parts = [
        f"{sight.unbounded} of {counted(sight.elements, 'element')} of {name} "
        f"{'has' if sight.unbounded == 1 else 'have'} no error bound and {_be(sight.unbounded)} "
        "not checked"
        for name, sight in sights.items()
        if sight.unbounded
    ]
    for name, sight in sights.items():
        if sight.blind > sight.unbounded and not told:
            parts.append(_blind_text(name, by_output[name]))
        if sight.elements < 2 * sight.trivial:
            parts.append(
                f"{sight.trivial} of {counted(sight.elements, 'element')} of {name} "
                f"{_be(sight.trivial)} the same constant in the oracle and the result (padding, a "
                "mask), which shows nothing"
            )
    return "; ".join(parts)


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


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
    worst = max(values, key=lambda verdict: verdict.relative_norm)
    methods = dict.fromkeys(verdict.method for verdict in values if verdict.method != UNCOMPARED)
    return replace(
        join(replace(verdict, places=None) for verdict in values),
        method=", ".join(methods),
        error_squares=worst.error_squares,
        value_squares=worst.value_squares,
    )


def outliers(blocks: Sequence[BlockVerdict]) -> str:
    """The block whose errors are much larger than those of all others, in a few words; or "".

    Where the oracle's products are in float32, its own errors are as large, and none is named.
    """
    largest: dict[str, dict[str, BlockVerdict]] = {}
    for block in sorted(blocks, key=lambda b: b.values.ratio):
        if block.values.method not in (BY_FLOAT32, UNCOMPARED):
            largest.setdefault(block.array, {})[str(block.index)] = block  # of its copies
    notes = []
    for name, by_index in largest.items():
        *others, worst = sorted(by_index.values(), key=lambda b: b.values.ratio)
        if others and worst.values.ratio > _FAR * others[-1].values.ratio:
            notes.append(
                f"block {block_text(worst.index)} of {name} on device {worst.device} (process "
                f"{worst.process}) is suspicious: its largest error is {worst.values.ratio:.2g} of "
                "what rounding allows, that of every other block at most "
                f"{others[-1].values.ratio:.2g}"
            )
    return "; ".join(notes)


def _probed(records: Sequence[ProgramRecord]) -> bool:
    """Whether the exact probe of the program's first layout and type passed on every process.

    It is one of whole numbers, for sums of products; a program that moves elements needs none.
    """
    for record in records:
        dtype = record.problem["dtype"]
        probe = next((s for s in record.sets if s.inputs == EXACT and s.dtype == dtype), None)
        if probe is None or not all(
            block.passed and block.values.method == "whole numbers" for block in probe.blocks
        ):
            return False
    return True
