"""The environment of a run's programs: what tells them, or JAX or Julia in them, who they are."""

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._errors import PyReactantError
from .._julia.place import find_place, package_folder
from .._supervised.plain_jax import STALL_TIMEOUT
from .._system import hardware
from ..process_group._environment import COORDINATOR, COUNT, INDEX, LOCAL_DEVICES
from ..process_group._secret import SECRET, SECRET_FILE
from ._guardian import TOKEN
from ._program import Program

_JAX = {
    "JAX_PLATFORMS": "PYREACTANT_PLATFORM",
    "JAX_NUM_CPU_DEVICES": "PYREACTANT_NUM_CPU_DEVICES",
    "JAX_LOCAL_DEVICE_IDS": LOCAL_DEVICES,
}
"""JAX's variables, with those of ours that say the same."""

_FORCED = "xla_force_host_platform_device_count"


def program_environment(
    program: Program,
    settings: Mapping[str, str],
    go: Mapping[str, Any],
    *,
    index: int,
    token: str,
    stall_timeout: float,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The whole environment of one program.

    Args:
        program: The program.
        settings: The ``PYREACTANT_*`` variables that this run sets for it.
        go: The head's order to start: num_processes, coordinator and restarts.
        index: Its process index.
        token: Mark of the run's processes on this machine.
        stall_timeout: As in `RunOptions`.
        environ: The supervisor's own environment.
    """
    found = {
        **{k: v for k, v in environ.items() if k not in (SECRET, SECRET_FILE)},
        # JAX's preemption service would swallow SIGTERM in programs that do not use it.
        "JAX_ENABLE_PREEMPTION_SERVICE": environ.get("JAX_ENABLE_PREEMPTION_SERVICE", "0"),
        "PYTHONUNBUFFERED": "1",
        **settings,
        TOKEN: token,
        COUNT: str(go["num_processes"]),
        INDEX: str(index),
        "PYREACTANT_RESTART_COUNT": str(go["restarts"]),
        STALL_TIMEOUT: f"{min(stall_timeout, 1e6):g}",  # JAX and Julia take no infinity
    }
    if go.get("coordinator"):
        found[COORDINATOR] = go["coordinator"]
    found |= _for_jax(found, settings, environ)
    if program.kind == "julia":
        found |= for_julia(found)
    return found


def _for_jax(
    found: Mapping[str, str], settings: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """JAX's own variables; the user's stay unless an option of this run says otherwise."""
    new = {}
    for name, ours in _JAX.items():
        value = found.get(ours)
        if value and (ours in settings or not environ.get(name)):
            new[name] = _jax_platforms(value) if name == "JAX_PLATFORMS" else value
    if _FORCED in environ.get("XLA_FLAGS", ""):
        new.pop("JAX_NUM_CPU_DEVICES", None)  # JAX refuses to be told twice
    return new


def _jax_platforms(platform: str) -> str:
    """JAX's name of a platform; an accelerator has the CPU beside it, as by default."""
    if platform == "gpu":  # with "gpu" JAX would insist on CUDA and ROCm
        platform = "rocm" if Path("/dev/kfd").exists() else "cuda"
    return platform if platform == "cpu" else f"{platform},cpu"


def for_julia(found: Mapping[str, str]) -> dict[str, str]:
    """What lets ``using PyReactant`` find our package, and a PythonCall this Python."""
    # An empty entry is Julia's own default path. The program's own project comes first. Ours has no
    # manifest and comes last: Julia does not look for what it needs in places that follow it.
    path = [found.get("JULIA_LOAD_PATH", "")]
    new = {}
    with contextlib.suppress(PyReactantError):  # without a setup, that project has the packages
        place = find_place(found)
        path.append(str(place.project))
        if place.depot and not found.get("JULIA_DEPOT_PATH"):
            new["JULIA_DEPOT_PATH"] = place.depot
    new |= {
        "JULIA_LOAD_PATH": ":".join([*path, str(package_folder())]),
        "JULIA_CONDAPKG_BACKEND": found.get("JULIA_CONDAPKG_BACKEND") or "Null",
        "JULIA_PYTHONCALL_EXE": found.get("JULIA_PYTHONCALL_EXE") or sys.executable,
    }
    if not found.get(LOCAL_DEVICES) and found.get("PYREACTANT_PLATFORM") not in ("cpu", "tpu"):
        visible = found.get("CUDA_VISIBLE_DEVICES")
        count = hardware.gpus() if visible is None else len([x for x in visible.split(",") if x])
        if count:  # Reactant must be told, or it asks the launcher
            new[LOCAL_DEVICES] = ",".join(map(str, range(count)))
    return new
