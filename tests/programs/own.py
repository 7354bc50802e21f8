"""User programs, with and without an oracle."""

from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.check.programs import CASES

HERE = "tests.programs.own:"


def scaled_product(x: Any, y: Any) -> Any:
    """Runs in JAX and in NumPy, with a known error bound."""
    return 0.1 * (x @ y), x.sum(axis=1)


def eigenvalue_oracle(x: Any) -> Any:
    """An oracle without a known error bound: the singular value of each row."""
    return np.linalg.norm(x[:, None], 2, axis=(1, 2))


def converting_oracle(x: Any) -> Any:
    """Computes in float64 what the program computes in float32."""
    return x.astype(np.float64).sum(axis=1)


def listing_oracle(x: Any) -> Any:
    """Uses a method of NumPy arrays that arrays with an error bound lack."""
    return np.array([sum(row) for row in x.tolist()])


def masking_oracle(x: Any) -> Any:
    """Results that are no floating-point numbers."""
    return x > 0, x.argmax(axis=1), (x * 4).astype(np.int32), np.count_nonzero(x > 0)


def insisting_oracle(x: Any) -> Any:
    """Accepts only NumPy arrays."""
    if not isinstance(x, np.ndarray):
        raise ValueError(f"not an array: {type(x).__name__}")
    return x.sum(axis=1)


def changing_oracle(x: Any) -> Any:
    """Changes its argument."""
    x += 1
    return np.cbrt(x)


def writing_oracle(x: Any) -> Any:
    """Changes the elements of arrays of any kind."""
    np.asarray(getattr(x, "value", x))[...] += 1
    return x * 2


def misspelt_oracle(x: Any) -> Any:
    return x.summ(axis=1)


def late_oracle(x: Any) -> Any:
    """Fails only for nonzero elements."""
    total = np.linalg.norm(x, axis=1)
    if np.any(total > 0):
        raise FloatingPointError("too much")
    return total


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
CONVERTING, LISTING, MASKING, INSISTING, MISSPELT, LATE, CHANGING, WRITING = (
    pr.Program(name, jax=HERE + "norms", oracle=f"{HERE}{name}_oracle", inputs=(("n", "n"),))
    for name in (
        "converting",
        "listing",
        "masking",
        "insisting",
        "misspelt",
        "late",
        "changing",
        "writing",
    )
)
A_CASE = CASES["row_sum"]
NUMBER = 3
