"""The softmax of each row of a matrix whose rows may be sharded.

Communicated bytes: the largest element of each row and then the sum of its exponentials are
reduced over the devices (two all-reduces of one number per row).
"""

from typing import Any

import numpy as np

from ._build import REALS, Subscripts, reduced, subscript_case
from ._case import Domain


def body(x: Any) -> Any:
    """JAX."""
    import jax

    return jax.nn.softmax(x, axis=1)


def oracle(x: Any) -> Any:
    """NumPy."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _passes(x: Any) -> Any:
    from .._bounds.passes import softmax

    return softmax(x)


SUBSCRIPTS = Subscripts("ij->ij", whole="j")

CASE = subscript_case(
    "softmax",
    "softmax of each row",
    SUBSCRIPTS,
    oracle,
    domain=Domain((-10, 10), special={0: ("nan", "-inf")}),
    dtypes=REALS,
    communicated=reduced(SUBSCRIPTS, passes=2),
    passes=_passes,
)
