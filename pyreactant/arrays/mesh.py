"""Mesh: devices in a grid with named axes, as plain frozen data."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..base.errors import ShardingError, argument
from . import process_runtime

MOST_DEVICES = 2**20
"""Most devices of a mesh. Its ids are in memory; a mistaken shape must not be allocated."""

AXIS_TYPES = ("auto", "explicit")
"""Who chooses how a program's values are sharded over an axis: the compiler, or their types."""


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Mesh:
    """Devices in a grid with named axes.

    Args:
        shape: Number of devices along each axis, for instance ``(2, 4)``. One size may be -1: it
            follows from `device_ids`, or else from the number of devices of the run, whose runtime
            starts if none runs.
        axis_names: One Python identifier per axis, for instance ``("x", "y")``.
        device_ids: Positions in `pyreactant.devices()`, flat in row-major order or nested
            like the mesh. None means all devices, in order. A mesh over some of the
            devices must name them, so that no device stays idle by mistake.
        axis_types: "auto" or "explicit" for each axis, as in JAX; all "auto" if not given.

    Raises:
        ShardingError: Sizes, names, types and ids do not fit together, or a mesh of this shape
            would have more than 1048576 devices.

    Examples:
        >>> mesh = pr.Mesh((2, -1), ("x", "y"))
        >>> mesh.shape, mesh.size
        ((2, 4), 8)
        >>> pr.Mesh((2, 2), ("x", "y"), [0, 2, 4, 6]).device_ids
        (0, 2, 4, 6)
    """

    shape: tuple[int, ...]
    axis_names: tuple[str, ...]
    device_ids: tuple[int, ...]
    all_devices: bool
    axis_types: tuple[str, ...]

    def __init__(
        self,
        shape: Sequence[int],
        axis_names: Sequence[str],
        device_ids: Sequence[Any] | np.ndarray | None = None,
        *,
        axis_types: Sequence[str] | None = None,
    ) -> None:
        sizes = _as_sizes(shape)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        _check_axis_names(names, sizes)
        given = None if device_ids is None else _as_ids(device_ids)
        if -1 in sizes:
            sizes = _infer_size(sizes, given)
        _check_count(sizes)
        ids = range(math.prod(sizes)) if given is None else _flat_ids(given, sizes)
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "axis_names", names)
        object.__setattr__(self, "device_ids", _intern(tuple(ids)))
        object.__setattr__(self, "all_devices", device_ids is None)
        object.__setattr__(self, "axis_types", _as_axis_types(axis_types, names))

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.device_ids)

    def axis_size(self, axis: str) -> int:
        """Number of devices along one axis; ShardingError for an unknown axis."""
        if axis not in self.axis_names:
            raise ShardingError(f"unknown axis {axis!r}; the mesh has axes {self.axis_names}")
        return self.shape[self.axis_names.index(axis)]

    def to_jax(self) -> Any:
        """The `jax.sharding.Mesh`; StateError if the runtime is not JAX."""
        return process_runtime.find().to_jax(self)

    def positions_of(self, owned: frozenset[int]) -> tuple[int, ...]:
        """The devices of this mesh that are among `owned`, in row-major mesh order.

        The answer is kept, so that a process that asks for its own devices reads a large mesh once.
        """
        return _positions_of(self, owned)

    def rows_of(self, positions: Sequence[int]) -> np.ndarray:
        """For each device its number in row-major mesh order; ShardingError for one of another."""
        if positions is self.device_ids:
            return np.arange(self.size)
        rows = self._row_of
        absent = [position for position in positions if position not in rows]
        if absent:
            raise ShardingError(f"{self!r} does not have device {absent[0]}; ask for its own only")
        return np.array([rows[position] for position in positions], dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; `from_dict` reads it back."""
        ids = None if self.all_devices else list(self.device_ids)
        plain = {"shape": list(self.shape), "axis_names": list(self.axis_names), "device_ids": ids}
        return plain | ({"axis_types": list(self.axis_types)} if self._has_explicit_axes else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Mesh":
        """The mesh that `to_dict` described; ShardingError for anything else."""
        try:
            shape, names, ids = data["shape"], data["axis_names"], data.get("device_ids")
            if -1 in shape:
                raise TypeError("a description has all sizes")
            return cls(shape, names, ids, axis_types=data.get("axis_types"))
        except (KeyError, TypeError, AttributeError) as error:
            raise ShardingError(f"not the description of a Mesh: {data!r}") from error

    def __repr__(self) -> str:
        ids = "" if self.all_devices else f", device_ids={self.device_ids}"
        types = f", axis_types={self.axis_types}" if self._has_explicit_axes else ""
        axes = ", ".join(
            f"{name}={size}" for name, size in zip(self.axis_names, self.shape, strict=True)
        )
        return f"Mesh({axes}{ids}{types})"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Mesh):
            return NotImplemented
        return self._hash == other._hash and self._values == other._values

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        # Without what is computed once: the hash of a text differs in another process.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def _values(self) -> tuple[object, ...]:
        ids = None if self.all_devices else self.device_ids  # the shape says which are all
        return self.shape, self.axis_names, self.axis_types, ids

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._values)

    @functools.cached_property
    def _row_of(self) -> dict[int, int]:
        return {position: row for row, position in enumerate(self.device_ids)}

    @property
    def _has_explicit_axes(self) -> bool:
        return "explicit" in self.axis_types


@functools.lru_cache(maxsize=16)
def _intern(ids: tuple[int, ...]) -> tuple[int, ...]:
    """Equal ids as one tuple: Python then finds them equal without reading them."""
    return ids


@functools.lru_cache(maxsize=64)
def _positions_of(mesh: Mesh, owned: frozenset[int]) -> tuple[int, ...]:
    return tuple(position for position in mesh.device_ids if position in owned)


def _as_sizes(shape: Sequence[int]) -> tuple[int, ...]:
    wrong = ShardingError(
        "Mesh needs a shape of positive whole numbers such as (2, 4), of which one may be -1 to be "
        f"inferred, got {shape!r}"
    )
    if isinstance(shape, (str, bytes)):
        raise wrong
    try:
        sizes = tuple(shape)
    except TypeError:
        raise wrong from None
    whole = all(_is_int(n) and (n > 0 or n == -1) for n in sizes)
    if not sizes or not whole or sizes.count(-1) > 1:
        raise wrong
    return tuple(int(n) for n in sizes)


def _infer_size(sizes: tuple[int, ...], ids: np.ndarray | None) -> tuple[int, ...]:
    """The sizes with a number in place of -1."""
    there = len(process_runtime.find().devices()) if ids is None else ids.size
    others = -math.prod(sizes)
    if not there or there % others:
        what = "devices of the run" if ids is None else "device ids"
        raise ShardingError(
            f"Mesh of shape {sizes} needs a multiple of {others} {what}, the product of its other "
            f"sizes, to infer -1, got {there}; choose sizes whose product divides {there}"
        )
    return tuple(there // others if n == -1 else n for n in sizes)


def _check_count(sizes: tuple[int, ...]) -> None:
    if math.prod(sizes) > MOST_DEVICES:
        raise ShardingError(
            f"a mesh has at most {MOST_DEVICES} devices, got shape {sizes} with "
            f"{math.prod(sizes)}; give the number of devices along each axis, not the array's shape"
        )


def _as_axis_types(axis_types: Sequence[str] | None, names: tuple[str, ...]) -> tuple[str, ...]:
    if axis_types is None:
        return (AXIS_TYPES[0],) * len(names)
    types = axis_types if isinstance(axis_types, str) else tuple(axis_types)
    if isinstance(types, str) or len(types) != len(names) or not set(types) <= set(AXIS_TYPES):
        raise ShardingError(
            f"axis_types needs 'auto' or 'explicit' for each of the axes {names}, got "
            f"{axis_types!r}"
        )
    return types


def _is_int(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _check_axis_names(names: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    if len(names) != len(sizes):
        raise ShardingError(
            f"Mesh of shape {sizes} needs {len(sizes)} axis names, got {len(names)}: {names}"
        )
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            raise ShardingError(f"axis names must be identifiers such as 'x', got {name!r}")
    if len(set(names)) != len(names):
        raise ShardingError(f"axis names must differ from each other, got {names}")


def _as_ids(device_ids: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Device ids as an array of any shape."""
    try:
        ids = np.asarray(device_ids)
    except ValueError:  # a ragged list
        raise ShardingError(
            f"{argument('device_ids')} must form a grid, got {device_ids!r}"
        ) from None
    if ids.dtype.kind not in "iu" or (ids.size and int(ids.min()) < 0):
        raise ShardingError(
            f"{argument('device_ids')} must be whole numbers from 0, the positions in "
            f"pyreactant.devices(), got {device_ids!r}"
        )
    return ids


def _flat_ids(ids: np.ndarray, sizes: tuple[int, ...]) -> tuple[int, ...]:
    if ids.size != math.prod(sizes) or (ids.ndim > 1 and ids.shape != sizes):
        raise ShardingError(
            f"Mesh of shape {sizes} needs {math.prod(sizes)} device ids, flat or of that shape, "
            f"got {ids.size} of shape {ids.shape}"
        )
    flat = tuple(int(i) for i in ids.ravel())
    if len(set(flat)) != len(flat):
        raise ShardingError(f"a mesh holds each device once, got {argument('device_ids')} {flat}")
    return flat
