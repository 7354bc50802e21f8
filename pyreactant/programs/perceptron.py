"""A perceptron with two layers, the gradient of its loss, and one step of gradient descent."""

from dataclasses import replace
from typing import Any

import numpy as np

from .._core.domain import Domain
from .._core.dtypes import as_dtype
from .._core.mesh import Mesh
from .._core.sharding import Index
from ._build import Subscripts, all_reduce, subscript_case
from ._case import Layout, Read, Shape, Stream, pieces


def perceptron(x: Any, w: Any, c: Any, v: Any, d: Any) -> Any:
    """The result of both layers, ``tanh(x w + c) v + d``, in JAX.

    Communicated bytes: if the inputs are sharded, partial sums of the hidden layer are summed; if
    the hidden layer is sharded, those of the result (all-reduce).
    """
    import jax.numpy as jnp

    return jnp.tanh(x @ w + c) @ v + d


def perceptron_oracle(x: Any, w: Any, c: Any, v: Any, d: Any) -> Any:
    """NumPy."""
    return np.tanh(x @ w + c) @ v + d


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


def _weight_scale(n: int) -> float:
    """The power of two that keeps sums of n products near 1."""
    return 2.0 ** -round(np.log2(n) / 2)


_FORWARD = Subscripts("bi,ih,h,ho,o->bo", cut="bhi")


def _forward_bytes(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = _FORWARD.axes(layout)
    return None if axes is None else _bytes_of_layers(_FORWARD, mesh, axes, size, dtype)


def _bytes_of_layers(subscripts: Subscripts, mesh: Mesh, axes: Any, size: int, dtype: str) -> int:
    """Bytes of the forward pass through both layers."""
    hidden, result = (subscripts.block_elements(one, mesh, axes, size) for one in ("bh", "bo"))
    itemsize = as_dtype(dtype).itemsize
    return all_reduce(hidden * itemsize, subscripts.cut_of("i", mesh, axes)) + all_reduce(
        result * itemsize, subscripts.cut_of("h", mesh, axes)
    )


PERCEPTRON = subscript_case(
    perceptron,
    "two-layer perceptron with tanh",
    _FORWARD,
    perceptron_oracle,
    domain=Domain(exponents=(-4, 4), degree=2, special={0: ("nan",)}),
    dtypes=("float32", "float64"),
    scales={1: _weight_scale, 3: _weight_scale},
    communicated=_forward_bytes,
    stream=Stream(_by_columns, _elements_at_once),
)


def perceptron_gradient(x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """The gradient of the perceptron's loss by w, c, v and d, in JAX; in Julia by Enzyme.

    The loss is half the squared distance from the targets, ``|tanh(x w + c) v + d - t|^2 / 2``,
    in the mean over the batch.

    Communicated bytes: those of the perceptron, and the sums of the gradients if the batch is
    sharded.
    """
    import jax
    import jax.numpy as jnp

    def loss(w: Any, c: Any, v: Any, d: Any) -> Any:
        residual = jnp.tanh(x @ w + c) @ v + d - t
        return (residual * residual).sum() / (2 * x.shape[0])

    return jax.grad(loss, argnums=(0, 1, 2, 3))(w, c, v, d)


def perceptron_gradient_oracle(x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """NumPy, by hand; five products, each of which two gradients need or one needs alone."""
    hidden = np.tanh(x @ w + c)
    residual = (hidden @ v + d - t) / x.shape[0]
    by_v, by_d = hidden.T @ residual, residual.sum(axis=0)
    spread = residual @ v.T
    back = spread * (1 - hidden * hidden)
    if isinstance(x, np.ndarray):
        del spread, hidden  # each needs as much memory as an input, several times
        return x.T @ back, back.sum(axis=0), by_v, by_d
    from .._bounds.passes import over_batch

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


_GRADIENT = Subscripts("bi,ih,h,ho,o,bo->ih,h,ho,o", whole="iho", cut="bh")


def _gradient_bytes(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = _GRADIENT.axes(layout)
    if axes is None:
        return None
    gradients = sum(_GRADIENT.block_elements(one, mesh, axes, size) for one in _GRADIENT.outputs)
    batch = _GRADIENT.cut_of("b", mesh, axes)
    return _bytes_of_layers(_GRADIENT, mesh, axes, size, dtype) + all_reduce(
        gradients * as_dtype(dtype).itemsize, batch
    )


PERCEPTRON_GRADIENT = replace(
    subscript_case(
        perceptron_gradient,
        "gradient of the perceptron's loss",
        _GRADIENT,
        perceptron_gradient_oracle,
        domain=Domain(exponents=(-4, 2), degree=2),
        dtypes=("float32", "float64"),
        scales={1: _weight_scale, 3: _weight_scale},
        communicated=_gradient_bytes,
    ),
    at_once=perceptron_gradient_oracle,
)

LEARNING_RATE = 0.25


def sgd_step(x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """New weights from old ones by one step of gradient descent, in JAX.

    Communicated bytes: those of the gradient; the step itself is local.
    """
    gradients = perceptron_gradient(x, w, c, v, d, t)
    return _descend((w, c, v, d), gradients)


def sgd_step_oracle(x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """NumPy."""
    gradients = perceptron_gradient_oracle(x, w, c, v, d, t)
    return _descend((w, c, v, d), gradients)


def _descend(weights: tuple[Any, ...], gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(p - LEARNING_RATE * g for p, g in zip(weights, gradients, strict=True))


SGD_STEP = replace(
    subscript_case(
        sgd_step,
        "one step of gradient descent",
        _GRADIENT,
        sgd_step_oracle,
        domain=Domain(exponents=(-4, 2), degree=2),
        dtypes=("float32", "float64"),
        scales={1: _weight_scale, 3: _weight_scale},
        communicated=_gradient_bytes,
    ),
    at_once=sgd_step_oracle,
)
