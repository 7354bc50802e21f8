"""Meshes over the devices of the run: checked, and in the order of the hardware's network."""

from collections.abc import Sequence

from ...base.counted import counted
from ...base.errors import RequirementError, ShardingError, argument
from ..mesh import Mesh
from .runtime import current


def check_mesh(mesh: Mesh) -> None:
    """Check that a mesh fits the devices of the run; once for each mesh.

    Raises:
        ShardingError: It needs more devices than there are, leaves some idle without naming its
            own, or leaves a process without a device.
    """
    running = current()
    if mesh in running.meshes:
        return
    devices = running.backend.devices()
    beyond = [i for i in mesh.device_ids if i >= len(devices)]
    if beyond:
        more = "more devices"
        if devices[0].platform == "cpu":
            each = -(-(max(mesh.device_ids) + 1) // running.group.num_processes)
            more = argument("num_cpu_devices", each)
            if not more.startswith("--"):
                more += f" (--devices-per-process {each} of pyreactant run)"
        raise ShardingError(
            f"{mesh!r} needs {counted(mesh.size, 'device')}, at positions up to "
            f"{max(mesh.device_ids)}, but there are {len(devices)} ({devices[0].platform}); use a "
            f"smaller mesh or start with {more}"
        )
    if mesh.all_devices and mesh.size < len(devices):
        raise ShardingError(
            f"{mesh!r} uses {mesh.size} of {len(devices)} devices; use a mesh of {len(devices)}, "
            f"or name {mesh.size} of them with {argument('device_ids')} to leave the others idle"
        )
    idle = set(range(running.group.num_processes)) - {
        devices[i].process_index for i in mesh.device_ids
    }
    if idle:
        raise ShardingError(
            f"{mesh!r} has no device of process {min(idle)}; every process must hold a part"
        )
    running.meshes.add(mesh)


def make_mesh(
    shape: Sequence[int],
    axis_names: Sequence[str],
    *,
    axis_types: Sequence[str] | None = None,
    allow_split_physical_axes: bool | None = None,
) -> Mesh:
    """A mesh over all devices, in the order that suits the hardware's network.

    The order is that of `jax.make_mesh`: on a TPU slice, mesh axes lie along sides of the torus.
    Several slices lie along the first axes, as in `create_hybrid_device_mesh`, so name the axis
    with the least communication first. On CPUs and GPUs the devices of a process stay together. The
    mesh has plain `device_ids`, so it means the same devices in every runtime of a run; it has none
    if the order is that of `pyreactant.devices()`, as in `Mesh`.

    Args:
        shape: Number of devices along each axis; one size may be -1.
        axis_names: One Python identifier per axis.
        axis_types: As for `Mesh`.
        allow_split_physical_axes: Whether a side of the torus may be divided between mesh axes,
            which then share its links. By default it may on TPU v5e only, as in `jax.make_mesh`.

    Raises:
        ShardingError: Sizes and names do not fit together or do not use all devices, or there is no
            order for this shape.
        RequirementError: The runtime does not know where its TPU devices are.

    Examples:
        >>> mesh = pr.make_mesh((2, 4), ("x", "y"))
        >>> mesh.axis_names, mesh.size
        (('x', 'y'), 8)
    """
    mesh = Mesh(shape, axis_names, axis_types=axis_types)
    check_mesh(mesh)
    backend = current().backend
    order = backend.hardware_order(mesh.shape, allow_split_physical_axes)
    if order is None and backend.devices()[0].platform == "tpu":
        raise RequirementError(
            "make_mesh needs the coordinates of TPU devices, which the runtime "
            f"{backend.name!r} does not give; name the order with "
            f"pyreactant.Mesh({mesh.shape}, ..., device_ids=...), for instance the device_ids that "
            "make_mesh gives on the JAX runtime on this slice"
        )
    if order in (None, mesh.device_ids):
        return mesh
    return Mesh(mesh.shape, mesh.axis_names, order, axis_types=mesh.axis_types)
