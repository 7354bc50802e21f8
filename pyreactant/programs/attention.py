"""Attention in several heads: ``softmax(q k' / sqrt(d)) v``.

Communicated bytes: if the keys are sharded, each device attends to its own keys, and the largest
score, the sum of each row and the weighted values are reduced (three all-reduces). If a mesh axis
shards queries and keys, each device fetches the keys and values that it lacks.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from .._core.dtypes import as_dtype
from .._core.mesh import Mesh
from .._core.sharding import as_entry
from ._build import Subscripts, all_reduce, fetched, subscript_case
from ._case import Domain, Layout


def body(q: Any, k: Any, v: Any) -> Any:
    """JAX."""
    import jax

    scores = q @ k.swapaxes(1, 2) * q.shape[2] ** -0.5
    return jax.nn.softmax(scores, axis=2) @ v


def oracle(q: Any, k: Any, v: Any) -> Any:
    """NumPy."""
    scores = q @ np.swapaxes(k, 1, 2) * q.shape[2] ** -0.5
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return weights / weights.sum(axis=2, keepdims=True) @ v


def _passes(q: Any, k: Any, v: Any) -> Any:
    from .._bounds.passes import softmax_of_scores

    weights = softmax_of_scores(q @ np.swapaxes(k, 1, 2), q.shape[2] ** -0.5)
    return None if weights is None else weights @ v


SUBSCRIPTS = Subscripts(
    "hqd,hkd,hke->hqe", sizes=dict.fromkeys("hde", lambda n: max(1, n // 4)), cut="hqk"
)


def _sequence_parallel(mesh: Mesh, n: int) -> Iterable[Layout]:
    """Shard heads over the first mesh axes and the sequence over the last, in all arrays."""
    *heads, last = mesh.axis_names
    spec = (as_entry(tuple(heads)), last)
    yield Layout((spec,) * 3, (spec,))


def _communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = SUBSCRIPTS.axes(layout)
    if axes is None:
        return fetched(CASE, mesh, layout, size, dtype)
    if axes["d"] or axes["e"]:
        return None
    rows, values = (SUBSCRIPTS.block_elements(one, mesh, axes, size) for one in ("hq", "hqe"))
    devices = SUBSCRIPTS.cut_of("k", mesh, axes)
    return all_reduce((2 * rows + values) * as_dtype(dtype).itemsize, devices)


CASE = subscript_case(
    "attention",
    "multi-head attention",
    SUBSCRIPTS,
    oracle,
    domain=Domain((-4, 4), degree=2, special={0: ("nan",)}),
    dtypes=("float32", "float64"),
    default_size=32,
    extra=_sequence_parallel,
    communicated=_communicated,
    passes=_passes,
)
