"""Environment variables that change or stop the runtimes."""

import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from .._system.facts import tpu_chips
from ._accelerators import gpu_count
from ._check import CheckResult, Machine

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
_FRACTIONS = (
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_REACTANT_GPU_MEM_FRACTION",
)
_SWITCHES = {
    # jaxlib takes 0, false and False for no and anything else for yes; Julia's parse(Bool, ...)
    # accepts only these four.
    "XLA_PYTHON_CLIENT_PREALLOCATE": ("0", "false", "False", "1", "true", "True"),
    "XLA_CLIENT_PREALLOCATE": ("0", "false", "False", "1", "true", "True"),
    "XLA_REACTANT_GPU_PREALLOCATE": ("0", "false", "1", "true"),
}
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "REACTANT_VISIBLE_GPU_DEVICES")


def proxies(machine: Machine) -> CheckResult:
    """Proxies; their values may hold passwords and are not shown."""
    names = proxy_names(machine)
    if not names:
        return CheckResult("pass", "none is set")
    text = (
        f"{', '.join(names)} set: gRPC then connects to the other processes through the proxy and "
        "hangs; pyreactant does without it, a program that starts JAX or Reactant itself does not"
    )
    return CheckResult("warn", text, f"unset {' '.join(names)}")


def proxy_names(machine: Machine) -> list[str]:
    """The variables of proxies that are set."""
    return [n for p in _PROXIES for n in (p, p.upper()) if machine.environ.get(n)]


def preload(machine: Machine) -> CheckResult:
    """LD_PRELOAD: pyreactant does not start Reactant with it."""
    value = machine.environ.get("LD_PRELOAD")
    if not value:
        return CheckResult("pass", "not set")
    names = ", ".join(part.rpartition("/")[2] for part in re.split(r"[:\s]+", value) if part)
    return CheckResult("warn", f"{names}: Reactant is not started with it", "unset LD_PRELOAD")


def library_path(machine: Machine) -> CheckResult:
    """LD_LIBRARY_PATH: its CUDA libraries come before those that pip installed for JAX."""
    folders = machine.environ.get("LD_LIBRARY_PATH", "").split(":")
    cuda = [f for f in folders if re.search("cuda|cudnn|nccl|nvidia|rocm", f, re.IGNORECASE)]
    installed = [c for c in ("12", "13") if machine.version(f"jax-cuda{c}-plugin")]
    if not cuda or not installed:
        return CheckResult("pass", "no GPU library comes before the installed ones")
    text = f"{', '.join(cuda)}: its libraries are loaded instead of those that JAX was built for"
    return CheckResult("warn", text, "unset LD_LIBRARY_PATH")


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
    for name in _FRACTIONS:
        value = machine.environ.get(name)
        if value and not _is_fraction(value):
            wrong.append((name, f"{name}={value} must be a fraction above 0 and up to 1"))
    for name, values in _SWITCHES.items():
        value = machine.environ.get(name)
        if value and value not in values:
            wrong.append((name, f"{name}={value} must be one of {', '.join(values)}"))
    if wrong:
        text = "; ".join(what for _, what in wrong)
        return CheckResult("warn", text, f"unset {' '.join(name for name, _ in wrong)}")
    names = [name for name in (*_FRACTIONS, *_SWITCHES) if machine.environ.get(name)]
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


def hidden(machine: Machine) -> CheckResult:
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
        devices = f"{gpus} GPUs" if gpus else f"{chips} TPU chips"
        return CheckResult(
            "warn", f"{set_to} hides this machine's {devices}", f"unset {' '.join(names)}"
        )
    if environ.get("JAX_ENABLE_X64", "").lower() in ("0", "false", "no", "off"):
        text = "JAX_ENABLE_X64 disables float64; float64 arrays then raise an error"
        return CheckResult("warn", text, "unset JAX_ENABLE_X64")
    return CheckResult("pass", f"nothing is hidden{f'; JAX_PLATFORMS={only}' if only else ''}")
