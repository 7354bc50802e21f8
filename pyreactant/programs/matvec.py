"""A matrix times a vector, ``x @ v``.

Communicated bytes: each device multiplies its own parts, then these are summed (all-reduce).
"""

from typing import Any

from ._build import NUMBERS, Subscripts, reduced, subscript_case
from ._case import PRODUCT


def body(x: Any, v: Any) -> Any:
    """JAX."""
    return x @ v


def oracle(x: Any, v: Any) -> Any:
    """NumPy."""
    return x @ v


SUBSCRIPTS = Subscripts("mk,k->m")

CASE = subscript_case(
    "matvec",
    "matrix times vector",
    SUBSCRIPTS,
    oracle,
    domain=PRODUCT,
    dtypes=NUMBERS,
    communicated=reduced(SUBSCRIPTS),
)
