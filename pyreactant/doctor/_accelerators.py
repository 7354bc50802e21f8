"""NVIDIA's driver and GPUs, and who uses them."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from .._system.hardware import nvidia_gpus_of_driver, tpu_chips
from .._system.versions import at_least
from ._check import Found
from ._machine import Machine

_QUERY = (
    "--query-gpu=index,name,driver_version,memory.total,memory.used,compute_mode",
    "--format=csv,noheader,nounits",
)
_APPS = ("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")
# CUDA Toolkit release notes, minimum driver for minor version compatibility.
LEAST_DRIVER = {"12": "525.60.13", "13": "580"}


class Gpu(NamedTuple):
    """A GPU as nvidia-smi sees it; memory in MiB."""

    number: str
    name: str
    driver: str
    total: str
    used: str
    mode: str


def gpu_count(machine: Machine) -> int:
    """How many NVIDIA GPUs the driver knows, without starting anything."""
    return nvidia_gpus_of_driver(machine.root)


def driver_version(machine: Machine) -> str | None:
    """Version of the NVIDIA driver in the kernel; None where there is none."""
    try:
        text = machine.file("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return found[1] if found else None


def cuda_extra(machine: Machine) -> str:
    """The extra of jax's that fits the driver."""
    version = driver_version(machine)
    return "cuda12" if version and not at_least(version, LEAST_DRIVER["13"]) else "cuda13"


def driver(machine: Machine) -> Found:
    """The driver and its GPUs, and whether it is new enough for the plugins that are installed."""
    kernel, count = driver_version(machine), gpu_count(machine)
    smi = machine.which("nvidia-smi")
    if smi is None:
        if kernel is None:
            return Found("pass", "no NVIDIA driver is here")
        text = f"{kernel} with {count} GPUs, but nvidia-smi is not on PATH"
        return Found("warn", text, 'export PATH="$PATH:/usr/bin:/usr/lib/wsl/lib"')
    ran = machine.run([smi, *_QUERY])
    if ran.code is None:
        return Found("fail", "nvidia-smi did not answer within 10 s", "sudo reboot")
    if ran.code != 0:
        return _broken((ran.out + ran.err).strip(), kernel)
    gpus = _gpus(ran.out)
    if not gpus:
        return Found("warn", "nvidia-smi lists no GPU", "nvidia-smi -L")
    names = sorted({gpu.name for gpu in gpus})
    text = f"{gpus[0].driver}, {len(gpus)} x {' and '.join(names)}"
    old = _too_old(machine, gpus[0].driver)
    if old:
        return Found("fail", f"{text}; {old[0]}", old[1])
    if any(gpu.mode == "Prohibited" for gpu in gpus):
        return Found("fail", f"{text}; compute mode is Prohibited", "sudo nvidia-smi -c DEFAULT")
    return Found("pass", text)


def _too_old(machine: Machine, driver: str) -> tuple[str, str] | None:
    """What the driver is too old for, and the command that mends it."""
    for cuda, least in LEAST_DRIVER.items():
        if at_least(driver, least) or machine.version(f"jax-cuda{cuda}-plugin") is None:
            continue
        text = f"CUDA {cuda}, for which JAX's plugin is installed, needs {least} or newer"
        if cuda == "13" and at_least(driver, LEAST_DRIVER["12"]):
            gone = f"{machine.python_word()} -m pip uninstall -y jax-cuda13-plugin jax-cuda13-pjrt"
            return text, f"{gone} && {machine.pip('jax[cuda12]')}"
        return text, "sudo apt-get install nvidia-driver-580"
    return None


def _broken(said: str, kernel: str | None) -> Found:
    line = said.splitlines()[0] if said else "nothing"
    mend = "sudo reboot" if "mismatch" in said else "sudo modprobe nvidia"
    if kernel is None and "mismatch" not in said:
        line += " (no driver is loaded)"
    return Found("fail", f"nvidia-smi fails: {line}", mend)


def users(machine: Machine) -> Found:
    """Processes that use the GPUs now: both runtimes want most of the memory for themselves."""
    smi = machine.which("nvidia-smi")
    if smi is None:
        return Found("pass", "no NVIDIA driver is here")
    ran, asked = machine.run([smi, *_APPS]), machine.run([smi, *_QUERY])
    if ran.code != 0 or asked.code != 0:
        return Found("warn", "nvidia-smi cannot say", "nvidia-smi")
    rows = [[part.strip() for part in line.split(",")] for line in ran.out.splitlines() if line]
    busy = [
        f"process {row[0]} ({row[1].rpartition('/')[2]}, {row[2]} MiB)"
        for row in rows
        if len(row) == 3
    ]
    exclusive = [gpu.number for gpu in _gpus(asked.out) if gpu.mode.startswith("Exclusive")]
    if busy:
        only = " and lets no other in" if exclusive else ""
        many = f" and {len(busy) - 4} more" if len(busy) > 4 else ""
        text = f"in use by {', '.join(busy[:4])}{many}, which leaves less memory{only}"
        return Found("warn", text, "nvidia-smi")
    used = [
        f"GPU {gpu.number} {gpu.used} MiB"
        for gpu in _gpus(asked.out)
        if gpu.used.isdigit() and int(gpu.used) > 1024
    ]
    if used:  # another container's processes are not listed
        text = f"memory is taken by processes that cannot be seen from here: {', '.join(used)}"
        return Found("warn", text, "nvidia-smi")
    return Found("pass", "nobody uses them")


def _gpus(text: str) -> list[Gpu]:
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    return [Gpu(*row) for row in rows if len(row) == len(Gpu._fields)]


_DEVICE = re.compile(r"/dev/(accel\d+|vfio/\d+)$")


def tpu(machine: Machine) -> Found:
    """Chips, and the processes that hold them, as far as this user may see."""
    chips = tpu_chips(machine.root)
    if not chips:
        return Found("pass", "no TPU is here")
    held = holders(machine)
    if held:
        names = ", ".join(f"process {pid} ({process_name(machine, pid)})" for pid in held)
        text = f"{chips} chips, in use by {names}; a TPU belongs to one process at a time"
        return Found("warn", text, f"kill {' '.join(map(str, held))}")
    return Found("pass", f"{chips} chips, held by no process that this user may see")


def process_name(machine: Machine, pid: int) -> str:
    """What a process is called; its arguments, which may hold secrets, are not shown."""
    try:
        return machine.file(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "of another user or machine"


def holders(machine: Machine) -> list[int]:
    """The processes that hold a TPU, as far as this user may see."""
    return sorted(set(_holders(machine)))


def _holders(machine: Machine) -> Iterator[int]:
    for process in machine.file("/proc").glob("[0-9]*"):
        try:
            for descriptor in (process / "fd").iterdir():
                if _DEVICE.search(str(descriptor.readlink())):
                    yield int(process.name)
        except OSError:  # it has ended, or is another user's
            continue
