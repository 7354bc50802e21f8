"""Every check that needs no runtime, in the order in which a human reads them."""

from collections.abc import Callable
from typing import NamedTuple

from . import _cloud, _gpu, _julia, _launch, _packages, _settings, _system, _tpu
from ._check import Check, Found, Status
from ._machine import Machine
from ._secrets import without_secrets

BACKENDS = ("jax", "reactant")


class Row(NamedTuple):
    """A check's place in the table.

    Attributes:
        name: Of the row.
        look: The check.
        needed_by: The runtimes that do not work without it; "any" where it is asked for no
            particular one.
    """

    name: str
    look: Callable[[Machine], Found]
    needed_by: tuple[str, ...] = ()


_ALWAYS = ("any", *BACKENDS)
_JAX, _REACTANT = ("jax",), ("reactant",)

BEFORE = {
    "installation": (
        Row("Python", _packages.python, _ALWAYS),
        Row("pyreactant", _packages.pyreactant, _ALWAYS),
        Row("numpy", _packages.numpy, _ALWAYS),
    ),
    "JAX": (
        Row("jax", _packages.jax, _JAX),
        Row("jaxlib", _packages.jaxlib, _JAX),
        Row("GPU plugins", _packages.plugins),
        Row("libtpu", _packages.libtpu),
    ),
    "Reactant": (
        Row("juliacall", _julia.juliacall, _REACTANT),
        Row("Julia", _julia.julia, _REACTANT),
        Row("Julia project", _julia.project, _REACTANT),
        Row("Reactant", _julia.reactant, _REACTANT),
        Row("Reactant_jll", _julia.libraries),
    ),
    "accelerators": (
        Row("NVIDIA driver", _gpu.driver),
        Row("GPU users", _gpu.users),
        Row("TPU", _tpu.tpu),
    ),
}
"""The groups above that of the runtimes."""

AFTER = {
    "settings": (
        Row("proxies", _settings.proxies),
        Row("LD_PRELOAD", _settings.preload),
        Row("LD_LIBRARY_PATH", _settings.library_path),
        Row("XLA_FLAGS", _settings.xla_flags),
        Row("LIBTPU_INIT_ARGS", _settings.libtpu_args),
        Row("GPU memory", _settings.gpu_memory),
        Row("hidden devices", _settings.hidden),
    ),
    "machine": (
        Row("host name", _system.host_name),
        Row("clock", _system.clock),
        Row(_system.SHM, _system.shared_memory),
        Row("open files", _system.open_files),
        Row("disk", _system.disk),
    ),
    "launch": (
        Row("who am I", _launch.who_am_i),
        Row("Slurm", _launch.slurm),
        Row("gcloud", _cloud.gcloud),
    ),
}
"""The groups below it."""


def check(machine: Machine, backend: str | None, group: str, row: Row) -> Check:
    """Look, whatever happens: a check that fails itself is a row, too."""
    required = (backend or "any") in row.needed_by
    try:
        found = row.look(machine)
    except Exception as error:  # the doctor goes on, and says so
        found = Found("warn", f"could not be checked: {type(error).__name__}: {error}")
    status: Status
    if found.status == "absent":
        status = "fail" if required else "warn"
    elif found.status == "unknown":
        status = "warn" if required else "pass"
    else:
        status = found.status
    # One line each, so that a name with a line break cannot forge a row.
    text, mend = (
        " ".join(without_secrets(part, machine.environ).split())
        for part in (found.found, found.mend)
    )
    return Check(row.name, group, status, required, text, mend)
