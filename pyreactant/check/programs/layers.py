"""Layers of neural networks: softmax, layer normalisation and attention."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...arrays.domain import Domain
from ...arrays.mesh import Mesh
from ...arrays.sharding import as_entry
from .build import Subscripts, subscript_case
from .case import Layout


def softmax(x: Any) -> Any:
    """The softmax of each row, in JAX."""
    import jax

    return jax.nn.softmax(x, axis=1)


def softmax_oracle(x: Any) -> Any:
    """NumPy."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


SOFTMAX = subscript_case(
    softmax,
    "softmax of each row",
    Subscripts("ij->ij", whole="j"),
    softmax_oracle,
    domain=Domain(exponents=(-10, 10), special={0: ("nan", "-inf")}),
)

EPSILON = 2.0**-10
"""Keeps the root away from zero; a power of two, so that every dtype represents it."""


def layer_norm(x: Any, gain: Any, shift: Any) -> Any:
    """Each row minus its mean, over its standard deviation, with gain and shift, in JAX."""
    import jax.numpy as jnp

    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    return centred / jnp.sqrt(variance + EPSILON) * gain + shift


def layer_norm_oracle(x: Any, gain: Any, shift: Any) -> Any:
    """NumPy."""
    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * gain + shift


LAYER_NORM = subscript_case(
    layer_norm,
    "layer normalisation of each row",
    Subscripts("ij,j,j->ij", whole="j"),
    layer_norm_oracle,
    domain=Domain(exponents=(-10, 10), degree=2, special={0: ("nan",)}),
)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Attention in several heads, ``softmax(q k' / sqrt(d)) v``, in JAX."""
    import jax

    scores = q @ k.swapaxes(1, 2) * q.shape[2] ** -0.5
    return jax.nn.softmax(scores, axis=2) @ v


def attention_oracle(q: Any, k: Any, v: Any) -> Any:
    """NumPy."""
    scores = q @ np.swapaxes(k, 1, 2) * q.shape[2] ** -0.5
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return weights / weights.sum(axis=2, keepdims=True) @ v


def _sequence_parallel(mesh: Mesh, n: int) -> Iterable[Layout]:
    """Shard heads over the first mesh axes and the sequence over the last, in all arrays."""
    *heads, last = mesh.axis_names
    spec = (as_entry(tuple(heads)), last)
    yield Layout((spec,) * 3, (spec,))


ATTENTION = subscript_case(
    attention,
    "multi-head attention",
    Subscripts("hqd,hkd,hke->hqe", sizes=dict.fromkeys("hde", lambda n: max(1, n // 4)), cut="hqk"),
    attention_oracle,
    domain=Domain(exponents=(-4, 4), degree=2, special={0: ("nan",)}),
    dtypes=("float32", "float64"),
    default_size=32,
    extra=_sequence_parallel,
)
