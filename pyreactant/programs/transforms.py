"""Fourier transforms."""

from dataclasses import replace
from typing import Any

import numpy as np

from .._core.domain import ALL_EXPONENTS, Domain
from .._core.sharding import Index
from ._build import Subscripts, exchanged, subscript_case
from ._case import Read, Shape, Stream, pieces


def fft(x: Any) -> Any:
    """The Fourier transform of each row, in JAX.

    Communicated bytes: devices exchange parts of rows for whole rows, transform them and exchange
    them back (two all-to-alls).
    """
    import jax.numpy as jnp

    return jnp.fft.fft(x, axis=1)


def fft_oracle(x: Any) -> Any:
    """NumPy."""
    return np.fft.fft(x, axis=1)


_FFT_SUBSCRIPTS = Subscripts("ij->ij", whole="j")

FFT = subscript_case(
    fft,
    "Fourier transform of each row",
    _FFT_SUBSCRIPTS,
    fft_oracle,
    domain=Domain(exponents=ALL_EXPONENTS),
    dtypes=("complex64", "complex128"),
    communicated=exchanged(_FFT_SUBSCRIPTS),
)


def fft2(x: Any) -> Any:
    """The two-dimensional Fourier transform, in JAX.

    Communicated bytes: if one dimension is sharded, the other is transformed first, then blocks are
    exchanged, transformed and exchanged back (two all-to-alls). None if both are sharded.
    """
    import jax.numpy as jnp

    return jnp.fft.fft2(x)


def fft2_oracle(x: Any) -> Any:
    """NumPy."""
    return np.fft.fft2(x)


def _block(output: int, index: Index, parts: tuple[Any, ...], shapes: tuple[Shape, ...]) -> Any:
    from .._bounds.passes import of_random_data

    (x,) = parts
    return of_random_data(fft2_oracle(x)[index], x.size, _squares(x))


_ROWS = 32  # rows transformed at a time


def _bands(output: int, index: Index, read: Read, shapes: tuple[Shape, ...]) -> Any:
    """Transform the rows first and keep only the needed columns of each."""
    from .._bounds.passes import of_random_data

    rows, columns = shapes[0]
    wanted = np.arange(index[1].start, index[1].stop)
    parts, squares = [], 0.0
    for some in pieces(rows, _ROWS):
        x = read(0, (some, slice(0, columns)))
        squares += _squares(x)
        parts.append(np.take(np.fft.fft(x, axis=1), wanted, axis=1))
    z = np.fft.fft(np.concatenate(parts), axis=0)[index[0]]
    return of_random_data(z, rows * columns, squares)


def _elements_at_once(index: Index, shapes: tuple[Shape, ...]) -> int:
    rows, columns = shapes[0]
    return 2 * rows * (index[1].stop - index[1].start) + 2 * _ROWS * columns


def _squares(x: Any) -> float:
    """Sum of the squares of an array's absolute values, Tracked or not."""
    return float(np.sum(np.square(np.abs(getattr(x, "value", x)))))


_FFT2_SUBSCRIPTS = Subscripts("ij->ij", whole="ij")

FFT2 = replace(
    subscript_case(
        fft2,
        "two-dimensional Fourier transform",
        _FFT2_SUBSCRIPTS,
        fft2_oracle,
        domain=Domain(exponents=ALL_EXPONENTS),
        dtypes=("complex64", "complex128"),
        communicated=exchanged(_FFT2_SUBSCRIPTS),
        stream=Stream(_bands, _elements_at_once),
    ),
    oracle=_block,
)
