"""How a runtime rounds: the model of its rounding, and the tolerance of a sum and of a product.

docs/checks.md has the source of each number. How accurate elementary functions are, by platform and
TPU generation, are the tolerances of XLA's exhaustive tests (xla/tests/exhaustive of openxla/xla):
exhaustive_unary_test_functions.cc and exhaustive_binary_test_functions.cc. Only earlier versions
have the numbers for TPU, in the cases IsTpu, IsPreV6Tpu and IsPreV5Tpu; docs/checks.md lists them.
"""

import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...arrays.dtypes import as_dtype, finfo


class Accuracy(NamedTuple):
    """The largest error of a function: relative in unit roundoffs (half ulp), plus absolute."""

    relative: float
    absolute: float = 0.0


_CPU = {
    "divide": Accuracy(4),
    "sqrt": Accuracy(4),
    "rsqrt": Accuracy(4),
    "sin": Accuracy(4),
    "cos": Accuracy(4),
    "arctan": Accuracy(40),
    "exp": Accuracy(40),
    "expm1": Accuracy(40),
    "log": Accuracy(40),
    "log1p": Accuracy(40),
    "tanh": Accuracy(40),
    "sinh": Accuracy(40),
    "cosh": Accuracy(40),
    "arctan2": Accuracy(40),
    "hypot": Accuracy(8),
    "tan": Accuracy(8),
    "cbrt": Accuracy(140),  # 70 ulp in float64 on CPU, 16 elsewhere
    "arcsin": Accuracy(20),
    "arccos": Accuracy(40),
    "arcsinh": Accuracy(40),
    "arccosh": Accuracy(100, 1e-7),
    "arctanh": Accuracy(40),
}

_GPU = _CPU | {"arccos": Accuracy(20, 1e-6)}

_TPU = _GPU | {
    "arcsinh": Accuracy(2, 2e-4),
    "arccosh": Accuracy(2, 2e-4),
    "arctanh": Accuracy(2, 1e-4),
    "exp": Accuracy(66),
    "expm1": Accuracy(66),
    "log1p": Accuracy(2, 2e-4),
    "sinh": Accuracy(200, 1e-5),
    "cosh": Accuracy(200),
}

_TPU_BEFORE_V6 = _TPU | {
    "divide": Accuracy(68),
    "exp": Accuracy(150),
    "expm1": Accuracy(200, 1e-5),
    "log": Accuracy(2, 2e-4),
    "tanh": Accuracy(0, 5e-4),
}

_TPU_BEFORE_V5 = _TPU_BEFORE_V6 | {"divide": Accuracy(272)}


def accuracies(platform: str, kind: str) -> dict[str, Accuracy]:
    """The accuracy of each function on a platform.

    Args:
        platform: "cpu", "gpu" or "tpu".
        kind: The vendor's name of the device, such as "TPU v5 lite"; an unknown TPU gets the
            widest accuracies.
    """
    if platform != "tpu":
        return _GPU if platform == "gpu" else _CPU
    number = re.search(r"TPU ?v?(\d+)", kind)
    generation = int(number[1]) if number else 0
    return _TPU if generation >= 6 else _TPU_BEFORE_V6 if generation == 5 else _TPU_BEFORE_V5


EXPONENT = np.int64(0x7FF0_0000_0000_0000)
"""The bits of the exponent of a float64."""


def ulp(sizes: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """One unit in the last place of `dtype` at these absolute values (float64)."""
    info = finfo(dtype)
    # Clearing the mantissa gives the power of two below a number.
    powers = (np.asarray(sizes).view(np.int64) & EXPONENT).view(np.float64)
    return np.maximum(powers, float(info.tiny)) * float(info.eps)


SHORT = 4
"""Itemsize in bytes; XLA accumulates shorter floats in float32 on CPU, GPU and TPU."""

INPUT_ROUNDOFF = {
    ("gpu", "default"): 2.0**-11,
    ("gpu", "high"): 2.0**-11,
    ("tpu", "default"): 2.0**-8,
    ("tpu", "high"): 2.0**-15,
    ("tpu", "highest"): 2.0**-22,
}
"""Unit roundoff to which float32 inputs are rounded before they are multiplied, by platform and
precision. From the JAX documentation of jax.default_matmul_precision; TPU "high" is three and
"highest" six bfloat16 passes."""

_ORACLE = 2.0**-53
"""Unit roundoff of the oracle, added because float64 results are as exact as the oracle."""

_FLOAT32 = float(np.finfo(np.float32).eps) / 2 + _ORACLE
"""Unit roundoff in which shorter types are added, and in which functions of them are computed."""

_SHORT_FUNCTION, _ON_CPU = 4.0, 1.0
"""Error of functions of shorter types, in their roundoffs, in addition to that of float32. XLA's
CPU compiler computes them in float32 and rounds once; other compilers may use hardware that is
accurate to 2 ulp.
"""

_OF_SUM, _OF_NORM = 4.2, 17.5
"""Factors for random walks, see `Model.sum_error`; docs/checks.md derives them."""

_LOG_CHANCE = 23.7
"""Minus the logarithm of 5e-11, the probability of a larger deviation of a random walk."""

_OF_WALK = 2.5
"""Largest root mean square of a random walk that returns to its start, over its length's root."""


@dataclass(frozen=True, slots=True)
class Model:
    """Roundoffs of one element type on one platform with one requested precision.

    Attributes:
        dtype: Element type of arrays.
        roundoff: Unit roundoff of stored results.
        sum_roundoff: Unit roundoff of the running sums of reductions and products.
        operand_roundoff: Unit roundoff of operands of products; 0 if they are not rounded.
        partials: Most devices that share a sum; each may round its partial sum.
        short_function: Error of functions in roundoffs if the type is short: see `function`.
        random: Whether sums run over data without structure, so that their rounding errors
            have random signs. Never assumed for a user's program.
        platform: "cpu", "gpu" or "tpu".
        kind: The vendor's name of the device, which tells TPU generations apart.
        sums_in: Type of the running sums of numbers of two bytes: `Domain.sums_in`.
    """

    dtype: np.dtype[Any]
    roundoff: float
    sum_roundoff: float
    operand_roundoff: float = 0.0
    partials: int = 1
    random: bool = False
    short_function: float = _SHORT_FUNCTION
    platform: str = "cpu"
    kind: str = ""
    sums_in: str = "float32"

    @classmethod
    def of(
        cls,
        dtype: Any,
        *,
        platform: str = "cpu",
        kind: str = "",
        precision: str | None = "highest",
        partials: int = 1,
        random: bool = False,
        sums_in: str = "float32",
    ) -> "Model":
        """The model of a float or complex type.

        Args:
            dtype: Element type; its name or anything NumPy takes.
            platform: "cpu", "gpu" or "tpu".
            kind: The vendor's name of the device, such as "TPU v6 lite".
            precision: Requested precision of products; None means "default".
            partials: Most devices that share a sum.
            random: Whether sums run over data without structure.
            sums_in: As the attribute.
        """
        numbers = as_dtype(dtype)
        own = float(finfo(numbers).eps) / 2 + _ORACLE
        short = numbers.itemsize < SHORT and sums_in != "result"
        sums = _FLOAT32 if short else own
        operand = 0.0
        if numbers.name in ("float32", "complex64"):
            operand = INPUT_ROUNDOFF.get((platform, precision or "default"), 0.0)
        functions = _ON_CPU if platform == "cpu" else _SHORT_FUNCTION
        return cls(
            dtype=numbers,
            roundoff=own,
            sum_roundoff=sums,
            operand_roundoff=operand,
            partials=partials,
            random=random,
            short_function=functions,
            platform=platform,
            kind=kind,
            sums_in=sums_in,
        )

    def cast(self, dtype: np.dtype[Any]) -> "Model":
        """The model of an array that the oracle converts to another float or complex type.

        It is that of the type if this is shorter. A longer type changes nothing, because the
        program may well compute in its own type what the oracle computes in a longer one.
        """
        if finfo(dtype).eps <= finfo(self.dtype).eps:
            return self
        return Model.of(
            dtype,
            platform=self.platform,
            kind=self.kind,
            partials=self.partials,
            random=self.random,
            sums_in=self.sums_in,
        )

    @property
    def tiny(self) -> float:
        """Largest error of a result from underflow or flushing to zero."""
        return float(finfo(self.dtype).tiny)

    @property
    def largest(self) -> float:
        """Largest finite number; beyond it infinity is right."""
        return float(finfo(self.dtype).max)

    @property
    def is_short(self) -> bool:
        """Whether the type is shorter than float32, which its functions are then computed in."""
        return self.dtype.itemsize < SHORT

    @property
    def inner_roundoff(self) -> float:
        """Unit roundoff in which functions are computed."""
        return _FLOAT32 if self.is_short else self.roundoff

    @property
    def rounds_products(self) -> bool:
        """Whether products by a vector are rounded before they are added."""
        return self.platform == "gpu" and self.sum_roundoff != self.roundoff

    def function(self, name: str, is_complex: bool = False) -> Accuracy:
        """Relative and absolute error of an elementary function; KeyError if it is unknown."""
        known, parts = accuracies(self.platform, self.kind)[name], 2 if is_complex else 1
        relative = known.relative * self.inner_roundoff
        if self.is_short:
            relative += self.short_function * self.roundoff
        return Accuracy(relative * parts, known.absolute * parts)

    def multiply(self, is_complex: bool) -> float:
        """Relative error of one product of two elements."""
        return self.roundoff * (4 if is_complex else 1)

    def sum_error(self, n: Any, absolute: Any, result: Any, norm: Any) -> Any:
        """Error of sums of n numbers in any order.

        The bound is ``gamma_n`` times the sums of absolute values (Higham, eq. 4.4), for any
        numbers. With `random`, partial sums are random walks: the sum of m of the n numbers is
        m/n of the result plus a deviation, and the rounding errors of all partial sums add up to
        at most seven standard deviations.

        Args:
            n: Number of summands; an array if it differs between sums.
            absolute: Sum of the absolute values.
            result: Absolute value of the sum.
            norm: Euclidean norm of the summands.
        """
        u = self.sum_roundoff
        worst = self._rounded_parts(_gamma(n, u) * absolute, self.partials * absolute)
        if not self.random:
            return worst
        walk = np.sqrt(n) * u * (_OF_SUM * result + _OF_NORM * norm)
        return np.minimum(
            worst, self._rounded_parts(walk, size_of_parts(self.partials, result, norm))
        )

    def _rounded_parts(self, error: Any, sizes: Any) -> Any:
        """Add the rounding of short results on each device and in each sum of two parts.

        Args:
            error: Error of the sums in the type of the running sums.
            sizes: Sum of the absolute values of all that is rounded.
        """
        if self.sum_roundoff == self.roundoff:
            return error
        return error + self.roundoff * (sizes + self.partials * error)

    def product_error(
        self, n: Any, absolute: Any, result: Any, norm: Any, parts: bool, by_vector: bool = False
    ) -> Any:
        """Error of sums of n products, by real and imaginary `parts` if they are complex.

        On GPUs XLA multiplies by a vector element by element. It rounds each product to a short
        type and then adds in float32 (xla/backends/gpu/transforms/dot_strength_reduction.cc).
        """
        error = self.sum_error(n, absolute, result, norm)
        if by_vector and self.rounds_products:
            each = self.roundoff * absolute
            if self.random:  # Hoeffding's inequality for errors of random sign
                each = np.minimum(each, self.roundoff * math.sqrt(2 * _LOG_CHANCE) * norm)
            error = error + each * (1 + self.partials * self.roundoff)
        operands = self.operand_roundoff * (2 + self.operand_roundoff)
        return (error + operands * (absolute + error)) * (4 if parts else 1)

    def product_factors(self, n: int) -> "ProductFactors | None":
        """`product_error` of real products; None for short types, whose partial sums are rounded.

        Args:
            n: Length of the sums.
        """
        if self.sum_roundoff != self.roundoff:
            return None
        worst, d = float(_gamma(n, self.sum_roundoff)), self.operand_roundoff
        operands = d * (2 + d)
        if not self.random:
            return ProductFactors(worst, 0.0, worst, operands)
        u = self.sum_roundoff
        return ProductFactors(worst, math.sqrt(n) * u * _OF_SUM, u * _OF_NORM, operands)

    def constant(self, value: np.ndarray) -> np.ndarray:
        """Rounding error of an oracle's constants in the runtime's dtype."""
        if value.dtype.kind in "biu":
            return np.zeros(value.shape)
        with np.errstate(all="ignore"):
            complex_too = value.dtype.kind == "c" and self.dtype.kind != "c"
            kind = np.result_type(self.dtype, np.complex64) if complex_too else self.dtype
            held = value.astype(kind).astype(value.dtype)
            return np.where(np.isfinite(value), np.abs(held - value), 0.0)


class ProductFactors(NamedTuple):
    """The error of a product as ``s + d (a + s)`` with ``s = min(w a, r |z| + m a)``.

    Here a is the product of norms that bounds the sum of absolute values, and z the sum.

    Attributes:
        worst: w.
        of_result: r.
        of_norm: m.
        of_operands: d.
    """

    worst: float
    of_result: float
    of_norm: float
    of_operands: float


def size_of_parts(p: int, result: Any, norm: Any) -> Any:
    """Sum of the absolute values of p devices' sums of random numbers, and of their partial sums.

    A single device rounds only the result. docs/checks.md derives the numbers.
    """
    if p == 1:
        return result
    apart = math.sqrt(p + 2 * math.sqrt(p * _LOG_CHANCE) + 2 * _LOG_CHANCE)
    together = _OF_WALK * math.sqrt(p * (p - 2))
    return (p + 3) / 2 * result + (apart + together) * norm


def _gamma(n: Any, roundoff: float) -> Any:
    """Bound on the relative error of n successive roundings."""
    total = np.minimum(np.asarray(n) * roundoff, 1.0)
    with np.errstate(divide="ignore"):
        return total / (1 - total)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """``|c - xy|_ij <= relative * norm(x_i) * norm(y_j) + absolute``.

    Attributes:
        relative: Relative tolerance; zero for integers, whose products are exact modulo 2**bits.
        absolute: Absolute tolerance for underflow.
        largest: Largest finite number of the result's type; beyond it infinity is right.
        usual: As `relative`, but for rounding errors of random sign.
    """

    relative: float
    absolute: float
    largest: float
    usual: float


EXACT = Tolerance(0.0, 0.0, math.inf, 0.0)
"""For integers."""


def product_tolerance(model: Model, k: int, by_vector: bool = False) -> Tolerance:
    """The tolerance of a product's elements, relative to the norms of a row and a column.

    For any order of summation, the product of x (m, k) and y (k, n) computed with unit roundoff u
    satisfies ``|c - xy| <= gamma_k |x| |y|`` elementwise, ``gamma_k = k u / (1 - k u)`` (Higham,
    eq. 3.13). By Cauchy-Schwarz ``(|x| |y|)_ij <= norm(x_i) norm(y_j)``, which costs O(n^2) instead
    of another product. This bound is about a hundred times the usual rounding error. Operands with
    mean zero have partial sums that are random walks; for them 32 u replaces gamma_k, so that a
    product in lower precision is seen. docs/checks.md has the derivations.

    Args:
        model: How operands, products and sums are rounded.
        k: Length of the sums.
        by_vector: Whether a device multiplies by a vector.
    """
    u, short = model.sum_roundoff, model.sum_roundoff != model.roundoff
    rigorous, usual = float(_gamma(k, u)), 8 * math.sqrt(k) * u
    tiny = float(np.finfo(np.float32).tiny) if short else model.tiny
    results = model.partials + (by_vector and model.rounds_products) if short else 0

    def whole(bound: float) -> float:
        operands = model.operand_roundoff * (2 + model.operand_roundoff)
        for more in (results * model.roundoff, operands):
            bound += more * (1 + bound) if more else 0  # the bound may be infinite
        return 4 * bound if model.dtype.kind == "c" else bound  # four real products, and their sums

    return Tolerance(
        whole(min(rigorous, 32 * u) if model.random else rigorous),
        k * tiny + model.partials * model.tiny,
        model.largest,
        whole(min(rigorous, usual)),
    )
