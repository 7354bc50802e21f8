"""What the sensitivity of a check means for a result: right, right with a remark, or unchecked.

Sights and ratios of all processes are combined here, when the report is made.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..._bounds.sight import COARSE, FINE, FINE_SHORT, Sight, combined
from ..._core.dtypes import as_dtype
from ..._core.text import block_text, percent_text
from .._records.verdict import ArrayPlan, BlockVerdict

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
        if block.sight is not None and not empty:
            sights.setdefault(block.array, []).append(block.sight)
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


def outliers(blocks: Sequence[BlockVerdict]) -> str:
    """The block whose errors are much larger than those of all others, in a few words; or ""."""
    found = []
    for name in dict.fromkeys(block.array for block in blocks):
        ratios: dict[str, tuple[float, BlockVerdict]] = {}
        for block in blocks:
            if block.array == name and block.sight is not None:
                key = str(block.index)
                before = ratios.get(key, (-1.0, block))
                ratios[key] = max(before, (block.ratio, block), key=lambda pair: pair[0])
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
