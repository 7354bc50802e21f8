"""Rows of a table, chosen by indices.

Communicated bytes: where the table's rows are cut, each device looks up the rows that it holds and
puts zeros for others, and the results are summed (all-reduce).
"""

from dataclasses import replace
from typing import Any

from ._build import reduced, subscript_case
from ._case import Input
from ._subscripts import Subscripts


def body(table: Any, indices: Any) -> Any:
    """JAX."""
    import jax.numpy as jnp

    return jnp.take(table, indices, axis=0, mode="clip")


def oracle(table: Any, indices: Any) -> Any:
    """NumPy."""
    return table[indices]


SUBSCRIPTS = Subscripts("rd,k->kd")


def _inputs(n: int, dtype: str) -> tuple[Input, ...]:
    return (Input("table", (n, n), dtype), Input("indices", (n,), "int32", kind="indices", high=n))


CASE = replace(
    subscript_case(
        "gather",
        "rows of a table, by indices",
        SUBSCRIPTS,
        oracle,
        dtypes=("float32", "float64", "bfloat16", "float16", "complex64", "int8", "int32"),
        communicated=reduced(SUBSCRIPTS),
        exact=True,
    ),
    inputs=_inputs,
)
