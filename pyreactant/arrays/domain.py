"""Domain: what a program does with its elements, and on which inputs it is defined."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import InvalidArgumentError

SPECIAL = ("nan", "inf", "-inf", "zero", "denormal")
"""Kinds of special values: "inf" means both infinities, "zero" both signed zeros."""

SUMS_IN = ("float32", "result")
"""In which type a program adds numbers of two bytes."""

ALL_EXPONENTS = (-20, 20)
"""The widest range of wide inputs, before the limits of the element type."""

Kinds = Sequence[str]


@dataclass(frozen=True, slots=True)
class Domain:
    """What a cross-check may give a program beyond random numbers in [-1, 1).

    Of a user's program, a statement about what it does is tried on its oracle first: one that is
    wrong is an error. Its bodies must compute in the same way.

    Args:
        moves: Whether results are elements of the arguments or constants, unchanged, as in a
            transpose, a roll or a gather. They must then have equal bits.
        sums: Whether results are sums of products of the arguments' elements, with weights that
            are whole numbers or those over a power of two. Such a program also runs on whole
            numbers for which its results are exact.
        degree: The most factors in a product: 1 for a sum, 2 for a matrix product. Of a program
            without `sums`, the degree of its largest partial result as a polynomial in the inputs.
        special: Special values that the program treats as its oracle does: "nan", "inf" (both
            infinities), "-inf", "zero" (both signed zeros) and "denormal", which arithmetic may
            flush to zero. ("nan", "inf") is for all arguments, {0: ("nan",)} for one by its number.
            None stands for ("nan", "inf") if the program moves elements without comparing them, and
            for none otherwise.
        exponents: (low, high): inputs have magnitudes from 2^low up to 2^high, or fewer: at most
            from 2^-20 to 2^20, and so that nothing overflows. None stands for (-20, 20) with
            `moves` or `sums`, where all are right, and for (-12, 0) otherwise, as ordinary inputs
            are below 1.
        sums_in: What a program adds numbers of two bytes in: "float32", as runtimes do by default,
            or "result", the short type of its result, as `jnp.cumsum` of bfloat16 does. Its
            results are then less accurate, and errors are seen less.

    Raises:
        InvalidArgumentError: A value has another form, or two statements contradict each other.

    Examples:
        >>> shift = pr.Program(
        ...     "shift",
        ...     jax=lambda x: jnp.roll(x, 1, 0),
        ...     oracle=lambda x: np.roll(x, 1, 0),
        ...     inputs=(("n", "n"),),
        ...     domain=pr.Domain(moves=True),
        ... )
        >>> product = pr.Domain(sums=True, degree=2, special={0: ("nan",)})
    """

    moves: bool = False
    sums: bool = False
    degree: int = 1
    special: Mapping[int, Kinds] | Sequence[tuple[int, Kinds]] | Kinds | None = None
    exponents: tuple[int, int] | None = None
    sums_in: str = SUMS_IN[0]

    def __post_init__(self) -> None:
        if self.sums_in not in SUMS_IN:
            raise InvalidArgumentError(
                f"Domain: sums_in= must be {' or '.join(map(repr, SUMS_IN))}, got {self.sums_in!r}"
            )
        for name in ("moves", "sums"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgumentError(
                    f"Domain: {name}= must be True or False, got {getattr(self, name)!r}"
                )
        if self.moves and self.sums:
            raise InvalidArgumentError(
                "Domain: moves=True says that no result is a sum, and sums=True that results are "
                "sums; give one of them"
            )
        if not _is_whole(self.degree) or not 1 <= self.degree <= 16:
            raise InvalidArgumentError(
                "Domain: degree= must be the most factors in a product, a whole number from 1 to "
                f"16, got {self.degree!r}"
            )
        object.__setattr__(self, "special", _specials(self.special))
        object.__setattr__(self, "exponents", _range(self.exponents))

    def specials(self, number: int, kind: str) -> tuple[str, ...]:
        """Kinds of special values that an argument may hold.

        Args:
            number: Number of the argument.
            kind: What it holds (`Input.kind`). What holds no data must be named by its number.
        """
        stated: Any = self.special
        if stated is None:
            return ("nan", "inf") if self.moves and kind == "uniform" else ()
        if stated and not isinstance(stated[0], str):
            return dict(stated).get(number, ())
        return stated if kind in ("uniform", "compared") else ()

    @property
    def magnitudes(self) -> tuple[int, int]:
        """Range [low, high) of the binary exponents of wide inputs."""
        return self.exponents or (ALL_EXPONENTS if self.moves or self.sums else (-12, 0))

    @property
    def special_arguments(self) -> tuple[int, ...]:
        """Numbers of the arguments that `special` names."""
        stated: Any = self.special or ()
        return () if stated and isinstance(stated[0], str) else tuple(n for n, _ in stated)


def _specials(given: Any) -> Any:
    """Special values as tuples, so that a program can be the key of a cache."""
    if given is None:
        return None
    if _are_kinds(given):
        return tuple(given)
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if isinstance(pairs, (tuple, list)) and all(map(_is_pair, pairs)):
        return tuple((number, tuple(kinds)) for number, kinds in sorted(pairs))
    known = ", ".join(map(repr, SPECIAL))
    raise InvalidArgumentError(
        "Domain: special= must be kinds of special values for all arguments, such as "
        f"('nan', 'inf'), or for some by their number, such as {{0: ('nan',)}}, got {given!r}; "
        f"kinds are {known}"
    )


def _is_pair(pair: Any) -> bool:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        return False
    number, kinds = pair
    return _is_whole(number) and number >= 0 and _are_kinds(kinds)


def _are_kinds(given: Any) -> bool:
    return isinstance(given, (tuple, list)) and all(
        isinstance(kind, str) and kind in SPECIAL for kind in given
    )


def _range(given: Any) -> tuple[int, int] | None:
    if given is None:
        return None
    if isinstance(given, (tuple, list)) and len(given) == 2 and all(map(_is_whole, given)):
        low, high = given
        if -_FARTHEST <= low < high <= _FARTHEST:
            least, most = ALL_EXPONENTS
            if low >= most or high <= least:
                raise InvalidArgumentError(
                    f"Domain: exponents= must overlap {(least, most)}, the widest range of wide "
                    f"inputs, got {given!r}"
                )
            return low, high
    raise InvalidArgumentError(
        "Domain: exponents= must be (low, high), two whole numbers with low < high from "
        f"-{_FARTHEST} to {_FARTHEST}, for magnitudes from 2^low up to 2^high, got {given!r}"
    )


_FARTHEST = 1024
"""The exponent of the largest float64."""


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
