"""The gradient of a two-layer perceptron's loss: jax.grad against Enzyme.

The loss is half the squared distance from the targets, ``|tanh(x w + c) v + d - t|^2 / 2``, in
the mean over the batch. The gradient is by w, c, v and d; the oracle's derivatives are by hand.

Communicated bytes: those of the perceptron, and the sums of the gradients if the batch is sharded.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._core.dtypes import as_dtype
from .._core.mesh import Mesh
from .._core.sharding import Index
from ._build import all_reduce, subscript_case
from ._case import Layout, Read, Shape, Staged, pieces
from ._domain import Domain
from ._subscripts import Subscripts
from .perceptron import forward, hidden_of, result_of, weight_scale


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
    hidden = np.tanh(x @ w + c)
    residual = (hidden @ v + d - t) / x.shape[0]
    back = residual @ v.T * (1 - hidden * hidden)
    return x.T @ back, back.sum(axis=0), hidden.T @ residual, residual.sum(axis=0)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all blocks of the gradients need.

    Attributes:
        x: The inputs of the batch, (b, i).
        turned: The same, (i, b).
        residual: The derivatives by the result, (b, o).
        alike: For each row, the part of the error of `residual` that functions cause, in norm.
        sums: Gradients by c that were computed with those by w, by the first hidden unit.
    """

    x: Any
    turned: Any
    residual: Any
    alike: np.ndarray
    sums: dict[int, Any] = field(default_factory=dict)


_ROWS = 256
"""Rows of the batch whose residual is computed at a time."""


def _first(read: Read, shapes: tuple[Shape, ...]) -> _Shared:
    (batch, inner), (_, outputs) = shapes[0], shapes[3]
    from .._bounds.rules.products import norms
    from .._bounds.tracked import Tracked

    columns = slice(0, outputs)
    of_v = math.sqrt(sum(_squares(read(3, (s, columns))) for s in _pieces(shapes[3][0])))
    x = read(0, (slice(0, batch), slice(0, inner)))
    residual = Tracked(np.empty((batch, outputs)), np.empty((batch, outputs)), x.model)
    alike = np.empty(batch)
    divide = x.model.function("divide").relative
    for rows in _pieces(batch):
        hidden = hidden_of(rows, read, shapes)
        part = (result_of(hidden, columns, read) - read(5, (rows, columns))) / batch
        residual.value[rows], residual.bound[rows] = part.value, part.bound
        alike[rows] = np.linalg.norm(_of_tanh(hidden), axis=1) * of_v / batch
        alike[rows] += divide * np.linalg.norm(part.value, axis=1)
    turned = x.T
    for one in (x, turned, residual):
        one.norms |= {axis: norms(one, axis) for axis in (0, 1)}
    return _Shared(x, turned, residual, alike)


def _pieces(n: int) -> list[slice]:
    return pieces(n, _ROWS)


def _squares(x: Any) -> float:
    return float(np.vdot(x.value, x.value))


def _of_tanh(hidden: Any) -> Any:
    """The error of the hidden layer that tanh causes."""
    tanh = hidden.model.function("tanh")
    return tanh.relative * np.abs(hidden.value) + tanh.absolute


def gradient(
    output: int, index: Index, read: Read, shapes: tuple[Shape, ...], shared: _Shared
) -> Any:
    """A block of a gradient; hidden units are computed again, which needs less memory."""
    from .._bounds.random_data import over_batch

    x, residual = shared.x, shared.residual
    if output == 3:
        return residual[:, index[0]].sum(axis=0)
    units = index[1] if output == 0 else index[0]
    known = [shared.sums.get(units.start)] if output == 1 else []
    if known and known[0] is not None and len(known[0]) >= units.stop - units.start:
        return known[0][: units.stop - units.start]
    hidden = np.tanh(x @ read(1, (slice(0, x.shape[1]), units)) + read(2, (units,)))
    if output == 2:
        return hidden.T @ _columns(residual, index[1])
    v = read(3, (units, slice(0, residual.shape[1])))
    spread = residual @ v.T
    slope, size = spread * (1 - hidden * hidden), np.abs(hidden.value)
    # The part of the error of the backpropagated values that tanh and the division cause.
    alike = np.outer(shared.alike, np.linalg.norm(v.value, axis=1))
    alike += 2 * np.abs(spread.value) * size * _of_tanh(hidden)
    sums = over_batch(None, slope, alike)
    if output == 1:
        return sums
    shared.sums[units.start] = sums
    whole = index[0] == slice(0, x.shape[1])
    return over_batch(shared.turned if whole else shared.turned[index[0]], slope, alike)


def _columns(x: Any, wanted: slice) -> Any:
    """Some columns; if these are all, the array itself, whose norms are known."""
    return x if wanted == slice(0, x.shape[1]) else x[:, wanted]


def _elements(output: int, index: Index, shapes: tuple[Shape, ...]) -> int:
    columns = index[1 if output == 0 else 0]
    return 2 * shapes[0][0] * (columns.stop - columns.start)


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


STAGED = Staged(_first, gradient, _elements)

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
    staged=STAGED,
)
