"""What a cross-check gives a program: the shape of each argument, ranges of numbers, and trees."""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..base.errors import InvalidArgumentError

Shape = tuple[str | int, ...]
"""Whole numbers from 1, and "n" or multiples such as "4n", where n is the size of the run."""


@dataclass(frozen=True, slots=True)
class Integers:
    """An argument of random whole numbers in a cross-check, such as labels, indices or counts.

    Its element type is int32, whatever type the program runs in.

    Args:
        low: The smallest number.
        high: The end of the range, which is no number of it.
        shape: Shape of the argument; a vector of n by default.

    Raises:
        InvalidArgumentError: The range is empty or beyond int32, or the shape has another form.

    Examples:
        >>> @pr.program(oracle=lambda x, at: x[at], inputs=(("n", 8), pr.Integers(0, 4)))
        ... def rows(x, at):
        ...     return x[at]
        >>> rows.inputs[1].high
        4
    """

    low: int
    high: int
    shape: Shape = ("n",)
    kind: str = field(default="integers", init=False, repr=False)

    def __post_init__(self) -> None:
        whole = all(type(end) is int for end in (self.low, self.high))
        if not whole or not -(2**31) <= self.low < self.high <= 2**31:
            raise InvalidArgumentError(
                "Integers takes the ends of a range within int32, two whole numbers with low < "
                f"high, got {self.low!r} and {self.high!r}"
            )
        object.__setattr__(self, "shape", _shape("Integers", self.shape))


@dataclass(frozen=True, slots=True)
class Uniform:
    """An argument of random numbers of a range in a cross-check, such as probabilities.

    Its element type is the program's, or its real partner; float32 for programs of integers.

    Args:
        low: The smallest number.
        high: The end of the range, which is no number of it.
        shape: Shape of the argument; a vector of n by default.

    Raises:
        InvalidArgumentError: The range is empty or not finite, or the shape has another form.

    Examples:
        >>> pr.Uniform(0, 1, shape=("n", "n"))
        Uniform(low=0.0, high=1.0, shape=('n', 'n'))
    """

    low: float
    high: float
    shape: Shape = ("n",)
    kind: str = field(default="uniform", init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            end = getattr(self, name)
            number = isinstance(end, (int, float)) and not isinstance(end, bool)
            if not number or not math.isfinite(end):
                raise InvalidArgumentError(f"Uniform: {name} must be a finite number, got {end!r}")
            object.__setattr__(self, name, float(end))
        if not self.low < self.high:
            raise InvalidArgumentError(
                f"Uniform must have low < high, got {self.low!r} and {self.high!r}"
            )
        object.__setattr__(self, "shape", _shape("Uniform", self.shape))


@dataclass(frozen=True, slots=True)
class Named:
    """A dict of arguments, or of the parts of one argument, that can be hashed.

    Attributes:
        names: The keys, in order.
        parts: What each holds.
    """

    names: tuple[str, ...]
    parts: tuple["Entry", ...]
    kind: str = field(default="dict", init=False, repr=False)


Entry = Shape | Integers | Uniform | Named
"""One argument: its shape, a range, or a dict of these."""


def entries(name: str, given: Any) -> tuple[Entry, ...] | Named:
    """The arguments as data that can be hashed, so that a program can be the key of a cache.

    Args:
        name: Name of the program, for the message.
        given: One entry for each argument, or a dict of them by the arguments' names.

    Raises:
        InvalidArgumentError: They have another form.
    """
    try:
        if isinstance(given, (Named, Mapping)):
            return _named(given)
        if isinstance(given, (tuple, list)):
            return tuple(map(_entry, given))
    except ValueError:
        pass
    raise InvalidArgumentError(
        f"Program {name!r}: inputs= must be one shape per argument, of whole numbers from 1 and "
        f"'n' or multiples such as '4n', for instance (('n', '4n'), ('4n',)), got {given!r}; in "
        "place of a shape it may be pyreactant.Integers, pyreactant.Uniform, or a dict of these"
    )


def _entry(given: Any) -> Entry:
    if isinstance(given, (Integers, Uniform)):
        return given
    if isinstance(given, (Named, Mapping)):
        return _named(given)
    if isinstance(given, (tuple, list)) and all(map(_is_size, given)):
        return tuple(given)
    raise ValueError


def _named(given: Named | Mapping[Any, Any]) -> Named:
    if isinstance(given, Named):
        return given
    if not given or not all(isinstance(key, str) and key for key in given):
        raise ValueError
    return Named(tuple(given), tuple(map(_entry, given.values())))


def _shape(what: str, given: Any) -> Shape:
    if isinstance(given, (tuple, list)) and all(map(_is_size, given)):
        return tuple(given)
    raise InvalidArgumentError(
        f"{what}: shape= must have whole numbers from 1 and 'n' or multiples such as '4n', for "
        f"instance ('n', 8), got {given!r}"
    )


def _is_size(entry: Any) -> bool:
    if isinstance(entry, str):
        return re.fullmatch(r"([1-9][0-9]*)?n", entry) is not None
    return isinstance(entry, int) and not isinstance(entry, bool) and entry > 0


def check_names(name: str, inputs: Named, function: Callable[..., Any], field: str) -> None:
    """Check that a dict of all arguments has the names of a program's function, in their order.

    Args:
        name: Name of the program, for the message.
        inputs: The arguments.
        function: The function.
        field: What it is of the program.

    Raises:
        InvalidArgumentError: It has others.
    """
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # a function of C, which has no signature
        return
    names = tuple(parameter.name for parameter in parameters)
    any_number = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    if not any_number and names[: len(inputs.names)] != inputs.names:
        raise InvalidArgumentError(
            f"Program {name!r}: inputs= must name the arguments of {field}= in their order, "
            f"{', '.join(names)}, got {', '.join(inputs.names)}"
        )


def each(inputs: tuple[Entry, ...] | Named) -> tuple[Entry, ...]:
    """The entries of the arguments, in order."""
    return inputs.parts if isinstance(inputs, Named) else inputs


def flat(inputs: tuple[Entry, ...] | Named) -> list[tuple[str, Shape | Integers | Uniform]]:
    """Each array of the arguments, with its place in the words of a message."""
    if isinstance(inputs, Named):
        names: Sequence[str] = [f"argument {name!r}" for name in inputs.names]
    else:
        names = [f"argument {number}" for number in range(len(inputs))]
    return [leaf for both in zip(names, each(inputs), strict=True) for leaf in _leaves(*both)]


def _leaves(place: str, entry: Entry) -> Iterator[tuple[str, Shape | Integers | Uniform]]:
    if not isinstance(entry, Named):
        yield place, entry
        return
    for name, part in zip(entry.names, entry.parts, strict=True):
        yield from _leaves(f"{place}[{name!r}]", part)


def as_arguments(inputs: tuple[Entry, ...] | Named, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments with these arrays, which are in the order of `flat`.

    Without inputs, as of a StableHLO file, each array is an argument.
    """
    if not inputs:
        return tuple(arrays)
    left = iter(arrays)
    return tuple(_filled(entry, left) for entry in each(inputs))


def _filled(entry: Entry, left: Iterator[Any]) -> Any:
    if not isinstance(entry, Named):
        return next(left)
    return {n: _filled(part, left) for n, part in zip(entry.names, entry.parts, strict=True)}


def from_plain(plain: Any) -> Any:
    """The entries that `dataclasses.asdict` and JSON made of them."""
    if isinstance(plain, (tuple, list)):
        return tuple(map(from_plain, plain))
    if not isinstance(plain, Mapping):
        return plain
    kinds: dict[str, type] = {"integers": Integers, "uniform": Uniform, "dict": Named}
    made: type = kinds[plain["kind"]]
    given = {f.name: from_plain(plain[f.name]) for f in fields(made) if f.init}
    return made(**given)
