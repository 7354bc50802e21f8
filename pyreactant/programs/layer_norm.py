"""Layer normalisation: each row minus its mean, over its standard deviation, with gain and shift.

Communicated bytes: the mean of each row and then its variance are reduced over the devices (two
all-reduces of one number per row).
"""

from typing import Any

import numpy as np

from ._build import Subscripts, reduced, subscript_case
from ._case import Domain

EPSILON = 2.0**-10
"""Keeps the root away from zero; a power of two, so that every dtype represents it."""


def body(x: Any, gain: Any, shift: Any) -> Any:
    """JAX."""
    import jax.numpy as jnp

    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    return centred / jnp.sqrt(variance + EPSILON) * gain + shift


def oracle(x: Any, gain: Any, shift: Any) -> Any:
    """NumPy."""
    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * gain + shift


def _passes(x: Any, gain: Any, shift: Any) -> Any:
    from .._bounds.passes import layer_norm

    return layer_norm(x, gain, shift, EPSILON)


SUBSCRIPTS = Subscripts("ij,j,j->ij", whole="j")

CASE = subscript_case(
    "layer_norm",
    "layer normalisation of each row",
    SUBSCRIPTS,
    oracle,
    domain=Domain((-10, 10), degree=2, special={0: ("nan",)}),
    communicated=reduced(SUBSCRIPTS, passes=2),
    passes=_passes,
)
