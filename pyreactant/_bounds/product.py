"""Error bounds of matrix products.

For any order of summation, the product of x (m, k) and y (k, n) computed with unit roundoff u
satisfies ``|c - xy| <= gamma_k |x| |y|`` elementwise, ``gamma_k = k u / (1 - k u)`` (Higham,
Accuracy and Stability of Numerical Algorithms, 2nd ed., eq. 3.13). By Cauchy-Schwarz
``(|x| |y|)_ij <= norm(x_i) norm(y_j)``, which costs O(n^2) instead of another product. The
tolerance adds rounding of the inputs if the platform multiplies in lower precision, rounding of
partial sums if a short result is summed over devices, and underflow.

This bound holds for any operands but is about a hundred times the usual rounding error, so a
product in lower precision than requested could stay below it. Random operands with mean zero have
partial sums that are random walks; for them 32 u replaces gamma_k. For other operands a larger
error than the usual one (8 sqrt(k) u) is noted. docs/checks.md has the derivations.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.dtypes import finfo

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


def product_tolerance(
    dtype: np.dtype[Any],
    k: int,
    *,
    platform: str,
    precision: str | None,
    partials: int,
    random: bool,
) -> Tolerance:
    """The tolerance of a product's elements.

    Args:
        dtype: Element type of operands and result.
        k: Length of the sums.
        platform: "cpu", "gpu" or "tpu".
        precision: Requested precision; None means "default".
        partials: Number of devices that share each sum.
        random: Whether the operands are random with mean zero.
    """
    if dtype.kind in "iu":
        return Tolerance(0.0, 0.0, float("inf"), 0.0)
    out = finfo(dtype)
    short = dtype.itemsize < SHORT
    accumulate = np.finfo(np.float32) if short else out
    roundoff = float(accumulate.eps) / 2
    rigorous, usual = _gamma(k, roundoff), 8 * math.sqrt(k) * roundoff
    walk = min(rigorous, 32 * roundoff)
    absolute = k * float(accumulate.tiny) + partials * float(out.tiny)
    relative, usual = (
        _with_other_roundings(bound, dtype, platform, precision, partials)
        for bound in (walk if random else rigorous, min(rigorous, usual))
    )
    return Tolerance(relative, absolute, float(out.max), usual)


def _with_other_roundings(
    bound: float, dtype: np.dtype[Any], platform: str, precision: str | None, partials: int
) -> float:
    """Add the rounding of operands, results and the oracle to a bound on that of the sums."""
    if dtype.itemsize < SHORT:
        bound += partials * float(finfo(dtype).eps) / 2 * (1 + bound)
    if dtype.name in ("float32", "complex64"):
        rounded = INPUT_ROUNDOFF.get((platform, precision or "default"), 0.0)
        bound += rounded * (2 + rounded) * (1 + bound)
    if dtype.kind == "c":
        bound *= 4  # four real products, and their sums
    if dtype.name in ("float64", "complex128"):
        bound *= 2  # the oracle rounds as much as the result
    return bound


def _gamma(k: int, roundoff: float) -> float:
    return k * roundoff / (1 - k * roundoff) if k * roundoff < 1 else float("inf")
