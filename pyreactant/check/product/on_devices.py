"""Freivalds' check on the devices: C R against X (Y R) for groups of columns with random signs.

R has one column for each group of neighbouring columns of C, with their random signs and zeros
elsewhere, so a wrong element shows in one row and group, however long the row is. Everything is a
product with a narrow matrix, whose sums are in float32: so the matrix units do it, and none needs
float64. docs/checks.md derives the limit, and says what this sees less than the host's check.

The devices multiply what they hold, so `operands.misplaced` compares that with the sources.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from ...arrays.array import ShardedArray
from ...arrays.program import Program
from ...arrays.runtimes.collective import exchange_json, total
from ...arrays.runtimes.compile import compile
from ...arrays.runtimes.operations import device_put, from_jax
from ...arrays.runtimes.runtime import current
from ...arrays.sharding import Index, NamedSharding
from ...base.errors import InvalidArgumentError, RequirementError, argument
from ..bounds.model import Model, product_tolerance, size_of_parts
from ..bounds.verdict import ON_DEVICES, Verdict

DEVICE, HOST = PLACES = ("device", "host")
"""Where a large product is checked."""

GROUPS = 128
"""At most so many groups of columns: as many as a matrix unit multiplies by at once."""

_CHANCE = 1e-9
"""Probability that one of all rows and groups of a right product is called wrong."""

_OF_WALKS = 16.0
"""Bound on the rounding of the groups' sums of random numbers, in roundoffs (docs/checks.md)."""

_OF_NORMS = 1.01
"""The norms in the limit are computed in float32 themselves."""

_SPLIT = 2.0**-23
"""What is lost where three numbers in bfloat16 stand for one in float32."""

SKETCH = Program("check of a product", jax="pyreactant.check.product.on_devices:sketch")


def check_place(place: str | None, backends: Iterable[str] = ()) -> None:
    """Check the name of a place, and that the runtimes have a check there.

    Raises:
        InvalidArgumentError: There is no such place.
        RequirementError: The devices are asked for, and a runtime has no check there.
    """
    if place not in (None, *PLACES):
        raise InvalidArgumentError(
            f"{argument('check')} must be one of {', '.join(PLACES)}, got {place!r}"
        )
    others = [name for name in backends if name != "jax"]
    if place == DEVICE and others:
        raise RequirementError(
            f"a check on the devices needs the runtime jax, got {', '.join(others)}; choose "
            f"{argument('check')} {HOST}"
        )


def is_on_devices(place: str | None, dtype: np.dtype[Any], *, large: bool) -> bool:
    """Whether to check a product where it is.

    Args:
        place: One of `PLACES`. None chooses the devices for a large product of floats on GPU or
            TPU, of which the check on the host would take many times as long as the product.
        dtype: Its element type.
        large: Whether the host would use Freivalds' check.

    Raises:
        InvalidArgumentError: There is no such place.
        RequirementError: The devices are asked for, and this runtime has no check there.
    """
    backend = current().backend
    check_place(place, [backend.name])
    if place is not None:
        return place == DEVICE
    accelerated = backend.name == "jax" and backend.devices()[0].platform != "cpu"
    return large and accelerated and dtype.kind not in "iu"


class Limit(NamedTuple):
    """How far ``C R`` and ``X (Y R)`` of a right product may lie apart, in row i and group g.

    The sum of these times: norm(x_i) norm(Y_g); norm(x_i) norm((Y R)_g); max|x_i| norm(Y_g);
    norm(c_ig); and 1. Norms of Y_g and (Y R)_g are Frobenius norms.
    """

    of_both: float
    of_sketch: float
    of_largest: float
    of_result: float
    absolute: float


def copies_apart(array: ShardedArray) -> ShardedArray:
    """All copies of a matrix below each other, in blocks of their own; no device moves anything.

    A compiler may take the copies of a block for equal, and read a part of each; these it cannot.
    """
    rows, columns = array.sharding.axes(2)
    mesh = array.sharding.mesh
    spare = [axis for axis in mesh.axis_names if axis not in (*rows, *columns)]
    copies = math.prod(mesh.axis_size(axis) for axis in spare)
    if copies == 1:
        return array
    import jax

    (m, n), apart = array.shape, NamedSharding(mesh, ((*spare, *rows), columns))
    with jax.enable_x64(True):  # only to hold it; nothing is computed
        parts = [shard.data for shard in array.to_jax().addressable_shards]
        stacked = jax.make_array_from_single_device_arrays((copies * m, n), apart.to_jax(), parts)
        return cast(ShardedArray, from_jax(stacked))


def rows_in_copy(index: Index, m: int) -> Index:
    """The index in a matrix of m rows of an index in `copies_apart`."""
    rows, *others = index
    first = rows.start % m if m else 0
    return (slice(first, first + rows.stop - rows.start), *others)


def limit_of(
    model: Model,
    shape: tuple[int, int, int],
    width: int,
    *,
    copies: int = 1,
    by_vector: bool = False,
) -> Limit:
    """The limit of a product's check on devices.

    Args:
        model: How the product was rounded; its `random` is for both operands.
        shape: (m, k, n).
        width: Columns of a group.
        copies: Number of copies of the product.
        by_vector: Whether a device multiplies by a vector.
    """
    m, k, n = shape
    tests = max(1, m * math.ceil(n / width) * copies)
    z = math.sqrt(2 * math.log(2 * tests / _CHANCE))
    short = model.sum_roundoff != model.roundoff
    sums = product_tolerance(replace(model, roundoff=model.sum_roundoff), k).relative
    both, largest, result = z * sums, 0.0, 0.0
    if short:
        p, one = model.partials, z * model.roundoff * (1 + sums)
        if p == 1:
            result = one
        elif model.random:
            result = one * size_of_parts(p, 1.0, 0.0)
            largest = one * size_of_parts(p, 0.0, 1.0)
        else:
            both += one * p
        if by_vector and model.rounds_products:
            both += one
    own = Model.of(
        "float32" if short else model.dtype,
        platform=model.platform,
        kind=model.kind,
        random=model.random,
    )
    grouped = product_tolerance(own, width).relative
    if model.random:
        grouped = min(grouped, _OF_WALKS * own.sum_roundoff + 2 * own.operand_roundoff)
    after = product_tolerance(own, k).relative + (_SPLIT if short else 0.0)
    root = math.sqrt(width)
    absolute = z * product_tolerance(model, k).absolute * root + (k + 2 * width) * own.tiny
    return Limit(both + grouped * root, after, largest, result + grouped * root, absolute)


def check_on_devices(
    operands: tuple[ShardedArray, ShardedArray],
    c: ShardedArray,
    model: Model | None,
    turned: tuple[bool, bool] = (False, False),
) -> Verdict | None:
    """Check ``c`` against ``x @ y``, as the devices hold them. Collective.

    Args:
        operands: The placed x and y.
        c: The product, which has elements; all its copies are checked.
        model: How it was rounded; None for integers, which must be equal modulo 2**bits.
        turned: Whether x and y are the transposes of the operands.

    Returns:
        The verdict; its `wrong` counts rows, and its `worst` has a row and the columns of a group.
        None if NaN, infinity or numbers near the ends of the type are in it: ask the host.

    Raises:
        RequirementError: The devices do not add in float32.
    """
    (m, n), k = c.shape, operands[0].shape[0 if turned[0] else 1]
    width = math.ceil(n / GROUPS)
    by_vector = 1 in c.sharding.shard_shape(c.shape)
    c = copies_apart(c)
    mesh, rows, copies = c.sharding.mesh, c.sharding.axes(2)[0], c.shape[0] // m
    limit = None
    if model is not None:
        limit = limit_of(model, (m, k, n), width, copies=copies, by_vector=by_vector)
    by_rows, everywhere = NamedSharding(mesh, (rows,)), NamedSharding(mesh, ())
    bits = np.random.Philox(key=[n, GROUPS]).random_raw(n) >> 63
    signs = device_put(bits.astype(np.int8) * np.int8(2) - np.int8(1), everywhere)
    program = compile(
        SKETCH,
        *operands,
        c,
        signs,
        out_sharding=(by_rows, by_rows, by_rows, by_rows, everywhere),
        precision="highest",
        static={"limit": limit, "width": width, "turned": turned},
    )
    ratio, group, off, allowed, counted = program(*operands, c, signs)
    if int(counted.addressable_shards[0].data) != n:
        raise RequirementError(
            f"the check of a product on the devices needs sums in float32, and those of "
            f"{current().backend.devices()[0].kind} are shorter; give --check host"
        )
    return _verdict(m, n, width, (ratio, group, off, allowed))


def _verdict(m: int, n: int, width: int, of_rows: tuple[ShardedArray, ...]) -> Verdict | None:
    """One verdict from the figures of each row, on each device that has it. Collective."""
    running = current()
    wrong, seen, largest, error = np.zeros(m), True, (-1.0, 0, 0, 0.0, 0.0), 0.0
    for parts in zip(*(array.addressable_shards for array in of_rows), strict=True):
        rows = rows_in_copy(parts[0].index, m)[0]
        ratio, group, off, allowed = (part.data for part in parts)
        if np.isnan(ratio).any():
            seen = False
            continue
        wrong[rows] += ratio > 1
        error = max(error, float(off.max(initial=0.0)))
        if ratio.size:
            at = int(np.argmax(ratio))
            mine = float(ratio[at]), rows.start + at, int(group[at]), float(off[at])
            largest = max(largest, (*mine, float(allowed[at])))
    plain = [seen, error, repr(largest[0]), *largest[1:]]
    everyone = exchange_json(running.backend, running.group, plain)
    rows_wrong = int((total(running.backend, running.group, wrong) > 0).sum())
    if not all(given[0] for given in everyone):
        return None
    _, _, _, row, number, _, at_most = max(everyone, key=lambda given: float(given[2]))
    columns = slice(number * width, min(n, number * width + width))
    worst = {"row": row, "columns": f"{columns.start}:{columns.stop}"}
    return Verdict(
        ON_DEVICES,
        error=max(given[1] for given in everyone),
        allowed=at_most,
        ratio=max(float(given[2]) for given in everyone),
        wrong=rows_wrong,
        note=f"each row in {math.ceil(n / width)} groups of columns with random signs",
        worst=worst if rows_wrong else None,
    )


def sketch(
    x: Any, y: Any, c: Any, signs: Any, *, limit: Limit | None, width: int, turned: Any
) -> Any:
    """The JAX body: for each row of C the worst group, and how far it is off.

    Args:
        x: Left operand.
        y: Right operand.
        c: The product, or its copies below each other, shape (copies m, n).
        signs: +1 and -1, int8, shape (n,).
        limit: None for integers.
        width: Columns of a group.
        turned: Whether x and y are the transposes of the operands.

    Returns:
        Error over limit, the group, error and limit there, each of shape (copies m,); NaN where the
        check cannot tell. And the sum of n ones in the type of the sums, which tells its precision.
    """
    import jax.numpy as jnp

    x, y = (a.T if turn else a for a, turn in zip((x, y), turned, strict=True))
    n = c.shape[1]
    count = math.ceil(n / width)
    in_group = jnp.arange(n)[:, None] // width == jnp.arange(count)
    short = c.dtype.itemsize < 4 and limit is not None
    # bfloat16 holds the eight-bit floats too; float16 has more digits and goes as float32.
    narrow = jnp.bfloat16 if short and jnp.finfo(c.dtype).nmant <= 7 else jnp.float32
    factor = narrow if short else c.dtype
    sums = jnp.float32 if short else c.dtype
    x, y, c = (a.astype(factor) for a in (x, y, c))
    r = jnp.where(in_group, signs[:, None], 0).astype(factor)

    def product(a: Any, b: Any) -> Any:
        return jnp.matmul(a, b, preferred_element_type=sums)

    grouped = product(y, r)
    if factor == jnp.bfloat16:
        parts = jnp.split(product(x, _split(grouped, narrow)), 3, axis=1)
        expected = parts[0] + parts[1] + parts[2]
    else:
        expected = product(x, grouped)
    copies = len(c) // len(x)
    off = jnp.abs(product(c, r) - jnp.tile(expected, (copies, 1)))
    one = signs.astype(factor)
    counted = product(one[None], one[:, None])[0, 0].real.astype(jnp.int32)
    if limit is None:
        ratio = jnp.where(off == 0, 0.0, jnp.inf).astype(jnp.float32)
        off, allowed = off.astype(jnp.float32), jnp.zeros(off.shape, jnp.float32)
        counted = jnp.int32(n)  # integers are exact modulo 2**bits
    else:
        real = jnp.zeros(0, sums).real.dtype
        left, right = _norm(x, 1, real)[:, None], _norm(y, 0, real)
        right = _norm(_by_group(right[None], width), 2, real)
        allowed = left * (limit.of_both * right + limit.of_sketch * _norm(grouped, 0, real))
        allowed += limit.of_largest * jnp.abs(x).max(axis=1).astype(real)[:, None] * right
        allowed = jnp.tile(allowed, (copies, 1))
        allowed += limit.of_result * _norm(_by_group(c, width), 2, real)
        allowed = _OF_NORMS * (allowed + limit.absolute)
        ratio = jnp.where(off == 0, 0, off / allowed)
        ratio = jnp.where(jnp.isfinite(allowed), ratio, jnp.nan)
    group = jnp.argmax(ratio, axis=1)  # the first NaN, if there is one
    chosen = (jnp.take_along_axis(a, group[:, None], axis=1)[:, 0] for a in (ratio, off, allowed))
    worst, error, at_most = chosen
    return worst, group.astype(jnp.int32), error, at_most, counted


def _split(numbers: Any, narrow: Any) -> Any:
    """Three numbers in bfloat16 for each in float32, side by side."""
    import jax.numpy as jnp
    from jax import lax

    parts = []
    for _ in range(3):
        # XLA drops a conversion there and back, but not this (openxla/xla#41605).
        high = lax.reduce_precision(numbers, exponent_bits=8, mantissa_bits=7)
        parts.append(high.astype(narrow))
        numbers = numbers - high
    return jnp.concatenate(parts, axis=1)


def _by_group(numbers: Any, width: int) -> Any:
    """Shape (m, n) as (m, groups, width), with zeros behind."""
    import jax.numpy as jnp

    m, n = numbers.shape
    count = math.ceil(n / width)
    return jnp.pad(numbers, ((0, 0), (0, count * width - n))).reshape(m, count, width)


def _norm(numbers: Any, axis: int, real: Any) -> Any:
    """Euclidean norms; their squares neither overflow nor underflow."""
    import jax.numpy as jnp

    sizes = jnp.abs(numbers).astype(real)
    largest = sizes.max(axis=axis, keepdims=True, initial=0)
    scaled = sizes / jnp.where(largest > 0, largest, 1)
    return jnp.sqrt(jnp.square(scaled).sum(axis=axis)) * largest.squeeze(axis)
