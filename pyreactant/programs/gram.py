"""The products of all pairs of columns, ``x.T @ x``.

Communicated bytes: each device fetches the columns that its block needs, for its own rows, and the
partial products are summed if the rows are sharded (all-reduce). None if the result is sharded in
both dimensions.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from .._core.dtypes import as_dtype
from .._core.mesh import Mesh
from .._core.sharding import Index
from ._build import NUMBERS, Subscripts, all_reduce, assignments, spec, subscript_case
from ._case import PRODUCT, Layout, Shape


def body(x: Any) -> Any:
    """JAX."""
    return x.T @ x


def oracle(x: Any) -> Any:
    """NumPy."""
    return x.T @ x


SUBSCRIPTS = Subscripts("ki->ij")


def _candidates(mesh: Mesh, n: int) -> Iterable[Layout]:
    for cuts in assignments("kij", mesh):
        yield Layout((spec("ki", cuts),), (spec("ij", cuts),))


def _columns(index: Index) -> slice:
    """The columns from the first to the last that a block needs."""
    left, right = index
    return slice(min(left.start, right.start), max(left.stop, right.stop))


def _needs(output: int, index: Index, shapes: tuple[Shape, ...]) -> tuple[Index, ...]:
    return ((slice(0, shapes[0][0]), _columns(index)),)


def _block(output: int, index: Index, parts: tuple[Any, ...], shapes: tuple[Shape, ...]) -> Any:
    start = _columns(index).start
    left, right = (parts[0][:, s.start - start : s.stop - start] for s in index)
    return left.T @ right


def _communicated(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = SUBSCRIPTS.axes(layout)
    if axes is None or (axes["i"] and axes["j"]):
        return None
    k, i, j = (SUBSCRIPTS.cut_of(label, mesh, axes) for label in "kij")
    fetched = (size // k) * (size - size // i)
    return fetched * as_dtype(dtype).itemsize + all_reduce(
        (size // i) * (size // j) * as_dtype(dtype).itemsize, k
    )


CASE = replace(
    subscript_case(
        "gram",
        "products of all pairs of columns",
        SUBSCRIPTS,
        oracle,
        dtypes=NUMBERS,
        domain=PRODUCT,
    ),
    candidates=_candidates,
    needs=_needs,
    oracle=_block,
    contracted=lambda output: ((0, 0),),
    factors=((0, True), (0, False)),
    communicated=_communicated,
)
