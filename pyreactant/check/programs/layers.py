"""Layers of neural networks: softmax, layer normalisation and attention."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...arrays.domain import Domain
from ...arrays.dtypes import as_dtype
from ...arrays.mesh import Mesh
from ...arrays.sharding import as_entry
from .build import Subscripts, all_reduce, fetched, reduced, subscript_case
from .case import Layout


def softmax(x: Any) -> Any:
    """The softmax of each row, in JAX.

    Communicated bytes: the largest element of each row and then the sum of its exponentials are
    reduced over the devices (two all-reduces of one number per row).
    """
    import jax

    return jax.nn.softmax(x, axis=1)


def softmax_oracle(x: Any) -> Any:
    """NumPy."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


_SOFTMAX_SUBSCRIPTS = Subscripts("ij->ij", whole="j")

SOFTMAX = subscript_case(
    softmax,
    "softmax of each row",
    _SOFTMAX_SUBSCRIPTS,
    softmax_oracle,
    domain=Domain(exponents=(-10, 10), special={0: ("nan", "-inf")}),
    communicated=reduced(_SOFTMAX_SUBSCRIPTS, times=2),
)

EPSILON = 2.0**-10
"""Keeps the root away from zero; a power of two, so that every dtype represents it."""


def layer_norm(x: Any, gain: Any, shift: Any) -> Any:
    """Each row minus its mean, over its standard deviation, with gain and shift, in JAX.

    Communicated bytes: the mean of each row and then its variance are reduced over the devices
    (two all-reduces of one number per row).
    """
    import jax.numpy as jnp

    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    return centred / jnp.sqrt(variance + EPSILON) * gain + shift


def layer_norm_oracle(x: Any, gain: Any, shift: Any) -> Any:
    """NumPy."""
    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * gain + shift


_LAYER_NORM_SUBSCRIPTS = Subscripts("ij,j,j->ij", whole="j")

LAYER_NORM = subscript_case(
    layer_norm,
    "layer normalisation of each row",
    _LAYER_NORM_SUBSCRIPTS,
    layer_norm_oracle,
    domain=Domain(exponents=(-10, 10), degree=2, special={0: ("nan",)}),
    communicated=reduced(_LAYER_NORM_SUBSCRIPTS, times=2),
)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Attention in several heads, ``softmax(q k' / sqrt(d)) v``, in JAX.

    Communicated bytes: if the keys are sharded, each device attends to its own keys, and the
    largest score, the sum of each row and the weighted values are reduced (three all-reduces). If
    a mesh axis shards queries and keys, each device fetches the keys and values that it lacks.
    """
    import jax

    scores = q @ k.swapaxes(1, 2) * q.shape[2] ** -0.5
    return jax.nn.softmax(scores, axis=2) @ v


def attention_oracle(q: Any, k: Any, v: Any) -> Any:
    """NumPy."""
    scores = q @ np.swapaxes(k, 1, 2) * q.shape[2] ** -0.5
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return weights / weights.sum(axis=2, keepdims=True) @ v


_ATTENTION_SUBSCRIPTS = Subscripts(
    "hqd,hkd,hke->hqe", sizes=dict.fromkeys("hde", lambda n: max(1, n // 4)), cut="hqk"
)


def _sequence_parallel(mesh: Mesh, n: int) -> Iterable[Layout]:
    """Shard heads over the first mesh axes and the sequence over the last, in all arrays."""
    *heads, last = mesh.axis_names
    spec = (as_entry(tuple(heads)), last)
    yield Layout((spec,) * 3, (spec,))


def _attention_bytes(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    subscripts = _ATTENTION_SUBSCRIPTS
    axes = subscripts.axes(layout)
    if axes is None:
        return fetched(ATTENTION, mesh, layout, size, dtype)
    if axes["d"] or axes["e"]:
        return None
    rows, values = (subscripts.block_elements(labels, mesh, axes, size) for labels in ("hq", "hqe"))
    devices = subscripts.cut_of("k", mesh, axes)
    return all_reduce((2 * rows + values) * as_dtype(dtype).itemsize, devices)


ATTENTION = subscript_case(
    attention,
    "multi-head attention",
    _ATTENTION_SUBSCRIPTS,
    attention_oracle,
    domain=Domain(exponents=(-4, 4), degree=2, special={0: ("nan",)}),
    dtypes=("float32", "float64"),
    default_size=32,
    extra=_sequence_parallel,
    communicated=_attention_bytes,
)
