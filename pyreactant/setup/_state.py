"""What stands of a setup, and so what is due: every question here changes nothing."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from .._julia_place import is_executable
from . import _backup, _record
from ._here import Here, julia_version
from ._options import GPU_VERSIONS, Options
from ._preferences import NAMES, edits, find, kept, local_file
from ._record import Record
from ._stages import Stages, digest, key_of


@dataclass(frozen=True)
class Request:
    """What is to be set up.

    Attributes:
        options: As they were given.
        project: The project that is meant.
        julia: The Julia that is asked for: a version, an executable, or None.
        here: What juliapkg says.
        package: The folder of our Julia package.
    """

    options: Options
    project: Path
    julia: str | None
    here: Here
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
        return bool(kept(self.project) or edits(self.project, self.wanted()))

    def preferences(self) -> dict[str, str | None]:
        """The preferences as Julia will read them."""
        return {name: find(name, (self.project, self.request.package)).value for name in NAMES}

    def resolve_key(self) -> str:
        """What the packages that are installed depend on."""
        preferences = self.preferences()
        return key_of(
            files=self.request.here.files,
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
        files = (*_backup.files(self.project), local_file(self.project))
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
