"""The Fourier transform of each row.

Communicated bytes: devices exchange parts of rows for whole rows, transform them and exchange them
back (two all-to-alls).
"""

from typing import Any

import numpy as np

from .._core.dtypes import as_dtype
from .._core.mesh import Mesh
from ._build import Subscripts, all_to_all, subscript_case
from ._case import ALL_EXPONENTS, Domain, Layout


def body(x: Any) -> Any:
    """JAX."""
    import jax.numpy as jnp

    return jnp.fft.fft(x, axis=1)


def oracle(x: Any) -> Any:
    """NumPy."""
    return np.fft.fft(x, axis=1)


SUBSCRIPTS = Subscripts("ij->ij", whole="j")


def _communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = SUBSCRIPTS.axes(layout)
    if axes is None:
        return None
    block = SUBSCRIPTS.block_elements("ij", mesh, axes, size) * as_dtype(dtype).itemsize
    return 2 * all_to_all(block, SUBSCRIPTS.cut_of("j", mesh, axes))


CASE = subscript_case(
    "fft",
    "Fourier transform of each row",
    SUBSCRIPTS,
    oracle,
    domain=Domain(ALL_EXPONENTS),
    dtypes=("complex64", "complex128"),
    communicated=_communicated,
)
