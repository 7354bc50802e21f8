"""Julia, the project of `pyreactant setup`, and its packages; Julia is not loaded."""

import re
import tomllib
from pathlib import Path
from typing import Any

from .._errors import PyReactantError
from .._julia.place import EXECUTABLE, OLDEST, PROJECT, Place, find_place
from .._system.facts import at_least, release
from ._accelerators import gpu_count
from ._check import CheckResult
from ._machine import Machine

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
    ran = machine.run([path, "--startup-file=no", "--version"], 20)
    match = _VERSION.search(ran.out)
    if match is None:
        how = "did not answer within 20 s" if ran.code is None else f"ended with code {ran.code}"
        last = (ran.err or ran.out).strip().splitlines()[-1:]
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
        return CheckResult("absent", str(error).removesuffix("; run: pyreactant setup"), mend)
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
        return CheckResult("warn", f"{text}; this machine has {gpus} GPUs", f"{SETUP} --gpu cuda")
    return CheckResult("pass", text)


def _variant(machine: Machine, place: Place) -> tuple[str | None, str]:
    variable = machine.environ.get("REACTANT_GPU")
    if variable:
        return variable, "REACTANT_GPU"
    from ..preferences import get  # imported here: packages that it needs may be missing

    return get("gpu", project=place.project), "preference"


def runtime_preference(machine: Machine) -> CheckResult:
    """The XLA runtime with which the preferences compile Reactant."""
    place = place_of(machine)
    if place is None:
        return _NOT_SET_UP
    from ..preferences import get

    mend = f"pyreactant prefs set xla_runtime IFRT && {SETUP}"
    try:
        runtime = get("xla_runtime", project=place.project)
    except PyReactantError as error:
        return CheckResult("fail", str(error), mend)
    if runtime == "IFRT":
        return CheckResult("pass", "IFRT, by preference")
    how = "by preference" if runtime else "because no preference sets IFRT"
    return CheckResult("warn", f"PJRT, {how}: for one process only", mend)


def version_in(project: Path, package: str) -> str | None:
    """A package's version in the project's manifest; None if the manifest does not have it."""
    manifest = _manifest(project)
    entries = manifest.get("deps", manifest).get(package) or []
    return str(entries[0].get("version", "without a version")) if entries else None


def _manifest(project: Path) -> dict[str, Any]:
    # Each version of Julia may have its own, such as Manifest-v1.12.toml: the newest file counts.
    versioned = sorted(project.glob("*Manifest-v*.toml"), key=lambda path: path.stat().st_mtime)
    for path in (*versioned[::-1], project / "JuliaManifest.toml", project / "Manifest.toml"):
        found = _toml(path)
        if found:
            return found
    return {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
