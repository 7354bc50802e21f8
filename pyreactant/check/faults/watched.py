"""Arrays of NumPy that ask before each operation on them whether it shall differ."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..records.verdict import Kind
from . import neighbours
from .alteration import Alteration, Cuts
from .neighbours import Moved
from .rules import (
    ADDITIONS,
    COMPARISONS,
    DIVIDE,
    LOG,
    MULTIPLY,
    POWER,
    RULES,
    SQRT,
    SUM,
    Call,
    is_epsilon,
    of_mask,
)

Pick = Callable[[int, Iterator[Alteration]], Callable[[], Any] | None]
"""What to compute instead of an operation, by its number and its alterations; None if it stays."""


class Replay:
    """One run of an oracle on arrays that number the operations on them.

    Args:
        pick: Chooses what differs.
        cuts: How a mesh may cut arrays.

    Attributes:
        guards: The numbers of the additions whose result is below a root, a logarithm or a
            fraction.
    """

    def __init__(self, pick: Pick, cuts: Cuts) -> None:
        self._pick, self.cuts = pick, cuts
        self.guards: set[int] = set()
        self.step = -1
        self._earlier: dict[Any, Moved] = {}

    def ask(self, ways: Iterator[Alteration]) -> Callable[[], Any] | None:
        """What to compute instead of the next operation; None if it stays."""
        self.step += 1
        return self._pick(self.step, ways)

    def moves(self, moved: Moved | None) -> Iterator[Alteration]:
        """The alterations of an operation that moves elements along a dimension."""
        if moved is None:
            return iter(())
        key = moved.axis, moved.by, moved.result.shape
        earlier, self._earlier[key] = self._earlier.get(key), moved
        return neighbours.alterations(moved, self.cuts, earlier)

    def of_class(self) -> type:
        """The class of arrays whose operations are asked for."""
        return _watched(self)


def _watched(replay: Replay) -> type:
    class Watched(np.ndarray):
        added: tuple[Any, Any] | None = None
        sum_step: int | None = None
        root: Any = None
        taken: tuple[np.ndarray, Any] | None = None
        padding: tuple[int, ...] = ()
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
            if function is np.concatenate:
                return joined(*args, **options)
            if function in RULES:
                given = tuple(map(plain, args))
                plain_options = {name: plain(option) for name, option in options.items()}
                return call(function, function, given, plain_options, args)
            if function is np.linalg.norm and _of_squares(args, options):
                return np.sqrt(np.sum(args[0] * args[0], **options))
            result = super().__array_function__(function, types, args, options)
            return result.view(Watched) if type(result) is np.ndarray else result

        def __getitem__(self, key: Any) -> Any:
            result = super().__getitem__(key)
            if not isinstance(result, Watched) or not _of_slices(key):
                return result
            padding = self.padding or (0,) * (2 * self.ndim)
            moved = neighbours.of_slices(plain(self), key, padding, plain(result))
            altered = replay.ask(replay.moves(moved))
            if altered is not None:
                result = altered().view(Watched)
            result.taken = plain(self), key
            return result

        def __setitem__(self, key: Any, new: Any) -> None:
            mask = plain(key)
            if isinstance(mask, np.ndarray) and mask.dtype == bool:
                by_value = getattr(key, "by_value", False)
                altered = replay.ask(of_mask(mask, "x[mask] = ...", by_value=by_value))
                mask = mask if altered is None else altered()
            elif isinstance(new, Watched) and _of_slices(key):
                moved = neighbours.of_write(plain(self), key, plain(new), new.taken)
                altered = replay.ask(replay.moves(moved))
                new = new if altered is None else altered()
            super().__setitem__(mask, new)

        def cumsum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
            return np.cumsum(self, axis=axis, dtype=dtype, out=out)

    def plain(x: Any) -> Any:
        return x.view(np.ndarray) if isinstance(x, Watched) else x

    def call(name: Any, function: Any, args: Any, options: Any, inputs: Any) -> Any:
        called = Call(args, options, inputs, replay.cuts)
        ways = [RULES[name](called)] if name in RULES else []
        if name is np.roll:
            moved = neighbours.of_roll(args[0], called.given("shift", 1), called.given("axis", 2))
            ways.append(replay.moves(moved))
        altered = replay.ask(itertools.chain(*ways, _epsilon_elsewhere(name, inputs)))
        result = function(*args, **options) if altered is None else altered()
        guarded = {SQRT: 0, LOG: 0, POWER: 0, DIVIDE: 1}.get(name)
        if guarded is not None and getattr(inputs[guarded], "sum_step", None) is not None:
            replay.guards.add(inputs[guarded].sum_step)
        if not isinstance(result, (np.ndarray, np.generic)):
            return result
        array = np.asarray(result).view(Watched)
        if name in ADDITIONS:
            array.added, array.sum_step = args, replay.step
        if name == SQRT:
            array.root = args[0]
        if name is np.pad:
            array.padding = _padding(args[0], called.given("pad_width", 1))
        compared = isinstance(name, tuple) and name in COMPARISONS
        array.by_value = (compared and any(_of_values(x) for x in inputs)) or (
            array.dtype == bool and any(getattr(x, "by_value", False) for x in inputs)
        )
        array.of_squares = _is_square(name, args) or (
            _scales(name, args) and any(getattr(x, "of_squares", False) for x in inputs)
        )
        return array

    def joined(arrays: Any, axis: Any = 0, **options: Any) -> Any:
        """Arrays that are joined; one of them may be moved, or padded with the others."""
        arrays = [*map(np.asanyarray, arrays)]
        whole = np.concatenate([*map(plain, arrays)], axis, **options)
        if axis is None:
            return whole.view(Watched)
        axis, offset = axis % whole.ndim, 0
        largest = max(arrays, key=lambda array: array.shape[axis])
        for array in arrays:
            if array is largest:
                break
            offset += array.shape[axis]
        length = whole.shape[axis]
        moved, padding = None, ()
        if 2 * largest.shape[axis] > length:
            taken = getattr(largest, "taken", None)
            moved = neighbours.of_part(whole, axis, offset, length, taken)
            rest = length - offset - largest.shape[axis]
            padding = tuple(n * (d == axis) for d in range(whole.ndim) for n in (offset, rest))
        altered = replay.ask(replay.moves(moved))
        result = (whole if altered is None else altered()).view(Watched)
        if moved is None:
            result.padding = padding
        return result

    return Watched


def _of_slices(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return bool(parts) and all(isinstance(part, slice) for part in parts)


def _of_squares(args: Any, options: Any) -> bool:
    """Whether a norm is the root of a sum of squares."""
    return len(args) == 1 and set(options) <= {"axis", "keepdims"} and args[0].dtype.kind == "f"


def _padding(x: Any, width: Any) -> tuple[int, ...]:
    """Elements before and after each dimension of an array that was padded."""
    if isinstance(width, dict):
        return ()
    return tuple(int(n) for n in np.broadcast_to(width, (np.ndim(x), 2)).ravel())


def _of_values(x: Any) -> bool:
    """Whether an argument has fractions that were computed from the program's inputs."""
    return hasattr(x, "by_value") and x.ndim > 0 and x.dtype.kind in "fc"


def _is_square(name: Any, args: Any) -> bool:
    """Whether an operation squares numbers, or multiplies an array with itself turned round."""
    if name == POWER:
        return np.ndim(args[1]) == 0 and args[1] == 2
    products = (MULTIPLY, (np.matmul, "__call__"))
    return name == (np.square, "__call__") or (
        name in products and np.may_share_memory(args[0], args[1])
    )


def _scales(name: Any, args: Any) -> bool:
    """Whether an operation adds numbers up, or multiplies or divides them by one number."""
    if name == MULTIPLY:
        return not all(map(np.ndim, args))
    return name == SUM or (name == DIVIDE and not np.ndim(args[1]))


def _epsilon_elsewhere(name: Any, inputs: Sequence[Any]) -> Iterator[Alteration]:
    """An epsilon that is added to a root instead of below it, or below it instead of to it."""
    if not inputs:
        return
    first, last = inputs[0], inputs[-1]
    added, square = getattr(first, "added", None), getattr(first, "root", None)
    if name == SQRT and added is not None and is_epsilon(added[1], guards=True):
        value, epsilon = added
        text = f"with an epsilon of {float(epsilon):.3g} beside the root instead of under it"
        yield Alteration(Kind.EPSILON, text, lambda: np.sqrt(value) + epsilon)
    if name == ADDITIONS[0] and square is not None and is_epsilon(last, guards=True):
        text = f"with an epsilon of {float(last):.3g} under the root instead of beside it"
        yield Alteration(Kind.EPSILON, text, lambda: np.sqrt(square + last))
