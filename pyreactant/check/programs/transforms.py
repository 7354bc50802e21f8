"""Fourier transforms."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.domain import ALL_EXPONENTS, Domain
from ...arrays.sharding import Index
from ...base.facts import usable_cores
from .build import Subscripts, exchanged, subscript_case
from .case import Read, Shape, Stream, pieces


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
    from ..bounds.random_data import of_random_data

    (x,) = parts
    return of_random_data(fft2_oracle(x)[index], x.size, _squares(x))


_ROWS = 32  # rows transformed at a time


def _by_columns(output: int, index: Index, read: Read, shapes: tuple[Shape, ...]) -> Any:
    """Transform the rows, keep some columns, and transform these."""
    from ..bounds.random_data import of_random_data
    from ..bounds.tracked import Tracked

    rows, columns = shapes[0]
    kept = np.empty((rows, index[1].stop - index[1].start), np.complex128)
    bounds = np.zeros((rows, 1))

    def transform(some: slice) -> tuple[float, Any]:
        x = read(0, (some, slice(0, columns)))
        z = np.fft.fft(x, axis=1)
        if isinstance(z, Tracked):
            bounds[some] = z.narrow.max(axis=1, keepdims=True)
        kept[some] = getattr(z, "value", z)[:, index[1]]
        return _squares(x), getattr(z, "model", None)

    with ThreadPoolExecutor(usable_cores()) as pool:
        done = list(pool.map(transform, pieces(rows, _ROWS)))
    squares, model = sum(one for one, _ in done), done[0][1]

    y: Any = kept if model is None else Tracked(kept, bounds, model)
    return of_random_data(np.fft.fft(y, axis=0)[index[0]], rows * columns, squares)


def _elements_at_once(index: Index, shapes: tuple[Shape, ...]) -> int:
    return shapes[0][0] * (index[1].stop - index[1].start)


def _squares(x: Any) -> float:
    """Sum of the squares of an array's absolute values, Tracked or not."""
    from ..bounds.rules.reductions import squares

    return float(squares(getattr(x, "value", x), -1).sum())


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
        stream=Stream(_by_columns, _elements_at_once),
    ),
    oracle=_block,
)
