"""Variables that change what the runtimes do, or stop them."""

import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from .._system.hardware import tpu_chips
from ._accelerators import gpu_count
from ._check import Found
from ._machine import Machine

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
_FRACTIONS = (
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_REACTANT_GPU_MEM_FRACTION",
)
_SWITCHES = {
    # What jaxlib takes for no, and all else for yes; what Julia's parse(Bool, ...) takes at all.
    "XLA_PYTHON_CLIENT_PREALLOCATE": ("0", "false", "False", "1", "true", "True"),
    "XLA_CLIENT_PREALLOCATE": ("0", "false", "False", "1", "true", "True"),
    "XLA_REACTANT_GPU_PREALLOCATE": ("0", "false", "1", "true"),
}
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "REACTANT_VISIBLE_GPU_DEVICES")


def proxies(machine: Machine) -> Found:
    """Proxies; their values, which may hold passwords, are not shown."""
    names = proxy_names(machine)
    if not names:
        return Found("pass", "none is set")
    text = (
        f"{', '.join(names)} set: gRPC then looks for the other processes through the proxy and "
        "hangs; pyreactant goes around it, a program that starts JAX or Reactant itself does not"
    )
    return Found("warn", text, f"unset {' '.join(names)}")


def proxy_names(machine: Machine) -> list[str]:
    """The proxies' variables that are set."""
    return [n for p in _PROXIES for n in (p, p.upper()) if machine.environ.get(n)]


def preload(machine: Machine) -> Found:
    """LD_PRELOAD, with which Reactant is not started."""
    value = machine.environ.get("LD_PRELOAD")
    if not value:
        return Found("pass", "not set")
    names = ", ".join(part.rpartition("/")[2] for part in re.split(r"[:\s]+", value) if part)
    return Found("warn", f"{names}: Reactant is not started with it", "unset LD_PRELOAD")


def library_path(machine: Machine) -> Found:
    """LD_LIBRARY_PATH, whose CUDA libraries come before those that pip installed for JAX."""
    folders = machine.environ.get("LD_LIBRARY_PATH", "").split(":")
    cuda = [f for f in folders if re.search("cuda|cudnn|nccl|nvidia|rocm", f, re.IGNORECASE)]
    installed = [c for c in ("12", "13") if machine.version(f"jax-cuda{c}-plugin")]
    if not cuda or not installed:
        return Found("pass", "no GPU library comes before the installed ones")
    text = f"{', '.join(cuda)}: its libraries are taken instead of those that JAX was built for"
    return Found("warn", text, "unset LD_LIBRARY_PATH")


def xla_flags(machine: Machine) -> Found:
    """XLA_FLAGS; a flag that XLA does not know ends the process, and is told by the runtime."""
    return _flags(machine, "XLA_FLAGS", "--xla_tpu_", "LIBTPU_INIT_ARGS")


def libtpu_args(machine: Machine) -> Found:
    """LIBTPU_INIT_ARGS, which libtpu reads in the same way."""
    return _flags(machine, "LIBTPU_INIT_ARGS", "--xla_gpu_", "XLA_FLAGS")


def _flags(machine: Machine, name: str, foreign: str, other: str) -> Found:
    value = machine.environ.get(name, "").strip()
    if not value:
        return Found("pass", "not set")
    if not value.startswith("-"):  # XLA then takes all of it for the name of a file
        if (machine.file(value) if value.startswith("/") else Path(value)).is_file():
            return Found("pass", f"read from the file {value}")
        text = f"must begin with --, or name a file that is there, got {value!r}: XLA aborts"
        return Found("fail", text, f"unset {name}")
    flags = split_flags(value)
    wrong = [flag for flag in flags if not re.match(r"--\w[\w.-]*(=|$)", flag)]
    if wrong:
        return _without(name, flags, wrong, "not of the form --name=value")
    strangers = [flag for flag in flags if flag.startswith(foreign)]
    if strangers:
        what = f"flags of {'the TPU' if 'tpu' in foreign else 'GPUs'}, which belong into {other}"
        return _without(name, flags, strangers, what)
    commas = [flag for flag in flags if re.search(r",--\w", flag)]
    if commas:
        mend = f"export {name}={shlex.quote(value.replace(',--', ' --'))}"
        text = "flags are separated by blanks, not commas: all from the first comma on is one value"
        return Found("warn", text, mend)
    twice = sorted(_differing(flags))
    if twice:
        text = f"set twice with different values, the last counts: {', '.join(twice)}"
        return Found("warn", text)
    return Found("pass", " ".join(flags))


def split_flags(value: str) -> list[str]:
    """The flags of a variable, at blanks, with quotes as XLA reads them."""
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def without_flags(name: str, value: str, wrong: list[str]) -> str:
    """The line that takes flags out of a variable."""
    kept = [flag for flag in split_flags(value) if flag not in wrong]
    return f"export {name}={shlex.quote(' '.join(kept))}" if kept else f"unset {name}"


def _without(name: str, flags: list[str], wrong: list[str], why: str) -> Found:
    mend = without_flags(name, shlex.join(flags), wrong)
    return Found("fail", f"{' '.join(wrong)}: {why}", mend)


def _differing(flags: list[str]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for flag in flags:
        key, _, value = flag.partition("=")
        if seen.setdefault(key, value) != value:
            yield key


def gpu_memory(machine: Machine) -> Found:
    """How much of a GPU each runtime takes at its start: 75 %, unless it is said otherwise."""
    wrong: list[tuple[str, str]] = []
    for name in _FRACTIONS:
        value = machine.environ.get(name)
        if value and not _is_fraction(value):
            wrong.append((name, f"{name}={value} is no fraction above 0 and up to 1"))
    for name, values in _SWITCHES.items():
        value = machine.environ.get(name)
        if value and value not in values:
            wrong.append((name, f"{name}={value} is none of {', '.join(values)}"))
    if wrong:
        text = "; ".join(what for _, what in wrong)
        return Found("warn", text, f"unset {' '.join(name for name, _ in wrong)}")
    said = {n: machine.environ.get(n) for n in (*_FRACTIONS, *_SWITCHES)}
    if any(said.values()):
        return Found("pass", ", ".join(f"{n}={value}" for n, value in said.items() if value))
    if not gpu_count(machine):
        return Found("pass", "nothing is set, and no GPU is here")
    return Found("pass", "each runtime takes 75 % of a GPU at its start, so never both on one GPU")


def _is_fraction(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and 0 < float(text) <= 1
    except ValueError:
        return False


def hidden(machine: Machine) -> Found:
    """Variables that keep a runtime from what is here."""
    environ, gpus = machine.environ, gpu_count(machine)
    chips = tpu_chips(machine.root)
    nothing = ("", "-1", "none", "void", "NoDevFiles")
    names = [name for name in _VISIBLE if gpus and environ.get(name) in nothing]
    only = environ.get("JAX_PLATFORMS")
    called = ("cuda", "gpu", "rocm") if gpus else ("tpu",) if chips else ()
    if only and called and not any(platform in only for platform in called):
        names.append("JAX_PLATFORMS")
    if environ.get("PYREACTANT_PLATFORM") == "cpu" and (gpus or chips):
        names.append("PYREACTANT_PLATFORM")
    if names:
        set_to = ", ".join(f"{name}={environ[name]}" for name in names)
        here = f"{gpus} GPUs" if gpus else f"{chips} TPU chips"
        return Found("warn", f"{set_to} hides this machine's {here}", f"unset {' '.join(names)}")
    if environ.get("JAX_ENABLE_X64", "").lower() in ("0", "false", "no", "off"):
        text = "JAX_ENABLE_X64 switches float64 off; float64 arrays are then refused"
        return Found("warn", text, "unset JAX_ENABLE_X64")
    return Found("pass", f"nothing is hidden{f'; JAX_PLATFORMS={only}' if only else ''}")
