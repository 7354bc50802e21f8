"""A perceptron with two layers, the gradient of its loss, and one step of gradient descent."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.domain import Domain
from ...arrays.dtypes import as_dtype
from ...arrays.mesh import Mesh
from ...arrays.sharding import Index
from .build import Subscripts, all_reduce, subscript_case
from .case import Layout, Read, Shape, Staged, Stream, pieces


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
    return _result(_hidden(index[0], read, shapes), index[1], read, shapes)


def _hidden(rows: slice, read: Read, shapes: tuple[Shape, ...]) -> Any:
    """The hidden layer of some rows of the batch."""
    from ..bounds.rules.products import for_many_products

    i, h = shapes[1]
    x, inner = for_many_products(read(0, (rows, slice(0, i)))), slice(0, i)
    units = [np.tanh(x @ read(1, (inner, some)) + read(2, (some,))) for some in pieces(h, _COLUMNS)]
    return np.concatenate(units, axis=1)


def _result(hidden: Any, columns: slice, read: Read, shapes: tuple[Shape, ...]) -> Any:
    """Some columns of the result, from all of a hidden layer."""
    from ..bounds.rules.products import for_many_products

    hidden, units = for_many_products(hidden), slice(0, shapes[3][0])
    some = pieces(columns.stop - columns.start, _COLUMNS)
    moved = [slice(columns.start + s.start, columns.start + s.stop) for s in some]
    return np.concatenate([hidden @ read(3, (units, s)) + read(4, (s,)) for s in moved], axis=1)


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
    back = residual @ v.T * (1 - hidden * hidden)
    return x.T @ back, back.sum(axis=0), hidden.T @ residual, residual.sum(axis=0)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all blocks of the gradients need.

    The last three say how large the sums of the errors of a row of `residual` with weights may be:
    errors of random signs, and those of functions, which may be alike in all rows.

    Attributes:
        x: The inputs, (b, i).
        turned: The same, (i, b).
        residual: The derivatives of the loss by the result, (b, o).
        sums: Gradients by c that were computed with those by w; NaN where none was.
        reach: Norm of the weights of all other hidden units times those of one, for each.
        random: For weights of norm 1 and for `reach` 1, by row: errors of random signs, (2, b).
        alike: The same of errors that may be alike, (2, b).
    """

    x: Any
    turned: Any
    residual: Any
    sums: Any
    reach: np.ndarray
    random: np.ndarray
    alike: np.ndarray


_ROWS = 256  # rows of the batch whose residual is computed at a time


def _first_stage(read: Read, shapes: tuple[Shape, ...]) -> _Shared:
    """The residual; in float32 where products are, which its bound covers."""
    from ..bounds.rules.products import for_many_products
    from ..bounds.tracked import Tracked

    (batch, inner), (units, outputs) = shapes[0], shapes[3]
    x, everything = read(0, (slice(0, batch), slice(0, inner))), slice(0, outputs)
    reach = _reach(read(3, (slice(0, units), everything)))
    residual: Any = None
    random, alike = np.empty((2, 2, batch))
    divide, quick = x.model.function("divide").relative, x.model.float32_products
    for rows in pieces(batch, _ROWS):
        hidden = _hidden(rows, read, shapes)
        result = _result(hidden, everything, read, shapes)
        part = (result - read(5, (rows, everything))) / batch
        if residual is None:
            kind = np.float32 if quick is not None and quick.formed else np.float64
            shape = (batch, outputs)
            residual = Tracked(np.empty(shape, kind), np.empty(shape), x.model)
        residual.held[rows] = part.value
        residual.bound[rows] = part.bound + np.abs(residual.held[rows] - part.value)
        random[:, rows] = residual.bound[rows].max(axis=1), hidden.bound.max(axis=1) / batch
        of_hidden = np.linalg.norm(_error_of_tanh(hidden), axis=1) / batch
        alike[:, rows] = divide * np.linalg.norm(part.value, axis=1), of_hidden
    sums = Tracked(np.full(units, np.nan), np.full(units, np.nan), x.model)
    x, turned, residual = map(for_many_products, (x, x.T, residual))
    return _Shared(x, turned, residual, sums, reach, random, alike)


def _reach(v: Any) -> np.ndarray:
    """At least the norms of ``v @ v.T`` along its columns, without its diagonal."""
    from ..bounds.rules.products import norms

    (sizes, _), u, found = norms(v, 1), v.model.roundoff, []
    for some in pieces(len(v), _ROWS):
        products = v.held @ v.held[some].T
        np.fill_diagonal(products[some], 0)
        found.append(np.linalg.norm(products, axis=0))
    rounding = v.shape[1] * u / (1 - v.shape[1] * u) + len(v) * u
    reach: np.ndarray = np.concatenate(found) * (1 + rounding)
    return reach + rounding * np.linalg.norm(sizes) * sizes


def _error_of_tanh(hidden: Any) -> Any:
    """The part of the error of the hidden layer that tanh causes."""
    tanh = hidden.model.function("tanh")
    return tanh.relative * np.abs(hidden.value) + tanh.absolute


def _gradient_block(
    output: int, index: Index, read: Read, shapes: tuple[Shape, ...], shared: _Shared
) -> Any:
    """A block of a gradient. Its hidden units are computed again: keeping all needs more memory."""
    from ..bounds.random_data import over_batch

    residual, batch = shared.residual, slice(0, shapes[0][0])
    if output == 3:
        return residual[:, index[0]].sum(axis=0)
    units = index[1] if output == 0 else index[0]
    if output == 1 and not np.isnan(shared.sums.value[units]).any():
        return shared.sums[units]
    if output == 2:
        return _units(units, read, shared).T @ _part(residual, (batch, index[1]))
    back, alike = _backpropagated(units, read, shared)
    sums = over_batch(None, back, alike)
    if output == 1:
        return sums
    shared.sums.value[units], shared.sums.bound[units] = sums.value, sums.bound
    return over_batch(_part(shared.turned, (index[0], batch)), back, alike)


def _units(units: slice, read: Read, shared: _Shared) -> Any:
    """Some units of the hidden layer, for the whole batch."""
    inner = slice(0, shared.x.shape[1])
    return np.tanh(shared.x @ read(1, (inner, units)) + read(2, (units,)))


def _backpropagated(units: slice, read: Read, shared: _Shared) -> tuple[Any, np.ndarray]:
    """The derivatives by these units before tanh, and what functions add to their errors.

    The rules let all errors of a row of the residual meet in one unit, which those of random data
    do not do.
    """
    from ..bounds.rules.products import norms
    from ..bounds.tracked import Tracked

    hidden, residual = _units(units, read, shared), shared.residual
    v = read(3, (units, slice(0, residual.shape[1])))
    sizes, reach, of_tanh = norms(v, 1)[0], shared.reach[units], _error_of_tanh(hidden)
    # A unit's own error counts once, those of the others by their norm.
    alike = shared.alike.T @ np.stack([sizes, reach]) + of_tanh * (sizes**2 / len(hidden))
    model = residual.model
    if model.random:
        random = shared.random.T @ np.stack([sizes, reach + sizes**2])
        spread = Tracked(residual.held, 0.0, model) @ v.T
        spread = Tracked(spread.value, spread.bound + random + alike, model)
    else:
        spread = residual @ v.T
    slope = 1 - hidden * hidden
    alike *= np.abs(slope.value) + slope.bound
    alike += 2 * np.abs(spread.value) * np.abs(hidden.value) * of_tanh
    return spread * slope, alike


def _part(x: Any, wanted: Index) -> Any:
    """A part of an array; if that is all, the array itself, whose norms are known."""
    return x if wanted == tuple(slice(0, n) for n in x.shape) else x[wanted]


def _gradient_elements(output: int, index: Index, shapes: tuple[Shape, ...]) -> int:
    """The block, and its hidden units for the whole batch: 72 bytes each, a half more than 48."""
    units = index[1] if output == 0 else index[0]
    own = math.prod(s.stop - s.start for s in index)
    return own + 3 * shapes[0][0] * (units.stop - units.start) // 2


_GRADIENT_STAGES = Staged(_first_stage, _gradient_block, _gradient_elements)


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
    staged=_GRADIENT_STAGES,
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


def _sgd_step_block(
    output: int, index: Index, read: Read, shapes: tuple[Shape, ...], shared: _Shared
) -> Any:
    gradient = _gradient_block(output, index, read, shapes, shared)
    return read(output + 1, index) - LEARNING_RATE * gradient


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
    staged=replace(_GRADIENT_STAGES, block=_sgd_step_block),
)
