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
from ._build import Subscripts, all_reduce, subscript_case
from ._case import Domain, Layout
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
    """NumPy; five products, each of which two gradients need or one needs alone."""
    hidden = np.tanh(x @ w + c)
    residual = (hidden @ v + d - t) / x.shape[0]
    by_v, by_d = hidden.T @ residual, residual.sum(axis=0)
    spread = residual @ v.T
    back = spread * (1 - hidden * hidden)
    if isinstance(x, np.ndarray):
        del spread, hidden  # each needs as much memory as an input, several times
        return x.T @ back, back.sum(axis=0), by_v, by_d
    from .._bounds.random_data import over_batch

    alike = _of_functions(hidden, residual, v, spread)
    return over_batch(x, back, alike), over_batch(None, back, alike), by_v, by_d


def _of_functions(hidden: Any, residual: Any, v: Any, spread: Any) -> np.ndarray:
    """The part of the error of the backpropagated values that tanh and the division cause."""
    model, batch = hidden.model, len(hidden)
    tanh, divide = model.function("tanh"), model.function("divide")
    size = np.abs(hidden.value)
    of_hidden = tanh.relative * size + tanh.absolute
    of_residual = np.linalg.norm(of_hidden, axis=1) * np.linalg.norm(
        v.value
    ) / batch + divide.relative * np.linalg.norm(residual.value, axis=1)
    of_spread = np.outer(of_residual, np.linalg.norm(v.value, axis=1))
    slope: np.ndarray = of_spread + 2 * np.abs(spread.value) * size * of_hidden
    return slope


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


CASE = replace(
    subscript_case(
        "perceptron_gradient",
        "gradient of the perceptron's loss",
        SUBSCRIPTS,
        oracle,
        domain=Domain((-4, 2), degree=2),
        dtypes=("float32", "float64"),
        scales={1: weight_scale, 3: weight_scale},
        communicated=communicated,
    ),
    at_once=oracle,
)
