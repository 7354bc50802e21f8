"""Python, pyreactant, NumPy and the packages of JAX, and whether their versions fit."""

import json
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .._system.facts import at_least, satisfies
from .._system.hardware import tpu_chips
from .._version import __version__
from ._accelerators import cuda_extra, gpu_count
from ._check import CheckResult
from ._machine import Machine, required_spec, requirements

OLDEST_PYTHON = "3.11"
_PLUGIN = re.compile(r"jax[-_.]((?:cuda|rocm|oneapi)\d*)[-_.](plugin|pjrt)", re.IGNORECASE)


def python(machine: Machine, version: str = platform.python_version()) -> CheckResult:
    """The interpreter."""
    where = f"{version}, {platform.system()} {platform.machine()}, {machine.python}"
    if at_least(version, OLDEST_PYTHON):
        return CheckResult("pass", where)
    return CheckResult(
        "fail",
        f"{where}; {OLDEST_PYTHON} or newer is required",
        f"python{OLDEST_PYTHON} -m venv .venv",
    )


def pyreactant(machine: Machine) -> CheckResult:
    """This package: its version, its source, and its requirements."""
    here = Path(__file__).resolve().parent.parent.parent
    found = machine.distribution("pyreactant")
    if found is None:
        return CheckResult("pass", f"{__version__}, not installed but imported from {here}")
    source = json.loads(found.read_text("direct_url.json") or "{}")
    folder = unquote(urlsplit(source.get("url", "")).path)
    if source.get("dir_info", {}).get("editable"):
        where = f"editable, from {folder}"
        again = machine.pip("-e", folder)
    else:
        where = f"installed in {here}"
        again = machine.pip("--force-reinstall", "--no-deps", "pyreactant")
    lacking = [
        f"{name}{spec}"
        for name, spec in requirements(machine, "pyreactant")
        if name not in ("numpy", "jax") and not satisfies(machine.version(name) or "", spec or ">0")
    ]
    if lacking:
        text = f"{__version__}, {where}; lacks {', '.join(lacking)}"
        return CheckResult("fail", text, machine.pip(*lacking))
    if found.version != __version__:
        text = f"{__version__} runs, but the installed version is {found.version} ({where})"
        return CheckResult("warn", text, again)
    return CheckResult("pass", f"{__version__}, {where}")


def numpy(machine: Machine) -> CheckResult:
    """NumPy, of a version that pyreactant and jax accept."""
    version = machine.version("numpy")
    specs = {name: required_spec(machine, name, "numpy") for name in ("pyreactant", "jax")}
    specs["pyreactant"] = specs["pyreactant"] or ">=2.0"
    mend = machine.pip("numpy" + ",".join(spec for spec in specs.values() if spec))
    if version is None:
        return CheckResult("fail", "not installed", mend)
    refused = {name: spec for name, spec in specs.items() if not satisfies(version, spec)}
    if refused:
        required = " and ".join(f"{name} requires {spec}" for name, spec in refused.items())
        return CheckResult("fail", f"{version}, but {required}", mend)
    return CheckResult("pass", version)


def jax(machine: Machine) -> CheckResult:
    """The package jax."""
    version = machine.version("jax")
    if version is None:
        return CheckResult("absent", "not installed", machine.pip("jax"))
    spec = required_spec(machine, "pyreactant", "jax") or ">=0.10"
    if not satisfies(version, spec):
        return CheckResult(
            "fail", f"{version}, but pyreactant requires {spec}", machine.pip("-U", f"jax{spec}")
        )
    return CheckResult("pass", version)


def jaxlib(machine: Machine) -> CheckResult:
    """JAX's compiled part, of a version that jax accepts."""
    version, of_jax = machine.version("jaxlib"), machine.version("jax")
    if of_jax is None:
        return CheckResult("unknown", "not checked: jax is not installed")
    spec = required_spec(machine, "jax", "jaxlib")
    mend = machine.pip(f"jax=={of_jax}", f"jaxlib=={of_jax}")
    if version is None:
        return CheckResult("fail", "not installed", mend)
    if not satisfies(version, spec):
        return CheckResult("fail", f"{version}, but jax {of_jax} requires jaxlib{spec}", mend)
    return CheckResult("pass", version)


def plugins(machine: Machine) -> CheckResult:
    """JAX's plugins for GPUs: of one kind, and of jax's version."""
    found = dict(_plugins(machine))
    gpus, of_jax = gpu_count(machine), machine.version("jax")
    listed = ", ".join(f"jax-{name} {version}" for name, version in sorted(found.items()))
    kinds = sorted({name.partition("-")[0] for name in found})
    if not found:
        if not gpus:
            return CheckResult("pass", "none, and no NVIDIA GPU")
        text = f"none, so JAX will not use this machine's {gpus} NVIDIA GPUs"
        return CheckResult("warn", text, machine.pip(f"jax[{cuda_extra(machine)}]"))
    if len([kind for kind in kinds if kind.startswith("cuda")]) > 1:
        mend = f"{machine.python_word()} -m pip uninstall -y jax-cuda12-plugin jax-cuda12-pjrt"
        return CheckResult("fail", f"{listed}: for two versions of CUDA; keep one of them", mend)
    for name, version in found.items():
        kind = name.partition("-")[0]
        spec = required_spec(machine, "jax", f"jax-{name}", kind, f"{kind}-local")
        spec = spec or required_spec(machine, f"jax-{kind}-plugin", f"jax-{name}")
        if not satisfies(version, spec):
            text = f"{listed}: jax {of_jax} requires jax-{name}{spec}, and will not use this one"
            return CheckResult("fail", text, machine.pip(f"jax[{kind}]=={of_jax}"))
    lacking = [
        f"jax-{k}-{part}"
        for k in kinds
        for part in ("plugin", "pjrt")
        if f"{k}-{part}" not in found
    ]
    if lacking:
        text = f"{listed}, but {', '.join(lacking)} is missing"
        return CheckResult("fail", text, machine.pip(f"jax[{kinds[0]}]=={of_jax}"))
    if not gpus and any(kind.startswith("cuda") for kind in kinds):
        return CheckResult("warn", f"{listed}, but no NVIDIA GPU", "nvidia-smi")
    return CheckResult("pass", listed)


def _plugins(machine: Machine) -> Iterator[tuple[str, str]]:
    """Name and version of each plugin, such as ("cuda13-plugin", "0.10.2")."""
    import importlib.metadata

    for found in importlib.metadata.distributions(path=list(machine.packages)):
        match = _PLUGIN.fullmatch(found.metadata["Name"] or "")
        if match:
            yield f"{match[1]}-{match[2]}".lower(), found.version


def libtpu(machine: Machine) -> CheckResult:
    """The TPU's library, of a version that jax accepts."""
    version, of_jax = machine.version("libtpu"), machine.version("jax")
    chips = tpu_chips(machine.root)
    spec = required_spec(machine, "jax", "libtpu", "tpu")
    mend = machine.pip(f"libtpu{spec}")
    if version is None:
        if chips:
            text = f"not installed, so JAX will not use this machine's {chips} TPU chips"
            return CheckResult("warn", text, mend)
        return CheckResult("pass", "not installed; needed on a TPU, and for preflight and plan")
    if of_jax is not None and not satisfies(version, spec):
        return CheckResult("fail", f"{version}, but jax {of_jax} requires libtpu{spec}", mend)
    return CheckResult("pass", f"{version}" + ("" if chips else "; without a TPU it only compiles"))
