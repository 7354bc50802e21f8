"""Meshes, shardings, arrays and trees in our form and in JAX's.

JAX says the order of devices that suits the hardware's network. Trees are flattened by JAX, with
every type that is registered there, and dataclasses that are not.
"""

import functools
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, PartitionSpec
from jax.sharding import NamedSharding as JaxNamedSharding

from ....base.errors import InvalidArgumentError, ShardingError
from ...mesh import Mesh
from ...sharding import Axes, NamedSharding
from ...tree import IsLeaf, Keys, data_fields, is_user_dataclass, rebuild_dataclass, too_deep

_AXIS_TYPES = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}
_NAMES = {kind: name for name, kind in _AXIS_TYPES.items()}


class Devices:
    """JAX's devices of the run in our order; compared by identity, so that it costs nothing.

    Attributes:
        all: The devices, by position.
        position: Position of each device.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        self.all = tuple(devices)
        self.position = {device: i for i, device in enumerate(self.all)}


@lru_cache(maxsize=256)
def jax_mesh(devices: Devices, mesh: Mesh) -> Any:
    """JAX's form of a mesh."""
    grid = np.empty(len(mesh.device_ids), dtype=object)
    grid[:] = [devices.all[i] for i in mesh.device_ids]
    types = tuple(_AXIS_TYPES[name] for name in mesh.axis_types)
    return jax.sharding.Mesh(grid.reshape(mesh.shape), mesh.axis_names, axis_types=types)


@lru_cache(maxsize=1024)
def jax_sharding(devices: Devices, sharding: NamedSharding) -> JaxNamedSharding:
    """JAX's form of a sharding."""
    return JaxNamedSharding(jax_mesh(devices, sharding.mesh), PartitionSpec(*sharding.spec))


def our_mesh(devices: Devices, mesh: Any, known: Iterable[Mesh] = ()) -> Mesh:
    """Our form of a JAX mesh; one of the known meshes if it has the same names and places."""
    unknown = [str(d) for d in mesh.devices.flat if d not in devices.position]
    if unknown:
        raise ShardingError(
            f"the mesh {mesh!r} has devices that this run does not use: {', '.join(unknown[:4])}; "
            "use devices of the platform that pyreactant.initialize started"
        )
    types = [_NAMES.get(kind, "") for kind in mesh.axis_types]
    if "" in types:
        raise ShardingError(
            f"mesh axes are Auto or Explicit, got {mesh!r}; inside shard_map give the mesh's own "
            "axes, not Manual ones"
        )
    ids = [devices.position[d] for d in mesh.devices.flat]
    everything = ids == list(range(len(devices.all)))
    ours = Mesh(mesh.devices.shape, mesh.axis_names, None if everything else ids, axis_types=types)
    return next((m for m in known if _place(m) == _place(ours)), ours)


def _place(mesh: Mesh) -> tuple[object, ...]:
    return mesh.shape, mesh.axis_names, mesh.device_ids, mesh.axis_types


def our_sharding(
    devices: Devices, sharding: Any, known: Sequence[Mesh], what: str
) -> NamedSharding:
    """Our form of a JAX sharding.

    Raises:
        ShardingError: No mesh and partition spec describe it.
    """
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        (device,) = sharding.device_set
        return NamedSharding(Mesh((1,), ("device",), [devices.position[device]]), ())
    if not isinstance(sharding, JaxNamedSharding):
        raise ShardingError(f"{what} lies as {sharding}, which no mesh and spec describe")
    spec: list[Axes] = [
        e if e is None or isinstance(e, (str, tuple)) else None for e in sharding.spec
    ]
    return NamedSharding(our_mesh(devices, sharding.mesh, known), spec)


def plain_dtype(dtype: Any) -> Any:
    """NumPy's dtype; JAX's own for keys of `jax.random`."""
    return dtype if jax.numpy.issubdtype(dtype, jax.dtypes.extended) else np.dtype(dtype)


_SPLIT = ("TPU v5 lite", "TPU v5e")
"""Kinds of TPU on which `jax.make_mesh` divides a side of the torus between mesh axes."""


def hardware_order(
    shape: tuple[int, ...], devices: Sequence[Any], split: bool | None = None
) -> tuple[int, ...]:
    """The order of `jax.make_mesh`, and for several slices that of `create_hybrid_device_mesh`.

    On a TPU, a mesh axis lies along sides of the torus where the sizes allow it. Several slices lie
    along the first axes of the mesh. CPU devices keep their order; GPUs of one slice are ordered by
    JAX's id.

    Args:
        shape: Number of devices along each mesh axis; their product is the number of devices.
        devices: JAX's devices, in the order of `pyreactant.devices()`.
        split: Whether a side of the torus may be divided between mesh axes. None is JAX's choice
            for this kind of TPU.

    Returns:
        Positions in `devices`, row-major over the mesh.

    Raises:
        ShardingError: JAX knows no order for this shape, or the first axes do not hold the slices.
    """
    from jax.experimental import mesh_utils  # most programs order no devices

    if split is None:
        split = devices[0].device_kind in _SPLIT
    # JAX expects a TPU's devices as in jax.devices(), by libtpu's number of the process.
    listed = (
        sorted(devices, key=lambda device: (device.process_index, device.id))
        if devices[0].platform == "tpu"
        else [*devices]
    )
    count = len({getattr(device, "slice_index", 0) for device in devices})
    inner, outer = _of_slices(shape, count)
    try:
        if count == 1:
            grid = mesh_utils.create_device_mesh(inner, listed, allow_split_physical_axes=split)
        else:
            grid = mesh_utils.create_hybrid_device_mesh(
                inner, outer, listed, allow_split_physical_axes=split
            )
    except (AssertionError, NotImplementedError, ValueError) as error:
        advice = "" if split else ", allow_split_physical_axes=True"
        raise ShardingError(
            f"make_mesh needs sizes that JAX can lay along the network of {len(devices)} "
            f"{devices[0].device_kind}, got {shape}: {error}; give other sizes{advice}, or a "
            "pyreactant.Mesh with device_ids"
        ) from error
    position = {device.id: i for i, device in enumerate(devices)}
    return tuple(position[device.id] for device in grid.flat)


def _of_slices(shape: tuple[int, ...], count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape within each slice, and the shape over the slices, which the first axes hold."""
    outer, left = [1] * len(shape), count
    for axis, size in enumerate(shape):
        outer[axis] = math.gcd(size, left)
        left //= outer[axis]
        if outer[axis] < size:
            break
    if left > 1:
        raise ShardingError(
            f"make_mesh lays {count} slices along the first axes of a mesh, so their sizes must "
            f"hold a factor of {count}, got {shape}; give a first size such as {count}"
        )
    return tuple(size // part for size, part in zip(shape, outer, strict=True)), tuple(outer)


class DataclassNode:
    """What JAX sees of a dataclass that its user has not registered with it.

    Registering the dataclass itself would be seen by the whole process, and its user could no
    longer do so.
    """

    __slots__ = ("children", "fixed", "kind")

    def __init__(self, kind: type, fixed: tuple[Any, ...], children: Sequence[Any]) -> None:
        self.kind, self.fixed, self.children = kind, fixed, children

    @classmethod
    def of(cls, value: Any) -> "DataclassNode":
        """The node of a dataclass."""
        data, static = data_fields(type(value))
        fixed = tuple(getattr(value, name) for name in static)
        return cls(type(value), fixed, [wrap_dataclasses(getattr(value, name)) for name in data])

    def restore(self) -> Any:
        """The dataclass."""
        data, static = data_fields(self.kind)
        values = (*map(_restore_dataclasses, self.children), *self.fixed)
        return rebuild_dataclass(self.kind, zip((*data, *static), values, strict=True))


def _flatten_with_keys(node: DataclassNode) -> Any:
    data, _ = data_fields(node.kind)
    keys = map(jax.tree_util.GetAttrKey, data)
    return list(zip(keys, node.children, strict=True)), (node.kind, node.fixed)


jax.tree_util.register_pytree_with_keys(
    DataclassNode,
    _flatten_with_keys,
    lambda kind, children: DataclassNode(kind[0], kind[1], list(children)),
    lambda node: (node.children, (node.kind, node.fixed)),
)


class JaxTrees:
    """Flattens as `jax.tree` does, and dataclasses that JAX does not know."""

    def flatten(self, tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], Any]:
        try:
            leaves, structure = jax.tree.flatten(tree, is_leaf=is_leaf)
            if any(map(is_user_dataclass, set(map(type, leaves)))):
                return jax.tree.flatten(wrap_dataclasses(tree, is_leaf), is_leaf=is_leaf)
        except (RecursionError, SystemError):  # jaxlib's binding gives the latter for the former
            raise too_deep() from None
        except ValueError:
            _check_keys(tree)
            raise
        return leaves, structure

    def unflatten(self, structure: Any, leaves: Sequence[Any]) -> Any:
        tree = jax.tree.unflatten(structure, leaves)
        return _restore_dataclasses(tree) if _has_dataclasses(structure) else tree

    def is_leaf(self, structure: Any) -> bool:
        return jax.tree_util.treedef_is_leaf(structure) and structure.num_leaves == 1

    def up_to(self, prefix: Any, tree: Any) -> list[Any]:
        return list(prefix.flatten_up_to(wrap_dataclasses(tree)))

    def keys(self, tree: Any, is_leaf: IsLeaf | None = None) -> list[Keys]:
        leaves = jax.tree_util.tree_leaves_with_path(wrap_dataclasses(tree, is_leaf), is_leaf)
        return [tuple(map(_plain_key, path)) for path, _ in leaves]


def _check_keys(tree: Any, at: str = "") -> None:
    """Check that the keys of each dictionary in a tree can be sorted, which JAX demands."""
    for path, node in jax.tree_util.tree_leaves_with_path(tree, _is_mixed):
        place = at + jax.tree_util.keystr(path)
        if _is_mixed(node):
            keys = {type(key).__name__: key for key in reversed(node)}
            got = " and ".join(f"{key!r} ({name})" for name, key in keys.items())
            raise InvalidArgumentError(
                "a dictionary must have keys of one type, which can be sorted, got "
                f"{got} {f'at {place}' if place else 'in the first one'}; use text for all"
            )
        kind: type = type(node)
        if is_user_dataclass(kind):
            for name in data_fields(kind)[0]:
                _check_keys(getattr(node, name), f"{place}.{name}")


def _is_mixed(node: Any) -> bool:
    if not isinstance(node, dict) or isinstance(node, OrderedDict):
        return False
    try:
        sorted(node)
    except TypeError:
        return True
    return False


def _plain_key(entry: Any) -> str | int:
    match entry:
        case jax.tree_util.SequenceKey(idx=number) | jax.tree_util.FlattenedIndexKey(key=number):
            return int(number)
        case jax.tree_util.GetAttrKey(name=name):
            return str(name)
    return str(entry.key)


def wrap_dataclasses(tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """A tree that JAX can flatten: with nodes in place of dataclasses that it does not know."""

    def wrap(leaf: Any) -> Any:
        kind: type = type(leaf)
        if is_user_dataclass(kind) and not (is_leaf is not None and is_leaf(leaf)):
            return DataclassNode.of(leaf)
        return leaf

    return jax.tree.map(wrap, tree, is_leaf=is_leaf)


def _restore_dataclasses(tree: Any) -> Any:
    def restore(leaf: Any) -> Any:
        return leaf.restore() if isinstance(leaf, DataclassNode) else leaf

    return jax.tree.map(restore, tree, is_leaf=lambda node: isinstance(node, DataclassNode))


@functools.lru_cache(maxsize=1024)
def _has_dataclasses(structure: Any) -> bool:
    return DataclassNode.__name__ in str(structure)
