"""Model: how a runtime rounds, as far as an error bound needs to know it.

docs/checks.md says where each number comes from.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.dtypes import as_dtype, finfo
from .product import INPUT_ROUNDOFF, SHORT

_ORACLE = 2.0**-53
"""Unit roundoff of the oracle itself; what is checked may be as exact as that."""

# Error of functions in unit roundoffs (half units in the last place): what XLA's exhaustive
# tests of its CPU and GPU compilers allow (xla/tests/exhaustive); docs/checks.md has more.
_FUNCTIONS = {
    "divide": 4.0,
    "sqrt": 4.0,
    "rsqrt": 4.0,
    "sin": 4.0,
    "cos": 4.0,
    "arctan": 40.0,
    "exp": 40.0,
    "expm1": 40.0,
    "log": 40.0,
    "log1p": 40.0,
    "tanh": 40.0,
    "sinh": 40.0,
    "cosh": 40.0,
    "arctan2": 40.0,
    "hypot": 8.0,
}

_SHORT_FUNCTION, _ON_CPU = 4.0, 1.0
"""The same of a type shorter than float32, beside what float32 has. XLA's CPU compiler computes
functions of such types in float32 and rounds once; others may have a unit that is exact to 2 ulp.
"""

_OF_SUM, _OF_NORM, _STRAY = 4.2, 30.5, 6.0
"""Of random walks, see `Model.sum_error`; docs/checks.md derives them."""


@dataclass(frozen=True, slots=True)
class Model:
    """Roundoffs of one element type on one platform with one precision asked for.

    Attributes:
        dtype: Element type of arrays.
        roundoff: What storing a result does to it, relative to its size.
        sum_roundoff: The same for the running sums of reductions and products.
        operand_roundoff: The same for operands of products, where they are rounded first.
        partials: Over how many devices a sum may be cut, at most; each may round its part.
        short_function: Error of functions in roundoffs, where the type is short: see `function`.
        random: Whether sums run over data without structure, so that rounding errors of sums
            have random signs. Never assumed of a user's program.
    """

    dtype: np.dtype[Any]
    roundoff: float
    sum_roundoff: float
    operand_roundoff: float = 0.0
    partials: int = 1
    random: bool = False
    short_function: float = _SHORT_FUNCTION

    @classmethod
    def of(
        cls,
        dtype: Any,
        *,
        platform: str = "cpu",
        precision: str | None = "highest",
        partials: int = 1,
        random: bool = False,
    ) -> "Model":
        """The model of a float or complex type.

        Args:
            dtype: Element type; its name or anything NumPy takes.
            platform: "cpu", "gpu" or "tpu".
            precision: Of products, as asked for; None counts as "default".
            partials: Number of devices over which sums may be cut.
            random: See the attribute.
        """
        found = as_dtype(dtype)
        own = float(finfo(found).eps) / 2 + _ORACLE
        short = found.itemsize < SHORT
        sums = float(np.finfo(np.float32).eps) / 2 + _ORACLE if short else own
        operand = 0.0
        if found.name in ("float32", "complex64"):
            operand = INPUT_ROUNDOFF.get((platform, precision or "default"), 0.0)
        functions = _ON_CPU if platform == "cpu" else _SHORT_FUNCTION
        return cls(found, own, sums, operand, partials, random, functions)

    @property
    def tiny(self) -> float:
        """What underflow, or flushing it to zero, may add to a result."""
        return float(finfo(self.dtype).tiny)

    @property
    def largest(self) -> float:
        """Largest finite number; beyond it infinity is right."""
        return float(finfo(self.dtype).max)

    def function(self, name: str, is_complex: bool = False) -> float:
        """Relative error of an elementary function; KeyError for one that is not known."""
        ulps, parts = _FUNCTIONS[name], 2 if is_complex else 1
        if self.sum_roundoff != self.roundoff:
            return (ulps * self.sum_roundoff + self.short_function * self.roundoff) * parts
        return ulps * self.roundoff * parts

    def multiply(self, is_complex: bool) -> float:
        """Relative error of one product of two elements."""
        return self.roundoff * (4 if is_complex else 1)

    def sum_error(self, n: Any, absolute: Any, result: Any, norm: Any) -> Any:
        """Error of sums of n numbers, in any order.

        ``gamma_n`` times the sums of absolute values (Higham, eq. 4.4), which holds for any
        numbers. With `random`, partial sums are walks: m of the n numbers add up to m/n of the
        result and some six deviations, and the rounding errors of all partial sums to seven.

        Args:
            n: How many numbers; an array where that differs.
            absolute: Sum of their absolute values.
            result: Absolute value of their sum.
            norm: Their Euclidean norm.
        """
        u = self.sum_roundoff
        worst = self._rounded_parts(_gamma(n, u) * absolute, absolute)
        if not self.random:
            return worst
        walk = np.sqrt(n) * u * (_OF_SUM * result + _OF_NORM * norm)
        return np.minimum(worst, self._rounded_parts(walk, result + _STRAY * norm))

    def _rounded_parts(self, error: Any, size: Any) -> Any:
        """Short results are rounded on each device, and when two devices' parts are added."""
        if self.sum_roundoff == self.roundoff:
            return error
        return error + self.partials * self.roundoff * (size + error)

    def product_error(self, n: Any, absolute: Any, result: Any, norm: Any, parts: bool) -> Any:
        """The same for sums of n products; `parts` says that they are complex."""
        error = self.sum_error(n, absolute, result, norm)
        operands = self.operand_roundoff * (2 + self.operand_roundoff)
        return (error + operands * (absolute + error)) * (4 if parts else 1)

    def constant(self, value: np.ndarray) -> np.ndarray:
        """How far constants of an oracle are from those that the type holds."""
        if value.dtype.kind in "biu":
            return np.zeros(value.shape)
        with np.errstate(all="ignore"):
            complex_too = value.dtype.kind == "c" and self.dtype.kind != "c"
            kind = np.result_type(self.dtype, np.complex64) if complex_too else self.dtype
            held = value.astype(kind).astype(value.dtype)
            return np.where(np.isfinite(value), np.abs(held - value), 0.0)


def _gamma(n: Any, roundoff: float) -> Any:
    """N roundings at most, one after the other, also of numbers that are rounded already."""
    total = np.asarray(n) * roundoff
    return np.where(total < 1, total / (1 - total), np.inf)
