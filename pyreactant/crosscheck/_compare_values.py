"""One output of a program in two runs: the same blocks on the same devices, the same values?"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._dtypes import as_dtype
from ._distance import close, distance, guess
from ._pair import Pair, block_text, differ
from ._records import ProgramRecord, Run
from ._verdict import BlockVerdict


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs, as far as one output of the program goes."""

    name: str
    run: Run
    record: ProgramRecord
    array: str
    verdicts: Mapping[int, BlockVerdict]

    @classmethod
    def of(cls, run: Run, program: str, array: str, name: str) -> "Side":
        records = run.of(program)
        verdicts = {b.device: b for r in records for b in r.blocks if b.array == array}
        return cls(name, run, records[0], array, verdicts)

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
                f"(process {b.process}); the NumPy map says {block_text(a.expected_index)}"
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
            continue  # on neither, which the NumPy map and so both verdicts complain about
        x, y = one.read(device), two.read(device)
        for side, block in ((one, x), (two, y)):
            wrong = _not_the_block(block, verdict, side.dtype)
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


def _not_the_block(block: np.ndarray, verdict: BlockVerdict, dtype: np.dtype[Any]) -> str:
    """What is wrong with a file's block before any value is looked at."""
    shape = tuple(stop - start for start, stop in verdict.index or [])
    if block.dtype == dtype and block.shape == shape:
        return ""
    return (
        f"its file holds {block.dtype}{list(block.shape)} and not {dtype}{list(shape)}, the block "
        f"{block_text(verdict.index)} that was checked"
    )


def _allowed(one: Side, two: Side, device: int, block: np.ndarray) -> float:
    record = one.record
    if record.exact or one.dtype.kind in "iub":
        return 0.0
    if not record.oracle:
        inputs = [math.prod(p.shape) for name, p in record.plans.items() if name[0] == "i"]
        return guess(block, one.dtype, max(inputs, default=1))
    # Beyond the error that was found nothing is allowed, unless rows and not elements were
    # looked at (Freivalds), or the block was wrong.
    verdicts = one.verdicts[device], two.verdicts[device]
    each = [v.error if v.passed and v.method != "Freivalds" else v.allowed for v in verdicts]
    return sum(each) * (1 + 1e-6)


def _kind(one: Side, two: Side, device: int) -> tuple[str, str]:
    """What kind of difference it looks like: the same blocks elsewhere, or turned round."""
    x, y = one.read(device), two.read(device)
    for other, verdict in two.verdicts.items():
        if other == device or verdict.index == one.verdicts[device].index:
            continue
        block = two.read(other)
        if block.shape == x.shape and close(x, block, one.dtype):
            return "permuted blocks", f"; {two.name} has on device {other} what {one.name} has here"
    if x.ndim >= 2 and x.shape[-1] == x.shape[-2] and close(x, np.swapaxes(y, -1, -2), one.dtype):
        return "transposed block", ""
    return "different values", ""


def _text(block: np.ndarray, at: tuple[int, ...]) -> str:
    value = block[at].item()
    return f"{value:.9g}" if isinstance(value, float) else str(value)
