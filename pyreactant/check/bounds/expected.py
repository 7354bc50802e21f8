"""The expected values of a block or a tile."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.dtypes import wide
from ...arrays.sharding import Index
from .model import ulp
from .typical import Typical


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected values of a block or a tile.

    Attributes:
        value: Exact values in float64 or complex128; in the result's dtype if results must be
            equal bit for bit.
        bound: Bound on the rounding error; None if results must be equal.
        last_rounding: Whether `bound` includes the final rounding of the result; if not, one
            unit in the last place is allowed in addition.
        usual: Usual size of the rounding error; None if unknown.
        may_overflow: Where infinity is right because a partial sum may overflow although
            `value` is finite; None if nowhere.
        estimated: Why `bound` is estimated; "" if it is derived.
        absolute: The oracle's values for the absolute values of its inputs, if all values are
            zero: their size, before they cancel.
        float32_products: Whether the check formed large products in float32.
        typical: How far right results usually are from `value`; None if unknown.
    """

    value: np.ndarray
    bound: np.ndarray | None
    last_rounding: bool = False
    usual: np.ndarray | None = None
    may_overflow: np.ndarray | None = None
    estimated: str = ""
    absolute: np.ndarray | None = None
    float32_products: bool = False
    typical: Typical | None = None

    @property
    def exact(self) -> bool:
        """Whether results must be equal."""
        return self.bound is None

    @property
    def numbers(self) -> np.ndarray:
        """The values in float64 or complex128."""
        return wide(np.asarray(self.value))

    def part(self, inside: Index) -> "Expected":
        """A part of the tile."""
        names = ("value", "bound", "usual", "may_overflow", "absolute")
        arrays = {name: getattr(self, name) for name in names}
        cut = {name: array[inside] for name, array in arrays.items() if array is not None}
        typical = None if self.typical is None else self.typical.part(inside)
        return replace(self, typical=typical, **cut)

    def limited(self, got: np.ndarray) -> "Expected":
        """What the results `got` must be, within the bound and the typical limit."""
        assert self.bound is not None
        assert self.typical is not None
        value = self.typical.near(got)
        with np.errstate(all="ignore"):
            # The oracle's conversions to shorter types are roundings of the runs alone.
            derived = self.bound + np.where(value == self.value, 0.0, np.abs(value - self.value))
        finite = np.isfinite(value)
        bound = np.where(finite, np.minimum(derived, self.typical.limit), self.bound)
        return replace(self, value=value, bound=bound, last_rounding=False, typical=None)

    def allowed(self, dtype: np.dtype[Any]) -> np.ndarray:
        """The tolerance of each element for results of this dtype."""
        assert self.bound is not None
        if self.last_rounding or dtype.kind in "biu":
            return self.bound
        with np.errstate(all="ignore"):
            # One unit in the last place, so that a neighbouring number passes too; two for
            # complex numbers, one for each part.
            last = ulp(np.abs(self.value) + self.bound, dtype)
            return self.bound + (2 * last if dtype.kind == "c" else last)
