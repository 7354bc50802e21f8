"""The two-dimensional Fourier transform.

Communicated bytes: if one dimension is sharded, the other is transformed first, then blocks are
exchanged, transformed and exchanged back (two all-to-alls). None if both are sharded.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from .._core.dtypes import as_dtype
from .._core.mesh import Mesh
from .._core.sharding import Index
from ._build import Subscripts, all_to_all, subscript_case
from ._case import ALL_EXPONENTS, Domain, Layout, Read, Shape, Stream, pieces


def body(x: Any) -> Any:
    """JAX."""
    import jax.numpy as jnp

    return jnp.fft.fft2(x)


def oracle(x: Any) -> Any:
    """NumPy."""
    return np.fft.fft2(x)


SUBSCRIPTS = Subscripts("ij->ij", whole="ij")


def _communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = SUBSCRIPTS.axes(layout)
    if axes is None or (axes["i"] and axes["j"]):
        return None
    block = SUBSCRIPTS.block_elements("ij", mesh, axes, size) * as_dtype(dtype).itemsize
    return 2 * all_to_all(
        block, SUBSCRIPTS.cut_of("i", mesh, axes) * SUBSCRIPTS.cut_of("j", mesh, axes)
    )


_ROWS = 32  # rows transformed at a time


def _bands(output: int, index: Index, read: Read, shapes: tuple[Shape, ...]) -> Any:
    """Transform the rows first and keep only the needed columns of each."""
    from .._bounds.random_data import of_random_data

    rows, columns = shapes[0]
    wanted = np.arange(index[1].start, index[1].stop)
    parts, squares = [], 0.0
    for some in pieces(rows, _ROWS):
        x = read(0, (some, slice(0, columns)))
        squares += _squares(x)
        parts.append(np.take(np.fft.fft(x, axis=1), wanted, axis=1))
    z = np.fft.fft(np.concatenate(parts), axis=0)[index[0]]
    return of_random_data(z, rows * columns, squares)


def _block(output: int, index: Index, parts: tuple[Any, ...], shapes: tuple[Shape, ...]) -> Any:
    from .._bounds.random_data import of_random_data

    (x,) = parts
    return of_random_data(oracle(x)[index], x.size, _squares(x))


def _squares(x: Any) -> float:
    """Sum of the squares of an array's absolute values, Tracked or not."""
    return float(np.sum(np.square(np.abs(getattr(x, "value", x)))))


def _elements_at_once(index: Index, shapes: tuple[Shape, ...]) -> int:
    rows, columns = shapes[0]
    return 2 * rows * (index[1].stop - index[1].start) + 2 * _ROWS * columns


CASE = replace(
    subscript_case(
        "fft2",
        "two-dimensional Fourier transform",
        SUBSCRIPTS,
        oracle,
        domain=Domain(ALL_EXPONENTS),
        dtypes=("complex64", "complex128"),
        communicated=_communicated,
        stream=Stream(_bands, _elements_at_once),
    ),
    oracle=_block,
)
