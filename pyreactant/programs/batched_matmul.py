"""A batch of matrix products, ``x[b] @ y[b]``.

Communicated bytes: partial products are summed (all-reduce) if the contracted dimension is
sharded; a sharded batch needs no communication.
"""

from typing import Any

from ._build import NUMBERS, Subscripts, reduced, subscript_case
from ._case import PRODUCT


def body(x: Any, y: Any) -> Any:
    """JAX."""
    return x @ y


def oracle(x: Any, y: Any) -> Any:
    """NumPy."""
    return x @ y


SUBSCRIPTS = Subscripts("bmk,bkn->bmn", sizes={"b": lambda n: max(1, n // 4)})

CASE = subscript_case(
    "batched_matmul",
    "a batch of matrix products",
    SUBSCRIPTS,
    oracle,
    domain=PRODUCT,
    dtypes=NUMBERS,
    default_size=32,
    communicated=reduced(SUBSCRIPTS),
)
