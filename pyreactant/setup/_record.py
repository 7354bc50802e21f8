"""The record of a setup in the Julia project, the pointers to it, and copies of project files."""

import contextlib
import dataclasses
import json
import os
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .._errors import FileError, RequirementError
from .._julia.place import EXECUTABLE, PROJECT, RECORD, pointers, read_json
from .._system.files import sync, write


@dataclass(frozen=True)
class Record:
    """The result of `pyreactant setup`.

    Attributes:
        executable: The Julia executable.
        project: The folder of the Julia project.
        julia: The version of Julia.
        reactant: The version of Reactant.
        pythoncall: The version of PythonCall.
        any_version: Whether every version of Reactant is accepted.
        libtpu: libtpu for Reactant: its `path` and `version`; None if none was chosen.
        binaries: Reactant's binaries: `version`, `platform`, and whether they are `available`.
        preferences: The preferences with which Reactant was compiled.
        pyreactant: The version of pyreactant.
        depot: JULIA_DEPOT_PATH; None for Julia's default.
        requirements: The digest of each juliapkg.json that was followed.
        when: The time of the setup.
        ran: The stages that this call ran; empty if there was nothing to do. Not in the file.
    """

    executable: str
    project: str
    julia: str
    reactant: str
    pythoncall: str
    any_version: bool
    libtpu: Mapping[str, str | None] | None
    binaries: Mapping[str, Any]
    preferences: Mapping[str, str | None]
    pyreactant: str
    depot: str | None
    requirements: Mapping[str, str]
    when: str
    ran: tuple[str, ...] = ()

    FORMAT: ClassVar[int] = 1

    def to_dict(self) -> dict[str, Any]:
        """The content of the file, and what ran."""
        return {"format": self.FORMAT, **dataclasses.asdict(self)}

    def write(self) -> None:
        """Write the record into the project."""
        content = {k: v for k, v in self.to_dict().items() if k != "ran"}
        write(Path(self.project, RECORD), json.dumps(content, indent=2).encode())


def read(project: Path) -> Record | None:
    """The record of a project; None if there is none in this format."""
    with contextlib.suppress(FileNotFoundError, FileError, TypeError, ValueError):
        content = dict(read_json(project / RECORD))
        if content.pop("format", None) == Record.FORMAT:
            return Record(**content)
    return None


def remove(project: Path) -> None:
    """Remove the record, so that no process starts on a project that is being changed."""
    with contextlib.suppress(FileNotFoundError):
        (project / RECORD).unlink()
        sync(project / RECORD.parent)


def is_pointed_to(project: Path) -> bool:
    """Whether this Python environment finds the project's record."""
    for pointer in pointers():
        with contextlib.suppress(FileNotFoundError, FileError, TypeError, KeyError):
            return Path(read_json(pointer)["record"]) == project / RECORD
    return False


def point_to(project: Path, executable: str) -> Path:
    """Write a pointer from this Python environment to the project's record, and return its path.

    It is in the environment if that can be written, so that all users of the environment find it;
    otherwise it is in the user's configuration.

    Raises:
        RequirementError: Neither can be written.
    """
    own, shared = pointers()
    content = json.dumps({"record": str(project / RECORD)}, indent=2).encode()
    reasons = []
    for pointer in (shared, own):
        try:
            pointer.parent.mkdir(parents=True, exist_ok=True)
            write(pointer, content, partial=f"{os.getpid()}.partial")
        except OSError as error:
            reasons.append(f"{pointer}: {error.strerror}")
            continue
        if pointer == shared:
            with contextlib.suppress(OSError):  # it comes first, and points elsewhere
                own.unlink()
        return pointer
    raise RequirementError(
        f"{project} is set up, but a pointer to it must be written, and cannot be "
        f"({'; '.join(reasons)}); set these variables wherever you use it instead: "
        f"{EXECUTABLE}={executable} {PROJECT}={project}"
    )


_FILES = ("*Project.toml", "*Manifest*.toml")
_BEFORE = Path("pyreactant", "before")
"""The folder of copies of these files; it exists only while juliapkg may be writing them."""


def back_up(project: Path) -> None:
    """Copy the project files and manifests before they are written."""
    (project / _BEFORE).mkdir(parents=True, exist_ok=True)
    for path in files(project):
        write(project / _BEFORE / path.name, path.read_bytes())


def restore(project: Path) -> None:
    """Replace truncated files by their copies: neither Julia nor pyreactant can read them."""
    if not (project / _BEFORE).is_dir():
        return
    for path in files(project):
        copy = project / _BEFORE / path.name
        if _is_whole(path):
            continue
        if copy.is_file():
            write(path, copy.read_bytes())
        else:  # the file is new
            path.unlink()
    discard_backup(project)


def discard_backup(project: Path) -> None:
    """Remove the copies, once all files are written."""
    if (project / _BEFORE).is_dir():
        shutil.rmtree(project / _BEFORE)


def files(project: Path) -> list[Path]:
    """The project files and manifests of a project."""
    return sorted({path for pattern in _FILES for path in project.glob(pattern)})


def _is_whole(path: Path) -> bool:
    try:
        return bool(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        return False
