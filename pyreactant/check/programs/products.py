"""Matrix products."""

from collections.abc import Iterable
from typing import Any

from ...arrays.mesh import Mesh
from ...arrays.sharding import Index
from .build import NUMBERS, Subscripts, subscript_case
from .case import PRODUCT, Inputs, Layout, Oracle, Shape, default_spec


def matmul(x: Any, y: Any) -> Any:
    """The matrix product, in JAX and in NumPy."""
    return x @ y


def _reference(mesh: Mesh, n: int) -> Iterable[Layout]:
    """The layout of `pyreactant matmul`: every array is sharded by rows and columns."""
    spec = default_spec(mesh, (n, n))
    if len(mesh.axis_names) > 1:
        yield Layout((spec, spec), (spec,))


MATMUL = subscript_case(
    matmul,
    "matrix product",
    Subscripts("mk,kn->mn"),
    matmul,
    domain=PRODUCT,
    dtypes=NUMBERS,
    extra=_reference,
    factors=((0, False), (1, False)),
)


def matmul_transposed(x: Any, y: Any) -> Any:
    """The product with a transposed matrix, in JAX and in NumPy."""
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
    """The products of all pairs of columns, in JAX and in NumPy."""
    return x.T @ x


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


GRAM = subscript_case(
    gram,
    "products of all pairs of columns",
    Subscripts("ki->ij"),
    gram,
    dtypes=NUMBERS,
    domain=PRODUCT,
    needs=_gram_needs,
    oracle=Oracle(_gram_block),
    factors=((0, True), (0, False)),
)


def matvec(x: Any, v: Any) -> Any:
    """A matrix times a vector, in JAX and in NumPy."""
    return x @ v


MATVEC = subscript_case(
    matvec, "matrix times vector", Subscripts("mk,k->m"), matvec, domain=PRODUCT, dtypes=NUMBERS
)


def batched_matmul(x: Any, y: Any) -> Any:
    """A batch of matrix products, in JAX and in NumPy."""
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
