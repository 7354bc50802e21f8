"""Programs that move elements and change none: transpose, sort and gather."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...arrays.domain import SPECIAL, Domain
from ...arrays.dtypes import EXTENDED
from ...arrays.mesh import Mesh
from ...arrays.sharding import as_entry
from .build import Subscripts, subscript_case
from .case import Input, Layout, default_spec


def transpose(x: Any) -> Any:
    """The transpose, in JAX and in NumPy, also with the same specs before and after."""
    return x.T


def _resharded(mesh: Mesh, n: int) -> Iterable[Layout]:
    """The same specs before and after, so that blocks change devices."""
    spec = default_spec(mesh, (n, n))
    yield Layout((spec,), (spec,))
    rows = (as_entry(mesh.axis_names), None)
    yield Layout((rows,), (rows,))
    yield Layout((spec,), ((),))


TRANSPOSE = subscript_case(
    transpose,
    "transpose and reshard",
    Subscripts("ij->ji"),
    transpose,
    domain=Domain(moves=True, special=SPECIAL),
    dtypes=("float32", "float64", "bfloat16", "float16", "complex64", "int8", "int32", "bool"),
    extra=_resharded,
    exact=True,
)


def sort(x: Any) -> Any:
    """Each row sorted, in JAX."""
    import jax.numpy as jnp

    return jnp.sort(x, axis=1)


def sort_oracle(x: Any) -> Any:
    """NumPy; stable as XLA's sort is, so that -0.0 and 0.0 keep their order."""
    if x.dtype.name in EXTENDED:
        # NumPy sorts these by plain comparisons, which leave NaN where it is.
        return np.sort(x.astype(np.float32), axis=1, kind="stable").astype(x.dtype)
    return np.sort(x, axis=1, kind="stable")


SORT = subscript_case(
    sort,
    "each row sorted",
    Subscripts("ij->ij", whole="j"),
    sort_oracle,
    domain=Domain(moves=True),
    dtypes=("float32", "float64", "bfloat16", "float16", "int32"),
    exact=True,
)


def gather(table: Any, indices: Any) -> Any:
    """Rows of a table, selected by indices, in JAX."""
    import jax.numpy as jnp

    return jnp.take(table, indices, axis=0, mode="clip")


def gather_oracle(table: Any, indices: Any) -> Any:
    """NumPy."""
    return table[indices]


def _gather_inputs(n: int, dtype: str) -> tuple[Input, ...]:
    return (Input("table", (n, n), dtype), Input("indices", (n,), "int32", kind="indices", high=n))


GATHER = subscript_case(
    gather,
    "rows of a table, by indices",
    Subscripts("rd,k->kd"),
    gather_oracle,
    domain=Domain(moves=True),
    dtypes=("float32", "float64", "bfloat16", "float16", "complex64", "int8", "int32"),
    inputs=_gather_inputs,
    exact=True,
)
