"""Many matrix products at once, ``x[b] @ y[b]``.

Communicated bytes: partial products are summed (all-reduce) where the contracted dimension is cut;
cutting the batch costs nothing.
"""

from typing import Any

from ._build import NUMBERS, letter_case, reduced
from ._subscripts import Letters


def body(x: Any, y: Any) -> Any:
    """JAX."""
    return x @ y


def oracle(x: Any, y: Any) -> Any:
    """NumPy."""
    return x @ y


LETTERS = Letters("bmk,bkn->bmn", sizes={"b": lambda n: max(1, n // 4)})

CASE = letter_case(
    "batched_matmul",
    "a batch of matrix products",
    LETTERS,
    oracle,
    dtypes=NUMBERS,
    default_size=32,
    communicated=reduced(LETTERS),
)
