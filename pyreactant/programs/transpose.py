"""The transpose with the same specs before and after, so that blocks change devices.

Communicated bytes: each device fetches the elements of its transposed block that it lacks.
"""

from collections.abc import Iterable
from typing import Any

from .._core.mesh import Mesh
from .._core.sharding import as_entry
from ._build import Subscripts, fetched, subscript_case
from ._case import ALL_EXPONENTS, SPECIAL, Domain, Layout, default_spec


def body(x: Any) -> Any:
    """JAX."""
    return x.T


def oracle(x: Any) -> Any:
    """NumPy."""
    return x.T


SUBSCRIPTS = Subscripts("ij->ji")


def _resharded(mesh: Mesh, n: int) -> Iterable[Layout]:
    spec = default_spec(mesh, (n, n))
    yield Layout((spec,), (spec,))
    rows = (as_entry(mesh.axis_names), None)
    yield Layout((rows,), (rows,))
    yield Layout((spec,), ((),))


def _communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int:
    return fetched(CASE, mesh, layout, size, dtype)


CASE = subscript_case(
    "transpose",
    "transpose and reshard",
    SUBSCRIPTS,
    oracle,
    domain=Domain(ALL_EXPONENTS, special={0: SPECIAL}, moves=True),
    dtypes=("float32", "float64", "bfloat16", "float16", "complex64", "int8", "int32", "bool"),
    extra=_resharded,
    communicated=_communicated,
    exact=True,
)
