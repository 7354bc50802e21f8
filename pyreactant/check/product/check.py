"""Check a product: against float64 if that is affordable, otherwise by Freivalds' check.

Both read the operands from their sources, not from the devices, and compare every block on this
process's devices, including copies. Only vectors and verdicts are communicated. A check on the
devices compares the operands with their sources by digests, and multiplies there.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.array import ShardedArray
from ...arrays.dtypes import wide
from ...arrays.runtimes.collective import exchange_json
from ...arrays.runtimes.runtime import current
from ...arrays.sharding import Index, NamedSharding, Shard
from ...arrays.source import Source
from ...arrays.text import block_text
from ...base.counted import counted
from ..bounds.compare import compare
from ..bounds.expected import Expected
from ..bounds.model import EXACT, Model, Tolerance, product_tolerance
from ..bounds.verdict import Verdict, join
from ..regions import pieces
from .freivalds import freivalds
from .on_devices import check_on_devices
from .operands import misplaced

FULL_CHECK_WORK = 4096**3
"""Up to this many multiplications (m k n), the whole product is recomputed in float64."""

_TILE_BYTES = 64 * 2**20


def check_product(
    x: Source,
    y: Source,
    c: ShardedArray,
    shardings: tuple[NamedSharding, NamedSharding],
    precision: str | None,
    operands: tuple[ShardedArray, ShardedArray] | None = None,
) -> Verdict:
    """Check ``c`` against ``x @ y``. Collective; the verdict is the same on every process.

    Args:
        x: Source of the left operand, shape (m, k).
        y: Source of the right operand, shape (k, n).
        c: The product; all its copies are checked.
        shardings: Shardings of x and y.
        precision: Precision with which c was computed.
        operands: The placed x and y, to check on the devices; None checks on the host.

    Returns:
        A verdict with the method "float64 product", "integer product", `FREIVALDS` or `ON_DEVICES`.
        Its `worst` has process, device, block, element, got and expected of the worst element, or
        a row, of a check on devices also columns. Each copy of an element counts separately.

    Raises:
        RequirementError: The devices do not add in float32, and `operands` are given.
    """
    k, random = x.shape[1], x.random and y.random
    elsewhere = ""
    if operands is not None and c.size:
        verdict = misplaced((x, y), operands)
        verdict = verdict or check_on_devices(
            operands, c, model_of(c, shardings, precision, random)
        )
        if verdict is not None:
            return verdict
        elsewhere = f"; {ON_HOST}"
    tolerance = tolerance_of(c, k, shardings, precision, random=random)
    if is_large(c, k):
        verdict = freivalds(x, y, c, shardings, tolerance)
    else:
        verdict = _full(x, y, c, tolerance)
    return replace(verdict, note=(verdict.note + elsewhere).removeprefix("; "))


def is_large(c: ShardedArray, k: int) -> bool:
    """Whether a product with sums of k numbers is too large to be computed again on the host."""
    return c.size * k > FULL_CHECK_WORK


ON_HOST = "checked on the host, because numbers are NaN, infinite or near the ends of the type"


def tolerance_of(
    c: ShardedArray,
    k: int,
    shardings: tuple[NamedSharding, NamedSharding],
    precision: str | None,
    *,
    random: bool,
) -> Tolerance:
    """The tolerance of a product that this process's runtime computed.

    Args:
        c: The product.
        k: Length of the sums.
        shardings: Shardings of the operands.
        precision: Precision with which c was computed.
        random: Whether the operands are random with mean zero.
    """
    model = model_of(c, shardings, precision, random)
    if model is None:
        return EXACT
    return product_tolerance(model, k, 1 in c.sharding.shard_shape(c.shape))


def model_of(
    c: ShardedArray,
    shardings: tuple[NamedSharding, NamedSharding],
    precision: str | None,
    random: bool,
) -> Model | None:
    """How this process's runtime rounded a product; None for integers. As `tolerance_of`."""
    if c.dtype.kind in "iu":
        return None
    mesh, device = c.sharding.mesh, current().backend.devices()[0]
    summed_over = {*shardings[0].axes(2)[1], *shardings[1].axes(2)[0]}
    return Model.of(
        c.dtype,
        platform=device.platform,
        kind=device.kind,
        precision=precision,
        partials=math.prod(mesh.axis_size(axis) for axis in summed_over),
        random=random,
    )


def _full(x: Source, y: Source, c: ShardedArray, tolerance: Tolerance) -> Verdict:
    is_integer = c.dtype.kind in "iu"
    method = "integer product" if is_integer else "float64 product"
    shards: dict[str, list[Shard]] = {}
    for shard in c.addressable_shards:
        shards.setdefault(block_text(shard.index), []).append(shard)
    verdicts = []
    for copies in shards.values():
        index = copies[0].index
        if is_integer:
            expected = Expected(_integer_block(x, y, index), None)
        else:
            expected = _float_block(x, y, index, tolerance)
        verdicts += [_compare(shard, expected, method) for shard in copies]
    return _note(_join_everywhere(join(verdicts or [Verdict(method)])), c)


def _compare(shard: Shard, expected: Expected, method: str) -> Verdict:
    verdict = replace(compare(shard.data, expected), method=method)
    if verdict.worst is None:
        return verdict
    at = tuple(verdict.worst["element"])
    value = expected.value[at]
    got = shard.data[at].astype(value.dtype)
    is_finite = bool(np.isfinite(got) and np.isfinite(value))
    worst = None
    if not verdict.passed:
        worst = {
            "process": shard.device.process_index,
            "device": str(shard.device),
            "block": block_text(shard.index),
            "element": [i + s.start for i, s in zip(at, shard.index, strict=True)],
            "got": str(got),
            "expected": str(value),
        }
    # JSON has no NaN and infinity, so their tolerance is reported as 0.
    return replace(verdict, allowed=verdict.allowed if is_finite else 0.0, worst=worst)


def _join_everywhere(mine: Verdict) -> Verdict:
    """One verdict from those of all processes. Collective."""
    running = current()
    verdicts = exchange_json(running.backend, running.group, mine.to_dict())
    return join(map(Verdict.from_dict, verdicts))


def _float_block(x: Source, y: Source, index: Index, tolerance: Tolerance) -> Expected:
    """One block of the product in float64 with its tolerance."""
    rows, columns = index
    shape = (rows.stop - rows.start, columns.stop - columns.start)
    value: Any = np.zeros(shape)
    x_squares, y_squares = np.zeros(shape[0]), np.zeros(shape[1])
    with np.errstate(all="ignore"):
        step = max(1, _TILE_BYTES // (16 * max(sum(shape), 1)))
        for part in pieces(slice(0, x.shape[1]), step):
            a, b = wide(x.read((rows, part))), wide(y.read((part, columns)))
            value = value + a @ b
            x_squares += np.square(np.abs(a)).sum(axis=1)
            y_squares += np.square(np.abs(b)).sum(axis=0)
        scale = np.sqrt(np.outer(x_squares, y_squares))  # norm(x_i) * norm(y_j)
        bound = tolerance.relative * scale + tolerance.absolute
        return Expected(
            value,
            np.where(np.isfinite(value), bound, 0.0),  # infinite operands make it certainly so
            last_rounding=True,
            usual=tolerance.usual * scale + tolerance.absolute,
            may_overflow=scale >= tolerance.largest,
        )


def _integer_block(x: Source, y: Source, index: Index) -> np.ndarray:
    """One block of the product modulo 2**bits, as the runtimes compute it."""
    rows, columns = index
    everything = slice(0, x.shape[1])
    a, b = x.read((rows, everything)), y.read((everything, columns))
    largest = [max(abs(int(z.min(initial=0))), abs(int(z.max(initial=0)))) for z in (a, b)]
    if largest[0] * largest[1] * max(x.shape[1], 1) < 2**53:
        # Exact in float64, and far faster than NumPy's integer product.
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64).astype(x.dtype)
    return a @ b


def _note(verdict: Verdict, c: ShardedArray) -> Verdict:
    total = math.prod(c.sharding.shard_shape(c.shape)) * c.sharding.mesh.size
    note = verdict.note
    if not total:
        note = "the product has no elements"
    elif verdict.non_finite == total:
        note = "every element is NaN or infinite, as in the oracle"
    elif verdict.non_finite:
        some = counted(verdict.non_finite, "element is", "elements are")
        note = f"{some} NaN or infinite, as expected"
    elif verdict.passed and verdict.usual > 1:
        note = (
            f"the error is within the rounding bound but {verdict.usual:.1f} times the usual "
            "rounding error; check whether the product has a lower precision than requested"
        )
    return replace(verdict, note=note)
