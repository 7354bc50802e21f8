"""Matrix products."""

from collections.abc import Iterable
from typing import Any

from ...arrays.dtypes import as_dtype
from ...arrays.mesh import Mesh
from ...arrays.sharding import Index
from .build import (
    NUMBERS,
    Subscripts,
    all_reduce,
    assignments,
    fetched,
    reduced,
    spec,
    subscript_case,
)
from .case import PRODUCT, Inputs, Layout, Oracle, Shape, default_spec


def matmul(x: Any, y: Any) -> Any:
    """The matrix product, in JAX and in NumPy.

    Communicated bytes: if x's columns and y's rows are sharded alike, each device multiplies its
    own parts and the partial products are summed (all-reduce); otherwise each device fetches the
    rows of x and the columns of y that its block needs.
    """
    return x @ y


_MATMUL_SUBSCRIPTS = Subscripts("mk,kn->mn")


def _reference(mesh: Mesh, n: int) -> Iterable[Layout]:
    """The layout of `pyreactant matmul`: every array is sharded by rows and columns."""
    spec = default_spec(mesh, (n, n))
    if len(mesh.axis_names) > 1:
        yield Layout((spec, spec), (spec,))


def _matmul_bytes(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int:
    sums = reduced(_MATMUL_SUBSCRIPTS)(mesh, layout, size, dtype)
    return fetched(MATMUL, mesh, layout, size, dtype) if sums is None else sums


MATMUL = subscript_case(
    matmul,
    "matrix product",
    _MATMUL_SUBSCRIPTS,
    matmul,
    domain=PRODUCT,
    dtypes=NUMBERS,
    extra=_reference,
    factors=((0, False), (1, False)),
    communicated=_matmul_bytes,
)


def matmul_transposed(x: Any, y: Any) -> Any:
    """The product with a transposed matrix, in JAX and in NumPy.

    Communicated bytes: if the columns of both are sharded alike, partial products are summed
    (all-reduce); otherwise each device fetches the rows of x and of y that its block needs.
    """
    return x @ y.T


MATMUL_TRANSPOSED = subscript_case(
    matmul_transposed,
    "product with a transposed matrix",
    Subscripts("mk,nk->mn"),
    matmul_transposed,
    domain=PRODUCT,
    dtypes=NUMBERS,
    factors=((0, False), (1, True)),
)


def gram(x: Any) -> Any:
    """The products of all pairs of columns, in JAX and in NumPy.

    Communicated bytes: each device fetches the columns that its block needs, for its own rows, and
    the partial products are summed if the rows are sharded (all-reduce). None if the result is
    sharded in both dimensions.
    """
    return x.T @ x


_GRAM_SUBSCRIPTS = Subscripts("ki->ij")


def _gram_candidates(mesh: Mesh, n: int) -> Iterable[Layout]:
    for cuts in assignments("kij", mesh):
        yield Layout((spec("ki", cuts),), (spec("ij", cuts),))


def _gram_needs(output: int, index: Index, shapes: tuple[Shape, ...]) -> tuple[Index, ...]:
    """The columns from the first to the last that a block needs."""
    left, right = index
    columns = slice(min(left.start, right.start), max(left.stop, right.stop))
    return ((slice(0, shapes[0][0]), columns),)


def _gram_block(output: int, index: Index, inputs: Inputs) -> Any:
    (need,) = _gram_needs(output, index, inputs.shapes)
    x, start = inputs.read(0, need), need[1].start
    left, right = (x[:, s.start - start : s.stop - start] for s in index)
    return left.T @ right


def _gram_bytes(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    axes = _GRAM_SUBSCRIPTS.axes(layout)
    if axes is None or (axes["i"] and axes["j"]):
        return None
    k, i, j = (_GRAM_SUBSCRIPTS.cut_of(label, mesh, axes) for label in "kij")
    fetched = (size // k) * (size - size // i)
    return fetched * as_dtype(dtype).itemsize + all_reduce(
        (size // i) * (size // j) * as_dtype(dtype).itemsize, k
    )


GRAM = subscript_case(
    gram,
    "products of all pairs of columns",
    _GRAM_SUBSCRIPTS,
    gram,
    dtypes=NUMBERS,
    domain=PRODUCT,
    candidates=_gram_candidates,
    needs=_gram_needs,
    oracle=Oracle(_gram_block),
    contracted=lambda output: ((0, 0),),
    factors=((0, True), (0, False)),
    communicated=_gram_bytes,
)


def matvec(x: Any, v: Any) -> Any:
    """A matrix times a vector, in JAX and in NumPy.

    Communicated bytes: each device multiplies its own parts, then these are summed (all-reduce).
    """
    return x @ v


MATVEC = subscript_case(
    matvec, "matrix times vector", Subscripts("mk,k->m"), matvec, domain=PRODUCT, dtypes=NUMBERS
)


def batched_matmul(x: Any, y: Any) -> Any:
    """A batch of matrix products, in JAX and in NumPy.

    Communicated bytes: partial products are summed (all-reduce) if the contracted dimension is
    sharded; a sharded batch needs no communication.
    """
    return x @ y


BATCHED_MATMUL = subscript_case(
    batched_matmul,
    "a batch of matrix products",
    Subscripts("bmk,bkn->bmn", sizes={"b": lambda n: max(1, n // 4)}),
    batched_matmul,
    domain=PRODUCT,
    dtypes=NUMBERS,
    default_size=32,
)
