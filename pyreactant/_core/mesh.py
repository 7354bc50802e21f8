"""Mesh: devices in a grid with named axes, as plain frozen data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import ShardingError
from . import above


@dataclass(frozen=True, init=False, repr=False)
class Mesh:
    """Devices in a grid with named axes.

    Args:
        shape: Number of devices along each axis, for instance ``(2, 4)``.
        axis_names: One Python identifier per axis, for instance ``("x", "y")``.
        device_ids: Positions in `pyreactant.devices()`, flat in row-major order or nested
            like the mesh. None means all devices, in order. A mesh over some of the
            devices must name them, so that no device stays idle by mistake.

    Raises:
        ShardingError: Sizes, names and ids do not fit together.
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
        sizes = _positive_sizes(shape)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        _check_axis_names(names, sizes)
        ids = range(math.prod(sizes)) if device_ids is None else _flat_ids(device_ids, sizes)
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "axis_names", names)
        object.__setattr__(self, "device_ids", tuple(ids))
        object.__setattr__(self, "all_devices", device_ids is None)
        object.__setattr__(self, "axis_types", tuple(axis_types or ["auto"] * len(sizes)))

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
        return above.runtime().current().backend.to_jax(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; `from_dict` reads it back."""
        ids = None if self.all_devices else list(self.device_ids)
        return {"shape": list(self.shape), "axis_names": list(self.axis_names), "device_ids": ids}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Mesh":
        """The mesh that `to_dict` described; ShardingError for anything else."""
        try:
            return cls(data["shape"], data["axis_names"], data.get("device_ids"))
        except (KeyError, TypeError, AttributeError) as error:
            raise ShardingError(f"not the description of a Mesh: {data!r}") from error

    def __repr__(self) -> str:
        ids = "" if self.all_devices else f", device_ids={self.device_ids}"
        axes = ", ".join(
            f"{name}={size}" for name, size in zip(self.axis_names, self.shape, strict=True)
        )
        return f"Mesh({axes}{ids})"


def _positive_sizes(shape: Sequence[int]) -> tuple[int, ...]:
    wrong = ShardingError(
        f"Mesh needs a shape of positive whole numbers such as (2, 4), got {shape!r}"
    )
    if isinstance(shape, (str, bytes)):
        raise wrong
    try:
        sizes = tuple(shape)
    except TypeError:
        raise wrong from None
    if not sizes or not all(_is_int(n) and n > 0 for n in sizes):
        raise wrong
    return tuple(int(n) for n in sizes)


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


def _flat_ids(device_ids: Sequence[Any] | np.ndarray, sizes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        ids = np.asarray(device_ids)
    except ValueError:  # a ragged list
        raise ShardingError(f"device_ids must form a grid, got {device_ids!r}") from None
    if ids.dtype.kind not in "iu" or (ids.size and int(ids.min()) < 0):
        raise ShardingError(
            "device_ids must be whole numbers from 0, the positions in pyreactant.devices(), "
            f"got {device_ids!r}"
        )
    if ids.size != math.prod(sizes) or (ids.ndim > 1 and ids.shape != sizes):
        raise ShardingError(
            f"Mesh of shape {sizes} needs {math.prod(sizes)} device ids, flat or of that shape, "
            f"got {ids.size} of shape {ids.shape}"
        )
    flat = tuple(int(i) for i in ids.ravel())
    if len(set(flat)) != len(flat):
        raise ShardingError(f"a mesh holds each device once, got device_ids={flat}")
    return flat
