"""A perceptron with two layers, ``tanh(x w + c) v + d``.

Communicated bytes: if the inputs are sharded, partial sums of the hidden layer are summed; if the
hidden layer is sharded, those of the result (all-reduce).
"""

from typing import Any

import numpy as np

from .._core.dtypes import as_dtype
from .._core.mesh import Mesh
from .._core.sharding import Index
from ._build import Subscripts, all_reduce, subscript_case
from ._case import Domain, Layout, Read, Shape, Stream, pieces


def body(x: Any, w: Any, c: Any, v: Any, d: Any) -> Any:
    """JAX."""
    import jax.numpy as jnp

    return jnp.tanh(x @ w + c) @ v + d


def oracle(x: Any, w: Any, c: Any, v: Any, d: Any) -> Any:
    """NumPy."""
    return np.tanh(x @ w + c) @ v + d


SUBSCRIPTS = Subscripts("bi,ih,h,ho,o->bo", cut="bhi")


def weight_scale(n: int) -> float:
    """The power of two that keeps sums of n products near 1."""
    return 2.0 ** -round(np.log2(n) / 2)


def _communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = SUBSCRIPTS.axes(layout)
    return None if axes is None else forward(SUBSCRIPTS, mesh, axes, size, dtype)


def forward(subscripts: Subscripts, mesh: Mesh, axes: Any, size: int, dtype: str) -> int:
    """Bytes of the forward pass through both layers."""
    hidden, result = (subscripts.block_elements(one, mesh, axes, size) for one in ("bh", "bo"))
    itemsize = as_dtype(dtype).itemsize
    return all_reduce(hidden * itemsize, subscripts.cut_of("i", mesh, axes)) + all_reduce(
        result * itemsize, subscripts.cut_of("h", mesh, axes)
    )


_COLUMNS = 128  # columns of weights read at a time


def _by_columns(output: int, index: Index, read: Read, shapes: tuple[Shape, ...]) -> Any:
    (b, o), (i, h) = index, (slice(0, n) for n in shapes[1])
    x = read(0, (b, i))
    hidden = np.concatenate(
        [np.tanh(x @ read(1, (i, some)) + read(2, (some,))) for some in pieces(h.stop, _COLUMNS)],
        axis=1,
    )
    columns = (
        slice(o.start + s.start, o.start + s.stop) for s in pieces(o.stop - o.start, _COLUMNS)
    )
    return np.concatenate(
        [hidden @ read(3, (h, some)) + read(4, (some,)) for some in columns], axis=1
    )


def _elements_at_once(index: Index, shapes: tuple[Shape, ...]) -> int:
    (i, h), rows = shapes[1], index[0].stop - index[0].start
    return rows * (i + 2 * h + (index[1].stop - index[1].start)) + _COLUMNS * max(i, h)


CASE = subscript_case(
    "perceptron",
    "two-layer perceptron with tanh",
    SUBSCRIPTS,
    oracle,
    domain=Domain((-4, 4), degree=2, special={0: ("nan",)}),
    dtypes=("float32", "float64"),
    scales={1: weight_scale, 3: weight_scale},
    communicated=_communicated,
    stream=Stream(_by_columns, _elements_at_once),
)
