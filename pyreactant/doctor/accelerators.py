"""GPUs and TPUs: their drivers, who uses them, and the variables that change or stop runtimes."""

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..base.counted import counted
from ..base.facts import (
    MEMORY_FRACTIONS,
    PREALLOCATION,
    at_least,
    nvidia_gpus_of_driver,
    tpu_chips,
)
from ..process.group.group import proxy_names
from .check import CheckResult, Machine

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
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else None


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
        text = f"{kernel} with {counted(count, 'GPU')}, but nvidia-smi is not on PATH"
        return CheckResult("warn", text, 'export PATH="$PATH:/usr/bin:/usr/lib/wsl/lib"')
    result = machine.run([smi, *_QUERY])
    if result.code is None:
        return CheckResult("fail", "nvidia-smi did not answer within 10 s", "sudo reboot")
    if result.code != 0:
        return _smi_failure((result.out + result.err).strip(), kernel)
    gpus = _gpus(result.out)
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


def _smi_failure(output: str, kernel: str | None) -> CheckResult:
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
        text = (
            f"{counted(chips, 'chip')}, {in_use_by(machine, held)}; only one process at a time can "
            "use a TPU"
        )
        return CheckResult("warn", text, f"kill {' '.join(map(str, held))}")
    return CheckResult(
        "pass", f"{counted(chips, 'chip')}, not in use by any process that this user can see"
    )


def in_use_by(machine: Machine, pids: Sequence[int]) -> str:
    """Which processes use an accelerator; their arguments may hold secrets and are not shown."""
    names = []
    for pid in pids:
        try:
            name = machine.file(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            name = "of another user or machine"
        names.append(f"process {pid} ({name})")
    return f"in use by {', '.join(names)}"


def holders(machine: Machine) -> list[int]:
    """The processes that use a TPU, among those that this user may see."""
    pids = set()
    for process in machine.file("/proc").glob("[0-9]*"):
        try:
            for descriptor in (process / "fd").iterdir():
                if _DEVICE.search(str(descriptor.readlink())):
                    pids.add(int(process.name))
        except OSError:  # it has ended, or belongs to another user
            continue
    return sorted(pids)


_VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "REACTANT_VISIBLE_GPU_DEVICES")


def proxies(machine: Machine) -> CheckResult:
    """Proxies; their values may hold passwords and are not shown."""
    names = proxy_names(machine.environ)
    if not names:
        return CheckResult("pass", "none is set")
    text = (
        f"{', '.join(names)} set: gRPC then connects to the other processes through the proxy and "
        "hangs; pyreactant does without it, a program that starts JAX or Reactant itself does not"
    )
    return CheckResult("warn", text, f"unset {' '.join(names)}")


def preload(machine: Machine) -> CheckResult:
    """LD_PRELOAD: pyreactant does not start Reactant with it."""
    value = machine.environ.get("LD_PRELOAD")
    if not value:
        return CheckResult("pass", "not set")
    names = ", ".join(part.rpartition("/")[2] for part in re.split(r"[:\s]+", value) if part)
    return CheckResult("warn", f"{names}: Reactant is not started with it", "unset LD_PRELOAD")


_OF_JAX = "cudart cublas cudnn nccl cufft cusolver cusparse nvrtc nvJitLink cupti amdhip64 rccl"
"""Libraries that pip installs for JAX. The driver's own, such as libcuda, is not one of them."""


def library_path(machine: Machine) -> CheckResult:
    """LD_LIBRARY_PATH: its CUDA libraries come before those that pip installed for JAX."""
    folders = machine.environ.get("LD_LIBRARY_PATH", "").split(":")
    before = [folder for folder in folders if folder and _holds_cuda(machine.file(folder))]
    installed = [c for c in ("12", "13") if machine.version(f"jax-cuda{c}-plugin")]
    if not before or not installed:
        return CheckResult("pass", "no GPU library comes before the installed ones")
    text = f"{', '.join(before)}: its libraries are loaded instead of those that JAX was built for"
    return CheckResult("warn", text, "unset LD_LIBRARY_PATH")


def _holds_cuda(folder: Path) -> bool:
    return any(next(folder.glob(f"lib{name}.so*"), None) for name in _OF_JAX.split())


def xla_flags(machine: Machine) -> CheckResult:
    """XLA_FLAGS; the row of the runtime reports unknown flags, which end its process."""
    return _flags(machine, "XLA_FLAGS", "--xla_tpu_", "LIBTPU_INIT_ARGS")


def libtpu_args(machine: Machine) -> CheckResult:
    """LIBTPU_INIT_ARGS, which libtpu parses in the same way."""
    return _flags(machine, "LIBTPU_INIT_ARGS", "--xla_gpu_", "XLA_FLAGS")


def _flags(machine: Machine, name: str, foreign: str, other: str) -> CheckResult:
    value = machine.environ.get(name, "").strip()
    if not value:
        return CheckResult("pass", "not set")
    if not value.startswith("-"):  # XLA takes it for the name of a file
        if (machine.file(value) if value.startswith("/") else Path(value)).is_file():
            return CheckResult("pass", f"read from the file {value}")
        text = f"must begin with --, or name an existing file, got {value!r}: XLA aborts"
        return CheckResult("fail", text, f"unset {name}")
    flags = split_flags(value)
    wrong = [flag for flag in flags if not re.match(r"--\w[\w.-]*(=|$)", flag)]
    if wrong:
        return _without(name, flags, wrong, "not of the form --name=value")
    misplaced = [flag for flag in flags if flag.startswith(foreign)]
    if misplaced:
        what = f"flags of {'the TPU' if 'tpu' in foreign else 'GPUs'}, which belong in {other}"
        return _without(name, flags, misplaced, what)
    commas = [flag for flag in flags if re.search(r",--\w", flag)]
    if commas:
        mend = f"export {name}={shlex.quote(value.replace(',--', ' --'))}"
        text = "flags are separated by spaces, not commas: with a comma they are one value"
        return CheckResult("warn", text, mend)
    twice = sorted(_contradictory(flags))
    if twice:
        text = f"set twice with different values, of which the last counts: {', '.join(twice)}"
        return CheckResult("warn", text)
    return CheckResult("pass", " ".join(flags))


def split_flags(value: str) -> list[str]:
    """The flags of a variable, separated by spaces, with quotes as XLA parses them."""
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def without_flags(name: str, value: str, wrong: list[str]) -> str:
    """The command that removes flags from a variable."""
    kept = [flag for flag in split_flags(value) if flag not in wrong]
    return f"export {name}={shlex.quote(' '.join(kept))}" if kept else f"unset {name}"


def _without(name: str, flags: list[str], wrong: list[str], why: str) -> CheckResult:
    mend = without_flags(name, shlex.join(flags), wrong)
    return CheckResult("fail", f"{' '.join(wrong)}: {why}", mend)


def _contradictory(flags: list[str]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for flag in flags:
        key, _, value = flag.partition("=")
        if seen.setdefault(key, value) != value:
            yield key


def gpu_memory(machine: Machine) -> CheckResult:
    """How much of a GPU's memory each runtime allocates at its start: by default 75 %."""
    wrong: list[tuple[str, str]] = []
    for name in MEMORY_FRACTIONS:
        value = machine.environ.get(name)
        if value and not _is_fraction(value):
            wrong.append((name, f"{name}={value} must be a fraction above 0 and up to 1"))
    for name, values in PREALLOCATION.items():
        value = machine.environ.get(name)
        if value and value not in values:
            wrong.append((name, f"{name}={value} must be one of {', '.join(values)}"))
    if wrong:
        text = "; ".join(what for _, what in wrong)
        return CheckResult("warn", text, f"unset {' '.join(name for name, _ in wrong)}")
    names = [name for name in (*MEMORY_FRACTIONS, *PREALLOCATION) if machine.environ.get(name)]
    if names:
        return CheckResult("pass", ", ".join(f"{name}={machine.environ[name]}" for name in names))
    if not gpu_count(machine):
        return CheckResult("pass", "not set, and no GPU")
    return CheckResult(
        "pass", "each runtime allocates 75 % of a GPU at its start, so only one can use a GPU"
    )


def _is_fraction(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and 0 < float(text) <= 1
    except ValueError:
        return False


def hidden_devices(machine: Machine) -> CheckResult:
    """Variables that hide this machine's devices from a runtime."""
    environ, gpus = machine.environ, gpu_count(machine)
    chips = tpu_chips(machine.root)
    nothing = ("", "-1", "none", "void", "NoDevFiles")
    names = [name for name in _VISIBLE if gpus and environ.get(name) in nothing]
    only = environ.get("JAX_PLATFORMS")
    platforms = ("cuda", "gpu", "rocm") if gpus else ("tpu",) if chips else ()
    if only and platforms and not any(platform in only for platform in platforms):
        names.append("JAX_PLATFORMS")
    if environ.get("PYREACTANT_PLATFORM") == "cpu" and (gpus or chips):
        names.append("PYREACTANT_PLATFORM")
    if names:
        set_to = ", ".join(f"{name}={environ[name]}" for name in names)
        devices = counted(gpus, "GPU") if gpus else counted(chips, "TPU chip")
        return CheckResult(
            "warn", f"{set_to} hides this machine's {devices}", f"unset {' '.join(names)}"
        )
    if environ.get("JAX_ENABLE_X64", "").lower() in ("0", "false", "no", "off"):
        text = "JAX_ENABLE_X64 disables float64; float64 arrays then raise an error"
        return CheckResult("warn", text, "unset JAX_ENABLE_X64")
    return CheckResult("pass", f"nothing is hidden{f'; JAX_PLATFORMS={only}' if only else ''}")
