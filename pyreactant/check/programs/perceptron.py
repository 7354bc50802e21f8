"""A perceptron with two layers, the gradient of its loss, and one step of gradient descent."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.domain import Domain
from ...arrays.sharding import Index
from ..bounds.rules.products import Float32Products, norms
from ..bounds.rules.reductions import squares
from ..bounds.tracked import Tracked
from ..regions import elements_of, pieces
from .build import Subscripts, subscript_case
from .case import Inputs, Oracle, Shape


def perceptron(x: Any, w: Any, c: Any, v: Any, d: Any) -> Any:
    """The result of both layers, ``tanh(x w + c) v + d``, in JAX."""
    import jax.numpy as jnp

    return jnp.tanh(x @ w + c) @ v + d


def perceptron_oracle(x: Any, w: Any, c: Any, v: Any, d: Any) -> Any:
    """NumPy."""
    return np.tanh(x @ w + c) @ v + d


_COLUMNS = 128  # columns of weights read at a time


def _by_columns(output: int, index: Index, inputs: Inputs) -> Any:
    (_, inner), (_, units) = inputs.shapes[:2]
    x = inputs.read(0, (index[0], slice(0, inner)))
    return _result(_hidden(x, slice(0, units), inputs), index[1], inputs)


def _hidden(x: Any, units: slice, inputs: Inputs) -> Any:
    """Some units of the hidden layer for some rows of the batch, shape (rows, units)."""
    inner = slice(0, x.shape[1])
    parts = [
        np.tanh(x @ inputs.read(1, (inner, some)) + inputs.read(2, (some,)))
        for some in pieces(units, _COLUMNS)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _result(hidden: Any, columns: slice, inputs: Inputs) -> Any:
    """Some columns of the result, from all of a hidden layer."""
    units = slice(0, hidden.shape[1])
    parts = [
        hidden @ inputs.read(3, (units, some)) + inputs.read(4, (some,))
        for some in pieces(columns, _COLUMNS)
    ]
    return np.concatenate(parts, axis=1)


def _elements_at_once(output: int, index: Index, shapes: tuple[Shape, ...]) -> int:
    (i, h), rows = shapes[1], index[0].stop - index[0].start
    columns = index[1].stop - index[1].start
    return rows * (i + 2 * h + 2 * columns) + _COLUMNS * max(i, h)


PERCEPTRON = subscript_case(
    perceptron,
    "two-layer perceptron with tanh",
    Subscripts("bi,ih,h,ho,o->bo", cut="bhi"),
    perceptron_oracle,
    domain=Domain(exponents=(-4, 4), degree=2, special={0: ("nan",)}),
    dtypes=("float32", "float64"),
    weights=(1, 3),
    oracle=Oracle(_by_columns, _elements_at_once),
)


def perceptron_gradient(x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """The gradient of the perceptron's loss by w, c, v and d, in JAX; in Julia by Enzyme.

    The loss is half the squared distance from the targets, ``|tanh(x w + c) v + d - t|^2 / 2``,
    in the mean over the batch.
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
        residual: The derivatives of the loss by the result, (b, o).
        reach: Norm of the weights of all other hidden units times those of one, for each.
        random: For weights of norm 1 and for `reach` 1, by row: errors of random signs, (2, b).
        alike: The same of errors that may be alike, (2, b).
    """

    x: Tracked
    residual: Tracked
    reach: np.ndarray
    random: np.ndarray
    alike: np.ndarray


_ROWS = 256  # rows of the batch whose residual is computed at a time


def _first_stage(inputs: Inputs) -> _Shared:
    """The residual; in float32 where products are, which its bound covers."""
    (batch, inner), (units, outputs) = inputs.shapes[0], inputs.shapes[3]
    x, everything = inputs.read(0, (slice(0, batch), slice(0, inner))), slice(0, outputs)
    model, products = x.model, Float32Products.current()
    reach = _reach(inputs.read(3, (slice(0, units), everything)))
    residual: Any = None
    random, alike = np.empty((2, 2, batch))
    for rows in pieces(slice(0, batch), _ROWS):
        hidden = _hidden(x[rows], slice(0, units), inputs)
        result = _result(hidden, everything, inputs)
        part = (result - inputs.read(5, (rows, everything))) / batch
        if residual is None:
            kind = np.float32 if products is not None and products.formed else np.float64
            shape = (batch, outputs)
            residual = Tracked(np.empty(shape, kind), np.empty(shape), model)
        residual.held[rows] = part.value
        residual.bound[rows] = part.bound + np.abs(residual.held[rows] - part.value)
        random[:, rows] = residual.bound[rows].max(axis=1), hidden.bound.max(axis=1) / batch
        of_division = model.function("divide").relative * np.linalg.norm(part.value, axis=1)
        alike[:, rows] = of_division, np.linalg.norm(_error_of_tanh(hidden), axis=1) / batch
    return _Shared(x, residual, reach, random, alike)


def _reach(v: Tracked) -> np.ndarray:
    """At least the norms of ``v @ v.T`` along its columns, without its diagonal."""
    sizes, u, parts = norms(v, 1).of_value, v.model.roundoff, []
    for some in pieces(slice(0, len(v)), _ROWS):
        products = v.held @ v.held[some].T
        np.fill_diagonal(products[some], 0)
        parts.append(np.linalg.norm(products, axis=0))
    rounding = v.shape[1] * u / (1 - v.shape[1] * u) + len(v) * u
    reach: np.ndarray = np.concatenate(parts) * (1 + rounding)
    return reach + rounding * np.linalg.norm(sizes) * sizes


def _error_of_tanh(hidden: Tracked) -> Any:
    """The part of the error of the hidden layer that tanh causes."""
    tanh = hidden.model.function("tanh")
    return tanh.relative * np.abs(hidden.value) + tanh.absolute


def _gradient_block(output: int, index: Index, inputs: Inputs) -> Any:
    """A block of a gradient. Its hidden units are computed again: keeping all needs more memory."""
    shared: _Shared = inputs.shared
    if output == 3:
        return np.sum(shared.residual[:, index[0]], axis=0)
    hidden = _hidden(shared.x, index[1] if output == 0 else index[0], inputs)
    if output == 2:
        return hidden.T @ shared.residual[:, index[1]]
    units = index[1] if output == 0 else index[0]
    back, alike = _backpropagated(hidden, units, inputs)
    return _over_batch(shared.x.T[index[0]] if output == 0 else None, back, alike)


def _backpropagated(hidden: Tracked, units: slice, inputs: Inputs) -> tuple[Any, np.ndarray]:
    """The derivatives by these units before tanh, and what functions add to their errors.

    The rules let all errors of a row of the residual meet in one unit, which those of random data
    do not do.
    """
    shared: _Shared = inputs.shared
    residual = shared.residual
    v = inputs.read(3, (units, slice(0, residual.shape[1])))
    sizes, reach, of_tanh = norms(v, 1).of_value, shared.reach[units], _error_of_tanh(hidden)
    # A unit's own error counts once, those of the others by their norm.
    alike = shared.alike.T @ np.stack([sizes, reach]) + of_tanh * (sizes**2 / len(hidden))
    model = residual.model
    if model.random:
        random = shared.random.T @ np.stack([sizes, reach + sizes**2])
        spread: Any = Tracked(residual.held, 0.0, model) @ v.T
        spread = Tracked(spread.value, spread.bound + random + alike, model)
    else:
        spread = residual @ v.T
    slope: Any = 1 - hidden * hidden
    alike *= np.abs(slope.value) + slope.bound
    alike += 2 * np.abs(spread.value) * np.abs(hidden.value) * of_tanh
    return spread * slope, alike


_SMALL = 0.25
"""Largest relative error of the summands of `_over_batch`; with more, the rule's bound applies."""


def _over_batch(x: Any, y: Any, alike: np.ndarray) -> Any:
    """``x @ y``, or the sum of the rows of y without x, for exact x.

    The rules allow that all rounding errors have the same sign. Those of random data have random
    signs: their squares add up. docs/checks.md has the proof.

    Args:
        x: Factors, (m, batch), without an error; None for a sum.
        y: Summands, (batch, n).
        alike: The part of the bound of y, (batch, n), whose errors may have the same sign.
    """

    def summed(y: Any) -> Any:
        return np.sum(y, axis=0) if x is None else x @ y

    relative = _norms(y.bound) / np.maximum(_norms(y.value), y.model.tiny)
    if not y.model.random or not relative.max(initial=0.0) < _SMALL:
        return summed(y)
    z = summed(Tracked(y.value, 0.0, y.model))
    if x is None:
        inherited = _norms(y.bound) + alike.sum(axis=0)
    else:
        # Without a temporary array: x is large.
        rows, largest = norms(x, 1).of_value, np.maximum(x.held.max(axis=1), -x.held.min(axis=1))
        # Both are at least the root of the sum of the squares of the products.
        random = np.minimum(np.outer(largest, _norms(y.bound)), np.outer(rows, y.bound.max(axis=0)))
        inherited = random + np.outer(rows, _norms(alike))
    # The sums are rounded more if the errors have made them larger.
    return Tracked(z.value, (z.bound + inherited) * (1 + 2 * relative), y.model)


def _norms(array: np.ndarray) -> Any:
    """Euclidean norms of the columns."""
    return np.sqrt(squares(array, 0))


def _gradient_elements(output: int, index: Index, shapes: tuple[Shape, ...]) -> int:
    """The block, and its hidden units for the whole batch: 72 bytes each, a half more than 48."""
    units = index[1] if output == 0 else index[0]
    return elements_of(index) + 3 * shapes[0][0] * (units.stop - units.start) // 2


_GRADIENT = Subscripts("bi,ih,h,ho,o,bo->ih,h,ho,o", whole="iho", cut="bh")


PERCEPTRON_GRADIENT = subscript_case(
    perceptron_gradient,
    "gradient of the perceptron's loss",
    _GRADIENT,
    perceptron_gradient_oracle,
    domain=Domain(exponents=(-4, 2), degree=2),
    dtypes=("float32", "float64"),
    weights=(1, 3),
    oracle=Oracle(_gradient_block, _gradient_elements, _first_stage),
)

LEARNING_RATE = 0.25


def sgd_step(x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """New weights from old ones by one step of gradient descent, in JAX."""
    gradients = perceptron_gradient(x, w, c, v, d, t)
    return _descend((w, c, v, d), gradients)


def sgd_step_oracle(x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """NumPy."""
    gradients = perceptron_gradient_oracle(x, w, c, v, d, t)
    return _descend((w, c, v, d), gradients)


def _descend(weights: tuple[Any, ...], gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(p - LEARNING_RATE * g for p, g in zip(weights, gradients, strict=True))


def _sgd_step_block(output: int, index: Index, inputs: Inputs) -> Any:
    return inputs.read(output + 1, index) - LEARNING_RATE * _gradient_block(output, index, inputs)


SGD_STEP = subscript_case(
    sgd_step,
    "one step of gradient descent",
    _GRADIENT,
    sgd_step_oracle,
    domain=Domain(exponents=(-4, 2), degree=2),
    dtypes=("float32", "float64"),
    weights=(1, 3),
    oracle=Oracle(_sgd_step_block, _gradient_elements, _first_stage),
)
