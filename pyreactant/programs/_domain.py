"""The inputs beyond the ordinary ones on which a program is defined."""

from collections.abc import Mapping
from dataclasses import dataclass, field

SPECIAL = ("nan", "inf", "-inf", "zero", "denormal")
"""Kinds of special values: "inf" means both infinities, "zero" both signed zeros."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Where a program is defined, so that its harder inputs overflow nowhere.

    Attributes:
        exponents: Range [low, high) of the binary exponents of wide inputs, so that elements are
            below ``2**high``; before the limits of the element type. None if there are none.
        degree: Degree of the largest partial result as a polynomial in the inputs; it bounds the
            exponents, because no partial result may overflow.
        special: Special values by the number of the input that may hold them.
        linear: Whether results are sums of products of inputs, and so exact for small whole
            numbers.
        lost_bits: Bits below the units that such results have, and the room that their partial
            sums need.
        moves: Whether the program only moves elements.
        assumed: Whether nothing is stated, as of a user's program: then wide inputs lie in [-1, 1)
            as ordinary ones do, integers stay small, and a program whose tolerance is estimated
            gets ordinary inputs only.
    """

    exponents: tuple[int, int] | None = None
    degree: int = 1
    special: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    linear: bool = False
    lost_bits: int = 0
    moves: bool = False
    assumed: bool = False


NONE = Domain()
"""A program that states nothing gets ordinary inputs only."""

ASSUMED = Domain((-12, 0), assumed=True)
"""A user's program: ordinary inputs lie in [-1, 1), and so do these."""

ALL_EXPONENTS = (-20, 20)

PRODUCT = Domain(ALL_EXPONENTS, degree=2, special={0: ("nan",)}, linear=True)
"""Infinities are left out: where a float32 is split into several bfloat16, they become NaN."""
