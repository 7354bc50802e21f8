"""Explain a wrong block: find every kind of fault that its values fit.

For each kind of fault, compute what the block would hold if only that had gone wrong. The
explanation fits if the block holds these values within the tolerance of a right block. Only a
tile around the worst element is compared, so the time does not depend on the block's size.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...arrays.dtypes import as_dtype, finfo, is_float, wide
from ...arrays.sharding import Device, Index, Shard, plain_index
from ...arrays.text import block_text
from ...base.counted import counted
from ..bounds.compare import wrong_elements
from ..bounds.expected import Expected
from ..bounds.typical import TypicalVerdict
from ..bounds.verdict import Verdict
from ..records.verdict import BlockVerdict, Kind
from ..regions import around, moved, whole_index
from .diagnose import blocks_of
from .elements import is_multiple, lower_precision, shifted, transposed, wrong_factor, wrong_halo
from .operations import altered_operation
from .reductions import equal_parts, lost_parts, own_part_alone, partial_sum
from .subject import Reason, Subject, Wrong, fits, side_of_tile

_FAR = 2.0**20

_OF_RANGE = 0.15
"""Random bits have exponents with a standard deviation of 0.29 of their range."""

_ALIKE = 4.0
"""Right values have about one size if the standard deviation of their exponents is smaller."""


def looks_uninitialised(got: np.ndarray, expected: Expected) -> str | None:
    """How the wrong elements of a tile resemble unwritten memory; None if they do not."""
    wrong = wrong_elements(got, expected)
    some = got[wrong]
    if not some.size:
        return None
    most = some.size * 2 >= got.size
    if is_float(got.dtype) and not np.isfinite(some).any():
        return "it holds NaN or infinity" if most else None
    if not np.count_nonzero(some):
        # Memory lies in a row; a mask or a token without an expert may be anywhere.
        at = np.flatnonzero(wrong)
        return None if got.ravel()[at[0] : at[-1] + 1].any() or len(at) < 2 else "it holds zeros"
    if most and some.size > 3 and (some == some.flat[0]).all():
        return f"every wrong element is {some.flat[0]}"
    if not is_float(got.dtype):
        return None
    info = finfo(got.dtype)
    whole = math.log2(float(info.max)) - math.log2(float(info.tiny))
    of_all_sizes = _spread(some) > _OF_RANGE * whole > 2 * _spread(expected.value)
    alike = _spread(expected.value) < _ALIKE  # not those of wide inputs
    if of_all_sizes or (alike and _far(some, expected.value)):
        return "its numbers vary in magnitude like unwritten memory"
    return None


def _far(values: np.ndarray, right: np.ndarray) -> bool:
    """Whether most numbers are none that a program computes from right ones.

    Numbers that are only small may be a softmax without its scale, for instance.
    """
    with np.errstate(all="ignore"):
        sizes = np.abs(wide(values))
        usual = float(np.median(np.abs(right)))
        subnormal = (sizes > 0) & (sizes < float(finfo(values.dtype).tiny))
        far = ~np.isfinite(sizes) | (sizes > _FAR * usual) | subnormal
    return usual > 0 and bool(np.mean(far) > 0.5)


def _spread(values: np.ndarray) -> float:
    """Standard deviation of the binary logarithms of the finite, nonzero values."""
    with np.errstate(all="ignore"):
        sizes = np.abs(wide(values))
        logs = np.log2(sizes)
    logs = logs[np.isfinite(logs)]
    return float(logs.std()) if logs.size > 3 else 0.0


Test = Callable[[Wrong], Iterator[Reason]]

_NEAR = 4.0  # units in the last place


def _uninitialised(wrong: Wrong) -> Iterator[Reason]:
    text = looks_uninitialised(wrong.values, wrong.right)
    # Without a denominator, numbers may be large; zeros are a multiple of all numbers.
    holds_zeros = not wrong.values[wrong.wrong].any()
    if text and (holds_zeros or not is_multiple(wrong)):
        # A device's part of a table gives zeros for the indices of the others' parts.
        looks_up = holds_zeros and is_float(wrong.values.dtype) and _has_indices(wrong)
        yield Kind.UNKNOWN if looks_up else Kind.UNINITIALISED, text


def _has_indices(wrong: Wrong) -> bool:
    """Whether a user's program has an argument of whole numbers."""
    plans = wrong.subject.input_plans
    return wrong.subject.operations is not None and any(
        not is_float(as_dtype(plan.dtype)) for plan in plans
    )


def _stale(wrong: Wrong) -> Iterator[Reason]:
    if wrong.before is not None and wrong.holds(wrong.before.block(wrong.tile)):
        yield Kind.UNINITIALISED, f"{_some(wrong)} the result of the previous call"
    yield from _stale_input(wrong)


def _input_instead(wrong: Wrong) -> Iterator[Reason]:
    """A layer that is left out gives the input, and so does memory that is never written."""
    for number, oracle in enumerate(wrong.subject.inputs):
        same = oracle.source.shape == wrong.shape and oracle.source.dtype == wrong.got.dtype
        if same and wrong.holds(oracle.block(wrong.tile)):
            yield Kind.UNKNOWN, f"{_some(wrong)} the block of input {number} at the same place"


def _stale_input(wrong: Wrong) -> Iterator[Reason]:
    """A result of which one of several inputs is that of the previous call."""
    before = wrong.before
    if before is None or len(before.sources) < 2:
        return
    for number, source in enumerate(before.sources):
        if wrong.holds(wrong.output.reading_instead(number, source).block(wrong.tile)):
            text = f"it was computed from input {number} of the previous call"
            yield Kind.UNINITIALISED, text
            return


def _some(wrong: Wrong) -> str:
    """What holds other values: the block, or only a few elements, perhaps a cache line."""
    count = wrong.verdict.wrong
    if 2 * count > wrong.got.size:
        return "it holds"
    at = np.flatnonzero(wrong.wrong)
    in_a_row = len(at) == count and len(at) > 1 and np.ptp(at) == count - 1
    line = f", {count * wrong.got.itemsize} bytes in a row, hold" if in_a_row else " hold"
    return f"{count} of its {wrong.got.size} elements{line}"


def _off_by_rounding(wrong: Wrong) -> Iterator[Reason]:
    ulps = wrong.verdict.ulps
    if ulps <= _NEAR and is_float(wrong.got.dtype) and not wrong.verdict.wrong_patterns:
        yield Kind.ROUNDING, f"it is off by up to {ulps:.2g} ULP, and every bit must be right"


def _non_finite(wrong: Wrong) -> Iterator[Reason]:
    if wrong.verdict.wrong_patterns:
        count = wrong.verdict.wrong_patterns
        some = counted(count, "element differs", "elements differ")
        yield Kind.NON_FINITE, f"{some} from the oracle in NaN or infinity"


EXACT: list[Test] = [
    _stale,
    partial_sum,
    transposed,
    wrong_halo,
    shifted,
    _off_by_rounding,
    altered_operation,
]
"""Every one that fits is reported: the values are those of one fault, as far as is known."""

GUESSED: list[Test] = [
    _input_instead,
    _uninitialised,
    own_part_alone,
    lost_parts,
    equal_parts,
    wrong_factor,
    _non_finite,
]
"""Tried if nothing of `EXACT` fits: an operation of a program may show the same."""

LAST: list[Test] = [lower_precision]


_RUN = 8  # elements of another block that are compared first


def explain(wrong: Wrong) -> tuple[list[Reason], list[Index]]:
    """Every reason that fits, one of each kind, and the blocks that have the same values.

    Tests that explained another block of the array come first, and others only if none fits.
    """
    matches = [
        block
        for block in matching(wrong.subject, wrong.got, wrong.block)
        if wrong.holds(wrong.oracle.block(moved(wrong.tile, wrong.block, block)))
    ]
    reasons = [(Kind.PERMUTED, f"it holds block {block_text(block)}") for block in matches[:1]]
    search = wrong.subject.search
    reasons += _first(wrong, search.tests) or _first(wrong, [*EXACT, *GUESSED, *LAST])
    late = "the search for its kind was given up, because the oracle is slow"
    first = dict(reversed(reasons or [(Kind.UNKNOWN, late * search.over)]))
    return [(kind, first[kind]) for kind in Kind if kind in first], matches


def _first(wrong: Wrong, tests: Collection[Test]) -> list[Reason]:
    """The reasons of some tests, the most certain ones that there are.

    One without a kind that gives the values exactly leaves no other kind certain.
    """
    exact, guessed, last = ([t for t in s if t in tests] for s in (EXACT, GUESSED, LAST))
    return (
        _fitting(exact, wrong) or _certain(wrong, _fitting(guessed, wrong)) or _fitting(last, wrong)
    )


def _certain(wrong: Wrong, reasons: list[Reason]) -> list[Reason]:
    """Guesses without their kinds if no operation of a user's oracle could be ruled out."""
    operations = wrong.subject.operations
    if operations is not None and not operations.known:
        return [(Kind.UNKNOWN, text) for _, text in reasons]
    return [reason for reason in reasons if reason[0] != Kind.UNKNOWN] or reasons


def _fitting(tests: Sequence[Test], wrong: Wrong) -> list[Reason]:
    """The reasons of several tests; none of one for which the oracle cannot compute the values."""
    reasons: list[Reason] = []
    for test in tests:
        start, search = time.thread_time(), wrong.subject.search
        try:
            found = list(test(wrong))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            continue
        finally:
            search.seconds += time.thread_time() - start
        reasons += found
        if found:
            search.tests.add(test)
    return reasons


def matching(subject: Subject, got: np.ndarray, block: Index) -> list[Index]:
    """Other blocks of the array that have the values in `got`."""
    if not got.size:
        return []
    local = whole_index(got.shape)
    middle = [n // 2 for n in got.shape]
    run = around(local, middle, [1] * (got.ndim - 1) + [_RUN] * min(1, got.ndim))
    tile = around(local, middle, side_of_tile(got.ndim))
    return [
        other
        for other in blocks_of(subject.plan.sharding, subject.plan.shape)
        if other != block
        and tuple(s.stop - s.start for s in other) == got.shape
        and fits(got[run], subject.few(moved(run, local, other)))
        and fits(got[tile], subject.oracle.block(moved(tile, local, other)))
    ]


def block_verdict(
    subject: Subject | None,
    name: str,
    shard: Shard,
    expected: Index | None,
    verdict: Verdict,
) -> BlockVerdict:
    """The verdict on a block of the right shape.

    Args:
        subject: The array with what its blocks may be compared with; None without an oracle.
        name: Name of the array.
        shard: The block and its device.
        expected: Index that belongs on that device; None if the device is not in the mesh.
        verdict: Result of comparing the data with the oracle at the shard's index.
    """
    reasons: list[Reason] = []
    matches, parts = None, []
    if not verdict.passed:
        assert subject is not None
        wrong = Wrong(subject, shard.device.position, shard.data, shard.index, verdict)
        if verdict.typical is not None and verdict.typical.only:
            # Within the derived bound, only an operation of the oracle shows more.
            exact = [r for r in _fitting([altered_operation], wrong) if r[0] != Kind.UNKNOWN]
            reasons = exact or [(Kind.TYPICAL, typical_text(verdict.typical))]
            blocks: list[Index] = []
        else:
            reasons, blocks = explain(wrong)
        matches = [plain_index(index) for index in blocks]
        parts = [_error_text(verdict)]
    if shard.index != expected:
        reasons.append((Kind.WRONG_DEVICES, ""))
        must = "the device is not in the mesh"
        if expected is not None:
            must = f"the device must hold block {block_text(expected)}"
        parts.insert(0, must)
    text = f", block {block_text(shard.index)}: {'; '.join(parts)}" if parts else ""
    whole = _of_device(name, shard.device, shard.index, expected, reasons, text)
    values = replace(verdict, worst=None, places=None) if verdict.passed else verdict
    return replace(whole, values=values, matches=matches)


def _of_device(
    name: str,
    device: Device,
    index: Index | None,
    expected: Index | None,
    reasons: Sequence[Reason],
    text: str,
) -> BlockVerdict:
    """The verdict on what a device holds; `text` goes on after the name of the device."""
    where = f"{name} on device {device.position} (process {device.process_index})"
    return BlockVerdict(
        array=name,
        device=device.position,
        process=device.process_index,
        index=None if index is None else plain_index(index),
        expected_index=None if expected is None else plain_index(expected),
        kinds=tuple(kind for kind, _ in reasons),
        reasons=tuple(text for _, text in reasons),
        text=where + text if text else "",
    )


def missing(name: str, device: Device, expected: Index) -> BlockVerdict:
    """The verdict on a device that should hold a block and holds none."""
    text = f": it holds no block and must hold {block_text(expected)}"
    return _of_device(name, device, None, expected, [(Kind.FEWER_DEVICES, "")], text)


def misshapen(
    subject: Subject | None, name: str, shard: Shard, expected: Index | None, dtype: str
) -> BlockVerdict:
    """The verdict on a block whose shape or dtype does not match its index."""
    got, matches = shard.data, None
    if subject is not None and got.dtype.name == dtype:
        matches = [plain_index(index) for index in matching(subject, got, shard.index)]
    text = (
        f": it holds {got.dtype.name}{list(got.shape)} for block {block_text(shard.index)} of "
        f"dtype {dtype}"
    )
    whole = _of_device(name, shard.device, shard.index, expected, [(Kind.STRUCTURE, "")], text)
    return replace(whole, matches=matches)


def _error_text(verdict: Verdict) -> str:
    assert verdict.worst is not None
    worst, some = verdict.worst, f"{verdict.wrong} of {counted(verdict.elements, 'element')}"
    some += " is wrong" if verdict.wrong == 1 else " are wrong"
    if verdict.wrong == verdict.elements:
        some = "every element is wrong"
    got, expected = _numbers(worst["got"], worst["expected"])
    return (
        f"{some}, the worst at {tuple(worst['element'])} is {got} and must be {expected} "
        f"(within {worst['allowed']:.3g})"
    )


def typical_text(typical: TypicalVerdict) -> str:
    """How values that are within the derived bound differ from those of right programs."""
    parts = [f"off by up to {typical.sigmas:.3g} standard deviations of rounding"]
    if typical.factor > 1:
        parts.append(
            f"a common factor {typical.factor:.2g} times as far from 1 as rounding makes it"
        )
    if typical.rms > 1:
        parts.append(f"errors that are {typical.rms:.2g} times as large as allowed on the whole")
    return f"{', '.join(parts)}, within the derived bound"


def _numbers(got: str, expected: str) -> tuple[str, str]:
    """Two numbers with no more digits than show how they differ; JSON has all."""
    try:
        a, b = float(got), float(expected)
    except ValueError:  # complex numbers
        return got, expected
    if "." not in got or "." not in expected or a == b or not math.isfinite(a * b):
        return got, expected
    digits = 3 + math.ceil(math.log10(max(abs(a), abs(b)) / abs(a - b)))
    shown = min(17, max(6, digits))
    return f"{a:.{shown}g}", f"{b:.{shown}g}"
