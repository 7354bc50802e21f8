"""Fourier transforms."""

import math
from typing import Any

import numpy as np

from ...arrays.domain import ALL_EXPONENTS, Domain
from ...arrays.sharding import Index
from ..bounds.rules.reductions import squares
from ..bounds.tracked import Tracked
from ..regions import elements_of, pieces
from .build import Subscripts, subscript_case
from .case import Inputs, Oracle, Shape


def fft(x: Any) -> Any:
    """The Fourier transform of each row, in JAX."""
    import jax.numpy as jnp

    return jnp.fft.fft(x, axis=1)


def fft_oracle(x: Any) -> Any:
    """NumPy."""
    return np.fft.fft(x, axis=1)


FFT = subscript_case(
    fft,
    "Fourier transform of each row",
    Subscripts("ij->ij", whole="j"),
    fft_oracle,
    domain=Domain(exponents=ALL_EXPONENTS),
    dtypes=("complex64", "complex128"),
)


def fft2(x: Any) -> Any:
    """The two-dimensional Fourier transform, in JAX."""
    import jax.numpy as jnp

    return jnp.fft.fft2(x)


def fft2_oracle(x: Any) -> Any:
    """NumPy."""
    return np.fft.fft2(x)


_ROWS = 32  # rows transformed at a time


def _by_columns(output: int, index: Index, inputs: Inputs) -> Any:
    """Transform the rows, keep some columns, and transform these."""
    rows, columns = inputs.shapes[0]
    kept = np.empty((rows, index[1].stop - index[1].start), np.complex128)
    bounds, sum_of_squares = np.empty((rows, 1)), 0.0
    for some in pieces(slice(0, rows), _ROWS):
        x = inputs.read(0, (some, slice(0, columns)))
        z: Any = np.fft.fft(x, axis=1)
        kept[some], bounds[some] = z.value[:, index[1]], z.narrow.max(axis=1, keepdims=True)
        sum_of_squares += float(squares(x.value, -1).sum())
    z = np.fft.fft(Tracked(kept, bounds, z.model), axis=0)[index[0]]
    return _of_random_data(z, rows * columns, sum_of_squares)


def _elements_at_once(output: int, index: Index, shapes: tuple[Shape, ...]) -> int:
    columns = index[1].stop - index[1].start
    return elements_of(index) + shapes[0][0] * columns


_OF_STAGE = 7 * 16
"""Seven standard deviations of the error of a stage, 16 u as in the rules."""

_STRAY = 71
"""Added to the number of stages because stages with few numbers may have larger ones."""


def _of_random_data(z: Tracked, elements: int, sum_of_squares: float) -> Tracked:
    """A transform of exact random numbers without structure, with the smaller of two bounds.

    The rules let all rounding errors meet in one element. Those of random data have random signs
    and spread over the whole transform. docs/checks.md has the proof.

    Args:
        z: A part of the transform, with the bound of the rules.
        elements: Number of transformed elements that each element of the result needs.
        sum_of_squares: Of these elements.
    """
    if not z.model.random:
        return z
    # Two stages more for each of the two dimensions, as in the rules.
    stages = math.ceil(math.log2(max(elements, 2))) + 4
    u = z.model.roundoff + z.model.operand_roundoff
    of_result = math.sqrt(sum_of_squares)  # root mean square
    bound = _OF_STAGE * u * of_result * math.sqrt(stages + _STRAY) + elements * z.model.tiny
    return Tracked(z.value, np.minimum(z.narrow, bound), z.model)


FFT2 = subscript_case(
    fft2,
    "two-dimensional Fourier transform",
    Subscripts("ij->ij", whole="ij"),
    fft2_oracle,
    domain=Domain(exponents=ALL_EXPONENTS),
    dtypes=("complex64", "complex128"),
    oracle=Oracle(_by_columns, _elements_at_once),
)
