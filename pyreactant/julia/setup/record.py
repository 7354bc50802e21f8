"""What a setup keeps on the disk: its record, its stamp, pointers, copies of project files."""

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

from ...base.errors import FileError, RequirementError
from ...base.files import sync, write
from ..place import EXECUTABLE, PROJECT, RECORD, find_record, pointers, read_json


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


def read_record(project: Path) -> Record | None:
    """The record of a project; None if there is none in this format."""
    with contextlib.suppress(FileNotFoundError, FileError, TypeError, ValueError):
        content = dict(read_json(project / RECORD))
        if content.pop("format", None) == Record.FORMAT:
            return Record(**content)
    return None


def remove_record(project: Path) -> None:
    """Remove the record, so that no process starts on a project that is being changed."""
    with contextlib.suppress(FileNotFoundError):
        (project / RECORD).unlink()
        sync(project / RECORD.parent)


@dataclass(frozen=True)
class Stamp:
    """What the last setup of a project was asked for, and what its record depends on.

    Attributes:
        asked: The options that the next setup takes over.
        digest: A digest of everything that the record depends on; "" while a setup works.
    """

    asked: Mapping[str, Any]
    digest: str = ""

    FILE: ClassVar[Path] = Path("pyreactant", "stamp.json")

    def write(self, project: Path) -> None:
        """Write the stamp into the project."""
        write(project / self.FILE, json.dumps(dataclasses.asdict(self)).encode())


def read_stamp(project: Path) -> Stamp:
    """The stamp of a project; an empty one if it is absent or damaged."""
    with contextlib.suppress(FileNotFoundError, FileError, TypeError, ValueError):
        content = read_json(project / Stamp.FILE)
        return Stamp(dict(content["asked"]), str(content["digest"]))
    return Stamp({})


def is_pointed_to(project: Path) -> bool:
    """Whether this Python environment finds the project's record."""
    with contextlib.suppress(FileError):  # a damaged pointer is none
        return find_record() == project / RECORD
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


_COPIES = Path("pyreactant", "before")
"""The folder of copies of project files; it exists only while juliapkg may be writing them."""


def back_up_files(project: Path) -> None:
    """Copy the project files and manifests before they are written."""
    (project / _COPIES).mkdir(parents=True, exist_ok=True)
    for path in project_files(project):
        write(project / _COPIES / path.name, path.read_bytes())


def restore_files(project: Path) -> None:
    """Replace truncated files by their copies: neither Julia nor pyreactant can read them."""
    if not (project / _COPIES).is_dir():
        return
    for path in project_files(project):
        copy = project / _COPIES / path.name
        if _is_whole(path):
            continue
        if copy.is_file():
            write(path, copy.read_bytes())
        else:  # the file is new
            path.unlink()
    discard_backup(project)


def discard_backup(project: Path) -> None:
    """Remove the copies, once all files are written."""
    if (project / _COPIES).is_dir():
        shutil.rmtree(project / _COPIES)


def project_files(project: Path) -> list[Path]:
    """The project files and manifests of a project."""
    return sorted({*project.glob("*Project.toml"), *project.glob("*Manifest*.toml")})


def _is_whole(path: Path) -> bool:
    try:
        return bool(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        return False
