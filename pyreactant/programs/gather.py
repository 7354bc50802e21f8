"""Rows of a table, selected by indices.

Communicated bytes: if the table's rows are sharded, each device looks up its own rows and uses
zeros for the others, and the results are summed (all-reduce).
"""

from dataclasses import replace
from typing import Any

from ._build import Subscripts, reduced, subscript_case
from ._case import ALL_EXPONENTS, Domain, Input


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
        domain=Domain(ALL_EXPONENTS, special={0: ("nan", "inf")}, moves=True),
        dtypes=("float32", "float64", "bfloat16", "float16", "complex64", "int8", "int32"),
        communicated=reduced(SUBSCRIPTS),
        exact=True,
    ),
    inputs=_inputs,
)
