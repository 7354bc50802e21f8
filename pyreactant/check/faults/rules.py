"""How each operation of an oracle may differ in a program that is wrong."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays.dtypes import as_dtype
from ..records.verdict import Kind
from .alteration import Alteration, Cuts

_EPSILONS = (0.0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)

_SMALL = 2e-3
"""A constant summand up to this is an epsilon."""


class Call(NamedTuple):
    """A call of a function of NumPy.

    Attributes:
        args: Its arguments, as plain arrays.
        options: Its keyword arguments.
        inputs: Its arguments as they were given.
        cuts: How a mesh may cut arrays.
    """

    args: tuple[Any, ...]
    options: dict[str, Any]
    inputs: tuple[Any, ...]
    cuts: Cuts

    def given(self, name: str, place: int, default: Any = None) -> Any:
        """An argument that is given by position or by name."""
        return self.args[place] if len(self.args) > place else self.options.get(name, default)


Rule = Callable[[Call], Iterator[Alteration]]


def is_epsilon(x: Any, *, guards: bool = False) -> bool:
    """Whether a summand is a constant that is small for what it is added to.

    Args:
        x: The summand.
        guards: Whether a root or logarithm of the sum is taken, or something is divided by it.
    """
    # An array without dimensions is a number that was computed.
    return (
        not isinstance(x, np.ndarray)
        and _is_number(x)
        and 0 < abs(x) <= (0.1 if guards else _SMALL)
    )


def _is_number(x: Any) -> bool:
    if x is None or np.ndim(x) or np.iscomplexobj(x):
        return False
    return bool(np.isfinite(x))


def of_mask(mask: np.ndarray, name: str, *, by_value: bool) -> Iterator[Alteration]:
    """A mask that is moved by one, or that keeps everything.

    One element in each line is a label or an index, which may be shifted; a mask that is computed
    from values may be an activation.
    """
    kind_of_mask = Kind.UNKNOWN if by_value else Kind.MASK
    for axis, by in itertools.product(range(mask.ndim), (1, -1)):
        if mask.shape[axis] > 2:
            at = np.clip(np.arange(mask.shape[axis]) - by, 0, mask.shape[axis] - 1)
            text = f"with the mask of {name} moved by {by:+d} along dimension {axis}"
            is_label = bool((np.count_nonzero(mask, axis) <= 1).all())
            kind = Kind.UNKNOWN if is_label else kind_of_mask
            yield Alteration(kind, text, lambda axis=axis, at=at: np.take(mask, at, axis))
    for value in np.unique(mask):
        text = f"with {value:.3g} everywhere instead of the mask of {name}"
        yield Alteration(kind_of_mask, text, lambda value=value: np.full_like(mask, value))


def _masks(call: Call, number: int, name: str, new: Callable[..., Any]) -> Iterator[Alteration]:
    """The alterations of a call by those of one argument that is a mask."""
    by_value = getattr(call.inputs[number], "by_value", False)
    for way in of_mask(np.asarray(call.args[number]), name, by_value=by_value):
        yield way._replace(new=lambda mask=way.new: new(mask()))


def _where(call: Call) -> Iterator[Alteration]:
    if len(call.args) == 3:
        mask, *values = call.args
        yield from _masks(call, 0, "where", lambda mask: np.where(mask, *values))
        by_value = getattr(call.inputs[0], "by_value", False)
        for number, value in enumerate(values):
            if np.ndim(value) == 0 and value != 0:
                filled = [*values[:number], 0, *values[number + 1 :]]
                text = f"with 0 instead of {float(value):.3g} in where"
                kind = Kind.UNKNOWN if by_value else Kind.MASK
                yield Alteration(kind, text, lambda filled=filled: np.where(mask, *filled))


def _triangle(function: Any) -> Rule:
    def rule(call: Call) -> Iterator[Alteration]:
        k = call.given("k", 1, 0)
        for by in (1, -1):
            text = f"with k = {k + by} instead of {k} in {function.__name__}"
            yield Alteration(Kind.MASK, text, lambda by=by: function(call.args[0], k + by))

    return rule


def _comparison(ufunc: Any) -> Rule:
    """A comparison of whole numbers that is off by one; equal ones may be shifted labels."""
    kind = Kind.UNKNOWN if ufunc is np.equal else Kind.MASK

    def rule(call: Call) -> Iterator[Alteration]:
        x, y = call.args
        if all(np.asarray(a).dtype.kind in "iu" for a in (x, y)):
            for by in (1, -1):
                text = f"with numbers in {ufunc.__name__} that are off by {by:+d}"
                yield Alteration(kind, text, lambda by=by: ufunc(x, y + by))
            for value in (True, False):
                text = f"with {value} everywhere instead of {ufunc.__name__}"
                yield Alteration(kind, text, lambda value=value: np.full_like(ufunc(x, y), value))

    return rule


def _is_mask(x: Any) -> bool:
    """Whether a factor or a summand is a mask: an array of zeros and one other value."""
    values = np.asarray(x)
    return (
        values.ndim > 0 and values.size > 2 and len(found := np.unique(values)) == 2 and 0 in found
    )


def _factor(ufunc: Any, inverse: Any) -> Rule:
    def rule(call: Call) -> Iterator[Alteration]:
        for number, constant in enumerate(call.args):
            rest = call.args[1 - number]
            if ufunc is np.divide and number == 0:
                continue
            # A whole number that was computed is a number of elements.
            own = _is_number(constant) and np.asarray(constant).dtype.kind in (
                "iu" if isinstance(constant, np.ndarray) else "iuf"
            )
            if own and isinstance(rest, np.ndarray) and constant not in (0, 1):
                squares = any(getattr(x, "of_squares", False) for x in call.inputs)
                yield from _other_factors(ufunc, inverse, rest, float(constant), squares)
            elif ufunc is np.multiply and _is_mask(constant):
                yield from _masks(call, number, ufunc.__name__, lambda mask, rest=rest: rest * mask)

    return rule


def _other_factors(
    ufunc: Any, inverse: Any, x: Any, c: float, squares: bool
) -> Iterator[Alteration]:
    """A constant factor that is left out, used twice, the other way round, or another one."""
    own, other = _NAMES[ufunc], _NAMES[inverse]
    factor = functools.partial(Alteration, Kind.FACTOR)
    yield factor(f"without its {own} by {c:.6g}", lambda: x * 1)
    yield factor(f"with its {own} by {c:.6g} done twice", lambda: ufunc(ufunc(x, c), c))
    yield factor(f"with {other} by {c:.6g} instead of {own}", lambda: inverse(x, c))
    yield factor(f"with {own} by {-c:.6g} instead of {c:.6g}", lambda: ufunc(x, -c))
    if squares and c.is_integer() and c > (2 if ufunc is np.divide else _FEW):
        for near in (c - 1, c + 1):  # of sums of squares, n for n - 1 is that of a variance
            text = f"with {own} by {near:.0f} instead of {c:.0f}"
            yield Alteration(Kind.VARIANCE, text, functools.partial(ufunc, x, near))
    yield factor(f"with {own} by {{}} instead of {c:.6g}", lambda new: ufunc(x, new), constant=c)


_NAMES = {np.multiply: "multiplication", np.divide: "division"}

_FEW = 8
"""A factor that is not larger may be any constant, and no number of elements."""


def _other_sign(ufunc: Any, other: Any) -> Rule:
    def rule(call: Call) -> Iterator[Alteration]:
        text = f"with {other.__name__} instead of {ufunc.__name__}"
        yield Alteration(Kind.FACTOR, text, lambda: other(*call.args))
        x, y = call.args
        for name, kept, lost in (("second", x, y), ("first", y, x)):
            computed = isinstance(lost, np.ndarray) and isinstance(kept, np.ndarray)
            if computed and np.ndim(kept) >= np.ndim(lost) and not _is_mask(lost):
                # A lost term that is a multiple of the rest would look like a factor.
                sign = -1 if ufunc is np.subtract and name == "first" else 1
                text = f"without the {name} operand of {ufunc.__name__}"
                yield Alteration(Kind.UNKNOWN, text, lambda kept=kept, sign=sign: kept * sign)
        for number, constant in enumerate(call.args):
            rest = call.args[1 - number]
            if isinstance(constant, np.ndarray) or not isinstance(rest, np.ndarray):
                if ufunc is np.add and _is_mask(constant):
                    yield from _masks(call, number, "add", lambda mask, rest=rest: rest + mask)
                continue
            if _is_number(constant) and constant != 0:
                yield from _other_summand(ufunc, rest, float(constant), number)

    return rule


def _other_summand(ufunc: Any, rest: Any, c: float, number: int) -> Iterator[Alteration]:
    def new(other: float) -> Any:
        return ufunc(rest, other) if number else ufunc(other, rest)

    if is_epsilon(c):
        for other in _EPSILONS:
            if other != c:
                text = f"with an epsilon of {other:.3g} instead of {c:.3g}"
                yield Alteration(Kind.EPSILON, text, functools.partial(new, other))
    kind = Kind.EPSILON if is_epsilon(c) else Kind.UNKNOWN
    yield Alteration(kind, f"with {{}} instead of {c:.3g} in {ufunc.__name__}", new, constant=c)


def _reduction(ufunc: Any) -> Rule:
    """A sum or extreme over one part of a dimension, without one, or along another dimension."""
    name = {np.add: "sum", np.maximum: "largest", np.minimum: "smallest"}[ufunc]

    def rule(call: Call) -> Iterator[Alteration]:
        x, given = np.asarray(call.args[0]), call.given("axis", 1, 0)
        axes = tuple(range(x.ndim) if given is None else np.atleast_1d(given) % max(x.ndim, 1))
        keep = bool(call.options.get("keepdims"))
        if not axes:
            return

        def reduced(part: np.ndarray, over: Any = axes, keepdims: bool = keep) -> Any:
            return ufunc.reduce(part, axis=over, keepdims=keepdims)

        for text, parts in call.cuts.of_axes(x.shape, axes):
            yield from _of_parts(name, text, x, axes, parts, reduced)
        if name == "sum":
            yield from _multiples(call.cuts, "the sum", lambda: reduced(x))
        if len(axes) == 1:
            yield from _along_others(x, axes[0], lambda other: reduced(x, other))

    return rule


def _along_others(x: np.ndarray, axis: int, new: Callable[[int], Any]) -> Iterator[Alteration]:
    """The operation along each other dimension of the same length."""
    for other in range(x.ndim):
        if other != axis % x.ndim and x.shape[other] == x.shape[axis]:
            text = f"along dimension {other} instead of {axis}"
            yield Alteration(Kind.DIMENSION, text, functools.partial(new, other))


def _multiples(cuts: Cuts, what: str, new: Callable[[], Any]) -> Iterator[Alteration]:
    """As a sum over devices has that is done twice, or a mean in its place."""
    for n in cuts.counts:
        yield Alteration(Kind.FACTOR, f"with {n} times {what}", lambda n=n: new() * n)
        yield Alteration(Kind.FACTOR, f"with 1/{n} of {what}", lambda n=n: new() / n)


def _of_parts(
    name: str,
    cut: str,
    x: np.ndarray,
    axes: tuple[int, ...],
    parts: Sequence[tuple[np.ndarray, ...]],
    reduced: Callable[..., Any],
) -> Iterator[Alteration]:
    """A sum or extreme of which devices have only their own part, or lack one."""
    n, one = len(parts), cut.format("k")

    def part(at: tuple[np.ndarray, ...]) -> Any:
        piece = x
        for axis, positions in zip(axes, at, strict=True):
            piece = np.take(piece, positions, axis)
        return piece

    def alone(scale: float) -> np.ndarray:
        """The reduction of each part, everywhere in the part."""
        each = np.empty(x.shape, np.result_type(x, np.float64) if scale != 1 else x.dtype)
        for at in parts:
            index: list[Any] = [np.arange(size) for size in x.shape]
            for axis, positions in zip(axes, at, strict=True):
                index[axis] = positions
            each[np.ix_(*index)] = reduced(part(at), keepdims=True) * scale
        return each

    def own(number: int) -> Any:
        return reduced(part(parts[number]))

    # Of ones and zeros, sums over other parts are equal by chance.
    if x.dtype.kind in "biu" or np.unique(x).size <= 2:
        return
    missing = functools.partial(Alteration, Kind.MISSING_REDUCTION)
    # Of single elements, a norm of each part is 1 whatever they are.
    several = any(len(positions) > 1 for positions in parts[0])
    if name == "sum":
        yield from _partial(cut, n, own, lambda: reduced(x), adds=several)
    else:
        yield from _own(name, cut, n, own, adds=False)
    if several:
        yield missing(f"with the {name} of each part by itself, {one}", lambda: alone(1))
    if several and name == "sum":
        yield missing(f"with the mean of each part by itself, {one}", lambda: alone(n))


def _own(
    name: str, cut: str, n: int, own: Callable[[int], Any], *, adds: bool
) -> Iterator[Alteration]:
    """A sum or extreme over one part only."""
    family = f"with the {name} over {cut.format('k')} only"
    for k in range(n):
        text = f"with the {name} over {cut.format(k)} only"
        yield Alteration(Kind.MISSING_REDUCTION, text, lambda k=k: own(k), family, adds=adds)


def _partial(
    cut: str, n: int, own: Callable[[int], Any], whole: Callable[[], Any], *, adds: bool
) -> Iterator[Alteration]:
    """A sum of which devices have only their own part, or lack one, or have it twice."""
    yield from _own("sum", cut, n, own, adds=adds)
    one = cut.format("k")
    for k in range(n):
        part = cut.format(k)
        yield Alteration(
            Kind.MISSING_REDUCTION,
            f"with {n} times the sum over {part}, as a mean over it has",
            lambda k=k: own(k) * n,
            f"with {n} times the sum over {one}, as a mean over it has",
            adds=adds,
        )
        for text, weight in (("that lacks", -1), ("that has twice", 1)):
            yield Alteration(
                Kind.PARTS,
                f"with a sum {text} {part}",
                lambda k=k, weight=weight: whole() + weight * own(k),
                f"with a sum {text} {one}",
            )


class _Product(NamedTuple):
    """A sum of products.

    Attributes:
        factors: Its factors.
        labels: A label of each dimension of each factor.
        out: The labels of the result.
        compute: Computes it from the factors.
    """

    factors: tuple[np.ndarray, ...]
    labels: tuple[str, ...]
    out: str
    compute: Callable[[Sequence[np.ndarray]], Any]


def _matmul(call: Call) -> Iterator[Alteration]:
    x, y = map(np.asarray, call.args[:2])
    if min(x.ndim, y.ndim) == 0 or max(x.ndim, y.ndim) > 6:
        return
    batch = "abcd"[: max(x.ndim, y.ndim, 2) - 2]
    left = ("j" if x.ndim == 1 else batch[len(batch) - (x.ndim - 2) :] + "ij",)
    right = "j" if y.ndim == 1 else batch[len(batch) - (y.ndim - 2) :] + "jk"
    out = batch + "i" * (x.ndim > 1) + "k" * (y.ndim > 1)
    product = _Product((x, y), (*left, right), out, lambda f: np.matmul(*f))
    yield from _product(product, call.cuts)


def _dot(call: Call) -> Iterator[Alteration]:
    if all(np.ndim(x) in (1, 2) for x in call.args[:2]):
        yield from _matmul(call)


def _einsum(call: Call) -> Iterator[Alteration]:
    text, *factors = call.args
    if not isinstance(text, str) or "->" not in text or "." in text:
        return
    text = text.replace(" ", "")
    labels, out = text.split("->")
    arrays = tuple(map(np.asarray, factors))
    each = tuple(labels.split(","))
    if any(len(set(one)) < len(one) for one in each):
        return
    compute = functools.partial(np.einsum, text, optimize=len(arrays) > 2)
    yield from _product(_Product(arrays, each, out, lambda f: compute(*f)), call.cuts)


def _product(product: _Product, cuts: Cuts) -> Iterator[Alteration]:
    factors, labels, out, compute = product
    sizes = {
        label: n
        for one, array in zip(labels, factors, strict=True)
        for label, n in zip(one, array.shape, strict=True)
    }
    inner = [label for label in sizes if label not in out]
    for label in inner:
        for cut, parts in cuts.of_length(sizes[label]):
            shown = f"{cut} of {label}" if len(inner) > 1 else cut
            yield from _of_inner(product, label, shown, parts, sizes)
    yield from _multiples(cuts, "a product", lambda: compute(factors))
    for number, one in enumerate(labels):
        for a, b in itertools.combinations(range(len(one)), 2):
            if sizes[one[a]] == sizes[one[b]]:
                turned = [*factors]
                turned[number] = factors[number].swapaxes(a, b)
                text = f"with the {_ordinal(number)} factor of a product transposed"
                yield Alteration(Kind.TRANSPOSED, text, lambda f=turned: compute(f))
    for a, b in itertools.combinations(range(len(out)), 2):
        if sizes[out[a]] == sizes[out[b]]:
            text = f"with dimensions {a} and {b} of a product exchanged"
            yield Alteration(
                Kind.TRANSPOSED, text, lambda a=a, b=b: np.swapaxes(compute(factors), a, b)
            )
    for name in ("bfloat16", "float16"):
        if all(array.dtype.kind == "f" for array in factors):
            text = f"the factors of a product rounded to {name}"
            yield Alteration(
                Kind.LOWER_PRECISION,
                text,
                lambda name=name: compute([_rounded(array, name) for array in factors]),
            )


def _rounded(x: np.ndarray, name: str) -> np.ndarray:
    return x.astype(as_dtype(name)).astype(x.dtype)


def _ordinal(number: int) -> str:
    return ("first", "second", "third", "fourth")[number] if number < 4 else f"{number + 1}th"


def _of_inner(
    product: _Product, label: str, cut: str, parts: Sequence[np.ndarray], sizes: dict[str, int]
) -> Iterator[Alteration]:
    """A product of which devices have only their own part of a sum, or lack one."""
    factors, labels, out, compute = product

    def of(positions: np.ndarray) -> Any:
        return compute(
            [
                np.take(array, positions, one.index(label)) if label in one else array
                for one, array in zip(labels, factors, strict=True)
            ]
        )

    def slices(axis: int) -> Any:
        size = sizes[out[axis]] // len(parts)
        own = [
            np.take(of(positions), np.arange(k * size, (k + 1) * size), axis)
            for k, positions in enumerate(parts)
        ]
        return np.concatenate(own, axis)

    yield from _partial(
        cut,
        len(parts),
        lambda k: of(parts[k]),
        lambda: compute(factors),
        adds=len(parts[0]) > 1,
    )
    for axis, letter in enumerate(out):
        if sizes[letter] % len(parts) == 0:
            text = f"with the sum over {cut.format('k')} only, another one in each part of "
            yield Alteration(
                Kind.MISSING_REDUCTION,
                f"{text}dimension {axis} of its result",
                lambda axis=axis: slices(axis),
            )


def _cumulative(call: Call) -> Iterator[Alteration]:
    x, axis = np.asarray(call.args[0]), call.given("axis", 1)
    if axis is None:
        return
    for n in call.cuts.counts:
        if x.shape[axis] % n == 0:
            text = f"with a cumulative sum of each of {n} parts by itself"
            yield Alteration(
                Kind.MISSING_REDUCTION,
                text,
                lambda n=n: np.concatenate(
                    [np.cumsum(part, axis) for part in np.split(x, n, axis)], axis
                ),
            )
    yield from _along_others(x, axis, lambda other: np.cumsum(x, other))


def _roll(call: Call) -> Iterator[Alteration]:
    x, shift, axis = call.args[0], call.given("shift", 1), call.given("axis", 2)
    if np.ndim(shift) == 0:
        for other in dict.fromkeys((shift + 1, shift - 1, -shift)):
            if other != shift:
                text = f"with a roll by {other} instead of {shift}"
                yield Alteration(Kind.SHIFTED, text, lambda other=other: np.roll(x, other, axis))


_PADDING = ("constant", "edge", "wrap", "reflect")


def _pad(call: Call) -> Iterator[Alteration]:
    x, width = call.args[0], call.given("pad_width", 1)
    mode = call.given("mode", 2, "constant")
    for other in _PADDING:
        if other != mode:
            text = f"with {other!r} padding instead of {mode!r}"
            yield Alteration(Kind.HALO, text, functools.partial(np.pad, x, width, other))


_ADD, SQRT, POWER = (np.add, "__call__"), (np.sqrt, "__call__"), (np.power, "__call__")
MULTIPLY, DIVIDE = (np.multiply, "__call__"), (np.divide, "__call__")
LOG = (np.log, "__call__")
ADDITIONS = (_ADD, (np.subtract, "__call__"))
SUM = (np.add, "reduce")
COMPARISONS = {
    (ufunc, "__call__"): _comparison(ufunc)
    for ufunc in (np.less, np.less_equal, np.greater, np.greater_equal, np.equal)
}
RULES: dict[Any, Rule] = {
    np.where: _where,
    np.tril: _triangle(np.tril),
    np.triu: _triangle(np.triu),
    np.roll: _roll,
    np.pad: _pad,
    np.einsum: _einsum,
    np.dot: _dot,
    np.cumsum: _cumulative,
    (np.matmul, "__call__"): _matmul,
    (np.multiply, "__call__"): _factor(np.multiply, np.divide),
    DIVIDE: _factor(np.divide, np.multiply),
    _ADD: _other_sign(np.add, np.subtract),
    (np.subtract, "__call__"): _other_sign(np.subtract, np.add),
    **{(ufunc, "reduce"): _reduction(ufunc) for ufunc in (np.add, np.maximum, np.minimum)},
    **COMPARISONS,
}
"""By function of NumPy, or ufunc and method."""
