"""A product whose last two blocks of columns are swapped: the wrong block of the README."""

from typing import Any

import pyreactant as pr


def body(x: Any, y: Any) -> Any:
    """The JAX body, with the mistake."""
    import jax.numpy as jnp

    first, second, third, fourth = jnp.split(x @ y, 4, axis=1)
    return jnp.concatenate([first, second, fourth, third], axis=1)


program = pr.Program(
    "swapped", jax="swapped:body", oracle="numpy:matmul", inputs=(("n", "n"), ("n", "n"))
)
