"""NamedSharding and the placement oracle: which block (`Shard`) of an array each `Device` holds.

Pure NumPy and plain frozen data: mistakes are found before any runtime starts, and every
runtime is checked against a map that it did not compute. The meaning is that of
`jax.sharding`: device ids are row-major over the mesh, and a dimension sharded over several
axes is sharded with the first axis as the major one.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import ShardingError
from . import process_runtime
from .mesh import Mesh

Axes = str | tuple[str, ...] | None
"""One entry of a partition spec: not sharded, over one axis, or over several axes."""

Index = tuple[slice, ...]
"""A block: one slice per dimension, with start and stop always given."""


def as_axes(entry: Axes) -> tuple[str, ...]:
    """The axes that an entry of a spec names."""
    return () if entry is None else (entry,) if isinstance(entry, str) else entry


def as_entry(axes: tuple[str, ...]) -> Axes:
    """The entry of a spec that names these axes."""
    return None if not axes else axes[0] if len(axes) == 1 else axes


def plain_spec(spec: Iterable[Axes]) -> list[Any]:
    """A partition spec as plain data for `json.dumps`; `as_spec` reads it back."""
    return [list(entry) if isinstance(entry, tuple) else entry for entry in spec]


def as_spec(plain: Iterable[Any]) -> tuple[Axes, ...]:
    """The partition spec that `plain_spec` described."""
    return tuple(tuple(entry) if isinstance(entry, list) else entry for entry in plain)


def plain_index(index: Index) -> list[list[int]]:
    """A block's index as plain data for `json.dumps`; `as_index` reads it back."""
    return [[int(s.start), int(s.stop)] for s in index]


def as_index(plain: Iterable[Sequence[int]]) -> Index:
    """The index that `plain_index` described."""
    return tuple(slice(start, stop) for start, stop in plain)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class NamedSharding:
    """How an array is sharded over a mesh: the mesh axes of each dimension.

    Args:
        mesh: The devices; a `jax.sharding.Mesh` is taken too, once the JAX runtime runs.
        spec: One entry per dimension, also as a `jax.sharding.PartitionSpec`: None (not sharded),
            an axis name, or a tuple of axis names, major to minor. Dimensions beyond the spec are
            not sharded. Axes that the spec does not name hold copies.

    Raises:
        ShardingError: An axis is unknown or used twice.

    Examples:
        >>> sharding = pr.NamedSharding(mesh, ("x", "y"))
        >>> sharding.shard_shape((8, 8))
        (4, 2)
        >>> pr.NamedSharding(mesh, (("x", "y"), None)).shard_shape((8, 8))
        (1, 8)
    """

    mesh: Mesh
    spec: tuple[Axes, ...]

    def __init__(self, mesh: Mesh, spec: Iterable[Axes]) -> None:
        if not isinstance(mesh, Mesh):
            mesh = _mesh_of_jax(mesh)
        object.__setattr__(self, "mesh", mesh)
        object.__setattr__(self, "spec", _canonical_spec(mesh, spec))

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the block that each device holds of an array of this shape.

        Raises:
            ShardingError: A dimension is not divisible by the size of its axes.
        """
        cuts = self.cuts(len(shape))
        for dimension, (size, cut) in enumerate(zip(shape, cuts, strict=True)):
            if size % cut:
                raise ShardingError(_not_divisible(tuple(shape), dimension, self, cut))
        return tuple(size // cut for size, cut in zip(shape, cuts, strict=True))

    def devices_indices_map(self, shape: Sequence[int]) -> dict[int, Index]:
        """The placement oracle: for each device id the block of the array that it holds.

        Returns:
            Device ids in row-major mesh order, each with one slice per dimension.
        """
        return self.indices_of(self.mesh.device_ids, shape)

    def indices_of(self, positions: Sequence[int], shape: Sequence[int]) -> dict[int, Index]:
        """The placement oracle for some devices: for each the block of the array that it holds.

        After the first use of a mesh, the cost grows with these devices and not with the mesh.

        Args:
            positions: Devices of the mesh, such as those of one process (`Mesh.positions_of`).
            shape: Global shape.

        Returns:
            The devices in this order, each with one slice per dimension.

        Raises:
            ShardingError: The mesh does not have a device, or a dimension is not divisible by the
                size of its axes.
        """
        devices = positions if isinstance(positions, tuple) else tuple(positions)
        columns = []
        blocks = _blocks_of(self, len(shape), devices).tolist()
        for numbers, size in zip(blocks, self.shard_shape(shape), strict=True):
            slices = {i: slice(i * size, (i + 1) * size) for i in set(numbers)}
            columns.append([slices[i] for i in numbers])
        if not columns:
            return dict.fromkeys(devices, ())
        return dict(zip(devices, zip(*columns, strict=True), strict=True))

    def block_holders(
        self, positions: Sequence[int], shape: Sequence[int]
    ) -> dict[tuple[int, ...], tuple[Index, list[int]]]:
        """The distinct blocks of some devices, by first element, and which devices hold each."""
        holders: dict[tuple[int, ...], tuple[Index, list[int]]] = {}
        for position, index in self.indices_of(positions, shape).items():
            start = tuple(s.start for s in index)
            holders.setdefault(start, (index, []))[1].append(position)
        return holders

    def cuts(self, ndim: int) -> tuple[int, ...]:
        """Number of blocks along each dimension of an array with `ndim` dimensions."""
        return tuple(
            math.prod(self.mesh.axis_size(axis) for axis in axes) for axes in self.axes(ndim)
        )

    def axes(self, ndim: int) -> tuple[tuple[str, ...], ...]:
        """The mesh axes of each dimension, major to minor; () where it is not sharded."""
        if len(self.spec) > ndim:
            raise ShardingError(
                f"partition spec {self.spec} has {len(self.spec)} entries, more than the "
                f"{ndim} of the array's dimensions; give at most one entry for each"
            )
        padded = self.spec + (None,) * (ndim - len(self.spec))
        return tuple(as_axes(entry) for entry in padded)

    def replica_ids(self, ndim: int) -> dict[int, int]:
        """For each device id, the number of devices before it (row-major) with the same block."""
        blocks = self.block_holders(self.mesh.device_ids, self.cuts(ndim)).values()
        return {device: n for _, holders in blocks for n, device in enumerate(holders)}

    def to_jax(self) -> Any:
        """The `jax.sharding.NamedSharding`; StateError if the runtime is not JAX."""
        return process_runtime.find().to_jax(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; `from_dict` reads it back."""
        return {"mesh": self.mesh.to_dict(), "spec": plain_spec(self.spec)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "NamedSharding":
        """The sharding that `to_dict` described; ShardingError for anything else."""
        try:
            return cls(Mesh.from_dict(data["mesh"]), data["spec"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ShardingError(f"not the description of a NamedSharding: {data!r}") from error

    def __repr__(self) -> str:
        return f"NamedSharding({self.mesh!r}, {self.spec!r})"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, NamedSharding):
            return NotImplemented
        return self.spec == other.spec and self.mesh == other.mesh

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        # Without the hash: that of a text differs in another process.
        return {"mesh": self.mesh, "spec": self.spec}

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.mesh, self.spec))


def _mesh_of_jax(mesh: Any) -> Mesh:
    if not hasattr(mesh, "devices") or not hasattr(mesh, "axis_names"):
        raise ShardingError(f"NamedSharding needs a pyreactant.Mesh, got {type(mesh).__name__}")
    ours: Mesh = process_runtime.find().mesh_from_jax(mesh)
    return ours


def _canonical_spec(mesh: Mesh, spec: Iterable[Axes]) -> tuple[Axes, ...]:
    """The one form of a spec: "x" for ("x",), None for (), tuples for lists."""
    if isinstance(spec, str):
        raise ShardingError(
            f"a partition spec has one entry per dimension, such as {mesh.axis_names}, got {spec!r}"
        )
    try:
        spec = tuple(spec)
    except TypeError:
        raise ShardingError(
            f"a partition spec is a tuple with one entry per dimension, got {spec!r}"
        ) from None
    used: list[str] = []
    entries: list[Axes] = []
    for entry in spec:
        if entry is not None and not isinstance(entry, (str, tuple, list)):
            raise ShardingError(
                f"a partition spec entry is None, an axis name or a tuple of names, got {entry!r}"
            )
        names = as_axes(tuple(entry) if isinstance(entry, list) else entry)
        for name in names:
            if name not in mesh.axis_names:
                raise ShardingError(
                    f"partition spec names axis {name!r}, but the mesh has axes {mesh.axis_names}; "
                    "name one of these, or None for a dimension that is not sharded"
                )
            if name in used:
                raise ShardingError(
                    f"partition spec {spec} uses axis {name!r} twice; "
                    "an axis can shard one dimension only"
                )
            used.append(name)
        entries.append(as_entry(names))
    return tuple(entries)


def _not_divisible(
    shape: tuple[int, ...], dimension: int, sharding: NamedSharding, cut: int
) -> str:
    axes = sharding.axes(len(shape))[dimension]
    product = " * ".join(f"{axis}={sharding.mesh.axis_size(axis)}" for axis in axes)
    total = f" = {cut}" if len(axes) > 1 else ""
    lower = shape[dimension] // cut * cut
    sizes = f"{lower + cut}" if lower == 0 else f"{lower} or {lower + cut}"
    return (
        f"dimension {dimension} of shape {shape} has size {shape[dimension]}, which is not "
        f"divisible by its mesh axes {product}{total}; use a size such as {sizes}, or another "
        "mesh or spec (blocks must be equal: nothing is padded)"
    )


@functools.lru_cache(maxsize=256)
def _blocks_of(sharding: NamedSharding, ndim: int, positions: tuple[int, ...]) -> np.ndarray:
    """The numbers of the blocks of some devices, of shape (ndim, len(positions))."""
    mesh = sharding.mesh
    places = np.unravel_index(mesh.rows_of(positions), mesh.shape)
    coordinates = dict(zip(mesh.axis_names, places, strict=True))
    blocks = np.zeros((ndim, len(positions)), dtype=np.int64)
    for dimension, axes in enumerate(sharding.axes(ndim)):
        for axis in axes:
            blocks[dimension] = blocks[dimension] * mesh.axis_size(axis) + coordinates[axis]
    blocks.setflags(write=False)
    return blocks


def process_local_blocks(
    sharding: NamedSharding, shape: tuple[int, ...], positions: Sequence[int]
) -> tuple[tuple[int, ...], Callable[[Index], Index]]:
    """The blocks of some devices, put together into one local array.

    Args:
        sharding: Mesh and partition spec.
        shape: Global shape.
        positions: The devices of one process.

    Returns:
        The local array's shape, and a function from a block's global index to its index in
        the local array.

    Raises:
        ShardingError: The blocks are not all combinations of their rows, columns, ...
    """
    placement = sharding.indices_of(positions, shape)
    block = sharding.shard_shape(shape)
    blocks = {tuple(s.start for s in index) for index in placement.values()}
    starts = [sorted({start[d] for start in blocks}) for d in range(len(shape))]
    if len(blocks) != math.prod(len(s) for s in starts):
        raise ShardingError(
            f"the blocks of devices {tuple(positions)} with {sharding} do not form one array "
            f"(they are {len(blocks)} of {math.prod(len(s) for s in starts)} combinations); use "
            "from_callback, or a mesh whose device_ids keep a process's devices together"
        )
    order = [{start: i for i, start in enumerate(s)} for s in starts]

    def place(index: Index) -> Index:
        return tuple(
            slice(order[d][s.start] * block[d], (order[d][s.start] + 1) * block[d])
            for d, s in enumerate(index)
        )

    return tuple(len(s) * n for s, n in zip(starts, block, strict=True)), place


def as_sharding(sharding: Any) -> Any:
    """Our form of a `jax.sharding.NamedSharding`; anything else as it is."""
    if isinstance(sharding, NamedSharding):
        return sharding
    if hasattr(sharding, "mesh") and hasattr(sharding, "spec"):
        return NamedSharding(sharding.mesh, sharding.spec)
    return sharding


@dataclass(frozen=True, slots=True)
class Aval:
    """An array's abstract value: shape, dtype and sharding, without the data.

    `compile` takes it in place of an array, as JAX takes `jax.ShapeDtypeStruct`.

    Attributes:
        shape: Global shape, the same on every process.
        dtype: Element type: a NumPy dtype, or JAX's type of a PRNG key.
        sharding: Mesh and partition spec.

    Examples:
        >>> described = pr.Aval((8, 8), np.dtype("float32"), sharding)
        >>> pr.compile(lambda x: x.sum(), described).program.name
        '<lambda>'
    """

    shape: tuple[int, ...]
    dtype: Any
    sharding: NamedSharding

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)} with {self.sharding}"


@functools.lru_cache(maxsize=4096)
def intern(aval: Aval) -> Aval:
    """One object for equal descriptions, because comparing identities is quick."""
    return aval


@dataclass(frozen=True, slots=True)
class Device:
    """One device of the run.

    Attributes:
        position: Index in `pyreactant.devices()`, dense over all processes; `Mesh.device_ids`
            are positions.
        process_index: The process that owns the device.
        id: The runtime's own id. Not dense: JAX starts process 1's CPU devices at 2048.
        platform: "cpu", "gpu" or "tpu".
        kind: The vendor's name, such as "TPU v6e".

    Examples:
        >>> device = pr.devices()[5]
        >>> device.platform, device.position, device.process_index
        ('cpu', 5, 0)
    """

    position: int
    process_index: int
    id: int
    platform: str
    kind: str

    def __str__(self) -> str:
        return f"{self.platform}:{self.position}"


@dataclass(frozen=True, slots=True)
class Shard:
    """The block of an array on one addressable device.

    Attributes:
        device: The device that holds it.
        index: Its place in the global array, one slice per dimension.

    Examples:
        >>> shard = x.addressable_shards[5]
        >>> shard.device.position, shard.index, shard.data.shape
        (5, (slice(4, 8, None), slice(2, 4, None)), (4, 2))
    """

    device: Device
    index: Index
    _read: Callable[[], np.ndarray]
    _read_into: Callable[[np.ndarray], object] | None = None
    """Writes the block into existing memory. Without it, blocks are copied twice."""

    @property
    def data(self) -> np.ndarray:
        """The block, copied from the device to the host if needed; do not write to it."""
        return self._read()
