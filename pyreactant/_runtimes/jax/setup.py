"""Configure JAX before it uses a device, and check that it started as requested."""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Mapping
from typing import Any

import jax

from ..._arguments import argument
from ..._core.backend import StartOptions
from ..._errors import RendezvousError, RequirementError, StateError
from ..._system.hardware import tpu_chips
from ...process_group import ProcessGroup

DEFAULT_CPU_DEVICES = 8

_config: Any = jax.config  # its attributes are made at run time


def platform_of(device: Any) -> str:
    return "gpu" if device.platform in ("cuda", "rocm") else str(device.platform)


def configure(group: ProcessGroup, options: StartOptions) -> None:
    """Configure JAX before it uses a device."""
    if options.platform == "cpu" or (options.platform is None and _only_a_cpu()):
        _update("jax_platforms", "cpu")
    if group.local_device_ids is not None:
        visible = ",".join(map(str, group.local_device_ids))
        _update("jax_cuda_visible_devices", visible)
        _update("jax_rocm_visible_devices", visible)
    forced = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if options.num_cpu_devices is not None:
        if forced:
            asked = argument("num_cpu_devices", options.num_cpu_devices)
            raise StateError(
                f"{asked} was requested, but XLA_FLAGS sets "
                "xla_force_host_platform_device_count too; keep one of them"
            )
        _update("jax_num_cpu_devices", options.num_cpu_devices)
    elif group.num_processes == 1 and not forced and _config.jax_num_cpu_devices < 1:
        # Beside a GPU or TPU, virtual CPU devices stay unused and cost nothing.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", DEFAULT_CPU_DEVICES)


def running_group() -> ProcessGroup | None:
    """The processes of `jax.distributed`, if the program has initialized it itself."""
    if not jax.distributed.is_initialized():
        return None
    state: Any = importlib.import_module("jax._src.distributed").global_state
    return ProcessGroup(
        num_processes=state.num_processes,
        process_index=state.process_id,
        coordinator_address=state.coordinator_address,
        source="jax.distributed",
    )


def check_unused(group: ProcessGroup) -> None:
    """Check that JAX can still join other processes.

    Raises:
        StateError: It uses its devices already, in this process alone.
    """
    if importlib.import_module("jax._src.xla_bridge").backends_are_initialized():
        raise StateError(
            f"JAX already uses the devices of this process alone, so it cannot join "
            f"{group.num_processes} processes; call pyreactant.initialize (or "
            "jax.distributed.initialize) before anything that uses JAX, such as jax.devices() or "
            "jax.numpy.ones"
        )


def _only_a_cpu() -> bool:
    """Whether libtpu is installed only to compile: no TPU, and no GPU plugin.

    JAX would otherwise search the network for a TPU for seconds, and print why it found none.
    """
    if os.environ.get("JAX_PLATFORMS") or not importlib.util.find_spec("libtpu") or tpu_chips():
        return False
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return not plugins and not importlib.util.find_spec("jax_plugins")


def _update(name: str, value: Any) -> None:
    # It raises if JAX has devices already; `find_devices` checks that they are as requested.
    with contextlib.suppress(RuntimeError):
        jax.config.update(name, value)


def _no_platform(platform: str | None, error: RuntimeError) -> RequirementError:
    if platform is None:
        return RequirementError(f"JAX found no device: {error}")
    try:
        here = ", ".join(sorted({platform_of(d) for d in jax.devices()}))
    except RuntimeError:
        here = "none"
    extra = {"gpu": "cuda13", "tpu": "tpu"}.get(platform)
    advice = (
        f"; run on a machine that has one, with: python -m pip install 'pyreactant[{extra}]'"
        if extra
        else ""
    )
    if platform == "gpu":
        advice += " (cuda12 for a driver older than 580)"
    only = os.environ.get("JAX_PLATFORMS")
    limited = f" (JAX_PLATFORMS={only} is set)" if only else ""
    return RequirementError(
        f"platform {platform!r} was requested, but JAX has: {here}{limited}{advice}"
    )


def runtime_processes(group: ProcessGroup, platform: str | None) -> dict[int, int]:
    """The launcher's process index for each process index of JAX. Collective.

    They differ on TPU, where libtpu numbers the processes itself, whatever index they were given
    (SkyRL pull request 1252, maxtext pull request 1454).

    Raises:
        RendezvousError: JAX runs with another number of processes, or one did not answer.
    """
    try:
        mine, count = jax.process_index(platform), jax.process_count(platform)
    except RuntimeError:
        return {0: group.process_index}  # no device: `find_devices` says so
    if count != group.num_processes:
        raise RendezvousError(
            f"num_processes={group.num_processes} was requested, but JAX runs with {count}; start "
            "JAX's processes through pyreactant.initialize alone, or before it with "
            "jax.distributed.initialize and the same number"
        )
    if count == 1:
        return {mine: group.process_index}
    from .distributed import exchange_indices

    return exchange_indices(group, mine)


def find_devices(
    group: ProcessGroup, options: StartOptions, owner: Mapping[int, int]
) -> tuple[Any, ...]:
    """JAX's devices of the run, by the launcher's process index and then by id. Collective.

    Args:
        group: The processes.
        options: What was asked for.
        owner: The launcher's process index for each of JAX's.

    Raises:
        RequirementError: The platform is absent.
        StateError: JAX had already started with other devices than requested.
    """
    try:
        found = jax.devices(options.platform)
    except RuntimeError as error:
        raise _no_platform(options.platform, error) from error
    local = sum(owner[d.process_index] == group.process_index for d in found)
    cpus, gpus = options.num_cpu_devices, group.local_device_ids
    platform = platform_of(found[0])
    if cpus is not None and platform == "cpu" and local != cpus:
        raise StateError(
            f"{argument('num_cpu_devices', cpus)} was requested, but JAX had already started with "
            f"{local}; call pyreactant.initialize before anything uses JAX"
        )
    if gpus is not None and platform == "gpu" and local != len(gpus):
        raise StateError(
            f"local_device_ids={gpus} was requested, but JAX has {local} GPUs in this process; "
            "call pyreactant.initialize before anything uses JAX, and name GPUs of this machine"
        )
    return tuple(sorted(found, key=lambda d: (owner[d.process_index], d.id)))
