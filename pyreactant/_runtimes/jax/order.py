"""The order of devices that suits the hardware's network, by JAX's own functions."""

import math
from collections.abc import Sequence
from typing import Any

from jax.experimental import mesh_utils

from ..._errors import ShardingError

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
