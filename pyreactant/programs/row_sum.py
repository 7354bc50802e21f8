"""The sum of each row of a matrix whose rows may be sharded.

Communicated bytes: each device sums its parts of rows, then these are summed (all-reduce).
"""

from typing import Any

from ._build import NUMBERS, Subscripts, reduced, subscript_case
from ._case import ALL_EXPONENTS, Domain


def body(x: Any) -> Any:
    """JAX."""
    return x.sum(axis=1, dtype=kept(x))


def kept(x: Any) -> Any:
    """The dtype argument for `jax.numpy.sum`: integers keep their dtype.

    Floats get none: short floats would be rounded after each addition; without a dtype they are
    summed in float32 and rounded once.
    """
    return x.dtype if x.dtype.kind in "iu" else None


def oracle(x: Any) -> Any:
    """NumPy."""
    return x.sum(axis=1)


SUBSCRIPTS = Subscripts("ij->i")

CASE = subscript_case(
    "row_sum",
    "sum of each row",
    SUBSCRIPTS,
    oracle,
    domain=Domain(ALL_EXPONENTS, special={0: ("nan", "inf")}, linear=True),
    dtypes=NUMBERS,
    communicated=reduced(SUBSCRIPTS),
)
