"""Python and the packages of JAX: there, of versions that belong together?"""

import json
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .._system.hardware import tpu_chips
from .._system.versions import at_least, satisfies
from .._version import __version__
from ._accelerators import cuda_extra, gpu_count
from ._check import Found
from ._machine import Machine, requirements, wanted

PYTHON = "3.11"
_PLUGIN = re.compile(r"jax[-_.]((?:cuda|rocm|oneapi)\d*)[-_.](plugin|pjrt)", re.IGNORECASE)


def python(machine: Machine, version: str = platform.python_version()) -> Found:
    """The interpreter."""
    where = f"{version}, {platform.system()} {platform.machine()}, {machine.python}"
    if at_least(version, PYTHON):
        return Found("pass", where)
    return Found("fail", f"{where}; {PYTHON} or newer is needed", f"python{PYTHON} -m venv .venv")


def pyreactant(machine: Machine) -> Found:
    """This package: its version, and where it comes from."""
    here = Path(__file__).resolve().parent.parent.parent
    found = machine.distribution("pyreactant")
    if found is None:
        return Found("pass", f"{__version__}, not installed but imported from {here}")
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
        return Found("fail", text, machine.pip(*lacking))
    if found.version != __version__:
        text = f"{__version__} runs, but what is installed says {found.version} ({where})"
        return Found("warn", text, again)
    return Found("pass", f"{__version__}, {where}")


def numpy(machine: Machine) -> Found:
    """NumPy, as pyreactant and jax want it."""
    version = machine.version("numpy")
    specs = {name: wanted(machine, name, "numpy") for name in ("pyreactant", "jax")}
    specs["pyreactant"] = specs["pyreactant"] or ">=2.0"
    mend = machine.pip("numpy" + ",".join(spec for spec in specs.values() if spec))
    if version is None:
        return Found("fail", "not installed", mend)
    refused = {name: spec for name, spec in specs.items() if not satisfies(version, spec)}
    if refused:
        who = " and ".join(f"{name} wants {spec}" for name, spec in refused.items())
        return Found("fail", f"{version}, but {who}", mend)
    return Found("pass", version)


def jax(machine: Machine) -> Found:
    """The package jax."""
    version = machine.version("jax")
    if version is None:
        return Found("absent", "not installed", machine.pip("jax"))
    spec = wanted(machine, "pyreactant", "jax") or ">=0.10"
    if not satisfies(version, spec):
        return Found(
            "fail", f"{version}, but pyreactant wants {spec}", machine.pip("-U", f"jax{spec}")
        )
    return Found("pass", version)


def jaxlib(machine: Machine) -> Found:
    """Its compiled part, whose version must be the one that jax wants."""
    version, of_jax = machine.version("jaxlib"), machine.version("jax")
    if of_jax is None:
        return Found("unknown", "not looked at: jax is not installed")
    spec = wanted(machine, "jax", "jaxlib")
    mend = machine.pip(f"jax=={of_jax}", f"jaxlib=={of_jax}")
    if version is None:
        return Found("fail", "not installed", mend)
    if not satisfies(version, spec):
        return Found("fail", f"{version}, but jax {of_jax} wants jaxlib{spec}", mend)
    return Found("pass", version)


def plugins(machine: Machine) -> Found:
    """JAX's plugins for GPUs: one kind, of jax's version, where there are GPUs."""
    found = dict(_plugins(machine))
    gpus, of_jax = gpu_count(machine), machine.version("jax")
    listed = ", ".join(f"jax-{name} {version}" for name, version in sorted(found.items()))
    kinds = sorted({name.partition("-")[0] for name in found})
    if not found:
        if not gpus:
            return Found("pass", "none, and no NVIDIA GPU is here")
        text = f"none, so JAX will not use this machine's {gpus} NVIDIA GPUs"
        return Found("warn", text, machine.pip(f"jax[{cuda_extra(machine)}]"))
    if len([kind for kind in kinds if kind.startswith("cuda")]) > 1:
        mend = f"{machine.python_word()} -m pip uninstall -y jax-cuda12-plugin jax-cuda12-pjrt"
        return Found("fail", f"{listed}: for two kinds of CUDA; keep one of them", mend)
    for name, version in found.items():
        kind = name.partition("-")[0]
        spec = wanted(machine, "jax", f"jax-{name}", kind, f"{kind}-local")
        spec = spec or wanted(machine, f"jax-{kind}-plugin", f"jax-{name}")
        if not satisfies(version, spec):
            text = f"{listed}: jax {of_jax} wants jax-{name}{spec}, and will not use this one"
            return Found("fail", text, machine.pip(f"jax[{kind}]=={of_jax}"))
    lacking = [
        f"jax-{k}-{part}"
        for k in kinds
        for part in ("plugin", "pjrt")
        if f"{k}-{part}" not in found
    ]
    if lacking:
        text = f"{listed}, but not {', '.join(lacking)}, which belongs to it"
        return Found("fail", text, machine.pip(f"jax[{kinds[0]}]=={of_jax}"))
    if not gpus and any(kind.startswith("cuda") for kind in kinds):
        return Found("warn", f"{listed}, but no NVIDIA GPU is here", "nvidia-smi")
    return Found("pass", listed)


def _plugins(machine: Machine) -> Iterator[tuple[str, str]]:
    """Such as ("cuda13-plugin", "0.10.2")."""
    import importlib.metadata

    for found in importlib.metadata.distributions(path=list(machine.packages)):
        match = _PLUGIN.fullmatch(found.metadata["Name"] or "")
        if match:
            yield f"{match[1]}-{match[2]}".lower(), found.version


def libtpu(machine: Machine) -> Found:
    """The TPU's library, of the version that jax wants."""
    version, of_jax = machine.version("libtpu"), machine.version("jax")
    chips = tpu_chips(machine.root)
    spec = wanted(machine, "jax", "libtpu", "tpu")
    mend = machine.pip(f"libtpu{spec}")
    if version is None:
        if chips:
            text = f"not installed, so JAX will not use this machine's {chips} TPU chips"
            return Found("warn", text, mend)
        return Found("pass", "not installed; needed on a TPU, and here by preflight and plan")
    if of_jax is not None and not satisfies(version, spec):
        return Found("fail", f"{version}, but jax {of_jax} wants libtpu{spec}", mend)
    return Found("pass", f"{version}" + ("" if chips else "; no TPU is here, it compiles for one"))
