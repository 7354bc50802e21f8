"""Julia without starting it: its executable and project, and the versions that our code is for."""

import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..base.errors import FileError, InvalidArgumentError, RequirementError, StateError
from ..base.files import config_folder

EXECUTABLE = "PYTHON_JULIACALL_EXE"
PROJECT = "PYTHON_JULIACALL_PROJECT"
SETUP = "run: pyreactant setup"
INSTALL = "python -m pip install 'pyreactant[reactant]' && pyreactant setup"
OLDEST = "1.10.3"
"""The oldest Julia that juliacall starts; Reactant and PythonCall run on any 1.10."""
KEPT_OUT = ("jax", "jaxlib", "tensorflow")
"""Packages that must not be imported where Julia runs. Reactant's Python extension imports them if
it can, and two copies of XLA in one process crash."""
RECORD = Path("pyreactant", "setup.json")
"""The record of `pyreactant setup`, in the folder of the Julia project."""

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Place:
    """A Julia executable and the project that it uses.

    Attributes:
        executable: The Julia executable.
        project: The folder of the Julia project.
        source: What named the two, for messages.
        depot: The JULIA_DEPOT_PATH with which the packages were installed; None for the default.
        any_version: Whether a setup of the project accepted other versions of Reactant.
        libtpu: The libtpu.so that a setup of the project chose; None if it chose none.
    """

    executable: Path
    project: Path
    source: str
    depot: str | None = None
    any_version: bool = False
    libtpu: str | None = None


def find_place(environ: Mapping[str, str] = os.environ) -> Place:
    """The Julia that this Python environment uses.

    Raises:
        InvalidArgumentError: Only one of the two environment variables is set.
        RequirementError: Julia was never set up, or its executable or project is gone.
        FileError: A file that `pyreactant setup` wrote is damaged.
    """
    place = named_place(environ)
    if place is not None:
        return place
    record = find_record()
    if record is None:
        raise RequirementError(
            f"Julia must be set up for {sys.prefix}, but is not",
            "pyreactant setup" if importlib.util.find_spec("juliacall") else INSTALL,
        )
    place = place_of(record)
    if not (os.access(place.executable, os.X_OK) and place.executable.is_file()):
        _raise_missing(f"the Julia of `pyreactant setup` ({record})", place.executable)
    if not (os.access(place.project, os.R_OK | os.X_OK) and place.project.is_dir()):
        _raise_missing(f"the Julia project of `pyreactant setup` ({record})", place.project)
    return place


def named_place(environ: Mapping[str, str] = os.environ) -> Place | None:
    """The Julia and project that the environment variables name; None if neither is set.

    Raises:
        InvalidArgumentError: Only one of the two variables is set.
        RequirementError: The executable or the project does not exist.
    """
    executable, project = environ.get(EXECUTABLE), environ.get(PROJECT)
    if not executable and not project:
        return None
    if not executable or not project:
        given, absent = (EXECUTABLE, PROJECT) if executable else (PROJECT, EXECUTABLE)
        raise InvalidArgumentError(
            f"{EXECUTABLE} and {PROJECT} must be set together, got {given} without {absent}; "
            f"set both, or unset {given} and {SETUP}"
        )
    path = shutil.which(executable, path=environ.get("PATH"))
    if path is None:
        raise RequirementError(f"{EXECUTABLE} must name an executable, got {executable!r}")
    folder = Path(project).absolute()
    if folder.name in ("JuliaProject.toml", "Project.toml"):
        folder = folder.parent
    if not folder.is_dir():
        raise RequirementError(f"{PROJECT} must name an existing folder, got {project!r}")
    any_version, libtpu = _choices_of(folder / RECORD)
    source = f"{EXECUTABLE} and {PROJECT}"
    return Place(Path(path).absolute(), folder, source, None, any_version, libtpu)


def _choices_of(record: Path) -> tuple[bool, str | None]:
    """The choices of a project's setup: any version of Reactant, and its libtpu."""
    try:
        content = read_json(record)
        return bool(content.get("any_version")), (content.get("libtpu") or {}).get("path")
    except FileNotFoundError:
        return False, None
    except (TypeError, AttributeError):
        raise _damage_error(record) from None


def find_record() -> Path | None:
    """The record of the last `pyreactant setup` for this Python environment."""
    for pointer in pointers():
        try:
            return Path(read_json(pointer)["record"])
        except FileNotFoundError:
            continue
        except (KeyError, TypeError):
            raise _damage_error(pointer) from None
    return None


def place_of(record: Path) -> Place:
    """The Julia and project in a record.

    Raises:
        RequirementError: The record does not exist.
        FileError: The record is damaged.
    """
    try:
        content = read_json(record)
        depot = content.get("depot")
        return Place(
            Path(content["executable"]),
            Path(content["project"]),
            f"pyreactant setup ({record})",
            depot if depot is None else str(depot),
            *_choices_of(record),
        )
    except FileNotFoundError:
        _raise_missing("the record of `pyreactant setup`", record)
    except (KeyError, TypeError, AttributeError):
        raise _damage_error(record) from None


def pointers() -> tuple[Path, Path]:
    """The files that may point from this Python environment to a record; the first found counts.

    The user's own file comes first: it is written if the user cannot write to the environment.
    """
    prefix = hashlib.sha256(os.fsencode(sys.prefix)).hexdigest()[:16]
    own = config_folder() / "julia" / f"{prefix}.json"
    return own, Path(sys.prefix, "share", "pyreactant", "julia.json")


def package_folder() -> Path:
    """The Julia package PyReactant that belongs to this Python package.

    Raises:
        RequirementError: The package is neither installed nor beside this one in a checkout.
    """
    for folder in (_PACKAGE / "_julia_package", _PACKAGE.parent / "julia"):
        if (folder / "src" / "PyReactant.jl").is_file():
            return folder
    raise RequirementError(
        f"pyreactant's Julia package must be in {_PACKAGE / '_julia_package'}, but is not; "
        "this installation is incomplete: install pyreactant again"
    )


def check_no_julia(what: str) -> None:
    """Refuse a change that Julia would not notice because it runs in this process already.

    Args:
        what: The change, for the message.

    Raises:
        StateError: Julia runs in this process.
    """
    juliacall = sys.modules.get("juliacall")
    if juliacall is not None and getattr(juliacall, "CONFIG", {}).get("inited"):
        raise StateError(
            f"{what} must happen in a process where Julia does not run, but Julia runs in this one "
            "and has read the preferences; restart, and do it in the new process before Julia "
            "starts"
        )


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        FileNotFoundError: The file does not exist.
        FileError: The file cannot be read or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise _damage_error(path, f": {error}") from None


def _damage_error(path: Path, why: str = "") -> FileError:
    return FileError(f"{path}, which `pyreactant setup` wrote, is damaged{why}; {SETUP}")


def _raise_missing(what: str, path: Path) -> NoReturn:
    raise RequirementError(f"{what} must be at {path}, but is not", "pyreactant setup")


REACTANT = "0.2.280"
"""The version whose sources were read. The Julia package uses names that Reactant does not export
(julia/test/internal_names.toml) and any version may change: `juliapkg.json` requires exactly it."""

NIGHTLY = "0.0.45.dev20260728"
"""The nightly build of libtpu that this version of Reactant downloads (src/accelerators/TPU.jl:16)
when the devices start, unless TPU_LIBRARY_PATH names a file."""

LIBTPU = NIGHTLY.partition(".dev")[0]
"""The release of libtpu on PyPI with the same number: another build than the nightly one."""

LIBRARY = "TPU_LIBRARY_PATH"


def is_pinned(version: str) -> bool:
    """Whether a version of Reactant is the one that was read; "0.2.280+standin" is too."""
    return version.partition("+")[0] == REACTANT


def check_reactant(version: str, any_version: bool, project: Path) -> None:
    """Check the version of an installed Reactant.

    Args:
        version: The version.
        any_version: Whether `pyreactant setup --any-version` accepted others for this project.
        project: The Julia project.

    Raises:
        RequirementError: It is another version than the one that was read.
    """
    if not is_pinned(version) and not any_version:
        raise RequirementError(
            f"Reactant must be {REACTANT}, because pyreactant uses names that other versions may "
            f"change, but {project} has {version}; run: pyreactant setup (with network), or accept "
            "every version for this project: pyreactant setup --any-version"
        )


def describe_libtpu(environ: Mapping[str, str] = os.environ) -> str:
    """The libtpu that Reactant takes, for reports."""
    path = environ.get(LIBRARY)
    if not path:
        return f"{NIGHTLY} (downloaded by Reactant)"
    version = version_beside(Path(path))
    if version is None:
        return f"unknown ({LIBRARY}={path})"
    return f"{version} (PyPI; Reactant {REACTANT} names the build {NIGHTLY})"


def version_beside(library: Path) -> str | None:
    """The version of the installed package that a libtpu.so belongs to; None if it has none."""
    import importlib.metadata  # it takes 15 ms, which most processes need not wait for

    folder = str(library.parent.parent)
    packages: list[Any] = list(importlib.metadata.distributions(name="libtpu", path=[folder]))
    return str(packages[0].version) if packages else None
