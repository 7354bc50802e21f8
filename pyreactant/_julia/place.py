"""Where Julia is, and the project it works in: found without starting either."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from .._errors import FileError, InvalidArgumentError, RequirementError, StateError
from .._system.folders import config_folder

EXECUTABLE = "PYTHON_JULIACALL_EXE"
PROJECT = "PYTHON_JULIACALL_PROJECT"
SETUP = "run: pyreactant setup"
OLDEST = "1.10.3"
"""The oldest Julia that juliacall starts; Reactant and PythonCall run on any 1.10."""
RECORD = Path("pyreactant", "setup.json")
"""Where `pyreactant setup` says what it settled, in the folder of the Julia project."""

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Place:
    """A Julia and the project it works in.

    Attributes:
        executable: The Julia executable.
        project: The folder of the Julia project.
        source: What named them.
        depot: The JULIA_DEPOT_PATH that its packages were installed with; None is Julia's own.
    """

    executable: Path
    project: Path
    source: str
    depot: str | None = None


def find_place(environ: Mapping[str, str] = os.environ) -> Place:
    """The Julia that this Python environment uses.

    Raises:
        InvalidArgumentError: Only one of the two environment variables is set.
        RequirementError: Nothing was settled, or what was settled is not there.
        FileError: What `pyreactant setup` wrote is damaged.
    """
    place = named_place(environ)
    if place is not None:
        return place
    record = find_record()
    if record is None:
        raise RequirementError(f"Julia must have been set up for {sys.prefix}, but is not; {SETUP}")
    place = place_of(record)
    if not is_executable(place.executable):
        _gone(f"the Julia that `pyreactant setup` settled ({record}): {place.executable}")
    if not (os.access(place.project, os.R_OK | os.X_OK) and place.project.is_dir()):
        _gone(f"the Julia project that `pyreactant setup` settled ({record}): {place.project}")
    return place


def named_place(environ: Mapping[str, str] = os.environ) -> Place | None:
    """The place that the environment names; None where it names none.

    Raises:
        InvalidArgumentError: Only one of the two variables is set.
        RequirementError: What they name is not there.
    """
    executable, project = environ.get(EXECUTABLE), environ.get(PROJECT)
    if not executable and not project:
        return None
    if not executable or not project:
        there, absent = (EXECUTABLE, PROJECT) if executable else (PROJECT, EXECUTABLE)
        raise InvalidArgumentError(
            f"{EXECUTABLE} and {PROJECT} must be set together, got {there} without {absent}; "
            f"set both, or unset {there} and {SETUP}"
        )
    found = shutil.which(executable, path=environ.get("PATH"))
    if found is None:
        raise RequirementError(f"{EXECUTABLE} must name an executable, got {executable!r}")
    folder = Path(project).absolute()
    if folder.name in ("JuliaProject.toml", "Project.toml"):
        folder = folder.parent
    if not folder.is_dir():
        raise RequirementError(f"{PROJECT} must name a folder that exists, got {project!r}")
    return Place(Path(found).absolute(), folder, f"{EXECUTABLE} and {PROJECT}")


def find_record() -> Path | None:
    """The record of the last `pyreactant setup` for this Python environment."""
    for pointer in pointers():
        try:
            return Path(read_json(pointer)["record"])
        except FileNotFoundError:
            continue
        except (KeyError, TypeError):
            raise _damaged(pointer) from None
    return None


def place_of(record: Path) -> Place:
    """What a record settled.

    Raises:
        RequirementError: The record is not there.
        FileError: It is damaged.
    """
    try:
        settled = read_json(record)
        depot = settled.get("depot")
        return Place(
            Path(settled["executable"]),
            Path(settled["project"]),
            f"pyreactant setup ({record})",
            depot if depot is None else str(depot),
        )
    except FileNotFoundError:
        _gone(f"what `pyreactant setup` wrote: {record}")
    except (KeyError, TypeError, AttributeError):
        raise _damaged(record) from None


def pointers() -> tuple[Path, Path]:
    """The files that can lead from this Python environment to a record; the first that is counts.

    A user's own comes first: it is written where the environment is not the user's to change.
    """
    prefix = hashlib.sha256(os.fsencode(sys.prefix)).hexdigest()[:16]
    own = config_folder() / "julia" / f"{prefix}.json"
    return own, Path(sys.prefix, "share", "pyreactant", "julia.json")


def package_folder() -> Path:
    """The Julia package PyReactant that belongs to this Python package.

    Raises:
        RequirementError: It is neither in the installed package nor beside it in a checkout.
    """
    for folder in (_PACKAGE / "_julia_package", _PACKAGE.parent / "julia"):
        if (folder / "src" / "PyReactant.jl").is_file():
            return folder
    raise RequirementError(
        f"pyreactant's Julia package must lie in {_PACKAGE / '_julia_package'}, but is not there; "
        "this installation is incomplete: install pyreactant again"
    )


def check_no_julia(what: str) -> None:
    """Refuse what Julia, where it runs in this process, would not hear of any more.

    Raises:
        StateError: Julia runs here.
    """
    juliacall = sys.modules.get("juliacall")
    if juliacall is not None and getattr(juliacall, "CONFIG", {}).get("inited"):
        raise StateError(
            f"{what} must happen in a process where Julia does not run, but it runs in this one "
            "and has read the preferences; restart: do it in a new process, before Julia starts"
        )


def read_json(path: Path) -> Any:
    """A JSON file.

    Raises:
        FileNotFoundError: It is not there.
        FileError: It cannot be read or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise _damaged(path, f": {error}") from None


def is_executable(path: Path) -> bool:
    """Whether it is a file that can be started."""
    return os.access(path, os.X_OK) and path.is_file()


def _damaged(path: Path, why: str = "") -> FileError:
    return FileError(f"{path} must be what `pyreactant setup` wrote, but is damaged{why}; {SETUP}")


def _gone(what: str) -> NoReturn:
    raise RequirementError(f"{what} is no longer there; {SETUP}")
