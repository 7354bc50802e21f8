"""The heat equation on a plate with cold edges: a five-point stencil in a loop."""

from typing import Any

import numpy as np

from ...arrays.domain import Domain
from ...arrays.sharding import Index
from ..regions import within
from .build import Subscripts, subscript_case
from .case import Inputs, Oracle, Shape

STEPS = 4
RATE = 0.125


def heat(u: Any, *, steps: int) -> Any:
    """The plate after some steps, in JAX."""
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


HEAT = subscript_case(
    heat,
    "heat equation, five-point stencil in a loop",
    Subscripts("ij->ij"),
    heat_oracle,
    domain=Domain(sums=True, special=("nan", "zero", "denormal")),
    dtypes=("float32", "float64"),
    needs=_needs,
    oracle=Oracle(_block),
    lost_bits=15,
    static=lambda size: {"steps": STEPS},
)
