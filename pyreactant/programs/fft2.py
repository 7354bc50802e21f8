"""The two-dimensional Fourier transform.

Communicated bytes: where one dimension is cut, the other is transformed first, then blocks are
exchanged, transformed and exchanged back (two all-to-alls). None where both are cut.
"""

from typing import Any

import numpy as np

from .._dtypes import as_dtype
from .._mesh import Mesh
from ._build import letter_case
from ._case import Layout
from ._letters import Letters
from ._traffic import all_to_all


def body(x: Any) -> Any:
    """JAX."""
    import jax.numpy as jnp

    return jnp.fft.fft2(x)


def oracle(x: Any) -> Any:
    """NumPy."""
    return np.fft.fft2(x)


LETTERS = Letters("ij->ij", whole="ij")


def _communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = LETTERS.axes(layout)
    if axes is None or (axes["i"] and axes["j"]):
        return None
    block = LETTERS.block_elements("ij", mesh, axes, size) * as_dtype(dtype).itemsize
    return 2 * all_to_all(block, LETTERS.cut_of("i", mesh, axes) * LETTERS.cut_of("j", mesh, axes))


CASE = letter_case(
    "fft2", "two-dimensional Fourier transform", LETTERS, oracle,
    dtypes=("complex64", "complex128"), communicated=_communicated,
)  # fmt: skip
