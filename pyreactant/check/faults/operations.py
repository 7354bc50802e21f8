"""Faults of one operation: a mask that is off by one, a factor left out, a sum over one part.

The oracle runs again with one of its operations altered, and the wrong values are compared with its
results. Its arguments are NumPy arrays of a class that numbers the operations on them.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays.dtypes import wide
from ...base.imports import users_line
from ..bounds.expected import Expected
from ..bounds.tracked import UnknownOperationError
from ..records.verdict import Kind
from .subject import Reason, Wrong, explains, fits

_PATIENCE = 5.0
"""Seconds of processor time that the altered runs of an output may take."""

_MOST_PARTS = 8

_EPSILONS = (0.0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)

_SMALL = 2e-3
"""A constant summand up to this is an epsilon."""

_AS_NEAR = 1.5
"""Alterations that are this much farther off than the nearest one explain the values as well."""

Alteration = tuple[Kind, str, Callable[..., Any]]
"""A kind, how an operation differs, and what it then gives."""

Rule = Callable[[tuple[Any, ...], dict[str, Any], Sequence[int]], Iterator[Alteration]]
"""The alterations of a call; the last argument has the numbers of parts of a sharded dimension."""


_Choice = dict[int, Reason]
"""Alterations by the numbers of their operations."""


class _Match(NamedTuple):
    """An alteration that explained a block: how, the whole result, and how far it is off."""

    choice: _Choice
    reason: Reason
    result: np.ndarray
    off: float

    def is_sibling(self, choice: _Choice) -> bool:
        """Whether a choice is of the same operations and kind, as another part of a sum."""
        same = choice.keys() == self.choice.keys()
        return same and next(iter(choice.values()))[0] == self.reason[0]


class _Step(NamedTuple):
    """An operation: its alterations, and the line of the user's file that called it."""

    reasons: list[Reason]
    line: str


class Operations:
    """The operations of an oracle, each of which may be altered.

    Args:
        of_class: Computes all outputs with arrays of a class (`Case.of_class`).
        number: Number of the output.
        arrays: The arguments, whole.
        counts: Sizes of the mesh, into which a summed dimension may be cut.
        small: Whether the arguments are so small that the oracle may run many times.
    """

    def __init__(
        self,
        of_class: Callable[[Sequence[np.ndarray], type], tuple[np.ndarray, ...]],
        number: int,
        arrays: Callable[[], Sequence[np.ndarray]],
        counts: Sequence[int],
        *,
        small: bool = True,
    ) -> None:
        self._of_class, self._number, self._small = of_class, number, small
        self._arrays = functools.cache(arrays)
        self._counts = sorted({n for n in counts if 1 < n <= _MOST_PARTS})
        self._matched: list[_Match] = []
        self._spent = 0.0

    def explain(self, wrong: Wrong) -> list[Reason]:
        """The alterations that give the values of a block, one of each kind, the nearest first."""
        known = [_match(wrong, m.choice, m.reason, m.result, 1) for m in self._matched]
        fitting = [match for match in known if match is not None]
        if not fitting:
            fitting = self._tried(wrong)
            self._matched += fitting
        fitting.sort(key=lambda match: match.off)
        near = [m.reason for m in fitting if m.off <= _AS_NEAR * fitting[0].off]
        return [*{reason[0]: reason for reason in reversed(near)}.values()][::-1]

    def _tried(self, wrong: Wrong) -> list[_Match]:
        """All alterations that explain a block; those like one that matched before come first."""
        choices = _choices(self._steps)
        like = [c for c in choices if any(match.is_sibling(c) for match in self._matched)]
        fitting: list[_Match] = []
        for choice in [*like, *(c for c in choices if c not in like)]:
            if self._spent > _PATIENCE or (fitting and like and choice not in like):
                break
            result = self._run(functools.partial(self._chosen, choice, itertools.count()))
            first, (kind, text) = next(iter(choice.items()))
            line = self._steps[first].line
            reason = kind, f"the oracle gives these values {text}{f' ({line})' * bool(line)}"
            if result is not None:
                match = _match(wrong, choice, reason, result, len(choices))
                fitting += [] if match is None else [match]
        return fitting

    def _chosen(
        self, choice: _Choice, steps: Iterator[int], alterations: Iterator[Alteration]
    ) -> Callable[[], Any] | None:
        """What to compute instead of the next operation; None if it stays.

        Raises:
            UnknownOperationError: It is another operation than the one that had this number,
                because the oracle took another branch after an altered one.
        """
        number = next(steps)
        reason = choice.get(number)
        if reason is None:
            return None
        if users_line() != self._steps[number].line:
            raise UnknownOperationError("the oracle took another branch")
        return next((new for kind, text, new in alterations if (kind, text) == reason), None)

    @property
    def known(self) -> bool:
        """Whether the oracle's operations are seen, so that one of them may be ruled out."""
        return self._seen is not None

    @property
    def _steps(self) -> list[_Step]:
        return self._seen or []

    @functools.cached_property
    def _seen(self) -> list[_Step] | None:
        """All operations; None of large arguments, or if too few would be tried in time."""
        steps: list[_Step] = []
        if not self._small:
            return None

        def note(alterations: Iterator[Alteration]) -> None:
            steps.append(_Step([(kind, text) for kind, text, _ in alterations], users_line()))

        ran = self._run(note)
        is_seen = steps or ran is not None
        return steps if is_seen and self._spent <= _PATIENCE / 20 else None

    def _run(self, choose: Callable[[Iterator[Alteration]], Any]) -> np.ndarray | None:
        """The output of the oracle, with one operation altered; None if the oracle cannot run."""
        start, watched = time.thread_time(), _watched(choose, self._counts)
        try:
            with np.errstate(all="ignore"):
                return np.asarray(self._of_class(self._arrays(), watched)[self._number])
        except UnknownOperationError:
            return None
        finally:
            self._spent += time.thread_time() - start


def _choices(steps: Sequence[_Step]) -> list[_Choice]:
    """Each alteration by itself, and the same one of several operations that have it.

    One fault of a program may be in several operations, such as the dimension of a softmax.
    """
    single: list[_Choice] = []
    same: dict[Reason, _Choice] = {}
    for number, step in enumerate(steps):
        for reason in step.reasons:
            single.append({number: reason})
            same.setdefault(reason, {})[number] = reason
    several = [choice for choice in same.values() if len(choice) > 1]
    # Of many operations, as of several calls of a function, two that follow each other.
    pairs = [
        dict(pair)
        for choice in several
        if len(choice) > 2
        for pair in itertools.pairwise(choice.items())
    ]
    return single + several + pairs


def _match(
    wrong: Wrong, choice: _Choice, reason: Reason, result: np.ndarray, tries: int
) -> _Match | None:
    """The match if a result explains a block, also its elements that are right.

    Other values than the right ones have the same relative bound, as far as is known.
    """
    if result.shape != wrong.shape:
        return None
    value, right = result[wrong.tile], wrong.right
    with np.errstate(all="ignore"):
        if right.bound is None:
            faulty = Expected(value.astype(wrong.values.dtype), None)
        else:
            sizes = np.abs(right.numbers)
            relative = right.bound[sizes > 0] / sizes[sizes > 0]
            usual = float(np.median(relative)) if relative.size else 0.0
            faulty = Expected(value, np.maximum(right.bound, usual * np.abs(value)))
        if not explains(wrong.values, right, faulty, wrong.wrong, tries=tries):
            return None
        if not fits(wrong.values, faulty):
            return None
        return _Match(
            choice, reason, result, float(np.nansum(np.abs(wide(wrong.values) - faulty.numbers)))
        )


def altered_operation(wrong: Wrong) -> Iterator[Reason]:
    """The values of the oracle with one of its operations altered."""
    operations = wrong.subject.operations if wrong.output else None
    if operations is not None:
        yield from operations.explain(wrong)


def _watched(choose: Callable[[Iterator[Alteration]], Any], counts: Sequence[int]) -> type:
    """A class of arrays that asks before each operation with rules whether to alter it.

    Args:
        choose: Gets the alterations; returns what to compute instead, or None.
        counts: Numbers of parts of a sharded dimension.
    """

    class Watched(np.ndarray):
        added: tuple[Any, Any] | None = None
        root: Any = None
        of_squares = by_value = False

        def __array_ufunc__(
            self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any
        ) -> Any:
            given = tuple(map(plain, inputs))
            options = {name: plain(option) for name, option in options.items()}
            function = ufunc if method == "__call__" else getattr(ufunc, method)
            result = call((ufunc, method), function, given, options, inputs)
            if out is None:
                return result
            plain(out[0])[...] = plain(result)
            if isinstance(out[0], Watched):
                out[0].of_squares = getattr(result, "of_squares", False)
            return out[0]

        def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
            if function in RULES:
                given = tuple(map(plain, args))
                plain_options = {name: plain(option) for name, option in options.items()}
                return call(function, function, given, plain_options, args)
            result = super().__array_function__(function, types, args, options)
            return result.view(Watched) if type(result) is np.ndarray else result

        def __setitem__(self, key: Any, new: Any) -> None:
            mask = plain(key)
            if isinstance(mask, np.ndarray) and mask.dtype == bool:
                altered = choose(_weaker(_of_mask(mask, "x[mask] = ..."), [key]))
                mask = mask if altered is None else altered()
            super().__setitem__(mask, new)

    def plain(x: Any) -> Any:
        return x.view(np.ndarray) if isinstance(x, Watched) else x

    def call(name: Any, function: Any, args: Any, options: Any, inputs: Any = ()) -> Any:
        own = RULES[name](args, options, counts) if name in RULES else iter(())
        own = _weaker(own, inputs)
        altered = choose(itertools.chain(own, _epsilon_elsewhere(name, inputs)))
        result = function(*args, **options) if altered is None else altered()
        if not isinstance(result, (np.ndarray, np.generic)):
            return result
        array = np.asarray(result).view(Watched)
        if name == _ADD and np.ndim(args[1]) == 0:
            array.added = args
        if name == _SQRT:
            array.root = args[0]
        compared = isinstance(name, tuple) and name in COMPARISONS
        array.by_value = (compared and any(_of_values(x) for x in inputs)) or (
            array.dtype == bool and any(getattr(x, "by_value", False) for x in inputs)
        )
        array.of_squares = _is_square(name, args) or (
            name == (np.add, "reduce") and getattr(inputs[0], "of_squares", False)
        )
        return array

    return Watched


_ADD, _SQRT = (np.add, "__call__"), (np.sqrt, "__call__")


def _weaker(alterations: Iterator[Alteration], inputs: Sequence[Any]) -> Iterator[Alteration]:
    """Alterations with a kind that says less where another one would show the same.

    A division by n - 1 is that of a variance only if it divides squares; a mask that is computed
    from values may be an activation.
    """
    squares, by_value = (
        any(getattr(x, name, False) for x in inputs) for name in ("of_squares", "by_value")
    )
    for kind, text, new in alterations:
        if kind == Kind.VARIANCE and not squares:
            yield Kind.FACTOR, text, new
        else:
            yield Kind.UNKNOWN if kind == Kind.MASK and by_value else kind, text, new


def _of_values(x: Any) -> bool:
    """Whether an argument has fractions that were computed from the program's inputs."""
    return hasattr(x, "by_value") and x.ndim > 0 and x.dtype.kind in "fc"


def _is_square(name: Any, args: Any) -> bool:
    """Whether an operation squares numbers, or multiplies an array with itself turned round."""
    if name == (np.power, "__call__"):
        return np.ndim(args[1]) == 0 and args[1] == 2
    products = ((np.multiply, "__call__"), (np.matmul, "__call__"))
    return name == (np.square, "__call__") or (
        name in products and np.may_share_memory(args[0], args[1])
    )


def _epsilon_elsewhere(name: Any, inputs: Sequence[Any]) -> Iterator[Alteration]:
    """An epsilon that is added to a root instead of below it, or below it instead of to it."""
    if not inputs:
        return
    first, last = inputs[0], inputs[-1]
    added, square = getattr(first, "added", None), getattr(first, "root", None)
    if name == _SQRT and added is not None and _is_small(added[1]):
        value, epsilon = added
        text = f"with an epsilon of {float(epsilon):.3g} beside the root instead of under it"
        yield Kind.EPSILON, text, lambda: np.sqrt(value) + epsilon
    if name == _ADD and square is not None and _is_small(last):
        text = f"with an epsilon of {float(last):.3g} under the root instead of beside it"
        yield Kind.EPSILON, text, lambda: np.sqrt(square + last)


def _is_number(x: Any) -> bool:
    if x is None or np.ndim(x) or np.iscomplexobj(x):
        return False
    return bool(np.isfinite(x))


def _is_small(x: Any) -> bool:
    # An array without dimensions is a number that was computed.
    return not isinstance(x, np.ndarray) and _is_number(x) and 0 < abs(x) <= _SMALL


def _of_mask(mask: np.ndarray, name: str) -> Iterator[Alteration]:
    """A mask that is moved by one, or that keeps everything.

    One element in each line is a label or an index, which may be shifted.
    """
    for axis, by in itertools.product(range(mask.ndim), (1, -1)):
        if mask.shape[axis] > 2:
            at = np.clip(np.arange(mask.shape[axis]) - by, 0, mask.shape[axis] - 1)
            text = f"with the mask of {name} moved by {by:+d} along dimension {axis}"
            is_label = bool((np.count_nonzero(mask, axis) <= 1).all())
            kind = Kind.UNKNOWN if is_label else Kind.MASK
            yield kind, text, lambda axis=axis, at=at: np.take(mask, at, axis)
    for value in np.unique(mask):
        text = f"with {value:.3g} everywhere instead of the mask of {name}"
        yield Kind.MASK, text, lambda value=value: np.full_like(mask, value)


def _where(args: Any, options: Any, counts: Sequence[int]) -> Iterator[Alteration]:
    if len(args) == 3:
        for kind, text, altered in _of_mask(np.asarray(args[0]), "where"):
            yield kind, text, lambda altered=altered: np.where(altered(), *args[1:])
        mask, *values = args
        for number, value in enumerate(values):
            if np.ndim(value) == 0 and value != 0:
                filled = [*values[:number], 0, *values[number + 1 :]]
                text = f"with 0 instead of {float(value):.3g} in where"
                yield Kind.MASK, text, lambda filled=filled: np.where(mask, *filled)


def _triangle(function: Any) -> Rule:
    def rule(args: Any, options: Any, counts: Sequence[int]) -> Iterator[Alteration]:
        k = options.get("k", args[1] if len(args) > 1 else 0)
        for by in (1, -1):
            text = f"with k = {k + by} instead of {k} in {function.__name__}"
            yield Kind.MASK, text, lambda by=by: function(args[0], k + by)

    return rule


def _comparison(ufunc: Any) -> Rule:
    """A comparison of whole numbers that is off by one; equal ones may be shifted labels."""
    kind = Kind.UNKNOWN if ufunc is np.equal else Kind.MASK

    def rule(args: Any, options: Any, counts: Sequence[int]) -> Iterator[Alteration]:
        if all(np.asarray(x).dtype.kind in "iu" for x in args):
            for by in (1, -1):
                text = f"with numbers in {ufunc.__name__} that are off by {by:+d}"
                yield kind, text, lambda by=by: ufunc(args[0], args[1] + by)

    return rule


def _is_mask(x: Any) -> bool:
    """Whether a factor or a summand is a mask: an array of zeros and one other value."""
    values = np.asarray(x)
    return (
        values.ndim > 0 and values.size > 2 and len(found := np.unique(values)) == 2 and 0 in found
    )


def _factor(ufunc: Any, inverse: Any) -> Rule:
    def rule(args: Any, options: Any, counts: Sequence[int]) -> Iterator[Alteration]:
        for number, constant in enumerate(args):
            rest = args[1 - number]
            if ufunc is np.divide and number == 0:
                continue
            if _is_number(constant) and np.ndim(rest) and constant not in (0, 1):
                yield from _other_factors(ufunc, inverse, rest, constant)
            elif ufunc is np.multiply and _is_mask(constant):
                for kind, text, altered in _of_mask(np.asarray(constant), ufunc.__name__):
                    yield kind, text, lambda rest=rest, a=altered: rest * a()

    return rule


def _other_factors(ufunc: Any, inverse: Any, x: Any, constant: Any) -> Iterator[Alteration]:
    """A constant factor that is left out, used twice, or used the other way round."""
    c, own, other = float(constant), _NAMES[ufunc], _NAMES[inverse]
    yield Kind.FACTOR, f"without its {own} by {c:.6g}", lambda: x * 1
    yield Kind.FACTOR, f"with its {own} by {c:.6g} done twice", lambda: ufunc(ufunc(x, c), c)
    yield Kind.FACTOR, f"with {other} by {c:.6g} instead of {own}", lambda: inverse(x, c)
    yield Kind.FACTOR, f"with {own} by {-c:.6g} instead of {c:.6g}", lambda: ufunc(x, -c)
    if ufunc is np.divide and c > 2 and c.is_integer():
        text = f"with division by {c - 1:.0f} instead of {c:.0f}"
        yield Kind.VARIANCE, text, lambda: x / (c - 1)


_NAMES = {np.multiply: "multiplication", np.divide: "division"}


def _other_sign(ufunc: Any, other: Any) -> Rule:
    def rule(args: Any, options: Any, counts: Sequence[int]) -> Iterator[Alteration]:
        text = f"with {other.__name__} instead of {ufunc.__name__}"
        yield Kind.FACTOR, text, lambda: other(*args)
        x, y = args
        if np.ndim(x) >= np.ndim(y) and not (_is_small(y) or _is_mask(y)):
            # A lost term that is a multiple of the rest would look like a factor.
            yield Kind.UNKNOWN, f"without the second operand of {ufunc.__name__}", lambda: x * 1
        if ufunc is np.add:
            yield from _summand(args, options, counts)

    return rule


def _summand(args: Any, options: Any, counts: Sequence[int]) -> Iterator[Alteration]:
    for number, constant in enumerate(args):
        rest = args[1 - number]
        if _is_small(constant) and np.ndim(rest):
            for other in _EPSILONS:
                if other != constant:
                    text = f"with an epsilon of {other:.3g} instead of {float(constant):.3g}"
                    yield Kind.EPSILON, text, lambda rest=rest, other=other: rest + other
        elif _is_mask(constant):
            for kind, text, altered in _of_mask(np.asarray(constant), "add"):
                yield kind, text, lambda rest=rest, a=altered: rest + a()


def _reduction(ufunc: Any) -> Rule:
    """A sum or extreme over one part of a dimension, without one, or along another dimension."""
    name = {np.add: "sum", np.maximum: "largest", np.minimum: "smallest"}[ufunc]

    def rule(args: Any, options: Any, counts: Sequence[int]) -> Iterator[Alteration]:
        x, given = np.asarray(args[0]), options.get("axis", 0)
        axes = tuple(range(x.ndim) if given is None else np.atleast_1d(given) % max(x.ndim, 1))

        def reduced(part: np.ndarray, over: Any = axes) -> Any:
            return ufunc.reduce(part, axis=over, keepdims=bool(options.get("keepdims")))

        for axis, n in itertools.product(axes, counts):
            if x.shape[axis] % n == 0:
                yield from _of_parts(name, x, axis, n, reduced)
        for other in range(x.ndim):
            if len(axes) == 1 and other != axes[0] and x.shape[other] == x.shape[axes[0]]:
                text = f"along dimension {other} instead of {axes[0]}"
                yield Kind.DIMENSION, text, lambda other=other: reduced(x, other)

    return rule


def _of_parts(
    name: str, x: np.ndarray, axis: int, n: int, reduced: Callable[[np.ndarray], Any]
) -> Iterator[Alteration]:
    """A sum or extreme of which devices have only their own part, or lack one."""
    missing = Kind.MISSING_REDUCTION
    for number, piece in enumerate(np.split(x, n, axis)):
        part = f"part {number} of {n} of dimension {axis}"
        yield missing, f"with the {name} over {part} only", lambda piece=piece: reduced(piece)
        if name == "sum":
            mean = f"with {n} times the sum over {part}, as a mean over it has"
            yield missing, mean, lambda piece=piece: reduced(piece) * n
            lost = f"with a sum that lacks {part}"
            yield Kind.PARTS, lost, lambda piece=piece: reduced(x) - reduced(piece)
    if name == "sum":
        # As a sum over devices with equal values has that is omitted or done twice.
        yield Kind.FACTOR, f"with {n} times the sum over dimension {axis}", lambda: reduced(x) * n


def _matmul(args: Any, options: Any, counts: Sequence[int]) -> Iterator[Alteration]:
    x, y = map(np.asarray, args)
    length, inner = x.shape[-1], max(y.ndim - 2, 0)
    for n in counts:
        if length % n:
            continue
        pieces = zip(np.split(x, n, -1), np.split(y, n, inner), strict=True)
        for number, (a, b) in enumerate(pieces):
            part = f"part {number} of {n} of the inner dimension"
            own = f"with a product over {part} only"
            yield Kind.MISSING_REDUCTION, own, lambda a=a, b=b: a @ b
            yield Kind.PARTS, f"with a product that lacks {part}", lambda a=a, b=b: x @ y - a @ b
    for number, factor in enumerate((x, y)):
        if factor.ndim > 1 and factor.shape[-1] == factor.shape[-2]:
            both = [x, y]
            both[number] = factor.swapaxes(-1, -2)
            text = f"with the {('first', 'second')[number]} factor of a product transposed"
            yield Kind.TRANSPOSED, text, lambda both=both: both[0] @ both[1]


def _roll(args: Any, options: Any, counts: Sequence[int]) -> Iterator[Alteration]:
    x, shift, axis = args[0], args[1], options.get("axis", args[2] if len(args) > 2 else None)
    if np.ndim(shift) == 0:
        for other in dict.fromkeys((shift + 1, shift - 1, -shift)):
            if other != shift:
                text = f"with a roll by {other} instead of {shift}"
                yield Kind.SHIFTED, text, lambda other=other: np.roll(x, other, axis)
    if np.ndim(shift) or np.ndim(axis) or axis is None:
        return
    for n in (1, *counts):
        if x.shape[axis] % n or abs(shift) >= x.shape[axis] // n:
            continue
        where = f"each of {n} parts of dimension {axis}" if n > 1 else f"dimension {axis}"
        inside = functools.partial(_rolled_inside, x, shift, axis, n)
        if n > 1:
            yield Kind.HALO, f"with a roll within {where}", functools.partial(inside, around=True)
        text = f"with zeros instead of what a roll brings into {where}"
        yield Kind.HALO, text, functools.partial(inside, around=False)


def _rolled_inside(x: np.ndarray, shift: int, axis: int, n: int, *, around: bool) -> np.ndarray:
    """Each of n parts rolled by itself: around its ends, or with zeros there."""
    rolled = [np.roll(part, shift, axis) for part in np.split(x, n, axis)]
    if not around:
        edge = slice(0, shift) if shift > 0 else slice(shift, None)
        for part in rolled:
            np.moveaxis(part, axis, 0)[edge] = 0
    return np.concatenate(rolled, axis)


RULES: dict[Any, Rule] = {
    np.where: _where,
    np.tril: _triangle(np.tril),
    np.triu: _triangle(np.triu),
    np.roll: _roll,
    (np.matmul, "__call__"): _matmul,
    (np.multiply, "__call__"): _factor(np.multiply, np.divide),
    (np.divide, "__call__"): _factor(np.divide, np.multiply),
    _ADD: _other_sign(np.add, np.subtract),
    (np.subtract, "__call__"): _other_sign(np.subtract, np.add),
} | {(ufunc, "reduce"): _reduction(ufunc) for ufunc in (np.add, np.maximum, np.minimum)}
COMPARISONS = {
    (ufunc, "__call__"): _comparison(ufunc)
    for ufunc in (np.less, np.less_equal, np.greater, np.greater_equal, np.equal)
}
RULES |= COMPARISONS
"""By function of NumPy, or ufunc and method."""
