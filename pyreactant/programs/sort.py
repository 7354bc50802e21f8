"""Sort each row of a matrix whose rows may be sharded.

Communicated bytes: devices exchange parts of rows for whole rows, sort them and exchange them back
(two all-to-alls).
"""

from typing import Any

import numpy as np

from .._core.dtypes import EXTENDED, as_dtype
from .._core.mesh import Mesh
from ._build import Subscripts, all_to_all, subscript_case
from ._case import ALL_EXPONENTS, Domain, Layout


def body(x: Any) -> Any:
    """JAX."""
    import jax.numpy as jnp

    return jnp.sort(x, axis=1)


def oracle(x: Any) -> Any:
    """NumPy; stable as XLA's sort is, so that -0.0 and 0.0 keep their order."""
    if x.dtype.name in EXTENDED:
        # NumPy sorts these by plain comparisons, which leave NaN where it is.
        return np.sort(x.astype(np.float32), axis=1, kind="stable").astype(x.dtype)
    return np.sort(x, axis=1, kind="stable")


SUBSCRIPTS = Subscripts("ij->ij", whole="j")


def _communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = SUBSCRIPTS.axes(layout)
    if axes is None:
        return None
    block = SUBSCRIPTS.block_elements("ij", mesh, axes, size) * as_dtype(dtype).itemsize
    return 2 * all_to_all(block, SUBSCRIPTS.cut_of("j", mesh, axes))


CASE = subscript_case(
    "sort",
    "each row sorted",
    SUBSCRIPTS,
    oracle,
    domain=Domain(ALL_EXPONENTS, special={0: ("nan", "inf")}, moves=True),
    dtypes=("float32", "float64", "bfloat16", "float16", "int32"),
    communicated=_communicated,
    exact=True,
)
