"""The matrix product ``x @ y``.

Communicated bytes: if x's columns and y's rows are sharded alike, each device multiplies its own
parts and the partial products are summed (all-reduce); otherwise each device fetches the rows of x
and the columns of y that its block needs.
"""

from collections.abc import Iterable
from typing import Any

from .._core.mesh import Mesh
from ._build import NUMBERS, Subscripts, fetched, reduced, subscript_case
from ._case import PRODUCT, Layout, default_spec


def body(x: Any, y: Any) -> Any:
    """JAX."""
    return x @ y


def oracle(x: Any, y: Any) -> Any:
    """NumPy."""
    return x @ y


SUBSCRIPTS = Subscripts("mk,kn->mn")


def _reference(mesh: Mesh, n: int) -> Iterable[Layout]:
    """The layout of `pyreactant matmul`: every array is sharded by rows and columns."""
    spec = default_spec(mesh, (n, n))
    if len(mesh.axis_names) > 1:
        yield Layout((spec, spec), (spec,))


def _communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int:
    sums = reduced(SUBSCRIPTS)(mesh, layout, size, dtype)
    return fetched(CASE, mesh, layout, size, dtype) if sums is None else sums


CASE = subscript_case(
    "matmul",
    "matrix product",
    SUBSCRIPTS,
    oracle,
    domain=PRODUCT,
    dtypes=NUMBERS,
    extra=_reference,
    factors=((0, False), (1, False)),
    communicated=_communicated,
)
