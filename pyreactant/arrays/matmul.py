"""matmul_sharded: the product of two sharded matrices."""

import math
from typing import Any

import numpy as np

from ..base.errors import DTypeError, InvalidArgumentError, ShardingError
from .array import ShardedArray
from .dtypes import as_array
from .mesh import Mesh
from .program import Program
from .runtimes.compile import compile
from .runtimes.compiled import Compiled
from .runtimes.operations import device_put
from .runtimes.runtime import current, devices, initialize
from .sharding import Axes, NamedSharding

Spec = tuple[Axes, ...]

MATMUL = Program("matmul", jax="jax.numpy:matmul", julia="*", oracle="numpy:matmul")


def matmul_sharded(
    x: Any = None,
    y: Any = None,
    *,
    backend: str | None = None,
    mesh: Mesh | None = None,
    spec: Spec = ("x", "y"),
    y_spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> ShardedArray:
    """The matrix product ``x @ y`` with sharded operands. Collective.

    Args:
        x: Left operand, shape (m, k): a host array that is equal on every process, or a
            ShardedArray, which keeps its sharding. Without x and y the reference case runs:
            both are ``arange(1, 65)`` as a column-major 8x8 float32 matrix.
        y: Right operand, shape (k, n), of the same dtype.
        backend: Runtime to start if none runs.
        mesh: Mesh of the devices; None means all devices, as square as their number allows,
            with axes "x" and "y".
        spec: Partition spec of x, and of y unless `y_spec` is given.
        y_spec: Partition spec of y.
        out_spec: Partition spec of the product; None means that of x's rows and y's columns,
            without axes that x's rows already use.
        precision: "default", "high" or "highest"; None means the runtime's default.

    Returns:
        The product, shape (m, n), in the operands' dtype and on the same mesh.

    Raises:
        InvalidArgumentError: The shapes of the operands do not match.
        DTypeError: The dtypes differ or are not numeric.
        ShardingError: Shapes, specs, mesh and devices do not fit together.

    Examples:
        >>> c = pr.matmul_sharded(np.eye(8), np.ones((8, 8)), spec=("x", "y"))
        >>> c.shape, c.sharding.spec, bool((c.gather() == 1).all())
        ((8, 8), ('x', 'y'), True)
    """
    if backend is not None:
        initialize(backend)
    if (x is None) != (y is None):
        raise InvalidArgumentError("give both x and y, or neither for the reference case")
    if x is None:
        x = y = reference_operand()
    x, y = (a if isinstance(a, ShardedArray) else as_array(a) for a in (x, y))
    check_operands(x.shape, x.dtype, y.shape, y.dtype)
    if mesh is None:
        given = [a.sharding.mesh for a in (x, y) if isinstance(a, ShardedArray)]
        mesh = given[0] if given else default_mesh(len(devices()))
    x, y = (
        a if isinstance(a, ShardedArray) else device_put(a, NamedSharding(mesh, s))
        for a, s in ((x, spec), (y, spec if y_spec is None else y_spec))
    )
    return compile_matmul(x, y, out_spec, precision)(x, y)


def compile_matmul(
    x: ShardedArray, y: ShardedArray, out_spec: Spec | None, precision: str | None
) -> Compiled:
    """Compile the product of two placed operands; `out_spec` is as in `matmul_sharded`.

    The program of such operands is kept: to check and describe them anew takes 0.1 ms, longer than
    a small product.
    """
    running = current()
    key: Any = (MATMUL, x.aval, y.aval, out_spec, precision, running.backend.settings())
    try:
        known = running.calls.find(key)
    except TypeError:  # a list in `out_spec`
        known = key = None
    if known is not None:
        return known
    if x.sharding.mesh != y.sharding.mesh:
        raise ShardingError(
            f"x and y must be on one mesh, got {x.sharding.mesh!r} and {y.sharding.mesh!r}"
        )
    chosen = default_out_spec(x.sharding, y.sharding) if out_spec is None else out_spec
    out = NamedSharding(x.sharding.mesh, chosen)
    out.shard_shape((x.shape[0], y.shape[1]))
    compiled = compile(MATMUL, x, y, out_sharding=out, precision=precision)
    if key is not None:
        running.calls.keep(key, compiled)
    return compiled


def reference_operand(dtype: Any = np.float32) -> np.ndarray:
    """The 8x8 matrix of the reference case, with 1 to 64 in column-major order."""
    return np.arange(1, 65).astype(dtype).reshape(8, 8, order="F")


def default_mesh(num_devices: int) -> Mesh:
    """All devices in axes "x" and "y", as square as their number allows; x is not the larger."""
    rows = max(d for d in range(1, math.isqrt(num_devices) + 1) if num_devices % d == 0)
    return Mesh((rows, num_devices // rows), ("x", "y"))


def default_out_spec(x: NamedSharding, y: NamedSharding) -> Spec:
    """Rows as in x, columns as in y without the axes that already shard the rows."""
    rows, columns = x.axes(2)[0], y.axes(2)[1]
    return rows, tuple(axis for axis in columns if axis not in rows)


def check_operands(
    x_shape: tuple[int, ...], x_dtype: np.dtype[Any], y_shape: tuple[int, ...], y_dtype: Any
) -> None:
    """Check that two matrices can be multiplied; raises as `matmul_sharded`."""
    if len(x_shape) != 2 or len(y_shape) != 2 or x_shape[1] != y_shape[0]:
        raise InvalidArgumentError(
            f"x must have shape (m, k) and y shape (k, n), got {x_shape} and {y_shape}"
        )
    if x_dtype != y_dtype:
        raise DTypeError(
            f"x and y must have one dtype, got {x_dtype} and {y_dtype}; convert one of them with "
            ".astype while it is a NumPy array, or cast it in a program of your own"
        )
    if x_dtype.kind == "b":
        raise DTypeError(
            "x and y must hold numbers, got bool; convert the NumPy arrays before they are placed"
        )
