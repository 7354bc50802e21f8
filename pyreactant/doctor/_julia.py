"""Julia, the project that `pyreactant setup` settled, and what is in it; Julia is not loaded."""

import re
import tomllib
from pathlib import Path
from typing import Any

from .._errors import PyReactantError
from .._julia.place import EXECUTABLE, OLDEST, PROJECT, Place, find_place
from .._system.versions import at_least, release
from ._accelerators import gpu_count
from ._check import Found
from ._machine import Machine

SETUP = "pyreactant setup"
_NOT_SETTLED = Found("unknown", "not looked at: no Julia project is settled")
_VERSION = re.compile(r"julia version (\S+)")


def place_of(machine: Machine) -> Place | None:
    """The settled Julia and its project; None where there is none."""
    try:
        return find_place(machine.environ)
    except PyReactantError:
        return None


def juliacall(machine: Machine) -> Found:
    """The package that drives Julia, and PythonCall, its other half, of the same version."""
    version = machine.version("juliacall")
    if version is None:
        mend = machine.pip("pyreactant[reactant]")
        return Found("absent", "not installed; only the Reactant runtime needs it", mend)
    juliapkg = machine.version("juliapkg")
    text = version + (f", with juliapkg {juliapkg}" if juliapkg else ", without juliapkg")
    place = place_of(machine)
    other = None if place is None else version_in(place.project, "PythonCall")
    if other is not None and release(other) != release(version):
        text += f", but the Julia project has PythonCall {other}: they must be of one version"
        return Found("fail", text, machine.pip(f"juliacall=={other}"))
    return Found("pass", text)


def julia(machine: Machine) -> Found:
    """The settled executable, else the one on PATH, and its version."""
    place = place_of(machine)
    path = machine.which("julia") if place is None else str(place.executable)
    if path is None:
        if machine.version("juliacall") is None:
            return Found("unknown", "not looked for: juliacall is not installed")
        return Found("absent", "none is settled and none is on PATH", SETUP)
    ran = machine.run([path, "--startup-file=no", "--version"], 20)
    match = _VERSION.search(ran.out)
    if match is None:
        how = "did not answer within 20 s" if ran.code is None else f"ended with code {ran.code}"
        last = (ran.err or ran.out).strip().splitlines()[-1:]
        text = f"{path} {how} and told no version{': ' if last else ''}{''.join(last)}"
        return Found("fail", text, SETUP)
    if not at_least(match[1], OLDEST):
        text = f"{match[1]} ({path}); juliacall needs {OLDEST} or newer"
        return Found("fail", text, SETUP)
    if place is None:
        return Found("warn", f"{match[1]} ({path}), on PATH but not settled", SETUP)
    return Found("pass", f"{match[1]}, {path}")


def project(machine: Machine) -> Found:
    """The settled project."""
    try:
        place = find_place(machine.environ)
    except PyReactantError as error:
        named = machine.environ.get(EXECUTABLE) or machine.environ.get(PROJECT)
        if not named and machine.version("juliacall") is None:
            return Found("unknown", "not looked for: juliacall is not installed")
        mend = f"unset {EXECUTABLE} {PROJECT}" if named else SETUP
        return Found("absent", str(error).removesuffix("; run: pyreactant setup"), mend)
    if not _manifest(place.project):
        return Found("fail", f"{place.project} has no Manifest.toml: nothing is resolved", SETUP)
    return Found("pass", f"{place.project}, from {place.source}")


def reactant(machine: Machine) -> Found:
    """Reactant as the project's manifest has it."""
    place = place_of(machine)
    if place is None:
        return _NOT_SETTLED
    version = version_in(place.project, "Reactant")
    if version is None:
        return Found("fail", f"{place.project} has no Reactant in its Manifest.toml", SETUP)
    return Found("pass", version + ("" if is_real(place) else f"; {NOT_REAL}"))


NOT_REAL = "not the real Reactant but a package of its name, without Reactant's compiled library"


def is_real(place: Place) -> bool:
    """Whether the project's Reactant has the real one's library; a stand-in has none."""
    return version_in(place.project, "Reactant_jll") is not None


def libraries(machine: Machine) -> Found:
    """Reactant's compiled library and for which GPUs it was chosen."""
    place = place_of(machine)
    if place is None:
        return _NOT_SETTLED
    version = version_in(place.project, "Reactant_jll")
    if version is None:
        if version_in(place.project, "Reactant") is None:
            return Found("fail", f"{place.project} has none in its Manifest.toml", SETUP)
        return Found("warn", NOT_REAL, SETUP)
    variant, source = _variant(machine, place)
    gpus = gpu_count(machine)
    text = f"{version}, GPU variant {variant or 'not said: by what was found at installation'}"
    text += f" ({source})" if variant else ""
    if gpus and variant == "none":
        return Found("warn", f"{text}; this machine has {gpus} GPUs", f"{SETUP} --gpu cuda")
    return Found("pass", text)


def _variant(machine: Machine, place: Place) -> tuple[str | None, str]:
    said = machine.environ.get("REACTANT_GPU")
    if said:
        return said, "REACTANT_GPU"
    from ..preferences import get  # its own packages may be what is missing

    return get("gpu", project=place.project), "preference"


def runtime_preference(machine: Machine) -> Found:
    """XLA's runtime that Reactant is to be compiled with."""
    place = place_of(machine)
    if place is None:
        return _NOT_SETTLED
    from ..preferences import get

    mend = f"pyreactant prefs set xla_runtime IFRT && {SETUP}"
    try:
        said = get("xla_runtime", project=place.project)
    except PyReactantError as error:
        return Found("fail", str(error), mend)
    if said == "IFRT":
        return Found("pass", "IFRT, by preference")
    how = "by preference" if said else "since no preference says IFRT"
    return Found("warn", f"PJRT, {how}: for one process only", mend)


def version_in(project: Path, package: str) -> str | None:
    """A package's version in the project's manifest; None where it is not there."""
    manifest = _manifest(project)
    entries = manifest.get("deps", manifest).get(package) or []
    return str(entries[0].get("version", "of no version")) if entries else None


def _manifest(project: Path) -> dict[str, Any]:
    # One for each version of Julia that resolved it, such as Manifest-v1.12.toml: the last counts.
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
