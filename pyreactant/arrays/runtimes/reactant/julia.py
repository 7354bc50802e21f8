"""Julia in this process: started once, with the right environment; its errors become ours.

Julia is called from the main thread only. Its functions that may wait for other processes or
compile for minutes release Python's global lock, so that the pulse to the supervisor goes on.
"""

import faulthandler
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path
from typing import Any

from ....base import errors
from ....base.child import output_of
from ....base.errors import InvalidArgumentError, PyReactantError, RequirementError, StateError
from ....base.facts import at_least
from ....julia.place import (
    KEPT_OUT,
    LIBRARY,
    OLDEST,
    SETUP,
    Place,
    check_reactant,
    find_place,
    package_folder,
)

_module: Any = None
_error_type: type[BaseException] = Exception  # juliacall's, once Julia runs


def start() -> Any:
    """The Julia module PyReactant, as juliacall shows it; Julia starts once per process.

    Raises:
        StateError: Not the main thread, or a package that cannot share the process is loaded.
        RequirementError: Julia, its project or a package of it is absent, or of another version.
    """
    global _module, _error_type
    if _module is None:
        check_process()
        place = find_place()
        _check_version(place)
        _set_environment(place)
        juliacall = _import_juliacall(place)
        _error_type = juliacall.JuliaError
        module = _load_package(juliacall, place)
        versions = {str(name): str(version) for name, version in module.versions()}
        check_reactant(versions.get("Reactant", "unknown"), place.any_version, place.project)
        _module = module
    return _module


def check_process() -> None:
    """Check that Julia can run in this process.

    Raises:
        StateError: Not the main thread, or JAX or TensorFlow is loaded here already.
        RequirementError: LD_PRELOAD is set.
    """
    _check_thread()
    loaded = [name for name in KEPT_OUT if sys.modules.get(name) is not None]
    if loaded:
        raise StateError(
            f"Reactant cannot run in a process that has imported {' and '.join(loaded)}: two "
            "copies of XLA in one process crash; start it in another process, in which pyreactant "
            "is imported first (pyreactant run --backend reactant -- ...)"
        )
    preloaded = os.environ.get("LD_PRELOAD", "").strip()
    if preloaded:
        again = shlex.join(sys.orig_argv)
        raise RequirementError(
            f"Julia must be started without LD_PRELOAD, which is {preloaded!r} and replaces "
            f"its functions; run it again as: LD_PRELOAD= {again}"
        )


def call(function: Any, *args: Any) -> Any:
    """Call a Julia function with tuples, strings, numbers and NumPy arrays.

    Raises:
        PyReactantError: What the Julia function threw, as the kind that it named; Julia's
            backtrace is a note of it.
    """
    if threading.get_ident() != _MAIN_THREAD:
        _check_thread()
    try:
        return function(*args)
    except _error_type as error:
        raise translate(error) from None


def call_program(program: str, function: Any, *args: Any) -> Any:
    """Call a Julia function, as `call` does, that traces a user's program.

    A program that calls itself without end overflows the stack, which ends the process by SIGSEGV:
    with one thread Julia's signal handlers are off (see `_set_environment`). Python's
    faulthandler then writes the functions of the stack to standard error; one has this program in
    its name.
    """
    if faulthandler.is_enabled() or os.environ.get(_SIGNALS) != "no":
        return call(function, *args)
    name = f"Julia traces program {program!r}: does its function call itself without end?"
    named = types.FunctionType(_apply.__code__.replace(co_name=name), globals())
    faulthandler.enable(file=2)  # standard error, even if sys.stderr is something else
    try:
        return named(function, args)
    finally:
        faulthandler.disable()


def _apply(function: Any, args: tuple[Any, ...]) -> Any:
    return call(function, *args)


_SIGNALS = "PYTHON_JULIACALL_HANDLE_SIGNALS"
_MAIN_THREAD = threading.main_thread().ident


def _check_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise StateError(
            "Julia must be called from the main thread, this is "
            f"{threading.current_thread().name!r}; hand the work over to the main thread"
        )


def translate(error: Any) -> PyReactantError:
    """Our error for an error of Julia, with Julia's backtrace as a note."""
    if _module is None:
        return PyReactantError(str(error.exception))
    parts = _module.explain(error.exception, error.backtrace)
    kind, message, trace = (str(part) for part in parts)
    # Julia's own errors have no kind.
    ours = getattr(errors, kind or "PyReactantError", PyReactantError)(message)
    if trace:
        ours.add_note(f"Julia's backtrace:{trace}")
    return ours


def _check_version(place: Place) -> None:
    try:
        output = output_of([str(place.executable), "--version"], timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequirementError(
            f"Julia ({place.source}) cannot be started: {place.executable}: {error}; {SETUP}"
        ) from None
    match = re.match(r"julia version (\d+\.\d+\S*)", output)
    if match is None:
        raise RequirementError(
            f"{place.executable} ({place.source}) must be Julia, but --version gives {output!r}; "
            f"{SETUP}"
        )
    if not at_least(match[1], OLDEST):
        raise RequirementError(
            f"Julia must be {OLDEST} or newer, got {match[1]}: {place.executable} "
            f"({place.source}); {SETUP}"
        )


def _set_environment(place: Place) -> None:
    threads = os.environ.setdefault("PYTHON_JULIACALL_THREADS", "1")
    settings = {
        "PYTHON_JULIACALL_EXE": str(place.executable),
        "PYTHON_JULIACALL_PROJECT": str(place.project),
        # With one thread, Python keeps its signal handlers, so Ctrl-C works. With several threads,
        # Julia's garbage collector needs the signals.
        _SIGNALS: "no" if threads == "1" else "yes",
        "PYTHON_JULIACALL_STARTUP_FILE": "no",
        "PYTHON_JULIACALL_AUTOLOAD_IPYTHON_EXTENSION": "no",
        # A missing package is an error here; nothing is installed.
        "JULIA_CONDAPKG_BACKEND": "Null",
        "JULIA_PKG_OFFLINE": "true",
    }
    if place.depot is not None:
        settings["JULIA_DEPOT_PATH"] = place.depot
    if place.libtpu is not None:
        settings[LIBRARY] = os.environ.get(LIBRARY) or place.libtpu
    os.environ.update(settings)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]  # gRPC would send the rendezvous to a web proxy, and hang
    for name in KEPT_OUT:
        sys.modules[name] = None  # type: ignore[assignment] # so `import` raises ImportError


def _import_juliacall(place: Place) -> Any:
    try:
        import juliacall
    except ImportError as error:
        raise RequirementError(
            f"backend 'reactant' needs the package juliacall, which cannot be imported ({error})",
            "python -m pip install 'pyreactant[reactant]'",
            advice="install it with",
        ) from error
    except Exception as error:  # juliacall has no exception type for a Julia that does not start
        raise RequirementError(
            f"Julia did not start ({place.executable}, project {place.project}, {place.source}): "
            f"{error}; {_advice()}"
        ) from error
    _block_streams()
    return juliacall


def _block_streams() -> None:
    """Let standard streams block again, which Julia has changed where they are pipes.

    Python would lose what a pipe cannot take at once: an unbuffered `print` of more than 64 KiB.
    """
    for stream in range(3):
        try:
            os.set_blocking(stream, True)
        except OSError:  # it is closed
            continue


def _load_package(juliacall: Any, place: Place) -> Any:
    folder, base = package_folder(), juliacall.Base
    # Few calls and no Julia text, because Julia would compile them at each start.
    base.push_b(base.LOAD_PATH, str(folder / "start"), str(folder))
    try:
        return base.require(juliacall.Main, base.Symbol("PyReactantStart")).load()
    except juliacall.JuliaError as error:
        reactant = base.identify_package("Reactant")
        if reactant is None or base.locate_package(reactant) is None:
            raise RequirementError(
                f"the Julia project {place.project} ({place.source}) must have the package "
                f"Reactant; {SETUP}"
            ) from None
        raise RequirementError(
            f"the Julia package {folder} cannot be loaded in {place.project} ({place.source}); "
            f"{_advice()}. Julia's error: {error}"
        ) from None


def _advice() -> str:
    """What to do if Julia or a package that it loads does not start."""
    named = os.environ.get("JULIA_DEPOT_PATH", "").split(os.pathsep)[0]
    depot = Path(named or "~/.julia").expanduser().absolute()
    there = next(folder for folder in (depot, *depot.parents) if folder.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        return (
            f"Julia compiles into {depot}, which cannot be written ({error.strerror}): set "
            "JULIA_DEPOT_PATH to a folder that can, or compile on a machine where it can "
            "(pyreactant setup)"
        )
    return SETUP


def project_folder(project: str, what: str) -> Path:
    """The folder of a user's Julia project; InvalidArgumentError if there is none."""
    folder = Path(project).expanduser().absolute()
    if not any((folder / name).is_file() for name in ("JuliaProject.toml", "Project.toml")):
        raise InvalidArgumentError(
            f"{what}: julia_project= must be the folder of a Julia project, with a Project.toml, "
            f"got {project!r}"
        )
    return folder
