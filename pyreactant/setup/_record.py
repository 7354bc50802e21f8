"""What a setup settled: the record beside the Julia project, and the pointers that lead to it."""

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
    """What `pyreactant setup` settled.

    Attributes:
        executable: The Julia executable.
        project: The folder of the Julia project.
        julia: Its version.
        reactant: The version of Reactant.
        pythoncall: The version of PythonCall.
        binaries: Of Reactant: `version`, `platform` and whether they are `available`.
        preferences: As they were when it was compiled.
        pyreactant: The version of pyreactant.
        depot: JULIA_DEPOT_PATH; None is Julia's own.
        requirements: The digest of each juliapkg.json that was followed.
        when: When it was done.
        ran: The stages that this call ran; none where all stood. Not in the file.
    """

    executable: str
    project: str
    julia: str
    reactant: str
    pythoncall: str
    binaries: Mapping[str, Any]
    preferences: Mapping[str, str | None]
    pyreactant: str
    depot: str | None
    requirements: Mapping[str, str]
    when: str
    ran: tuple[str, ...] = ()

    FORMAT: ClassVar[int] = 1

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the file, and what ran."""
        return {"format": self.FORMAT, **dataclasses.asdict(self)}

    def write(self) -> None:
        """Put it beside the project."""
        content = {k: v for k, v in self.to_dict().items() if k != "ran"}
        write(Path(self.project, RECORD), json.dumps(content, indent=2).encode())


def read(project: Path) -> Record | None:
    """The record beside a project; None where there is none, or none of this form."""
    with contextlib.suppress(FileNotFoundError, FileError, TypeError, ValueError):
        content = dict(read_json(project / RECORD))
        if content.pop("format", None) == Record.FORMAT:
            return Record(**content)
    return None


def remove(project: Path) -> None:
    """Take the record away, so that no process starts on what is being changed."""
    with contextlib.suppress(FileNotFoundError):
        (project / RECORD).unlink()
        sync(project / RECORD.parent)


def is_pointed_to(project: Path) -> bool:
    """Whether this Python environment finds that record."""
    for pointer in pointers():
        with contextlib.suppress(FileNotFoundError, FileError, TypeError, KeyError):
            return Path(read_json(pointer)["record"]) == project / RECORD
    return False


def point_to(project: Path, executable: str) -> Path:
    """Have this Python environment find that record; the file that leads there.

    In the environment itself where that can be written, so that all its users have it, and else
    in the user's configuration.

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
            with contextlib.suppress(OSError):  # it comes first, and would lead elsewhere
                own.unlink()
        return pointer
    raise RequirementError(
        f"{project} is set up, but where it is must be kept, and cannot be written "
        f"({'; '.join(reasons)}); set these variables wherever you use it instead: "
        f"{EXECUTABLE}={executable} {PROJECT}={project}"
    )


_FILES = ("*Project.toml", "*Manifest*.toml")
_BEFORE = Path("pyreactant", "before")
"""Copies of them; that the folder is there says that they were being written."""


def save(project: Path) -> None:
    """Keep a copy of each, before they are written."""
    (project / _BEFORE).mkdir(parents=True, exist_ok=True)
    for path in files(project):
        write(project / _BEFORE / path.name, path.read_bytes())


def mend(project: Path) -> None:
    """Replace those that were cut short by their copies: neither Julia nor we can read them."""
    if not (project / _BEFORE).is_dir():
        return
    for path in files(project):
        copy = project / _BEFORE / path.name
        if _is_whole(path):
            continue
        if copy.is_file():
            write(path, copy.read_bytes())
        else:  # it was new
            path.unlink()
    drop(project)


def drop(project: Path) -> None:
    """Remove the copies: all was written."""
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
