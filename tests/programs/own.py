"""Programs as a user has them, with and without an oracle."""

from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.programs import CASES

HERE = "tests.programs.own:"


def scaled_product(x: Any, y: Any) -> Any:
    """Runs in JAX and in NumPy, with a known error bound."""
    return 0.1 * (x @ y), x.sum(axis=1)


def eigenvalue_oracle(x: Any) -> Any:
    """Something of which no error bound is known."""
    return np.linalg.norm(x, axis=1)


def norms(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.linalg.norm(x, axis=1)


def broken_oracle(x: Any) -> Any:
    raise ValueError("this oracle is broken")


PRODUCT = pr.Program(
    "mine",
    jax=HERE + "scaled_product",
    oracle=HERE + "scaled_product",
    inputs=(("2n", "n"), ("n", 8)),
)
NORMS = pr.Program(
    "norms", jax=HERE + "norms", oracle=HERE + "eigenvalue_oracle", inputs=(("n", "n"),)
)
NO_ORACLE = pr.Program("alone", jax=HERE + "norms", inputs=(("n", "n"),))
NO_INPUTS = pr.Program("none", jax=HERE + "norms", oracle=HERE + "eigenvalue_oracle")
BROKEN = pr.Program(
    "broken", jax=HERE + "norms", oracle=HERE + "broken_oracle", inputs=(("n", "n"),)
)
A_CASE = CASES["row_sum"]
NUMBER = 3
