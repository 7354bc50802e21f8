"""The sum of all elements of a matrix, as an array without dimensions.

Communicated bytes: each device sums its block, then these numbers are summed (all-reduce).
"""

from typing import Any

from ._build import NUMBERS, letter_case
from ._letters import Letters
from ._traffic import reduced


def body(x: Any) -> Any:
    """JAX."""
    return x.sum(dtype=x.dtype)


def oracle(x: Any) -> Any:
    """NumPy."""
    return x.sum()


LETTERS = Letters("ij->")

CASE = letter_case(
    "full_sum", "sum of all elements", LETTERS, oracle, dtypes=NUMBERS,
    default_size=32, communicated=reduced(LETTERS),
)  # fmt: skip
