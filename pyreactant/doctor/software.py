"""Python and its packages, Julia and the project of `pyreactant setup`, and whether versions fit.

Neither a runtime nor Julia is loaded.
"""

import json
import platform
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .._version import __version__
from ..base.counted import counted
from ..base.errors import PyReactantError, RequirementError
from ..base.facts import at_least, release, required, requirements, satisfies, tpu_chips
from ..julia.place import EXECUTABLE, OLDEST, PROJECT, Place, find_place
from .accelerators import cuda_extra, gpu_count
from .check import CheckResult, Machine

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
    distribution = machine.distribution("pyreactant")
    if distribution is None:
        return CheckResult("pass", f"{__version__}, not installed but imported from {here}")
    source = json.loads(distribution.read_text("direct_url.json") or "{}")
    folder = unquote(urlsplit(source.get("url", "")).path)
    if source.get("dir_info", {}).get("editable"):
        where = f"editable, from {folder}"
        again = machine.pip("-e", folder)
    else:
        where = f"installed in {here}"
        again = machine.pip("--force-reinstall", "--no-deps", "pyreactant")
    lacking = [
        f"{name}{spec}"
        for name, spec in requirements(machine.requirements("pyreactant"))
        if name not in ("numpy", "jax") and not satisfies(machine.version(name) or "", spec or ">0")
    ]
    if lacking:
        text = f"{__version__}, {where}; lacks {', '.join(lacking)}"
        return CheckResult("fail", text, machine.pip(*lacking))
    if distribution.version != __version__:
        text = f"{__version__} runs, but the installed version is {distribution.version} ({where})"
        return CheckResult("warn", text, again)
    return CheckResult("pass", f"{__version__}, {where}")


def numpy(machine: Machine) -> CheckResult:
    """NumPy, of a version that pyreactant and jax accept."""
    version = machine.version("numpy")
    specs = {name: required(machine.requirements(name), "numpy") for name in ("pyreactant", "jax")}
    specs["pyreactant"] = specs["pyreactant"] or ">=2.0"
    mend = machine.pip("numpy" + ",".join(spec for spec in specs.values() if spec))
    if version is None:
        return CheckResult("fail", "not installed", mend)
    refused = {name: spec for name, spec in specs.items() if not satisfies(version, spec)}
    if refused:
        wanted = " and ".join(f"{name} requires {spec}" for name, spec in refused.items())
        return CheckResult("fail", f"{version}, but {wanted}", mend)
    return CheckResult("pass", version)


def jax(machine: Machine) -> CheckResult:
    """The package jax."""
    version = machine.version("jax")
    if version is None:
        return CheckResult("absent", "not installed", machine.pip("jax"))
    spec = required(machine.requirements("pyreactant"), "jax") or ">=0.10"
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
    spec = required(machine.requirements("jax"), "jaxlib")
    mend = machine.pip(f"jax=={of_jax}", f"jaxlib=={of_jax}")
    if version is None:
        return CheckResult("fail", "not installed", mend)
    if not satisfies(version, spec):
        return CheckResult("fail", f"{version}, but jax {of_jax} requires jaxlib{spec}", mend)
    return CheckResult("pass", version)


def plugins(machine: Machine) -> CheckResult:
    """JAX's plugins for GPUs: of one kind, and of jax's version."""
    plugins = dict(_plugins(machine))
    gpus, of_jax = gpu_count(machine), machine.version("jax")
    listed = ", ".join(f"jax-{name} {version}" for name, version in sorted(plugins.items()))
    kinds = sorted({name.partition("-")[0] for name in plugins})
    if not plugins:
        if not gpus:
            return CheckResult("pass", "none, and no NVIDIA GPU")
        text = f"none, so JAX will not use this machine's {counted(gpus, 'NVIDIA GPU')}"
        return CheckResult("warn", text, machine.pip(f"jax[{cuda_extra(machine)}]"))
    if len([kind for kind in kinds if kind.startswith("cuda")]) > 1:
        mend = f"{machine.python_word()} -m pip uninstall -y jax-cuda12-plugin jax-cuda12-pjrt"
        return CheckResult("fail", f"{listed}: for two versions of CUDA; keep one of them", mend)
    for name, version in plugins.items():
        kind = name.partition("-")[0]
        spec = required(machine.requirements("jax"), f"jax-{name}", kind, f"{kind}-local")
        spec = spec or required(machine.requirements(f"jax-{kind}-plugin"), f"jax-{name}")
        if not satisfies(version, spec):
            text = f"{listed}: jax {of_jax} requires jax-{name}{spec}, and will not use this one"
            return CheckResult("fail", text, machine.pip(f"jax[{kind}]=={of_jax}"))
    lacking = [
        f"jax-{k}-{part}"
        for k in kinds
        for part in ("plugin", "pjrt")
        if f"{k}-{part}" not in plugins
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

    for distribution in importlib.metadata.distributions(path=list(machine.packages)):
        match = _PLUGIN.fullmatch(distribution.metadata["Name"] or "")
        if match:
            yield f"{match[1]}-{match[2]}".lower(), distribution.version


def libtpu(machine: Machine) -> CheckResult:
    """The TPU's library, of a version that jax accepts."""
    version, of_jax = machine.version("libtpu"), machine.version("jax")
    chips = tpu_chips(machine.root)
    spec = required(machine.requirements("jax"), "libtpu", "tpu")
    mend = machine.pip(f"libtpu{spec}")
    if version is None:
        if chips:
            text = f"not installed, so JAX will not use this machine's {counted(chips, 'TPU chip')}"
            return CheckResult("warn", text, mend)
        return CheckResult("pass", "not installed; needed on a TPU, and for preflight and plan")
    if of_jax is not None and not satisfies(version, spec):
        return CheckResult("fail", f"{version}, but jax {of_jax} requires libtpu{spec}", mend)
    return CheckResult("pass", f"{version}" + ("" if chips else "; without a TPU it only compiles"))


SETUP = "pyreactant setup"
_NOT_SET_UP = CheckResult("unknown", "not checked: no Julia project is set up")
_VERSION = re.compile(r"julia version (\S+)")


def place_of(machine: Machine) -> Place | None:
    """The Julia and project that are set up; None if there are none."""
    try:
        return find_place(machine.environ)
    except PyReactantError:
        return None


def juliacall(machine: Machine) -> CheckResult:
    """The package that starts Julia; the project must have PythonCall of the same version."""
    version = machine.version("juliacall")
    if version is None:
        mend = machine.pip("pyreactant[reactant]")
        return CheckResult("absent", "not installed; only the Reactant runtime needs it", mend)
    juliapkg = machine.version("juliapkg")
    text = version + (f", with juliapkg {juliapkg}" if juliapkg else ", without juliapkg")
    place = place_of(machine)
    other = None if place is None else version_in(place.project, "PythonCall")
    if other is not None and release(other) != release(version):
        text += f", but the Julia project has PythonCall {other}: the versions must be equal"
        return CheckResult("fail", text, machine.pip(f"juliacall=={other}"))
    return CheckResult("pass", text)


def julia(machine: Machine) -> CheckResult:
    """The Julia that is set up, otherwise the one on PATH, and its version."""
    place = place_of(machine)
    path = machine.which("julia") if place is None else str(place.executable)
    if path is None:
        if machine.version("juliacall") is None:
            return CheckResult("unknown", "not checked: juliacall is not installed")
        return CheckResult("absent", "none is set up, and none is on PATH", SETUP)
    result = machine.run([path, "--startup-file=no", "--version"], 20)
    match = _VERSION.search(result.out)
    if match is None:
        how = (
            "did not answer within 20 s"
            if result.code is None
            else f"ended with code {result.code}"
        )
        last = (result.err or result.out).strip().splitlines()[-1:]
        text = f"{path} {how} and printed no version{': ' if last else ''}{''.join(last)}"
        return CheckResult("fail", text, SETUP)
    if not at_least(match[1], OLDEST):
        text = f"{match[1]} ({path}); juliacall needs {OLDEST} or newer"
        return CheckResult("fail", text, SETUP)
    if place is None:
        return CheckResult("warn", f"{match[1]} ({path}), on PATH but not set up", SETUP)
    return CheckResult("pass", f"{match[1]}, {path}")


def project(machine: Machine) -> CheckResult:
    """The project that is set up."""
    try:
        place = find_place(machine.environ)
    except PyReactantError as error:
        named = machine.environ.get(EXECUTABLE) or machine.environ.get(PROJECT)
        if not named and machine.version("juliacall") is None:
            return CheckResult("unknown", "not checked: juliacall is not installed")
        mend = f"unset {EXECUTABLE} {PROJECT}" if named else SETUP
        problem = error.problem if isinstance(error, RequirementError) else str(error)
        return CheckResult("absent", problem, mend)
    if not _manifest(place.project):
        return CheckResult(
            "fail", f"{place.project} has no Manifest.toml: its packages are not resolved", SETUP
        )
    return CheckResult("pass", f"{place.project}, from {place.source}")


def reactant(machine: Machine) -> CheckResult:
    """Reactant in the project's manifest."""
    place = place_of(machine)
    if place is None:
        return _NOT_SET_UP
    version = version_in(place.project, "Reactant")
    if version is None:
        return CheckResult("fail", f"{place.project} has no Reactant in its Manifest.toml", SETUP)
    return CheckResult("pass", version + ("" if is_real(place) else f"; {NOT_REAL}"))


NOT_REAL = "not the real Reactant but a package with its name, without Reactant's library"


def is_real(place: Place) -> bool:
    """Whether the project's Reactant has Reactant's compiled library; a stand-in has none."""
    return version_in(place.project, "Reactant_jll") is not None


def libraries(machine: Machine) -> CheckResult:
    """Reactant's compiled library and the GPUs that it supports."""
    place = place_of(machine)
    if place is None:
        return _NOT_SET_UP
    version = version_in(place.project, "Reactant_jll")
    if version is None:
        if version_in(place.project, "Reactant") is None:
            return CheckResult(
                "fail", f"{place.project} has no Reactant_jll in its Manifest.toml", SETUP
            )
        return CheckResult("warn", NOT_REAL, SETUP)
    variant, source = _variant(machine, place)
    gpus = gpu_count(machine)
    text = f"{version}, GPU variant {variant or 'not set: chosen by the driver at installation'}"
    text += f" ({source})" if variant else ""
    if gpus and variant == "none":
        return CheckResult(
            "warn", f"{text}; this machine has {counted(gpus, 'GPU')}", f"{SETUP} --gpu cuda"
        )
    return CheckResult("pass", text)


def _variant(machine: Machine, place: Place) -> tuple[str | None, str]:
    variable = machine.environ.get("REACTANT_GPU")
    if variable:
        return variable, "REACTANT_GPU"
    from ..preferences import get  # imported here: packages that it needs may be missing

    return get("gpu", project=place.project), "preference"


def xla_runtime(machine: Machine, loaded: str | None = None) -> CheckResult:
    """The XLA runtime with which the preferences compile Reactant.

    Args:
        machine: The machine to check.
        loaded: The one that Reactant was compiled with; None if Reactant was not started.
    """
    place = place_of(machine)
    if place is None:
        return _NOT_SET_UP
    from ..preferences import get

    fix = f"pyreactant prefs set xla_runtime IFRT && {SETUP}"
    try:
        runtime = get("xla_runtime", project=place.project)
    except PyReactantError as error:
        return CheckResult("fail", str(error), fix)
    how = "by preference" if runtime else "because no preference sets IFRT"
    result = CheckResult("pass", "IFRT, by preference")
    if runtime != "IFRT":
        result = CheckResult("warn", f"PJRT, {how}: for one process only", fix)
    if loaded is None:
        return result
    if loaded != (runtime or "PJRT"):
        text = f"{result.found}; but Reactant was compiled with {loaded}"
        return CheckResult("fail", text, SETUP)
    return result._replace(found=f"{result.found}; loaded: {loaded}")


def version_in(project: Path, package: str) -> str | None:
    """A package's version in the project's manifest; None if the manifest does not have it."""
    manifest = _manifest(project)
    entries = manifest.get("deps", manifest).get(package) or []
    return str(entries[0].get("version", "without a version")) if entries else None


def _manifest(project: Path) -> dict[str, Any]:
    # Each version of Julia may have its own, such as Manifest-v1.12.toml: the newest file counts.
    versioned = sorted(project.glob("*Manifest-v*.toml"), key=lambda path: path.stat().st_mtime)
    for path in (*versioned[::-1], project / "JuliaManifest.toml", project / "Manifest.toml"):
        content = _toml(path)
        if content:
            return content
    return {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
