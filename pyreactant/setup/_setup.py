"""setup: which stages are due, and each in its order under the project's lock."""

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
from .._system.files import writing
from .._system.lock import project_lock
from . import _record
from ._options import (
    Options,
    Report,
    check_variables,
    check_version,
    executable_named,
    is_version,
    silent,
    versions_admitted,
)
from ._processes import ask_juliapkg, julia_version
from ._record import Record
from ._state import Request, State
from ._work import Work

_ADVICE = "name a folder that can be written: pyreactant setup --project DIR"


def setup(options: Options | None = None, report: Report = silent) -> Record:
    """Install Julia and Reactant where they are not, compile them, and note where they are.

    It does what is not done yet, and nothing where all is: so it can be called again after it
    was ended at any point. Where several call it at once, one works and the others wait for it.

    Args:
        options: What to set up; None is what stands, or else the defaults.
        report: Called with what happens meanwhile.

    Returns:
        What was settled; `ran` is empty where nothing was to be done.

    Raises:
        InvalidArgumentError: The options contradict each other or the environment.
        RequirementError: Julia, juliapkg, the network, space or a folder to write to is missing.
        StateError: Julia runs in this process.
        FileError: A file of the project is damaged.
        DeadlineError: Another setup of this project does not end.
        PyReactantError: Julia failed; the message has the last lines of the log.
    """
    options = options or Options()
    check_variables(options)
    named = named_place()
    package, julia, juliapkg = package_folder(), _julia(options, named), ask_juliapkg()
    project = _project(options, named, juliapkg.project)
    request = Request(options, project, julia, juliapkg, package)
    standing = State(request).standing()
    if standing is not None:
        return standing
    check_no_julia("setting up")
    with project_lock(
        project,
        "pyreactant setup",
        advice=_ADVICE,
        wait=options.wait,
        waiting=lambda holder: report("", "waits", holder),
    ):
        with writing(project, _ADVICE):
            _record.mend(project)
        state = State(request)  # anew: who had the lock may have done it
        return state.standing() or Work(state, report).run()


def _project(options: Options, named: Place | None, default: Path) -> Path:
    """The project that is meant: the one named, else the one settled before, else juliapkg's."""
    if options.project is not None:
        project = options.project.absolute()
        if named is not None and named.project != project:
            raise _overridden(f"{PROJECT}={named.project}", f"the project asked for, {project}")
        return project
    if named is not None:
        return named.project
    if os.environ.get("PYTHON_JULIAPKG_PROJECT"):
        return default
    with contextlib.suppress(FileError):  # a damaged pointer is written anew
        record = find_record()
        return default if record is None else record.parents[1]
    return default


def _julia(options: Options, named: Place | None) -> str | None:
    """The Julia that is asked for: a version, an executable that will do, or None."""
    asked = options.julia
    if asked is None:
        asked = os.environ.get("PYTHON_JULIAPKG_EXE") or None
        asked = asked if named is None else str(named.executable)
    if asked is None:
        return None
    if is_version(asked):
        versions_admitted(asked)
        found = asked
    else:
        found = executable_named(asked)
        check_version(found, julia_version(found))
    if named is not None and found != str(named.executable):
        raise _overridden(f"{EXECUTABLE}={named.executable}", f"the Julia asked for, {found}")
    return found


def _overridden(named: str, asked: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{named} overrides {asked}; unset {PROJECT} and {EXECUTABLE}")
