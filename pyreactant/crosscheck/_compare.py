"""Two finished runs of one program: do they agree, block by block, in values and placement?

Nothing is gathered: two blocks are in memory at a time. Where an oracle stood behind both, each
process has checked its blocks against it, and two blocks that are within e1 and e2 of it are
within e1 + e2 of each other: that is what is allowed, so that blocks which are not the ones that
were checked show too. Without an oracle what is allowed is a guess from the element type and the
size of the inputs, and the text says so.
"""

from dataclasses import replace

from ._compare_values import Side, compare_array
from ._pair import NOT_COMPARED, Pair, block_text, differ
from ._records import RAN, ProgramRecord, Run

_SAME = ("size", "dtype", "seed", "mesh", "in_specs", "out_specs")


def compare_program(one: Run, two: Run, program: str, names: tuple[str, str]) -> Pair:
    """Compare what two runs left of a program.

    Args:
        one: A finished run.
        two: Another one, of another runtime or another machine.
        program: Its name in the request.
        names: What to call the two in the text.

    Raises:
        FileError: Blocks are missing or damaged.
    """
    both = one.of(program), two.of(program)
    for run, found, name in zip((one, two), both, names, strict=True):
        if len(found) < len(run.records) or not found or any(r.outcome != RAN for r in found):
            return differ(names, NOT_COMPARED, f"not compared: it did not end on {name}")
    first, second = both[0][0], both[1][0]
    wrong = _different_problem(first, second) or _different_inputs(*both)
    if wrong:
        return differ(names, "different problems", f"not compared: {wrong}")
    wrong = _different_outputs(first, second, names)
    if wrong:
        return differ(names, "different outputs", wrong)
    pairs = [
        compare_array(
            Side.of(one, program, array, names[0]), Side.of(two, program, array, names[1])
        )
        for array in first.outputs
    ]
    return _merge(pairs, first, names)


def _different_problem(one: ProgramRecord, two: ProgramRecord) -> str:
    differ = [key for key in _SAME if one.problem.get(key) != two.problem.get(key)]
    asked = "; ".join(f"{key}: {one.problem.get(key)} and {two.problem.get(key)}" for key in differ)
    return f"they ran different problems ({asked})" if differ else ""


def _different_inputs(one: list[ProgramRecord], two: list[ProgramRecord]) -> str:
    """Whether any block of an input that both have had other bytes in the one than in the other."""
    seen: dict[tuple[str, str], str] = {}
    for record in (*one, *two):
        for array, blocks in record.inputs.items():
            for block, digest in blocks.items():
                if seen.setdefault((array, block), digest) != digest:
                    return (
                        f"their inputs differ: block {block} of {array} has other bytes, though "
                        "the seed is the same; they were made by another NumPy or another program"
                    )
    return ""


def _different_outputs(one: ProgramRecord, two: ProgramRecord, names: tuple[str, str]) -> str:
    if len(one.outputs) != len(two.outputs):
        return (
            f"they return different numbers of outputs: {len(one.outputs)} on {names[0]}, "
            f"{len(two.outputs)} on {names[1]}; make both bodies return the same"
        )
    for array in one.outputs:
        a, b = one.plans[array], two.plans[array]
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return (
                f"{array} is {a.dtype}{list(a.shape)} on {names[0]} and {b.dtype}{list(b.shape)} "
                f"on {names[1]}; make both bodies return the same"
            )
    return ""


def _merge(pairs: list[Pair], record: ProgramRecord, names: tuple[str, str]) -> Pair:
    worst = max(
        pairs, key=lambda p: (not p.passed, p.difference / p.allowed if p.allowed else p.difference)
    )
    merged = replace(
        worst,
        passed=all(p.passed for p in pairs),
        difference=max(p.difference for p in pairs),
        ulps=max(p.ulps for p in pairs),
        relative_norm=max(p.relative_norm for p in pairs),
        blocks=sum(p.blocks for p in pairs),
    )
    if worst.text:
        return merged
    return replace(merged, text=_sentence(merged, record, names))


def _sentence(pair: Pair, record: ProgramRecord, names: tuple[str, str]) -> str:
    behind = "" if record.oracle else "; no oracle stood behind it, and what is allowed is a guess"
    if pair.passed and pair.difference == 0:
        return f"agree to the last bit in {pair.blocks} blocks{behind}"
    far = (
        f"largest difference {pair.difference:.2e} ({pair.ulps:.3g} ULP), allowed "
        f"{pair.allowed:.2e}, relative norm {pair.relative_norm:.1e}"
    )
    if pair.passed:
        return f"agree in {pair.blocks} blocks: {far}{behind}"
    worst = pair.worst or {}
    got = " and ".join(worst.get("values", []))
    return (
        f"DIFFER ({pair.kind}): device {pair.device} (process {worst.get('process')}), block "
        f"{block_text(worst.get('block'))} of {worst.get('array')}, element "
        f"{worst.get('element')}: {got} on {names[0]} and {names[1]}{worst.get('where', '')}; "
        f"{far}{behind}"
    )
