"""Bodies of the contract suite's programs, and their NumPy oracles."""

from typing import Any

import jax.numpy as jnp


def add_transposed(x: Any) -> Any:
    """x + x'."""
    return x + x.T


def sums(x: Any) -> Any:
    """Row sums and the full sum: two outputs, one of them 0-d."""
    return x.sum(axis=1), x.sum()


def scaled(x: Any, factor: Any, *, power: int) -> Any:
    """A 0-d argument and a static one."""
    return factor * x**power


def over(x: Any, *, number: float) -> Any:
    """A static argument that distinguishes 0.0 and -0.0."""
    return x / number


def filled() -> Any:
    """No arguments."""
    return jnp.arange(8.0)


def turned(x: Any) -> Any:
    """Three dimensions in another order."""
    return x.transpose(2, 0, 1)


def one_in_a_tuple(x: Any) -> Any:
    """A tuple with one array."""
    return (x + 1,)
