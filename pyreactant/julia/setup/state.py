"""The state of a setup on the disk: its record, the pointers to it, and the stages that are done.

Reading it changes nothing.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..._version import __version__
from ...base.errors import FileError, RequirementError
from ...base.facts import tpu_chips
from ...base.files import sync, write
from ..place import (
    EXECUTABLE,
    LIBRARY,
    LIBTPU,
    PROJECT,
    RECORD,
    is_executable,
    pointers,
    read_json,
)
from ..preferences import NAMES, copies, edits, find, local_file
from .options import GPU_VERSIONS, Options
from .processes import JuliapkgState, julia_version


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


def back_up_files(project: Path) -> None:
    """Copy the project files and manifests before they are written."""
    (project / _BEFORE).mkdir(parents=True, exist_ok=True)
    for path in project_files(project):
        write(project / _BEFORE / path.name, path.read_bytes())


def restore_files(project: Path) -> None:
    """Replace truncated files by their copies: neither Julia nor pyreactant can read them."""
    if not (project / _BEFORE).is_dir():
        return
    for path in project_files(project):
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


def project_files(project: Path) -> list[Path]:
    """The project files and manifests of a project."""
    return sorted({path for pattern in _FILES for path in project.glob(pattern)})


def _is_whole(path: Path) -> bool:
    try:
        return bool(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        return False


FILE = Path("pyreactant", "stages.json")


class Stages:
    """The results of a project's stages, kept in a file."""

    def __init__(self, project: Path) -> None:
        self._path = project / FILE
        self._entries: dict[str, dict[str, Any]] = {}
        try:
            entries = read_json(self._path)
        except (FileNotFoundError, FileError):  # running every stage again is always right
            entries = None
        if isinstance(entries, dict) and all(isinstance(e, dict) for e in entries.values()):
            self._entries = entries

    def result(self, stage: str, key: str | None = None) -> dict[str, Any] | None:
        """The result of a stage; None if it is not done, or has another key."""
        entry = self._entries.get(stage)
        if entry is None or (key is not None and entry.get("key") != key):
            return None
        return dict(entry.get("result", {}))

    def mark_done(self, stage: str, key: str, result: Mapping[str, Any]) -> None:
        """Keep the result of a stage."""
        self._entries[stage] = {"key": key, "result": dict(result)}
        self._write()

    def mark_due(self, *stages: str) -> None:
        """Remove the results of stages, so that they run again."""
        known = [stage for stage in stages if stage in self._entries]
        for stage in known:
            del self._entries[stage]
        if known:
            self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write(self._path, json.dumps(self._entries, indent=1).encode())


def key_of(**facts: Any) -> str:
    """A digest of everything that a stage depends on."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def digest(*paths: Path) -> str:
    """A digest of the names and contents of files; an absent file counts too."""
    total = hashlib.sha256()
    for path in paths:
        content = path.read_bytes() if path.is_file() else b"absent"
        total.update(path.name.encode() + b"\0" + hashlib.sha256(content).digest())
    return total.hexdigest()


@dataclass(frozen=True)
class Request:
    """What to set up.

    Attributes:
        options: The options of the call.
        project: The folder of the Julia project.
        julia: The requested Julia: a version, an executable, or None.
        juliapkg: What juliapkg would use.
        package: The folder of the Julia package PyReactant.
    """

    options: Options
    project: Path
    julia: str | None
    juliapkg: JuliapkgState
    package: Path


class State:
    """A project with its finished stages, and the request.

    Attributes:
        project: The folder of the project.
        stages: The results of its stages.
        julia: The requested Julia, otherwise that of the last setup.
        any_version: Whether every version of Reactant is accepted.
        tpu: Whether Reactant needs libtpu.
        offline: Whether the network must not be used.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.project = request.project
        self.stages = Stages(request.project)
        before = self.stages.result("asked") or {}
        options = request.options
        self.julia: str | None = request.julia or before.get("julia")
        self.any_version = bool(_first(options.any_version, before.get("any_version")))
        self.tpu = bool(_first(options.tpu, before.get("tpu"), tpu_chips() > 0))
        variable = os.environ.get("PYTHON_JULIAPKG_OFFLINE")
        self.offline = request.options.offline or variable == "yes"

    def finished(self) -> Record | None:
        """The record, if there is nothing to do; needs no lock."""
        record = read_record(self.project)
        if (
            record is None  # checked first: without a record the other files may be incomplete
            or self.preferences_due()
            or self.compiled() is None
            or record.any_version != self.any_version
            or (self.tpu and self.libtpu() is None)
            or (not self.tpu and record.libtpu is not None)
            or not is_pointed_to(self.project)
        ):
            return None
        return record

    def preference_changes(self) -> dict[str, str | None]:
        """The preferences to set."""
        options, folders = self.request.options, (self.project,)
        changes: dict[str, str | None] = {}
        if find("xla_runtime", folders).value is None:
            changes["xla_runtime"] = "IFRT"
        if options.gpu is not None:
            current = (
                find("gpu", folders).value == options.gpu and find("gpu_version", folders).value
            )
            changes["gpu"] = options.gpu
            changes["gpu_version"] = options.gpu_version or current or GPU_VERSIONS[options.gpu]
        return changes

    def preferences_due(self) -> bool:
        """Whether a preference must be set."""
        return bool(copies(self.project) or edits(self.project, self.preference_changes()))

    def preferences(self) -> dict[str, str | None]:
        """The preferences as Julia will read them."""
        return {name: find(name, (self.project, self.request.package)).value for name in NAMES}

    def resolve_key(self) -> str:
        """The key of the stage that installs packages."""
        preferences = self.preferences()
        return key_of(
            files=self.request.juliapkg.files,
            julia=self.julia,
            any_version=self.any_version,
            binaries=(preferences["gpu"], preferences["gpu_version"]),
            depot=depot(),
        )

    def resolved(self) -> dict[str, Any] | None:
        """The installed Julia, if it is still the right one."""
        result = self.stages.result("resolve", self.resolve_key())
        if result is None or not is_executable(Path(result["executable"])):
            return None
        return result if julia_version(result["executable"]) == result["version"] else None

    def precompile_key(self) -> str | None:
        """The key of the stage that compiles; None if the packages are not installed."""
        resolved = self.resolved()
        if resolved is None:
            return None
        paths = (*project_files(self.project), local_file(self.project))
        return key_of(
            julia=resolved,
            project=[(str(path), digest(path)) for path in paths],
            preferences=self.preferences(),
            package=_digests(self.request.package),
            python=sys.prefix,
            cpu=os.environ.get("JULIA_CPU_TARGET"),
            pyreactant=__version__,
        )

    def compiled(self) -> dict[str, Any] | None:
        """The result of the compilation, if it is still valid."""
        key = self.precompile_key()
        return None if key is None else self.stages.result("precompile", key)

    def libtpu(self) -> dict[str, Any] | None:
        """The libtpu that was chosen, if its file is still there and is the right one."""
        chosen = self.stages.result("libtpu", key_of(named=os.environ.get(LIBRARY), release=LIBTPU))
        return chosen if chosen and Path(chosen["path"]).is_file() else None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _digests(folder: Path) -> list[tuple[str, str]]:
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".jl", ".toml"))
    return [(str(path.relative_to(folder)), digest(path)) for path in files]


def depot() -> str | None:
    """JULIA_DEPOT_PATH, the folders in which Julia puts packages; None if it is not set."""
    return os.environ.get("JULIA_DEPOT_PATH") or None


def first_depot() -> Path:
    """The folder in which Julia puts packages."""
    return Path((depot() or "").split(os.pathsep)[0] or Path.home() / ".julia")
