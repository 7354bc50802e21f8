"""NVIDIA's driver, the GPUs and TPUs, and the processes that use them."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from .._system.facts import at_least, nvidia_gpus_of_driver, tpu_chips
from ._check import CheckResult, Machine

_QUERY = (
    "--query-gpu=index,name,driver_version,memory.total,memory.used,compute_mode",
    "--format=csv,noheader,nounits",
)
_APPS = ("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")
# CUDA Toolkit release notes, minimum driver for minor version compatibility.
MIN_DRIVER = {"12": "525.60.13", "13": "580"}


class Gpu(NamedTuple):
    """A GPU as nvidia-smi reports it; memory in MiB."""

    number: str
    name: str
    driver: str
    total: str
    used: str
    mode: str


def gpu_count(machine: Machine) -> int:
    """The number of NVIDIA GPUs that the driver lists."""
    return nvidia_gpus_of_driver(machine.root)


def driver_version(machine: Machine) -> str | None:
    """The version of the NVIDIA driver in the kernel; None if there is no driver."""
    try:
        text = machine.file("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return found[1] if found else None


def cuda_extra(machine: Machine) -> str:
    """The extra of jax that fits the driver."""
    version = driver_version(machine)
    return "cuda12" if version and not at_least(version, MIN_DRIVER["13"]) else "cuda13"


def driver(machine: Machine) -> CheckResult:
    """The driver and its GPUs, and whether it is new enough for the installed plugins."""
    kernel, count = driver_version(machine), gpu_count(machine)
    smi = machine.which("nvidia-smi")
    if smi is None:
        if kernel is None:
            return CheckResult("pass", "no NVIDIA driver")
        text = f"{kernel} with {count} GPUs, but nvidia-smi is not on PATH"
        return CheckResult("warn", text, 'export PATH="$PATH:/usr/bin:/usr/lib/wsl/lib"')
    ran = machine.run([smi, *_QUERY])
    if ran.code is None:
        return CheckResult("fail", "nvidia-smi did not answer within 10 s", "sudo reboot")
    if ran.code != 0:
        return _broken((ran.out + ran.err).strip(), kernel)
    gpus = _gpus(ran.out)
    if not gpus:
        return CheckResult("warn", "nvidia-smi lists no GPU", "nvidia-smi -L")
    names = sorted({gpu.name for gpu in gpus})
    text = f"{gpus[0].driver}, {len(gpus)} x {' and '.join(names)}"
    old = _too_old(machine, gpus[0].driver)
    if old:
        return CheckResult("fail", f"{text}; {old[0]}", old[1])
    if any(gpu.mode == "Prohibited" for gpu in gpus):
        return CheckResult(
            "fail", f"{text}; compute mode is Prohibited", "sudo nvidia-smi -c DEFAULT"
        )
    return CheckResult("pass", text)


def _too_old(machine: Machine, driver: str) -> tuple[str, str] | None:
    """What the driver is too old for, and the command that fixes it; None if it is new enough."""
    for cuda, oldest in MIN_DRIVER.items():
        if at_least(driver, oldest) or machine.version(f"jax-cuda{cuda}-plugin") is None:
            continue
        text = f"JAX's plugin for CUDA {cuda} is installed and needs driver {oldest} or newer"
        if cuda == "13" and at_least(driver, MIN_DRIVER["12"]):
            uninstall = (
                f"{machine.python_word()} -m pip uninstall -y jax-cuda13-plugin jax-cuda13-pjrt"
            )
            return text, f"{uninstall} && {machine.pip('jax[cuda12]')}"
        return text, "sudo apt-get install nvidia-driver-580"
    return None


def _broken(output: str, kernel: str | None) -> CheckResult:
    line = output.splitlines()[0] if output else "it prints nothing"
    mend = "sudo reboot" if "mismatch" in output else "sudo modprobe nvidia"
    if kernel is None and "mismatch" not in output:
        line += " (no driver is loaded)"
    return CheckResult("fail", f"nvidia-smi fails: {line}", mend)


def users(machine: Machine) -> CheckResult:
    """The processes that use the GPUs: each runtime allocates most of the memory."""
    smi = machine.which("nvidia-smi")
    if smi is None:
        return CheckResult("pass", "no NVIDIA driver")
    apps, listed = machine.run([smi, *_APPS]), machine.run([smi, *_QUERY])
    if apps.code != 0 or listed.code != 0:
        return CheckResult("warn", "nvidia-smi fails", "nvidia-smi")
    rows = [[part.strip() for part in line.split(",")] for line in apps.out.splitlines() if line]
    busy = [
        f"process {row[0]} ({row[1].rpartition('/')[2]}, {row[2]} MiB)"
        for row in rows
        if len(row) == 3
    ]
    exclusive = [gpu.number for gpu in _gpus(listed.out) if gpu.mode.startswith("Exclusive")]
    if busy:
        only = " and admits no other process" if exclusive else ""
        many = f" and {len(busy) - 4} more" if len(busy) > 4 else ""
        text = f"in use by {', '.join(busy[:4])}{many}; less memory is free{only}"
        return CheckResult("warn", text, "nvidia-smi")
    used = [
        f"GPU {gpu.number} {gpu.used} MiB"
        for gpu in _gpus(listed.out)
        if gpu.used.isdigit() and int(gpu.used) > 1024
    ]
    if used:  # nvidia-smi does not list the processes of other containers
        text = f"processes that are not visible here use memory: {', '.join(used)}"
        return CheckResult("warn", text, "nvidia-smi")
    return CheckResult("pass", "no process uses a GPU")


def _gpus(text: str) -> list[Gpu]:
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    return [Gpu(*row) for row in rows if len(row) == len(Gpu._fields)]


_DEVICE = re.compile(r"/dev/(accel\d+|vfio/\d+)$")


def tpu(machine: Machine) -> CheckResult:
    """The TPU chips, and the processes that use them if this user may see them."""
    chips = tpu_chips(machine.root)
    if not chips:
        return CheckResult("pass", "no TPU")
    held = holders(machine)
    if held:
        names = ", ".join(f"process {pid} ({process_name(machine, pid)})" for pid in held)
        text = f"{chips} chips, in use by {names}; only one process at a time can use a TPU"
        return CheckResult("warn", text, f"kill {' '.join(map(str, held))}")
    return CheckResult("pass", f"{chips} chips, not in use by any process that this user can see")


def process_name(machine: Machine, pid: int) -> str:
    """The name of a process; its arguments may hold secrets and are not shown."""
    try:
        return machine.file(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "of another user or machine"


def holders(machine: Machine) -> list[int]:
    """The processes that use a TPU, among those that this user may see."""
    return sorted(set(_holders(machine)))


def _holders(machine: Machine) -> Iterator[int]:
    for process in machine.file("/proc").glob("[0-9]*"):
        try:
            for descriptor in (process / "fd").iterdir():
                if _DEVICE.search(str(descriptor.readlink())):
                    yield int(process.name)
        except OSError:  # it has ended, or belongs to another user
            continue
