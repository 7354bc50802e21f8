"""Place arrays, move them and read them: validate once for all runtimes, then call the runtime.

Every function takes a single array or a tree of them (see `pyreactant.compile`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...base.errors import DTypeError, InvalidArgumentError, ShardingError
from ..array import ShardedArray
from ..dtypes import EXTENDED, as_array, as_dtype, is_traced
from ..program import Program
from ..sharding import (
    Aval,
    Index,
    NamedSharding,
    as_sharding,
    intern,
    process_local_blocks,
)
from ..tree import IsLeaf, broadcast
from .collective import equal_everywhere, from_equal_blocks
from .compile import compile
from .compiled import describe
from .guard.operation import placing
from .mesh import check_mesh
from .runtime import Running, current, devices, process_index

RESHARD = Program(
    "reshard",
    jax="pyreactant.arrays.runtimes.operations:_identity",
    julia="PyReactant.identity_of",
)
BITS = Program(
    "reshard",
    jax="pyreactant.arrays.runtimes.operations:_same_bits",
    julia="PyReactant.same_bits",
)


def _identity(x: Any) -> Any:
    return x


def _same_bits(x: Any, dtype: str) -> Any:
    return x.view(as_dtype(dtype))


def device_put(x: Any, sharding: Any, *, check: bool = False) -> Any:
    """Place global arrays: each device gets its block.

    Args:
        x: The global array, the same on every process, in any memory order; or a tree of arrays.
            A `jax.Array` on devices of several processes is gathered first. A number of Python gets
            the runtime's default type (float32 and int32 on JAX).
        sharding: Mesh and partition spec; for a tree one for all, or a tree of them that has the
            structure of `x` or is a prefix of it.
        check: First compare a digest of `x` between the processes. Collective.

    Returns:
        A ShardedArray, or a tree of them with the structure of `x`.

    Raises:
        DTypeError: This runtime does not hold the element type, or values are masked.
        ShardingError: Shape, spec, mesh and devices do not fit together.
        MismatchError: With `check`, the array of a process differs from that of process 0.

    Examples:
        >>> w = pr.device_put({"a": np.ones((8, 4)), "b": np.zeros(4)}, {"a": rows, "b": whole})
    """
    put = _put_checked if check else _put
    return _each("device_put", put, x, "the arrays", sharding=(sharding, _is_sharding))


_NUMBERS = (bool, int, float, complex)  # of Python, which has no element types


def _put_checked(x: Any, sharding: Any) -> ShardedArray:
    running, x = current(), _whole(x)
    equal_everywhere(running.backend, running.group, "device_put", as_array(x))
    return _put(x, sharding)


def _put(x: Any, sharding: Any) -> ShardedArray:
    if isinstance(x, ShardedArray):
        raise InvalidArgumentError(
            f"device_put places host arrays, got {x!r}; reshard(x, sharding) moves it on the "
            "devices"
        )
    if _is_key(x):
        return _put_key(x, _our_sharding(sharding))
    x = _whole(x)
    if is_number := type(x) in _NUMBERS:
        _check_whole(x, _our_sharding(sharding))
    array = as_array(current().backend.number(x) if is_number else x)
    read = array.__getitem__
    return _place("device_put", array.shape, array.dtype, sharding, read, values=array)


def _whole(x: Any) -> Any:
    """The values of a `jax.Array` that lies partly on other processes, on each of them."""
    if is_traced(x) or getattr(x, "is_fully_addressable", True) or x.is_fully_replicated:
        return x
    return from_jax(x).gather()


def _check_whole(number: Any, sharding: NamedSharding) -> None:
    if any(sharding.spec):
        raise ShardingError(
            f"the number {number!r} has no dimensions to shard by {sharding.spec}; a list is a "
            "tree of numbers, so pass np.asarray(list) for one array"
        )


def _put_key(x: Any, sharding: NamedSharding) -> ShardedArray:
    backend = current().backend
    check_mesh(sharding.mesh)
    sharding.shard_shape(x.shape)
    numbers, impl = backend.key_numbers(x)
    host = np.asarray(_whole(numbers))
    aval = intern(Aval(x.shape, x.dtype, sharding))
    number = _announce("device_put", aval, host)
    placed = backend.from_blocks(host.shape, host.dtype, sharding, host.__getitem__)
    return ShardedArray(backend.wrap_keys(placed, impl, sharding), aval, backend, number)


def _announce(kind: str, aval: Aval, values: np.ndarray | None = None) -> int:
    """Announce a placement to the guard; the number of the array, 0 without a guard."""
    guarded = current().guarded
    if guarded is None:
        return 0
    return guarded.guard.announce(placing(kind, aval, values), made=1)


def _is_key(x: Any) -> bool:
    return str(getattr(x, "dtype", "")).startswith("key<")


def from_callback(shape: Any, dtype: Any, sharding: Any, callback: Any) -> Any:
    """Place arrays block by block; no process needs the global array.

    Args:
        shape: Global shape, the same on every process; or a tree of shapes. `dtype`, `sharding` and
            `callback` are then trees with its structure, or prefixes of it.
        dtype: Element type of the array and of the callback's blocks.
        sharding: Mesh and partition spec.
        callback: Returns a block, given one slice per dimension with start and stop. It is
            called once per distinct block of this process.

    Raises:
        DTypeError, ShardingError: As `device_put`.
        InvalidArgumentError: The callback returned another shape or dtype.
        MismatchError: Processes that hold the same block gave it different values.

    Examples:
        >>> table = np.arange(64, dtype=np.float32).reshape(8, 8)
        >>> y = pr.from_callback((8, 8), np.float32, sharding, lambda index: table[index])
    """

    def place(shape: Any, dtype: Any, sharding: Any, callback: Any) -> ShardedArray:
        return _place("from_callback", _as_shape(shape), as_dtype(dtype), sharding, callback)

    return _each(
        "from_callback",
        place,
        shape,
        "the shapes",
        _is_shape,
        dtype=(dtype, _is_dtype),
        sharding=(sharding, _is_sharding),
        callback=(callback, callable),
    )


def _place(
    kind: str,
    shape: tuple[int, ...],
    dtype: Any,
    sharding: Any,
    callback: Callable[[Index], Any],
    *,
    values: np.ndarray | None = None,
) -> ShardedArray:
    """Place one array for the function `kind`; `values` are compared by the guard."""
    running = current()
    sharding = _our_sharding(sharding)
    _check_placement(shape, dtype, sharding)

    def read(index: Index) -> np.ndarray:
        block = as_array(callback(index))
        wanted = tuple(s.stop - s.start for s in index)
        if block.shape != wanted or block.dtype != dtype:
            raise InvalidArgumentError(
                f"the callback must return {dtype}{list(wanted)} for block {index}, "
                f"got {block.dtype}{list(block.shape)}"
            )
        return block

    aval = intern(Aval(shape, dtype, sharding))
    if running.guarded is not None and values is None and set(sharding.cuts(len(shape))) <= {1}:
        values = read(tuple(slice(0, n) for n in shape))  # every process gives it whole
    number = _announce(kind, aval, values)
    if running.guarded is not None and values is None:
        value = from_equal_blocks(running.backend, running.group, kind, aval, read)
    else:
        blocks = read if values is None else partial(_block, values)
        value = running.backend.from_blocks(shape, dtype, sharding, blocks)
    return ShardedArray(value, aval, running.backend, number)


def _block(values: np.ndarray, index: Index) -> np.ndarray:
    place: Any = (*index, ...)  # the ellipsis gives an array of 0 dimensions, not a number
    block: np.ndarray = values[place]
    return block


def from_process_local(local: Any, sharding: Any, global_shape: Any = None) -> Any:
    """Place arrays whose parts the processes hold.

    Args:
        local: This process's blocks put together in the order of their indices. The sharding
            determines its shape. Or a tree of such arrays.
        sharding: Mesh and partition spec; for a tree as in `device_put`.
        global_shape: Shape of the global array, the same on every process; None if each dimension
            is that of `local` times the number of processes that the sharding divides it over. For
            a tree None, or a tree of shapes.

    Raises:
        ShardingError: The shape of `local` is not that of this process's blocks, or these do not
            form one array.
        MismatchError: Processes that hold the same block gave it different values.

    Examples:
        >>> mine = np.ones((8 // pr.num_processes(), 4), np.float32)
        >>> pr.from_process_local(mine, rows).shape
        (8, 4)
    """
    prefixes = {"sharding": (sharding, _is_sharding)}
    if global_shape is not None:
        prefixes["global_shape"] = (global_shape, _is_shape)
    return _each("from_process_local", _from_local, local, "local", None, **prefixes)


def _from_local(local: Any, sharding: Any, global_shape: Any = None) -> ShardedArray:
    array, sharding = as_array(local), _our_sharding(sharding)
    check_mesh(sharding.mesh)
    mine = sharding.mesh.positions_of(current().backend.local_positions)
    if global_shape is None:
        shape = _inferred_shape(array.shape, sharding, mine)
    else:
        shape = _as_shape(global_shape)
    _check_placement(shape, array.dtype, sharding)
    local_shape, place = process_local_blocks(sharding, shape, mine)
    if array.shape != local_shape:
        raise ShardingError(
            f"process {process_index()} holds blocks of a global array {shape} that form shape "
            f"{local_shape} with {sharding}, got a local array of shape {array.shape}"
        )

    def read(index: Index) -> np.ndarray:
        return array[place(index)]

    return _place("from_process_local", shape, array.dtype, sharding, read)


def _inferred_shape(
    local: tuple[int, ...], sharding: NamedSharding, mine: Sequence[int]
) -> tuple[int, ...]:
    """The global shape of an array of which this process holds `local`."""
    cuts = sharding.cuts(len(local))
    held, _ = process_local_blocks(sharding, cuts, mine)
    uneven = [d for d, (size, blocks) in enumerate(zip(local, held, strict=True)) if size % blocks]
    if uneven:
        raise ShardingError(
            f"process {process_index()} holds {held} blocks of an array with {sharding}; dimension "
            f"{uneven[0]} of the local array {local} must be divisible by {held[uneven[0]]}"
        )
    return tuple(size * cut // blocks for size, cut, blocks in zip(local, cuts, held, strict=True))


def from_jax(array: Any) -> Any:
    """Take over `jax.Array` objects, without a copy; JAX runtime only.

    Args:
        array: A committed array with a NamedSharding (or on one device), or a tree of them.

    Raises:
        InvalidArgumentError: It is no `jax.Array`, or it is traced.
        ShardingError: No mesh and partition spec describe its sharding.
        StateError: The runtime is not JAX.

    Examples:
        >>> placed = jax.device_put(jnp.ones((8, 8)), sharding.to_jax())
        >>> pr.from_jax(placed).sharding == sharding
        True
    """
    running = current()
    leaves, structure = running.backend.trees.flatten(array)
    taken = [x if isinstance(x, ShardedArray) else _take(running, x) for x in leaves]
    return running.backend.trees.unflatten(structure, taken)


def _take(running: Running, array: Any) -> ShardedArray:
    value, aval = running.backend.from_jax(array)
    if not _is_key(array):
        check_dtype(aval.dtype)
    number = _announce("from_jax", aval)
    return ShardedArray(value, intern(aval), running.backend, number)


def gather(tree: Any) -> Any:
    """The whole arrays of a tree as NumPy arrays, on every process. Collective.

    Args:
        tree: A ShardedArray, or a tree of them.

    Returns:
        NumPy arrays in C order, in the same structure.

    Examples:
        >>> pr.gather({"x": x})["x"].shape
        (8, 8)
    """
    trees = current().backend.trees
    leaves, structure = trees.flatten(tree)
    _check_arrays("gather", leaves)
    return trees.unflatten(structure, [leaf.gather() for leaf in leaves])


def reshard(tree: Any, sharding: Any) -> Any:
    """Move arrays to other shardings on the devices, without the host. Collective.

    Args:
        tree: A ShardedArray, or a tree of them.
        sharding: Mesh and partition spec over the same devices in order; trees as in `device_put`.

    Raises:
        ShardingError: The shardings do not fit, or lie on other devices or in another order.

    Examples:
        >>> pr.reshard(x, rows).sharding == rows
        True
    """
    return _each("reshard", _reshard, tree, "the arrays", sharding=(sharding, _is_sharding))


def _reshard(x: Any, sharding: Any) -> ShardedArray:
    _check_arrays("reshard", [x])
    sharding = _our_sharding(sharding)
    sharding.shard_shape(x.shape)
    # XLA's CPU backend sends short floats as float32, which makes signalling NaNs quiet. In one
    # program it would send them first, and make bits of what arrives.
    short = x.dtype.name in EXTENDED
    bits = _with_dtype(x, f"uint{8 * x.dtype.itemsize}") if short else x
    moved: ShardedArray = compile(RESHARD, bits, out_sharding=sharding)(bits)
    return _with_dtype(moved, x.dtype.name) if short else moved


def _with_dtype(x: ShardedArray, dtype: str) -> ShardedArray:
    viewed: ShardedArray = compile(BITS, x, static={"dtype": dtype}, out_sharding=x.sharding)(x)
    return viewed


def _check_arrays(what: str, leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, ShardedArray):
            raise InvalidArgumentError(
                f"{what} takes ShardedArrays, or trees of them, got {describe(leaf)}"
            )


def _each(
    function: str,
    action: Callable[..., ShardedArray],
    tree: Any,
    of: str,
    is_leaf: IsLeaf | None = None,
    **prefixes: tuple[Any, IsLeaf],
) -> Any:
    """Apply an action to each leaf of a tree, and to its entry in each prefix of the tree.

    Each prefix comes with what counts as an entry of it, under the name of the argument; `of` says
    what the tree is, for the message.
    """
    trees = current().backend.trees
    leaves, structure = trees.flatten(tree, is_leaf)
    if trees.is_leaf(structure):
        return action(leaves[0], *(prefix for prefix, _ in prefixes.values()))
    places = trees.unflatten(structure, [0] * len(leaves))
    entries = [
        broadcast(trees, prefix, places, is_entry, f"{function}: {name}", of)
        for name, (prefix, is_entry) in prefixes.items()
    ]
    return trees.unflatten(structure, list(map(action, leaves, *entries)))


def _is_sharding(node: object) -> bool:
    return isinstance(as_sharding(node), NamedSharding)


def _is_dtype(node: object) -> bool:
    return isinstance(node, (str, type, np.dtype)) or hasattr(node, "dtype")


def _is_shape(node: object) -> bool:
    return isinstance(node, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in node)


def _our_sharding(sharding: Any) -> NamedSharding:
    converted = as_sharding(sharding)
    if not isinstance(converted, NamedSharding):
        raise ShardingError(
            f"sharding must be a pyreactant.NamedSharding, got {type(converted).__name__}"
        )
    return converted


def _as_shape(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(shape)
    if not all(isinstance(n, (int, np.integer)) and n >= 0 for n in sizes):
        raise ShardingError(f"a shape is whole numbers from 0, got {shape!r}")
    return tuple(int(n) for n in sizes)


def _check_placement(shape: tuple[int, ...], dtype: np.dtype[Any], sharding: NamedSharding) -> None:
    check_mesh(sharding.mesh)
    sharding.shard_shape(shape)
    check_dtype(dtype)


def check_dtype(dtype: np.dtype[Any]) -> None:
    """Check that the runtime holds an element type unchanged; DTypeError if not."""
    backend = current().backend
    held = backend.dtypes()
    if dtype.name not in held:
        raise DTypeError(
            f"{backend.name} on {devices()[0].platform} does not hold {dtype.name} "
            f"unchanged; convert the array to one of {', '.join(sorted(held))}"
        )
