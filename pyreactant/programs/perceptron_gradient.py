"""The gradient of a two-layer perceptron's loss: jax.grad against Enzyme.

The loss is half the squared distance from the targets, ``|tanh(x w + c) v + d - t|^2 / 2``, in
the mean over the batch. The gradient is by w, c, v and d; the oracle's derivatives are by hand.

Communicated bytes: those of the perceptron, and the sums of the gradients if the batch is sharded.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from .._core.dtypes import as_dtype
from .._core.mesh import Mesh
from .._core.sharding import Index
from ._build import all_reduce, subscript_case
from ._case import Layout, Shape
from ._subscripts import Subscripts
from .perceptron import forward, weight_scale


def body(x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """JAX."""
    import jax
    import jax.numpy as jnp

    def loss(w: Any, c: Any, v: Any, d: Any) -> Any:
        residual = jnp.tanh(x @ w + c) @ v + d - t
        return (residual * residual).sum() / (2 * x.shape[0])

    return jax.grad(loss, argnums=(0, 1, 2, 3))(w, c, v, d)


def oracle(x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """NumPy."""
    return tuple(gradient(output, x, w, c, v, d, t) for output in range(4))


def gradient(output: int, x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """One of the gradients, computed with only the products that it needs."""
    hidden = np.tanh(x @ w + c)
    residual = (hidden @ v + d - t) / x.shape[0]
    if output == 2:
        return hidden.T @ residual
    if output == 3:
        return residual.sum(axis=0)
    back = residual @ v.T * (1 - hidden * hidden)
    return x.T @ back if output == 0 else back.sum(axis=0)


SUBSCRIPTS = Subscripts("bi,ih,h,ho,o,bo->ih,h,ho,o", whole="iho", cut="bh")


def communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    """Bytes of the forward pass and of the gradients' sums over the batch."""
    axes = SUBSCRIPTS.axes(layout)
    if axes is None:
        return None
    gradients = sum(SUBSCRIPTS.block_elements(one, mesh, axes, size) for one in SUBSCRIPTS.outputs)
    batch = SUBSCRIPTS.cut_of("b", mesh, axes)
    return forward(SUBSCRIPTS, mesh, axes, size, dtype) + all_reduce(
        gradients * as_dtype(dtype).itemsize, batch
    )


def _block(output: int, index: Index, parts: tuple[Any, ...], shapes: tuple[Shape, ...]) -> Any:
    return SUBSCRIPTS.block(output, index, gradient(output, *parts))


CASE = replace(
    subscript_case(
        "perceptron_gradient",
        "gradient of the perceptron's loss",
        SUBSCRIPTS,
        oracle,
        dtypes=("float32", "float64"),
        scales={1: weight_scale, 3: weight_scale},
        communicated=communicated,
    ),
    oracle=_block,
)
