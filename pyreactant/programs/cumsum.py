"""The cumulative sum along each row.

Communicated bytes: each device sums its parts of rows and sends the sums to the others (an
all-gather of one number per row and device).
"""

from dataclasses import replace
from typing import Any

import numpy as np

from .._core.dtypes import as_dtype
from .._core.mesh import Mesh
from .._core.sharding import Index
from ._build import Subscripts, subscript_case
from ._case import ALL_EXPONENTS, Domain, Layout, Shape


def body(x: Any) -> Any:
    """JAX."""
    return x.cumsum(axis=1, dtype=x.dtype)


def oracle(x: Any) -> Any:
    """NumPy."""
    return np.cumsum(x, axis=1)


SUBSCRIPTS = Subscripts("ij->ij", whole="j")


def _needs(output: int, index: Index, shapes: tuple[Shape, ...]) -> tuple[Index, ...]:
    return ((index[0], slice(0, index[1].stop)),)


def _communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = SUBSCRIPTS.axes(layout)
    if axes is None:
        return None
    rows = SUBSCRIPTS.block_elements("i", mesh, axes, size)
    return (SUBSCRIPTS.cut_of("j", mesh, axes) - 1) * rows * as_dtype(dtype).itemsize


CASE = replace(
    subscript_case(
        "cumsum",
        "cumulative sum along each row",
        SUBSCRIPTS,
        oracle,
        domain=Domain(ALL_EXPONENTS, special={0: ("nan",)}, linear=True),
        dtypes=("float32", "float64", "int32"),
        communicated=_communicated,
    ),
    needs=_needs,
)
