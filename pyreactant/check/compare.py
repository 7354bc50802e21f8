"""Compare two finished runs of one program block by block, in values and placement.

Nothing is gathered: only two blocks are in memory at a time. With an oracle, each process has
already checked its blocks. Two blocks with errors e1 and e2 differ by at most e1 + e2, so that
is the tolerance: it also detects files whose blocks were replaced after the check. Without an
oracle the tolerance is a guess from the element type and the size of the inputs, and the text
says so.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..arrays.dtypes import as_dtype, finfo, wide
from ..arrays.text import block_text
from .bounds.expected import ulp
from .bounds.verdict import BY_FLOAT32, Verdict
from .records.records import ProcessRecord, Run, shards_name
from .records.verdict import (
    NOT_COMPARED,
    RAN,
    BlockVerdict,
    Pair,
    ProgramRecord,
    differ,
)


@dataclass(frozen=True, slots=True)
class Side:
    """One output of the program in one of the two runs."""

    name: str
    run: Run
    record: ProgramRecord
    array: str
    verdicts: Mapping[int, BlockVerdict]

    @classmethod
    def of(cls, run: Run, program: str, array: str, name: str) -> "Side":
        records = run.of(program)
        verdicts = {b.device: b for r in records for b in r.blocks if b.array == array}
        return cls(name=name, run=run, record=records[0], array=array, verdicts=verdicts)

    @property
    def dtype(self) -> np.dtype[Any]:
        return as_dtype(self.record.plans[self.array].dtype)

    def read(self, device: int) -> np.ndarray:
        return self.run.block(self.record.program, self.verdicts[device])


def compare_array(one: Side, two: Side) -> Pair:
    names = one.name, two.name
    if one.verdicts.keys() != two.verdicts.keys():
        return differ(
            names,
            "placement differs",
            f"{one.array} has blocks on devices {sorted(one.verdicts)} on {one.name} and on "
            f"{sorted(two.verdicts)} on {two.name}",
        )
    for device in sorted(one.verdicts):
        a, b = one.verdicts[device], two.verdicts[device]
        if a.index != b.index:
            text = (
                f"placement differs: device {device} holds {block_text(a.index)} of {one.array} on "
                f"{one.name} (process {a.process}) and {block_text(b.index)} on {two.name} "
                f"(process {b.process}); the right block is {block_text(a.expected_index)}"
            )
            return replace(differ(names, "placement differs", text), device=device)
    return _compare_values(one, two)


def _compare_values(one: Side, two: Side) -> Pair:
    names = one.name, two.name
    pair = Pair(*names, passed=True, kind="", text="")
    squares = norm = 0.0
    largest_ratio = -1.0
    for device, verdict in sorted(one.verdicts.items()):
        if verdict.index is None:
            continue  # neither run has a block here; both verdicts report that
        x, y = one.read(device), two.read(device)
        for side, block in ((one, x), (two, y)):
            wrong = _file_mismatch(block, verdict, side.dtype)
            if wrong:
                text = f"{side.array} of {side.name}, device {device} (process {verdict.process})"
                return replace(
                    differ(names, "different outputs", f"{text}: {wrong}"), device=device
                )
        found = distance(x, y, one.dtype)
        allowed = _allowed(one, two, device, x)
        squares, norm = squares + found.squares, norm + found.norm
        pair = replace(
            pair,
            blocks=pair.blocks + 1,
            difference=max(pair.difference, found.largest),
            ulps=max(pair.ulps, found.ulps),
            passed=pair.passed and found.largest <= allowed,
        )
        ratio = found.largest / allowed if allowed else math.inf if found.largest else 0.0
        if ratio > largest_ratio:
            largest_ratio = ratio
            element = [start + i for (start, _), i in zip(verdict.index, found.at, strict=True)]
            values = {"values": [_text(block, found.at) for block in (x, y)]} if x.size else {}
            pair = replace(
                pair,
                allowed=allowed,
                device=device,
                worst={
                    "array": one.array,
                    "process": verdict.process,
                    "block": verdict.index,
                    "element": element,
                    **values,
                },
            )
    pair = replace(pair, relative_norm=math.sqrt(squares / norm) if norm else math.sqrt(squares))
    if pair.passed or pair.device is None:
        return pair
    kind, where = _kind(one, two, pair.device)
    return replace(pair, kind=kind, worst={**(pair.worst or {}), "where": where})


def _file_mismatch(block: np.ndarray, verdict: BlockVerdict, dtype: np.dtype[Any]) -> str:
    """How a file's block differs in dtype or shape from the checked one; "" if it does not."""
    shape = tuple(stop - start for start, stop in verdict.index or [])
    if block.dtype == dtype and block.shape == shape:
        return ""
    return (
        f"its file must hold the block {block_text(verdict.index)} that was checked, "
        f"{dtype}{list(shape)}, got {block.dtype}{list(block.shape)}; copy the file again"
    )


def _allowed(one: Side, two: Side, device: int, block: np.ndarray) -> float:
    record = one.record
    if record.exact or (one.dtype.kind in "iub" and not record.oracle):
        return 0.0
    if not record.oracle:
        inputs = [math.prod(p.shape) for name, p in record.plans.items() if name[0] == "i"]
        return guess(block, one.dtype, max(inputs, default=1))
    verdicts = one.verdicts[device], two.verdicts[device]
    return sum(_measured(one.values, passed=one.passed) for one in verdicts) * (1 + 1e-6)


def _measured(verdict: Verdict, *, passed: bool) -> float:
    """The tolerance of a block: its measured error.

    Freivalds measures rows, not elements, and the error of a wrong block is no tolerance: both use
    the derived bound. An oracle with products in float32 has an error of its own.
    """
    if not passed or verdict.method == "Freivalds":
        return verdict.allowed
    return verdict.error + (verdict.allowed if verdict.method == BY_FLOAT32 else 0.0)


def _kind(one: Side, two: Side, device: int) -> tuple[str, str]:
    """The kind of difference: blocks permuted, a block transposed, or other values."""
    x, y = one.read(device), two.read(device)
    for other, verdict in two.verdicts.items():
        if other == device or verdict.index == one.verdicts[device].index:
            continue
        block = two.read(other)
        if block.shape == x.shape and close(x, block, one.dtype):
            return "permuted blocks", f"; {two.name} has this block of {one.name} on device {other}"
    if x.ndim >= 2 and x.shape[-1] == x.shape[-2] and close(x, np.swapaxes(y, -1, -2), one.dtype):
        return "transposed block", ""
    return "different values", ""


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
    for run, found, name in zip((one, two), both, names, strict=True):
        if len(found) < len(run.records) or not found or any(r.outcome != RAN for r in found):
            return differ(names, NOT_COMPARED, f"not compared: no complete result on {name}")
        # The file of blocks appears at the end of a run.
        if run.exit_code and not all(_has_blocks(run, record) for record in run.records):
            return differ(names, NOT_COMPARED, f"not compared: the run on {name} was broken off")
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


def _has_blocks(run: Run, record: ProcessRecord) -> bool:
    return (run.folder / shards_name(record.process)).exists()


def _different_problem(one: ProgramRecord, two: ProgramRecord) -> str:
    differ = [key for key in _SAME if one.problem.get(key) != two.problem.get(key)]
    both = "; ".join(f"{key}: {one.problem.get(key)} and {two.problem.get(key)}" for key in differ)
    return f"the runs solved different problems ({both})" if differ else ""


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
    basis = "" if record.oracle else "; without an oracle the tolerance is only a guess"
    if pair.passed and pair.difference == 0:
        return f"agree to the last bit in {pair.blocks} blocks{basis}"
    far = (
        f"largest difference {pair.difference:.2e} ({pair.ulps:.3g} ULP), allowed "
        f"{pair.allowed:.2e}, relative norm {pair.relative_norm:.1e}"
    )
    if pair.passed:
        return f"agree in {pair.blocks} blocks: {far}{basis}"
    worst = pair.worst or {}
    got = " and ".join(worst.get("values", []))
    return (
        f"DIFFER ({pair.kind}): device {pair.device} (process {worst.get('process')}), block "
        f"{block_text(worst.get('block'))} of {worst.get('array')}, element "
        f"{worst.get('element')}: {got} on {names[0]} and {names[1]}{worst.get('where', '')}; "
        f"{far}{basis}"
    )


class Distance(NamedTuple):
    """The difference between two blocks.

    Attributes:
        largest: Largest difference between elements; infinite if only one is NaN or infinite.
        at: Position of that element in the block.
        ulps: Largest difference in units in the last place of the first block's element.
        squares: Sum of the squared differences.
        norm: Sum of the squared elements of the first block.
    """

    largest: float
    at: tuple[int, ...]
    ulps: float
    squares: float
    norm: float


def distance(x: np.ndarray, y: np.ndarray, dtype: np.dtype[Any]) -> Distance:
    """The difference between two blocks; infinite where NaN or infinity differ."""
    if not x.size:
        return Distance(largest=0.0, at=(0,) * x.ndim, ulps=0.0, squares=0.0, norm=0.0)
    if dtype.kind in "iub":
        apart = np.where(x > y, x, y).astype(np.float64) - np.where(x > y, y, x)
        apart = np.where((x != y) & (apart == 0), 1.0, apart)  # float64 rounds beyond 2**53
        norm = float(np.sum(x.astype(np.float64) ** 2))
        squares = float(np.sum(apart**2))
        return Distance(float(np.max(apart)), _argmax(apart), ulps=0.0, squares=squares, norm=norm)
    a, b = wide(x), wide(y)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
    finite = np.isfinite(a)
    unit = ulp(np.where(finite, np.abs(a), 0.0), dtype)
    return Distance(
        largest=float(np.max(apart)),
        at=_argmax(apart),
        ulps=float(np.max(apart / unit)),
        squares=float(np.sum(apart**2)),
        norm=float(np.sum(np.abs(a[finite]) ** 2)),
    )


def _argmax(apart: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(apart)), apart.shape))


def close(x: np.ndarray, y: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Whether two blocks are equal up to rounding."""
    found = distance(x, y, dtype)
    if dtype.kind in "iub":
        return found.largest == 0
    return found.squares <= (64 * float(finfo(dtype).eps)) ** 2 * found.norm


def guess(block: np.ndarray, dtype: np.dtype[Any], elements: int) -> float:
    """Estimate the rounding error of an element of a program without an oracle.

    The estimate treats every element as a sum over all `elements` of the largest input, whose
    rounding errors have random signs: 8 sqrt(elements) u for each of the two runs, times the
    block's root mean square.
    """
    finite = wide(block[np.isfinite(block)])
    rms = math.sqrt(float(np.mean(np.abs(finite) ** 2))) if finite.size else 0.0
    return 16 * math.sqrt(elements) * float(finfo(dtype).eps) / 2 * rms
