"""Place arrays and compile programs: validate once for all runtimes, then call the runtime."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .._core.array import Aval, ShardedArray
from .._core.backend import PRECISIONS
from .._core.dtypes import as_array, as_dtype
from .._core.program import Program
from .._core.sharding import Index, NamedSharding, process_local_blocks
from .._errors import DTypeError, InvalidArgumentError, ShardingError
from .collective import equal_everywhere
from .compiled import Compiled
from .runtime import Running, check_mesh, current, devices, local_devices, process_index


def device_put(x: Any, sharding: NamedSharding, *, check: bool = False) -> ShardedArray:
    """Place a global array: each device gets its block.

    Args:
        x: The global array, the same on every process, in any memory order.
        sharding: Mesh and partition spec.
        check: First compare a digest of `x` between the processes. Collective.

    Raises:
        DTypeError: This runtime does not hold the element type.
        ShardingError: Shape, spec, mesh and devices do not fit together.
        MismatchError: With `check`, the array of a process differs from that of process 0.
    """
    if isinstance(x, ShardedArray):
        raise InvalidArgumentError(
            f"device_put places host arrays, got {x!r}; gather() it first, or compile a program "
            "with out_sharding= to reshard it on the devices"
        )
    array = as_array(x)
    if check:
        running = current()
        equal_everywhere(running.backend, running.group, "device_put", array)
    return from_callback(array.shape, array.dtype, sharding, array.__getitem__)


def from_callback(
    shape: Sequence[int], dtype: Any, sharding: NamedSharding, callback: Callable[[Index], Any]
) -> ShardedArray:
    """Place an array block by block; no process needs the global array.

    Args:
        shape: Global shape, the same on every process.
        dtype: Element type of the array and of the callback's blocks.
        sharding: Mesh and partition spec.
        callback: Returns a block, given one slice per dimension with start and stop. It is
            called once per distinct block of this process.

    Raises:
        DTypeError, ShardingError: As `device_put`.
        InvalidArgumentError: The callback returned another shape or dtype.
    """
    shape, dtype = _as_shape(shape), as_dtype(dtype)
    running = current()
    _check_placement(running, shape, dtype, sharding)

    def read(index: Index) -> np.ndarray:
        block = as_array(callback(index))
        wanted = tuple(s.stop - s.start for s in index)
        if block.shape != wanted or block.dtype != dtype:
            raise InvalidArgumentError(
                f"the callback must return {dtype}{list(wanted)} for block {index}, "
                f"got {block.dtype}{list(block.shape)}"
            )
        return block

    value = running.backend.from_blocks(shape, dtype, sharding, read)
    return ShardedArray(value, Aval(shape, dtype, sharding), running.backend)


def from_process_local(
    local: Any, sharding: NamedSharding, global_shape: Sequence[int]
) -> ShardedArray:
    """Place an array whose parts the processes hold.

    Args:
        local: This process's blocks put together in the order of their indices. The sharding
            determines its shape.
        sharding: Mesh and partition spec.
        global_shape: Shape of the global array, the same on every process.

    Raises:
        ShardingError: The shape of `local` is not that of this process's blocks, or these do not
            form one array.
    """
    array, shape = as_array(local), _as_shape(global_shape)
    _check_placement(current(), shape, array.dtype, sharding)
    mine = [d.position for d in local_devices() if d.position in set(sharding.mesh.device_ids)]
    local_shape, place = process_local_blocks(sharding, shape, mine)
    if array.shape != local_shape:
        raise ShardingError(
            f"process {process_index()} holds blocks of a global array {shape} that form shape "
            f"{local_shape} with {sharding}, got a local array of shape {array.shape}"
        )
    return from_callback(shape, array.dtype, sharding, lambda index: array[place(index)])


def compile(
    program: Program,
    *args: ShardedArray,
    out_sharding: NamedSharding | tuple[NamedSharding, ...] | None = None,
    precision: str | None = None,
    static: Mapping[str, Any] | None = None,
) -> Compiled:
    """Compile a program for arrays like these, or take it from the cache.

    Args:
        program: What to compile.
        *args: Arrays with the shapes, dtypes and shardings of later calls. Scalars are 0-d
            arrays.
        out_sharding: Sharding of the output, or a tuple with one for each output; None leaves it
            to the compiler.
        precision: "default", "high" or "highest" for products; None is the runtime's default.
        static: Keyword arguments that are part of the program (hashable values).

    Raises:
        InvalidArgumentError: The program has no body for this runtime, an argument is not a
            ShardedArray, or a static value is not hashable.
    """
    running = current()
    if precision is not None and precision not in PRECISIONS:
        raise InvalidArgumentError(
            f"unknown precision {precision!r}; known are: {', '.join(PRECISIONS)}"
        )
    for position, arg in enumerate(args):
        if not isinstance(arg, ShardedArray):
            raise InvalidArgumentError(
                f"argument {position} of program {program.name!r} must be a ShardedArray, got "
                f"{type(arg).__name__}; place it with pyreactant.device_put first"
            )
    outs = out_sharding if isinstance(out_sharding, tuple) else (out_sharding,)
    _check_one_set_of_devices(program, args, [out for out in outs if out is not None])
    options = dict(sorted((static or {}).items()))
    _check_hashable(program, options)
    avals = tuple(a.aval for a in args)
    key = (program, avals, out_sharding, precision, _exact_key(tuple(options.items())))
    if key not in running.cache:
        executable = running.backend.compile(program, args, out_sharding, precision, options)
        running.cache[key] = Compiled(program, args, executable, running.backend)
    return running.cache[key]


def _check_hashable(program: Program, static: Mapping[str, Any]) -> None:
    for name, value in static.items():
        try:
            hash(value)
        except TypeError:
            raise InvalidArgumentError(
                f"program {program.name!r}: static argument {name!r} must be hashable, because it "
                f"is part of the program, got {type(value).__name__}; give a tuple in place of a "
                "list, and arrays as arguments"
            ) from None


def _exact_key(value: Any) -> Any:
    """A static value as part of a cache key; 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple):
        return (type(value), *map(_exact_key, value))
    inexact = isinstance(value, (float, complex, np.inexact))
    return type(value), repr(value) if inexact else value


def _check_one_set_of_devices(
    program: Program, args: Sequence[ShardedArray], outs: Sequence[NamedSharding]
) -> None:
    for out in outs:
        if not isinstance(out, NamedSharding):
            raise ShardingError(
                f"program {program.name!r}: out_sharding must be a pyreactant.NamedSharding or a "
                f"tuple of them, got {type(out).__name__}"
            )
        check_mesh(out.mesh)
    meshes = [sharding.mesh for sharding in (*(a.sharding for a in args), *outs)]
    other = next((m for m in meshes if set(m.device_ids) != set(meshes[0].device_ids)), None)
    if other is not None:
        raise ShardingError(
            f"program {program.name!r}: all arrays of a program must lie on the same devices, got "
            f"{meshes[0]!r} and {other!r}"
        )


def _as_shape(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(shape)
    if not all(isinstance(n, (int, np.integer)) and n >= 0 for n in sizes):
        raise ShardingError(f"a shape is whole numbers from 0, got {shape!r}")
    return tuple(int(n) for n in sizes)


def _check_placement(
    running: Running, shape: tuple[int, ...], dtype: np.dtype[Any], sharding: NamedSharding
) -> None:
    if not isinstance(sharding, NamedSharding):
        raise ShardingError(
            f"sharding must be a pyreactant.NamedSharding, got {type(sharding).__name__}"
        )
    check_mesh(sharding.mesh)
    sharding.shard_shape(shape)
    held = running.backend.capabilities().dtypes
    if dtype.name not in held:
        raise DTypeError(
            f"{running.backend.name} on {devices()[0].platform} does not hold {dtype.name} "
            f"unchanged; convert the array to one of {', '.join(sorted(held))}"
        )
