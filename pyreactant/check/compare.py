"""Compare two finished runs of one program block by block, in values and placement.

Nothing is gathered: only two blocks are in memory at a time. With an oracle, each process has
already checked its blocks. Two blocks with errors e1 and e2 differ by at most e1 + e2, so that
is the tolerance: it also detects files whose blocks were replaced after the check. Without an
oracle the tolerance is a guess from the element type and the size of the inputs, and the text
says so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays.dtypes import as_dtype, finfo, wide
from ..arrays.text import block_text
from ..base.counted import counted
from .bounds.compare import compare
from .bounds.expected import Expected
from .bounds.verdict import BY_FLOAT32, Verdict, join
from .records.records import Run, shards_name
from .records.verdict import BlockVerdict, Difference, Pair, ProgramRecord


@dataclass(frozen=True, slots=True)
class _Output:
    """One output of the program in one of the two runs; `blocks` are verdicts, by device."""

    name: str
    run: Run
    record: ProgramRecord
    array: str
    blocks: Mapping[int, BlockVerdict]

    @classmethod
    def of(cls, run: Run, program: str, array: str, name: str) -> "_Output":
        records = run.of(program)
        blocks = {b.device: b for r in records for b in r.blocks if b.array == array}
        return cls(name=name, run=run, record=records[0], array=array, blocks=blocks)

    @property
    def dtype(self) -> np.dtype[Any]:
        return as_dtype(self.record.plans[self.array].dtype)

    def read(self, device: int) -> np.ndarray:
        return self.run.block(self.record.program, self.blocks[device])


def _compare_output(one: _Output, two: _Output) -> Pair:
    names = one.name, two.name
    if one.blocks.keys() != two.blocks.keys():
        return Pair(
            *names,
            Difference.PLACEMENT,
            f"{one.array} has blocks on devices {sorted(one.blocks)} on {one.name} and on "
            f"{sorted(two.blocks)} on {two.name}",
        )
    for device in sorted(one.blocks):
        a, b = one.blocks[device], two.blocks[device]
        if a.index != b.index:
            text = (
                f"placement differs: device {device} holds {block_text(a.index)} of {one.array} on "
                f"{one.name} (process {a.process}) and {block_text(b.index)} on {two.name} "
                f"(process {b.process}); the right block is {block_text(a.expected_index)}"
            )
            return Pair(*names, Difference.PLACEMENT, text, device=device)
    return _compare_values(one, two)


def _compare_values(one: _Output, two: _Output) -> Pair:
    names = one.name, two.name
    verdicts: dict[int, Verdict] = {}
    for device, block in sorted(one.blocks.items()):
        if block.index is None:
            continue  # neither run has a block here; both verdicts report that
        x, y = one.read(device), two.read(device)
        for output, data in ((one, x), (two, y)):
            wrong = _file_mismatch(data, block, output.dtype)
            if wrong:
                text = f"{output.array} of {output.name}, device {device} (process {block.process})"
                return Pair(*names, Difference.OUTPUTS, f"{text}: {wrong}", device=device)
        values = difference(x, y, _allowed(one, two, device, x))
        at = (values.worst or {}).get("element", [0] * x.ndim)
        worst = {
            "array": one.array,
            "process": block.process,
            "block": block.index,
            "element": [start + i for (start, _), i in zip(block.index, at, strict=True)],
        }
        if x.size:
            worst["values"] = [_text(data, tuple(at)) for data in (x, y)]
        verdicts[device] = replace(values, worst=worst)
    if not verdicts:
        return Pair(*names, Difference.NONE, "")
    device = max(verdicts, key=lambda d: (not verdicts[d].passed, verdicts[d].ratio))
    values = replace(join(verdicts.values()), places=None)
    kind = Difference.NONE
    if not values.passed:
        kind, where = _kind(one, two, device)
        values = replace(values, worst={**(values.worst or {}), "where": where})
    return Pair(*names, kind, "", values, len(verdicts), device)


def _file_mismatch(block: np.ndarray, verdict: BlockVerdict, dtype: np.dtype[Any]) -> str:
    """How a file's block differs in dtype or shape from the checked one; "" if it does not."""
    shape = tuple(stop - start for start, stop in verdict.index or [])
    if block.dtype == dtype and block.shape == shape:
        return ""
    return (
        f"its file must hold the block {block_text(verdict.index)} that was checked, "
        f"{dtype}{list(shape)}, got {block.dtype}{list(block.shape)}; copy the file again"
    )


def _allowed(one: _Output, two: _Output, device: int, block: np.ndarray) -> float:
    record = one.record
    if record.exact or (one.dtype.kind in "iub" and not record.oracle):
        return 0.0
    if not record.oracle:
        inputs = [math.prod(p.shape) for name, p in record.plans.items() if name[0] == "i"]
        return guess(block, one.dtype, max(inputs, default=1))
    blocks = one.blocks[device], two.blocks[device]
    return sum(_measured(b.values, passed=b.passed) for b in blocks) * (1 + 1e-6)


def _measured(verdict: Verdict, *, passed: bool) -> float:
    """The tolerance of a block: its measured error.

    Freivalds measures rows, not elements, and the error of a wrong block is no tolerance: both use
    the derived bound. An oracle with products in float32 has an error of its own.
    """
    if not passed or verdict.by_rows:
        return verdict.allowed
    return verdict.error + (verdict.allowed if verdict.method == BY_FLOAT32 else 0.0)


def _kind(one: _Output, two: _Output, device: int) -> tuple[Difference, str]:
    """The kind of difference: blocks permuted, a block transposed, or other values."""
    x, y = one.read(device), two.read(device)
    for other, verdict in two.blocks.items():
        if other == device or verdict.index == one.blocks[device].index:
            continue
        block = two.read(other)
        if block.shape == x.shape and close(x, block):
            where = f"; {two.name} has this block of {one.name} on device {other}"
            return Difference.PERMUTED, where
    if x.ndim >= 2 and x.shape[-1] == x.shape[-2] and close(x, np.swapaxes(y, -1, -2)):
        return Difference.TRANSPOSED, ""
    return Difference.VALUES, ""


def _text(block: np.ndarray, at: tuple[int, ...]) -> str:
    value = block[at].item()
    return f"{value:.9g}" if isinstance(value, float) else str(value)


_SAME = ("size", "dtype", "seed", "mesh", "in_specs", "out_specs")


def compare_program(one: Run, two: Run, program: str, names: tuple[str, str]) -> Pair:
    """Compare the results of a program in two runs.

    Args:
        one: A finished run.
        two: A finished run of another runtime or machine.
        program: The program's name in the request.
        names: Names of the two runs in the text.

    Raises:
        FileError: Blocks are missing or damaged.
    """
    both = one.of(program), two.of(program)
    for run, records, name in zip((one, two), both, names, strict=True):
        why = ""
        if len(records) < len(run.records) or not records or any(r.error for r in records):
            why = f"no complete result on {name}"
        # The file of blocks appears at the end of a run.
        elif run.exit_code and not all(
            (run.folder / shards_name(record.process)).exists() for record in run.records
        ):
            why = f"the run on {name} was broken off"
        if why:
            return Pair(*names, Difference.NOT_COMPARED, f"not compared: {why}")
    first, second = both[0][0], both[1][0]
    wrong = _different_problem(first, second) or _different_inputs(*both)
    if wrong:
        return Pair(*names, Difference.PROBLEMS, f"not compared: {wrong}")
    wrong = _different_outputs(first, second, names)
    if wrong:
        return Pair(*names, Difference.OUTPUTS, wrong)
    pairs = [
        _compare_output(
            _Output.of(one, program, array, names[0]), _Output.of(two, program, array, names[1])
        )
        for array in first.outputs
    ]
    return _merge(pairs, first, names)


def _different_problem(one: ProgramRecord, two: ProgramRecord) -> str:
    pairs = {key: (one.problem.get(key), two.problem.get(key)) for key in _SAME}
    both = "; ".join(f"{key}: {a} and {b}" for key, (a, b) in pairs.items() if a != b)
    return f"the runs solved different problems ({both})" if both else ""


def _different_inputs(one: list[ProgramRecord], two: list[ProgramRecord]) -> str:
    """Which input block has different digests in the two runs; "" if all are equal."""
    seen: dict[tuple[str, str], str] = {}
    for record in (*one, *two):
        for array, blocks in record.inputs.items():
            for block, digest in blocks.items():
                if seen.setdefault((array, block), digest) != digest:
                    return (
                        f"the inputs differ: block {block} of {array} has other bytes although "
                        "the seeds are equal; use the same versions of NumPy and of the program"
                    )
    return ""


def _different_outputs(one: ProgramRecord, two: ProgramRecord, names: tuple[str, str]) -> str:
    if len(one.outputs) != len(two.outputs):
        return (
            f"the programs return different numbers of outputs: {len(one.outputs)} on {names[0]}, "
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


def _merge(pairs: Sequence[Pair], record: ProgramRecord, names: tuple[str, str]) -> Pair:
    """The pair of the worst output, with the errors and the number of blocks of all."""
    worst = max(pairs, key=lambda pair: (not pair.passed, pair.values.ratio))
    norm = max((pair.values for pair in pairs), key=lambda values: values.relative_norm)
    values = replace(
        join(pair.values for pair in pairs),
        allowed=worst.values.allowed,
        worst=worst.values.worst,
        error_squares=norm.error_squares,
        value_squares=norm.value_squares,
    )
    merged = replace(worst, values=values, blocks=sum(pair.blocks for pair in pairs))
    return merged if worst.text else replace(merged, text=_sentence(merged, record, names))


def _sentence(pair: Pair, record: ProgramRecord, names: tuple[str, str]) -> str:
    basis = "" if record.oracle else "; without an oracle the tolerance is only a guess"
    values = pair.values
    if pair.passed and values.error == 0:
        return f"agree to the last bit in {counted(pair.blocks, 'block')}{basis}"
    far = (
        f"largest difference {values.error:.2e} ({values.ulps:.3g} ULP), allowed "
        f"{values.allowed:.2e}, relative norm {values.relative_norm:.1e}"
    )
    if pair.passed:
        return f"agree in {counted(pair.blocks, 'block')}: {far}{basis}"
    worst = values.worst or {}
    got = " and ".join(worst.get("values", []))
    return (
        f"DIFFER ({pair.kind}): device {pair.device} (process {worst.get('process')}), block "
        f"{block_text(worst.get('block'))} of {worst.get('array')}, element "
        f"{worst.get('element')}: {got} on {names[0]} and {names[1]}{worst.get('where', '')}; "
        f"{far}{basis}"
    )


def difference(x: np.ndarray, y: np.ndarray, allowed: float) -> Verdict:
    """The verdict on a block, if another one has the right values.

    Its error is infinite if NaN or infinity is in one of them only.

    Args:
        x: The right values.
        y: The values to compare.
        allowed: The tolerance.
    """
    if x.dtype.kind in "iub" and not allowed:
        return compare(y, Expected(x, None))
    bound = np.full(x.shape, allowed)
    verdict = compare(y, Expected(wide(x), bound, last_rounding=True))
    return replace(verdict, error=math.inf) if verdict.wrong_patterns else verdict


def close(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two blocks are equal up to rounding."""
    verdict = difference(x, y, 0.0)
    if verdict.passed or x.dtype.kind in "iub" or verdict.wrong_patterns:
        return verdict.passed
    return verdict.error_squares <= (64 * float(finfo(x.dtype).eps)) ** 2 * verdict.value_squares


def guess(block: np.ndarray, dtype: np.dtype[Any], elements: int) -> float:
    """Estimate the rounding error of an element of a program without an oracle.

    The estimate treats every element as a sum over all `elements` of the largest input, whose
    rounding errors have random signs: 8 sqrt(elements) u for each of the two runs, times the
    block's root mean square.
    """
    finite = wide(block[np.isfinite(block)])
    rms = math.sqrt(float(np.mean(np.abs(finite) ** 2))) if finite.size else 0.0
    return 16 * math.sqrt(elements) * float(finfo(dtype).eps) / 2 * rms
