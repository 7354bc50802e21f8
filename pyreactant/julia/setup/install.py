"""setup: install, compile and record, under the project's lock, unless the stamp is current."""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..._version import __version__
from ...base.errors import FileError, PyReactantError, RequirementError
from ...base.facts import tpu_chips
from ...base.files import project_lock, write, writing
from ...base.steps import step
from ..place import (
    LIBRARY,
    LIBTPU,
    RECORD,
    check_no_julia,
    check_reactant,
    describe_libtpu,
    named_place,
    package_folder,
    read_json,
    version_beside,
)
from ..preferences import NAMES, copies, edits, find, load_toml, local_file
from .options import (
    GPU_VERSIONS,
    Options,
    check_variables,
    is_version,
    julia_for,
    project_for,
    version_spec,
)
from .processes import (
    ask_juliapkg,
    checked_version,
    child_environment,
    julia_version,
    juliapkg_command,
    packages_error,
    run_logged,
    stage_error,
)
from .record import (
    Record,
    Stamp,
    back_up_files,
    discard_backup,
    is_pointed_to,
    point_to,
    project_files,
    read_record,
    read_stamp,
    remove_record,
    restore_files,
)

_ADVICE = "name a folder that can be written: pyreactant setup --project DIR"
_LIBRARY = Path("libtpu", "libtpu.so")
"""The library in the package libtpu."""
_PRECOMPILE = Path(__file__).with_name("precompile.jl")
_STAGES = {
    "preferences": "preferences",
    "resolve": "Julia and its packages",
    "precompile": "compilation",
    "libtpu": "libtpu",
    "record": "record",
}
"""The stages in their order, with their titles."""


def setup(options: Options | None = None) -> Record:
    """Install Julia and Reactant if they are missing, compile them, and record where they are.

    It is idempotent: if anything that the record depends on has changed, or the last call was
    killed, a call runs all stages. What Julia has installed and compiled it does not repeat. If
    several processes call it at once, one works and the others wait for it. `base.steps` tells
    what it does.

    Args:
        options: What to set up; None for the settings of the last setup, otherwise the defaults.

    Returns:
        The record; its `ran` is empty if there was nothing to do.

    Raises:
        InvalidArgumentError: The options contradict each other or the environment.
        RequirementError: Julia, juliapkg, the network, disk space or a writable folder is missing.
        StateError: Julia runs in this process.
        FileError: A file of the project is damaged.
        DeadlineError: Another setup of this project does not end in time.
        PyReactantError: Julia failed; the message has the last lines of the log.
    """
    work = Setup(options or Options())
    record = work.current_record()
    if record is not None and is_pointed_to(work.project):
        return record
    check_no_julia("setting up")
    with project_lock(
        work.project,
        "pyreactant setup",
        advice=_ADVICE,
        wait=work.options.wait,
        waiting=lambda holder: step(f"waiting for {holder}"),
    ):
        with writing(work.project, _ADVICE):
            restore_files(work.project)
        record = work.current_record()  # the last holder of the lock may have done the work
        if record is not None and is_pointed_to(work.project):
            return record
        return work.finish(record)


class Setup:
    """One setup: what was asked for, what is there, and the stages.

    Attributes:
        options: The options of this call.
        project: The folder of the Julia project.
    """

    def __init__(self, options: Options) -> None:
        check_variables(options)
        named = named_place()
        self._package, self._requested_julia = package_folder(), julia_for(options, named)
        self._juliapkg = ask_juliapkg()
        self.options, self.project = options, project_for(options, named, self._juliapkg.project)
        self._folder = self.project / "pyreactant"
        self._log, self._answer = self._folder / "setup.log", self._folder / "answer"
        self._offline = options.offline or os.environ.get("PYTHON_JULIAPKG_OFFLINE") == "yes"
        self._depot = os.environ.get("JULIA_DEPOT_PATH") or None
        self._start = 0  # of the last child's output in the log, in bytes
        self._ran: list[str] = []

    def current_record(self) -> Record | None:
        """Read what the last setup kept; its record, if nothing that it depends on has changed.

        It needs no lock.
        """
        record, stamp = read_record(self.project), read_stamp(self.project)
        self._asked_before = stamp.asked
        self._julia: str | None = self._requested_julia or stamp.asked.get("julia")
        self._any_version = bool(self._choose("any_version", False))
        self._tpu = bool(self._choose("tpu", tpu_chips() > 0))
        # Checked first: without a record the other files may be incomplete.
        if record is None or self._preference_edits():
            return None
        return record if self._digest(record) == stamp.digest else None

    def _choose(self, name: str, default: bool) -> Any:
        """This call's option, otherwise that of the last setup, otherwise the default."""
        option = getattr(self.options, name)
        return self._asked_before.get(name, default) if option is None else option

    @property
    def _asked(self) -> dict[str, Any]:
        return {"julia": self._julia, "any_version": self._any_version, "tpu": self._tpu}

    def finish(self, record: Record | None) -> Record:
        """Run all stages, or only the last if the record is current; the caller has the lock."""
        if record is None:
            with writing(self.project, _ADVICE):
                self._log.write_text("")
                self._set_preferences()
                remove_record(self.project)
                Stamp(self._asked).write(self.project)  # for the setup after one that is killed
            executable, version = self._resolve()
            compiled = self._precompile(executable)
            libtpu = self._choose_libtpu() if self._tpu else None
            record = Record(
                executable=executable,
                project=str(self.project),
                julia=version,
                reactant=compiled["reactant"],
                pythoncall=compiled["pythoncall"],
                any_version=self._any_version,
                libtpu=libtpu,
                binaries=compiled["binaries"],
                preferences=self._preferences(),
                pyreactant=__version__,
                depot=self._depot,
                requirements=self._juliapkg.files,
                when=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            )
        self._begin("record", "writing the record")
        with writing(self.project, _ADVICE):
            Stamp(self._asked, self._digest(record)).write(self.project)
            record.write()
        pointer = point_to(self.project, record.executable)
        self._say(f"{self.project / RECORD}, found through {pointer}")
        return dataclasses.replace(record, ran=tuple(self._ran))

    def _digest(self, record: Record) -> str:
        """A digest of everything that a record depends on."""
        libtpu = record.libtpu or {}
        files = (*project_files(self.project), local_file(self.project))
        package = (p for p in self._package.rglob("*") if p.suffix in (".jl", ".toml"))
        facts = {
            "asked": self._asked,
            "requirements": self._juliapkg.files,
            "executable": record.executable,
            "version": julia_version(record.executable),
            "files": {str(path): _content(path) for path in (*files, *package)},
            "preferences": self._preferences(),
            "libtpu": self._tpu and (os.environ.get(LIBRARY), libtpu, _is_there(libtpu)),
            "release": LIBTPU,
            "python": sys.prefix,
            "pyreactant": __version__,
            "depot": self._depot,
            "cpu": os.environ.get("JULIA_CPU_TARGET"),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def _preferences(self) -> dict[str, str | None]:
        """The preferences as Julia will read them."""
        return {name: find(name, (self.project, self._package)).value for name in NAMES}

    def _preference_edits(self) -> dict[Path, str]:
        """The files of preferences that must change first, with their new text."""
        options, folders = self.options, (self.project,)
        changes: dict[str, str | None] = {}
        if find("xla_runtime", folders).value is None:
            changes["xla_runtime"] = "IFRT"
        if options.gpu is not None:
            same = find("gpu", folders).value == options.gpu
            version = find("gpu_version", folders).value if same else None
            changes["gpu"] = options.gpu
            changes["gpu_version"] = options.gpu_version or version or GPU_VERSIONS[options.gpu]
        # The copies first: the other edits are made from the files with them.
        return copies(self.project) or edits(self.project, changes)

    def _set_preferences(self) -> None:
        if not (changed := self._preference_edits()):
            return
        self._begin("preferences", "setting the preferences")
        while changed:
            for path, text in changed.items():
                write(path, text.encode())
            changed = self._preference_edits()
        values = (f"{name} {value}" for name, value in self._preferences().items() if value)
        self._say(", ".join(values))

    def _resolve(self) -> tuple[str, str]:
        """Find or install Julia and the packages; the executable and its version."""
        self._begin("resolve", "finding or installing Julia and its packages")
        with writing(self.project, _ADVICE):
            back_up_files(self.project)
        julia = self._julia
        named = julia if julia is not None and not is_version(julia) else None
        versions = "" if named else julia and version_spec(julia)
        # Not forced offline: juliapkg would record that the packages are not its own.
        asked = [versions, not self._offline, self._any_version]
        changes = {
            "PYTHON_JULIAPKG_OFFLINE": "yes" if self._offline else "no",
            "PYTHON_JULIAPKG_EXE": named,
        }
        if self.project != self._juliapkg.project:
            changes["PYTHON_JULIAPKG_PROJECT"] = str(self.project)
        argv = juliapkg_command(self._answer, "resolve", json.dumps(asked))
        code, answer = self._run_child("resolve", argv, changes)
        if code != 0 or "executable" not in answer:
            with writing(self.project, _ADVICE):
                Stamp(self._asked_before).write(self.project)  # what failed is not kept
            message = str(answer.get("message", ""))
            raise self._error("installing Julia and its packages", message)
        executable = str(answer["executable"])
        version = checked_version(executable)
        with writing(self.project, _ADVICE):
            discard_backup(self.project)
        self._say(f"Julia {version} ({executable})")
        return executable, version

    def _precompile(self, executable: str) -> dict[str, Any]:
        """Load all that a process of a run loads; the versions."""
        self._begin("precompile", "compiling for Julia")
        options = [f"--project={self.project}", "--startup-file=no"]
        argv = [executable, *options, str(_PRECOMPILE), str(self._package), str(self._answer)]
        changes = {"JULIA_PKG_OFFLINE": "true"} if self._offline else {}
        code, answer = self._run_child("precompile", argv, changes)
        if "absent" in answer:
            raise packages_error(answer["absent"], self.project, offline=self._offline)
        if code != 0 or "reactant" not in answer:
            raise self._error("compiling for Julia")
        self._check_compiled(answer)
        self._say(f"Reactant {answer['reactant']}")
        return answer

    def _check_compiled(self, compiled: Mapping[str, Any]) -> None:
        """Check that Reactant was compiled as required.

        Raises:
            RequirementError: It was not, or it has no binaries for this machine.
        """
        wanted = self._preferences()["xla_runtime"]
        if compiled["runtime"] != wanted:
            raise RequirementError(
                f"Reactant must be compiled for {wanted}, which {local_file(self.project)} sets, "
                f"but is for {compiled['runtime'] or 'none'}; "
                "look for another preference in the environments of JULIA_LOAD_PATH"
            )
        binaries = compiled["binaries"]
        if binaries and not binaries["available"]:
            raise RequirementError(
                f"Reactant must have binaries for this machine, but has none for "
                f"{binaries['platform']}; choose others: pyreactant setup --gpu none, or "
                "--gpu cuda --gpu-version VERSION with a version that Reactant is built for"
            )
        check_reactant(compiled["reactant"], self._any_version, self.project)

    def _choose_libtpu(self) -> dict[str, str | None]:
        """The libtpu.so that Reactant takes in place of the nightly build that it would download.

        It is that of TPU_LIBRARY_PATH, otherwise the release of PyPI with the nightly's number: the
        installed one, or one that is installed into the project.

        Raises:
            RequirementError: It is neither installed nor can it be.
        """
        self._begin("libtpu", f"finding or installing libtpu {LIBTPU}")
        folder = self._folder / "libtpu"
        if named := os.environ.get(LIBRARY):
            path = Path(named).absolute()
        else:
            path = _installed_libtpu(folder) or self._install_libtpu(folder)
        if not path.is_file():
            raise RequirementError(
                f"libtpu must be at {path}, but is not; remove {folder}, or set {LIBRARY} to a "
                "libtpu.so, then run it again"
            )
        self._say(f"{describe_libtpu({LIBRARY: str(path)})}, {path}")
        return {"path": str(path), "version": version_beside(path)}

    def _install_libtpu(self, folder: Path) -> Path:
        release = f"libtpu=={LIBTPU}"
        if self._offline:
            raise RequirementError(
                f"Reactant needs {release} of PyPI on this machine, which is not installed "
                f"(--offline installs none); set {LIBRARY} to a libtpu.so, or run it with network"
            )
        if find_spec("pip"):
            install = [sys.executable, "-m", "pip", "install"]
        elif uv := shutil.which("uv"):
            install = [uv, "pip", "install", "--python", sys.executable]
        else:
            raise RequirementError(
                f"pip or uv must be there to install {release}, but neither is; install one, or "
                f"set {LIBRARY} to a libtpu.so"
            )
        argv = [*install, "--no-deps", "--upgrade", "--target", str(folder), release]
        if self._run_logged(argv, dict(os.environ)) != 0:
            raise self._error(f"installing {release}")
        return folder / _LIBRARY

    def _begin(self, stage: str, activity: str) -> None:
        self._ran.append(stage)
        self._say(activity)

    def _say(self, text: str) -> None:
        """Tell what the stage does that was begun last."""
        number = list(_STAGES).index(self._ran[-1])
        step(f"{_STAGES[self._ran[-1]]}, {number + 1} of {len(_STAGES)}: {text}")

    def _error(self, activity: str, message: str = "") -> PyReactantError:
        """The error for the last child, which failed."""
        depot = Path((self._depot or "").split(os.pathsep)[0] or Path.home() / ".julia")
        with self._log.open("rb") as log:
            log.seek(self._start)
            output = log.read().decode(errors="replace")
        return stage_error(
            activity, message, output, log=self._log, offline=self._offline, depot=depot
        )

    def _run_child(
        self, stage: str, argv: list[str], changes: Mapping[str, str | None]
    ) -> tuple[int, dict[str, Any]]:
        """Run a command; its exit code and its answer."""
        with writing(self.project, _ADVICE):
            self._answer.unlink(missing_ok=True)
            code = self._run_logged(argv, child_environment(self._folder, changes))
        try:
            read = load_toml if stage == "precompile" else read_json
            return code, dict(read(self._answer))
        except (FileNotFoundError, FileError):  # truncated or never written: the log has the reason
            return code, {}
        finally:
            self._answer.unlink(missing_ok=True)

    def _run_logged(self, argv: list[str], environment: Mapping[str, str]) -> int:
        with self._log.open("a") as log:
            self._start = log.tell()
            log.write(f"$ {shlex.join(argv)}\n")
        return run_logged(argv, environment, self._log, self._say)


def _installed_libtpu(folder: Path) -> Path | None:
    """The libtpu.so of the right release, in this Python environment or in a folder."""
    for package in importlib.metadata.distributions(name="libtpu", path=[*sys.path, str(folder)]):
        path = Path(str(package.locate_file(_LIBRARY)))
        if package.version == LIBTPU and path.is_file():
            return path
    return None


def _is_there(libtpu: Mapping[str, str | None]) -> bool:
    return Path(libtpu.get("path") or "").is_file()


def _content(path: Path) -> str | None:
    """A digest of a file's content; None if it is absent."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
