"""setup: the stages that are due, in their order, under the project's lock."""

import contextlib
import os
from pathlib import Path

from .._errors import FileError, InvalidArgumentError
from .._julia.place import (
    EXECUTABLE,
    PROJECT,
    Place,
    check_no_julia,
    find_record,
    named_place,
    package_folder,
)
from .._system.files import project_lock, writing
from ._options import (
    Options,
    Report,
    check_variables,
    check_version,
    executable_named,
    is_version,
    silent,
    version_spec,
)
from ._processes import ask_juliapkg, julia_version
from ._state import Record, Request, State, restore_files
from ._work import Work

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
    package, julia, juliapkg = package_folder(), _julia(options, named), ask_juliapkg()
    project = _project(options, named, juliapkg.project)
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


def _project(options: Options, named: Place | None, default: Path) -> Path:
    """The project to set up: the named one, that of the last setup, or juliapkg's."""
    if options.project is not None:
        project = options.project.absolute()
        if named is not None and named.project != project:
            raise _overridden(f"{PROJECT}={named.project}", f"the option project={project}")
        return project
    if named is not None:
        return named.project
    if os.environ.get("PYTHON_JULIAPKG_PROJECT"):
        return default
    with contextlib.suppress(FileError):  # a damaged pointer will be replaced
        record = find_record()
        return default if record is None else record.parents[1]
    return default


def _julia(options: Options, named: Place | None) -> str | None:
    """The requested Julia: a version, an executable that can be used, or None."""
    requested = options.julia
    if requested is None:
        requested = os.environ.get("PYTHON_JULIAPKG_EXE") or None
        requested = requested if named is None else str(named.executable)
    if requested is None:
        return None
    if is_version(requested):
        version_spec(requested)
        found = requested
    else:
        found = executable_named(requested)
        check_version(found, julia_version(found))
    if named is not None and found != str(named.executable):
        raise _overridden(f"{EXECUTABLE}={named.executable}", f"the option julia={found}")
    return found


def _overridden(named: str, option: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{named} overrides {option}; unset {PROJECT} and {EXECUTABLE}")
