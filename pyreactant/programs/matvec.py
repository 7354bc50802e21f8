"""A matrix times a vector, ``x @ v``.

Communicated bytes: each device multiplies what it has, then the parts are summed (all-reduce).
"""

from typing import Any

from ._build import NUMBERS, letter_case, reduced
from ._subscripts import Letters


def body(x: Any, v: Any) -> Any:
    """JAX."""
    return x @ v


def oracle(x: Any, v: Any) -> Any:
    """NumPy."""
    return x @ v


LETTERS = Letters("mk,k->m")

CASE = letter_case(
    "matvec", "matrix times vector", LETTERS, oracle, dtypes=NUMBERS, communicated=reduced(LETTERS)
)
