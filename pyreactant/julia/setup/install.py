"""setup: the stages that are due, in their order, under the project's lock, and their work."""

import dataclasses
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
from ...base.files import project_lock, write, writing
from .. import preferences
from ..place import (
    LIBRARY,
    LIBTPU,
    RECORD,
    check_no_julia,
    check_reactant,
    described_libtpu,
    named_place,
    package_folder,
    read_json,
    version_beside,
)
from ..preferences import copies, edits, local_file
from .options import (
    Options,
    Report,
    check_variables,
    check_version,
    is_version,
    julia_for,
    project_for,
    silent,
    version_spec,
)
from .processes import (
    IMPORT_FOLDER,
    SCRIPT,
    ask_juliapkg,
    child_environment,
    julia_version,
    packages_error,
    run_logged,
    stage_error,
)
from .state import (
    Record,
    Request,
    State,
    back_up_files,
    depot,
    discard_backup,
    first_depot,
    key_of,
    point_to,
    remove_record,
    restore_files,
)

_ADVICE = "name a folder that can be written: pyreactant setup --project DIR"


def setup(options: Options | None = None, report: Report = silent) -> Record:
    """Install Julia and Reactant if they are missing, compile them, and record where they are.

    It is idempotent: a second call finishes what is missing, also after the first was killed. If
    several processes call it at once, one works and the others wait for it.

    Args:
        options: What to set up; None for the settings of the last setup, otherwise the defaults.
        report: Called with each event.

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
    options = options or Options()
    check_variables(options)
    named = named_place()
    package, julia, juliapkg = package_folder(), julia_for(options, named), ask_juliapkg()
    project = project_for(options, named, juliapkg.project)
    request = Request(
        options=options, project=project, julia=julia, juliapkg=juliapkg, package=package
    )
    finished = State(request).finished()
    if finished is not None:
        return finished
    check_no_julia("setting up")
    with project_lock(
        project,
        "pyreactant setup",
        advice=_ADVICE,
        wait=options.wait,
        waiting=lambda holder: report("", "waits", holder),
    ):
        with writing(project, _ADVICE):
            restore_files(project)
        state = State(request)  # read again: the last holder of the lock may have done the work
        return state.finished() or Work(state, report).run()


_LIBRARY = Path("libtpu", "libtpu.so")
"""The library in the package libtpu."""


def _installed_libtpu() -> Path | None:
    """The libtpu.so of this Python environment, if it is of the right release."""
    found = list(importlib.metadata.distributions(name="libtpu"))
    if not found or found[0].version != LIBTPU:
        return None
    return Path(str(found[0].locate_file(_LIBRARY)))


_PRECOMPILE = Path(__file__).with_name("precompile.jl")


class Work:
    """One setup, from the current state to the record; the caller holds the project's lock."""

    def __init__(self, state: State, report: Report) -> None:
        self._state = state
        self._project = state.project
        self._stages = state.stages
        self._report = report
        self._log = state.project / "pyreactant" / "setup.log"
        self._ran: list[str] = []

    def run(self) -> Record:
        """Run the stages that are due."""
        with writing(self._project, _ADVICE):
            self._log.write_text("")
            self._set_preferences()
        resolved = self._state.resolved() or self._resolve()
        compiled = self._state.compiled()
        if compiled is None:
            compiled = self._precompile(resolved)
        if "absent" in compiled and not self._state.offline and "resolve" not in self._ran:
            self._stages.mark_due("resolve")  # the project has changed since
            resolved = self._resolve()
            compiled = self._precompile(resolved)
        if "absent" in compiled:
            raise packages_error(compiled["absent"], self._project, offline=self._state.offline)
        check_reactant(compiled["reactant"], self._state.any_version, self._project)
        libtpu = self._state.libtpu() or self._choose_libtpu() if self._state.tpu else None
        return self._write_record(resolved, compiled, libtpu)

    def _set_preferences(self) -> None:
        if not self._state.preferences_due():
            return
        self._begin("preferences", "setting the preferences")
        for path, text in copies(self._project).items():
            write(path, text.encode())
        for path, text in edits(self._project, self._state.preference_changes()).items():
            write(path, text.encode())
        values = (f"{name} {value}" for name, value in self._state.preferences().items() if value)
        self._report("preferences", "done", ", ".join(values))

    def _resolve(self) -> dict[str, Any]:
        self._begin("resolve", "finding or installing Julia and its packages")
        with writing(self._project, _ADVICE):
            self._stages.mark_due("resolve", "precompile")
            remove_record(self._project)
            before = self._stages.result("asked") or {}
            self._note_request()
            back_up_files(self._project)
        versions, executable = None, None
        if self._state.julia is not None and is_version(self._state.julia):
            versions = version_spec(self._state.julia)
        elif self._state.julia is not None:
            versions, executable = "", self._state.julia
        own = self._project != self._state.request.juliapkg.project
        script = [
            sys.executable,
            "-P",
            str(SCRIPT),
            str(self._answer),
            str(IMPORT_FOLDER),
            "resolve",
        ]
        # Not forced offline: juliapkg would record that the packages are not its own.
        asked = [versions, not self._state.offline, self._state.any_version]
        argv = [*script, json.dumps(asked)]
        changes = {
            "PYTHON_JULIAPKG_OFFLINE": "yes" if self._state.offline else "no",
            "PYTHON_JULIAPKG_EXE": executable,
            **({"PYTHON_JULIAPKG_PROJECT": str(self._project)} if own else {}),
        }
        code, answer, start = self._child("resolve", argv, changes)
        if code != 0 or "executable" not in answer:
            self._stages.mark_done("asked", "", before)
            raise self._error(
                "installing Julia and its packages", str(answer.get("message", "")), start
            )
        found = answer["executable"]
        result = {"executable": found, "version": check_version(found, julia_version(found))}
        with writing(self._project, _ADVICE):
            self._stages.mark_done("resolve", self._state.resolve_key(), result)
            discard_backup(self._project)
        self._report("resolve", "done", f"Julia {result['version']} ({found})")
        return result

    def _precompile(self, resolved: Mapping[str, Any]) -> dict[str, Any]:
        """Load all that a process of a run loads; the versions, or the `absent` packages."""
        self._begin("precompile", "compiling for Julia")
        with writing(self._project, _ADVICE):
            remove_record(self._project)
        argv = [
            resolved["executable"],
            f"--project={self._project}",
            "--startup-file=no",
            str(_PRECOMPILE),
            str(self._state.request.package),
            str(self._answer),
        ]
        changes = {"JULIA_PKG_OFFLINE": "true"} if self._state.offline else {}
        code, answer, start = self._child("precompile", argv, changes)
        if "absent" in answer:
            return answer
        if code != 0 or "reactant" not in answer:
            raise self._error("compiling for Julia", "", start)
        self._check(answer)
        key = self._state.precompile_key()
        assert key is not None
        with writing(self._project, _ADVICE):
            self._stages.mark_done("precompile", key, answer)
        self._report("precompile", "done", f"Reactant {answer['reactant']}")
        return answer

    def _choose_libtpu(self) -> dict[str, Any]:
        """The libtpu.so that Reactant takes in place of the nightly build that it would download.

        It is that of TPU_LIBRARY_PATH, otherwise the release of PyPI with the nightly's number: the
        installed one, or one that is installed into the project.

        Raises:
            RequirementError: It is neither installed nor can it be.
        """
        self._begin("libtpu", f"finding or installing libtpu {LIBTPU}")
        folder = self._project / "pyreactant" / "libtpu"
        named, installed = os.environ.get(LIBRARY), _installed_libtpu()
        if not named and installed is None:
            self._install_libtpu(folder)
        path = Path(named).absolute() if named else installed or folder / _LIBRARY
        if not path.is_file():
            raise RequirementError(
                f"libtpu must be at {path}, but is not; remove {folder}, or set {LIBRARY} to a "
                "libtpu.so, then run it again"
            )
        found = {"path": str(path), "version": version_beside(path)}
        key = key_of(named=named, release=LIBTPU)
        with writing(self._project, _ADVICE):
            self._stages.mark_done("libtpu", key, found)
        self._report("libtpu", "done", f"{described_libtpu({LIBRARY: str(path)})}, {path}")
        return found

    def _install_libtpu(self, folder: Path) -> None:
        what = f"libtpu=={LIBTPU}"
        if self._state.offline:
            raise RequirementError(
                f"Reactant needs {what} of PyPI on this machine, which is not installed "
                f"(--offline installs none); set {LIBRARY} to a libtpu.so, or run it with network"
            )
        if find_spec("pip"):
            install = [sys.executable, "-m", "pip", "install"]
        elif shutil.which("uv"):
            install = [str(shutil.which("uv")), "pip", "install", "--python", sys.executable]
        else:
            raise RequirementError(
                f"pip or uv must be there to install {what}, but neither is; install one, or set "
                f"{LIBRARY} to a libtpu.so"
            )
        start = self._log.stat().st_size
        argv = [*install, "--no-deps", "--upgrade", "--target", str(folder), what]
        code = run_logged(
            argv, dict(os.environ), self._log, lambda line: self._report("libtpu", "says", line)
        )
        if code != 0:
            raise self._error(f"installing {what}", "", start)

    def _note_request(self) -> None:
        """Keep what was asked for, which the next setup takes where it is asked for nothing."""
        asked = {name: getattr(self._state, name) for name in ("julia", "any_version", "tpu")}
        self._stages.mark_done("asked", "", asked)

    def _check(self, found: Mapping[str, Any]) -> None:
        """Check that Reactant was compiled as the preferences require.

        Raises:
            RequirementError: It was not, or it has no binaries for this machine.
        """
        preferences = self._state.preferences()
        if found["runtime"] != preferences["xla_runtime"]:
            raise RequirementError(
                f"Reactant must be compiled for {preferences['xla_runtime']}, which "
                f"{local_file(self._project)} sets, but is for {found['runtime'] or 'none'}; "
                "look for another preference in the environments of JULIA_LOAD_PATH"
            )
        binaries = found["binaries"]
        if binaries and not binaries["available"]:
            raise RequirementError(
                f"Reactant must have binaries for this machine, but has none for "
                f"{binaries['platform']}; choose others: pyreactant setup --gpu none, or "
                "--gpu cuda --gpu-version VERSION with a version that Reactant is built for"
            )

    def _write_record(
        self,
        resolved: Mapping[str, Any],
        compiled: Mapping[str, Any],
        libtpu: Mapping[str, Any] | None,
    ) -> Record:
        self._begin("record", "writing the record")
        self._note_request()
        record = Record(
            executable=resolved["executable"],
            project=str(self._project),
            julia=resolved["version"],
            reactant=compiled["reactant"],
            pythoncall=compiled["pythoncall"],
            any_version=self._state.any_version,
            libtpu=libtpu,
            binaries=compiled["binaries"],
            preferences=self._state.preferences(),
            pyreactant=__version__,
            depot=depot(),
            requirements=self._state.request.juliapkg.files,
            when=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        )
        with writing(self._project, _ADVICE):
            record.write()
        pointer = point_to(self._project, record.executable)
        self._report("record", "done", f"{self._project / RECORD}, found through {pointer}")
        return dataclasses.replace(record, ran=tuple(self._ran))

    def _begin(self, stage: str, what: str) -> None:
        self._ran.append(stage)
        self._report(stage, "starts", what)

    def _error(self, activity: str, message: str, start: int) -> PyReactantError:
        return stage_error(
            activity,
            message,
            log=self._log,
            start=start,
            offline=self._state.offline,
            depot=first_depot(),
        )

    @property
    def _answer(self) -> Path:
        return self._project / "pyreactant" / "answer"

    def _child(
        self, stage: str, argv: list[str], changes: Mapping[str, str | None]
    ) -> tuple[int, dict[str, Any], int]:
        """Run a command; its exit code, its answer, and the byte of the log where it begins."""
        start = self._log.stat().st_size
        with writing(self._project, _ADVICE):
            self._answer.unlink(missing_ok=True)
            settings = child_environment(self._project / "pyreactant", changes)
            with self._log.open("a") as log:
                log.write(f"$ {shlex.join(argv)}\n")
            code = run_logged(
                argv, settings, self._log, lambda line: self._report(stage, "says", line)
            )
        return code, self._read_answer(argv), start

    def _read_answer(self, argv: list[str]) -> dict[str, Any]:
        try:
            if str(_PRECOMPILE) in argv:
                return preferences.load_toml(self._answer)
            return dict(read_json(self._answer))
        except (FileNotFoundError, FileError):  # truncated or never written: the log has the reason
            return {}
        finally:
            self._answer.unlink(missing_ok=True)
