"""What stands of a setup, and so what is due: every question here changes nothing."""

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._errors import FileError
from .._julia.place import is_executable, read_json
from .._julia.preferences import NAMES, copies, edits, find, local_file
from .._system.files import write
from .._version import __version__
from . import _record
from ._options import GPU_VERSIONS, Options
from ._processes import JuliapkgState, julia_version
from ._record import Record

FILE = Path("pyreactant", "stages.json")


class Stages:
    """The notes of one project."""

    def __init__(self, project: Path) -> None:
        self._path = project / FILE
        self._notes: dict[str, dict[str, Any]] = {}
        try:
            notes = read_json(self._path)
        except (FileNotFoundError, FileError):  # nothing is done then, which is never wrong
            notes = None
        if isinstance(notes, dict) and all(isinstance(note, dict) for note in notes.values()):
            self._notes = notes

    def result(self, stage: str, key: str | None = None) -> dict[str, Any] | None:
        """What a stage settled; None where it is not done, or not with this key."""
        note = self._notes.get(stage)
        if note is None or (key is not None and note.get("key") != key):
            return None
        return dict(note.get("result", {}))

    def done(self, stage: str, key: str, result: Mapping[str, Any]) -> None:
        """Note that a stage is done."""
        self._notes[stage] = {"key": key, "result": dict(result)}
        self._write()

    def undo(self, *stages: str) -> None:
        """Note that stages are to be done again."""
        known = [stage for stage in stages if stage in self._notes]
        for stage in known:
            del self._notes[stage]
        if known:
            self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write(self._path, json.dumps(self._notes, indent=1).encode())


def key_of(**facts: Any) -> str:
    """A digest of all that a stage depends on."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def digest(*paths: Path) -> str:
    """A digest of files, by name and content; one that is not there is part of it too."""
    total = hashlib.sha256()
    for path in paths:
        content = path.read_bytes() if path.is_file() else b"absent"
        total.update(path.name.encode() + b"\0" + hashlib.sha256(content).digest())
    return total.hexdigest()


@dataclass(frozen=True)
class Request:
    """What is to be set up.

    Attributes:
        options: As they were given.
        project: The project that is meant.
        julia: The Julia that is asked for: a version, an executable, or None.
        juliapkg: What juliapkg would use.
        package: The folder of our Julia package.
    """

    options: Options
    project: Path
    julia: str | None
    juliapkg: JuliapkgState
    package: Path


class State:
    """A project, what was noted of it before, and what is asked of it now.

    Attributes:
        project: Its folder.
        stages: The notes.
        julia: The Julia that is asked for, now or before.
        offline: Whether the network is to be left alone.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.project = request.project
        self.stages = Stages(request.project)
        before = (self.stages.result("asked") or {}).get("julia")
        self.julia: str | None = request.julia or before
        variable = os.environ.get("PYTHON_JULIAPKG_OFFLINE")
        self.offline = request.options.offline or variable == "yes"

    def standing(self) -> Record | None:
        """The record, where nothing is to be done; it changes nothing and needs no lock."""
        record = _record.read(self.project)
        if (
            record is None  # first: without it the other files may be half written
            or self.preferences_due()
            or self.compiled() is None
            or not _record.is_pointed_to(self.project)
        ):
            return None
        return record

    def wanted(self) -> dict[str, str | None]:
        """The preferences to set."""
        options, here = self.request.options, (self.project,)
        wanted: dict[str, str | None] = {}
        if find("xla_runtime", here).value is None:
            wanted["xla_runtime"] = "IFRT"
        if options.gpu is not None:
            stands = find("gpu", here).value == options.gpu and find("gpu_version", here).value
            wanted["gpu"] = options.gpu
            wanted["gpu_version"] = options.gpu_version or stands or GPU_VERSIONS[options.gpu]
        return wanted

    def preferences_due(self) -> bool:
        """Whether a preference is to be set."""
        return bool(copies(self.project) or edits(self.project, self.wanted()))

    def preferences(self) -> dict[str, str | None]:
        """The preferences as Julia will read them."""
        return {name: find(name, (self.project, self.request.package)).value for name in NAMES}

    def resolve_key(self) -> str:
        """What the packages that are installed depend on."""
        preferences = self.preferences()
        return key_of(
            files=self.request.juliapkg.files,
            julia=self.julia,
            binaries=(preferences["gpu"], preferences["gpu_version"]),
            depot=depot(),
        )

    def resolved(self) -> dict[str, Any] | None:
        """The Julia that was settled, where that still holds."""
        result = self.stages.result("resolve", self.resolve_key())
        if result is None or not is_executable(Path(result["executable"])):
            return None
        return result if julia_version(result["executable"]) == result["version"] else None

    def precompile_key(self) -> str | None:
        """What the compiled code depends on; None where Julia is not settled."""
        resolved = self.resolved()
        if resolved is None:
            return None
        files = (*_record.files(self.project), local_file(self.project))
        return key_of(
            julia=resolved,
            project=[(str(path), digest(path)) for path in files],
            preferences=self.preferences(),
            package=_digests(self.request.package),
            python=sys.prefix,
            cpu=os.environ.get("JULIA_CPU_TARGET"),
            pyreactant=__version__,
        )

    def compiled(self) -> dict[str, Any] | None:
        """What the compilation found, where that still holds."""
        key = self.precompile_key()
        return None if key is None else self.stages.result("precompile", key)


def _digests(folder: Path) -> list[tuple[str, str]]:
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".jl", ".toml"))
    return [(str(path.relative_to(folder)), digest(path)) for path in files]


def depot() -> str | None:
    """Where Julia is told to put packages."""
    return os.environ.get("JULIA_DEPOT_PATH") or None


def first_depot() -> Path:
    """Where Julia puts packages."""
    return Path((depot() or "").split(os.pathsep)[0] or Path.home() / ".julia")
