"""The product with a transposed matrix, ``x @ y.T``.

Communicated bytes: if the columns of both are sharded alike, partial products are summed
(all-reduce); otherwise each device fetches the rows of x and of y that its block needs.
"""

from typing import Any

from ._build import NUMBERS, Subscripts, reduced, subscript_case
from ._case import PRODUCT


def body(x: Any, y: Any) -> Any:
    """JAX."""
    return x @ y.T


def oracle(x: Any, y: Any) -> Any:
    """NumPy."""
    return x @ y.T


SUBSCRIPTS = Subscripts("mk,nk->mn")

CASE = subscript_case(
    "matmul_transposed",
    "product with a transposed matrix",
    SUBSCRIPTS,
    oracle,
    domain=PRODUCT,
    dtypes=NUMBERS,
    factors=((0, False), (1, True)),
    communicated=reduced(SUBSCRIPTS),
)
