"""The heat equation on a plate with cold edges: a five-point stencil in a loop."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...arrays.domain import Domain
from ...arrays.dtypes import as_dtype
from ...arrays.mesh import Mesh
from ...arrays.sharding import Index
from ..regions import within
from .build import Subscripts, subscript_case
from .case import Inputs, Layout, Oracle, Shape

STEPS = 4
RATE = 0.125


def heat(u: Any, *, steps: int) -> Any:
    """The plate after some steps, in JAX.

    Communicated bytes: in each step a device receives one row or column from each neighbour (halo
    exchange).
    """
    import jax
    import jax.numpy as jnp

    # XLA partitions a padding of 1 on one side and -1 on the other best: it exchanges one row.
    # Slices of an array with a border communicate many times the bytes.
    def shifted(u: Any, low: int, dimension: int) -> Any:
        widths = [(low, -low, 0) if d == dimension else (0, 0, 0) for d in range(2)]
        return jax.lax.pad(u, jnp.zeros((), u.dtype), widths)

    def step(_: Any, u: Any) -> Any:
        around = shifted(u, 1, 0) + shifted(u, -1, 0) + shifted(u, 1, 1) + shifted(u, -1, 1)
        return u + RATE * (around - 4 * u)

    return jax.lax.fori_loop(0, steps, step, u)


def heat_oracle(u: Any, *, steps: int = STEPS) -> Any:
    """NumPy."""
    for _ in range(steps):
        p = np.pad(u, 1)
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        u = u + RATE * (around - 4 * u)
    return u


def _needs(output: int, index: Index, shapes: tuple[Shape, ...]) -> tuple[Index, ...]:
    return (
        tuple(
            slice(max(0, s.start - STEPS), min(n, s.stop + STEPS))
            for s, n in zip(index, shapes[0], strict=True)
        ),
    )


def _block(output: int, index: Index, inputs: Inputs) -> Any:
    """Errors from a part's false edges move inwards one element per step and stay in the margin."""
    (need,) = _needs(output, index, inputs.shapes)
    return heat_oracle(inputs.read(0, need))[within(index, need)]


_SUBSCRIPTS = Subscripts("ij->ij")


def _communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = _SUBSCRIPTS.axes(layout)
    if axes is None:
        return None
    rows, columns = (_SUBSCRIPTS.cut_of(label, mesh, axes) for label in "ij")
    edges = _neighbours(rows) * (size // columns) + _neighbours(columns) * (size // rows)
    return STEPS * edges * as_dtype(dtype).itemsize


def _neighbours(cut: int) -> int:
    return min(cut - 1, 2)


def _static(size: int) -> Mapping[str, Any]:
    return {"steps": STEPS}


HEAT = subscript_case(
    heat,
    "heat equation, five-point stencil in a loop",
    _SUBSCRIPTS,
    heat_oracle,
    domain=Domain(sums=True, special=("nan", "zero", "denormal")),
    dtypes=("float32", "float64"),
    needs=_needs,
    oracle=Oracle(_block),
    lost_bits=15,
    communicated=_communicated,
    static=_static,
)
