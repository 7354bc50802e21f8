"""The program of a run: what the words after ``--`` name, its command, and its environment.

The environment tells the program, or JAX or Julia in it, who it is.
"""

import contextlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from ...base import facts
from ...base.errors import FileError, InvalidArgumentError, PyReactantError
from ...base.settings import COORDINATOR, COUNT, INDEX, LOCAL_DEVICES, PROFILE, STALL_TIMEOUT
from ...julia.place import find_place, package_folder
from ...process.events import Go
from ...process.group.coordinator import SECRET, SECRET_FILE
from ...process.group.group import around_proxies
from .guardian import TOKEN

_USAGE = (
    "name a program: pyreactant run -- SCRIPT [ARGUMENTS], -- -m MODULE [ARGUMENTS], or -- COMMAND "
    "[ARGUMENTS]"
)
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_JULIA = re.compile(r"julia(-\d+(\.\d+)*)?")
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "fish")
_SHELL_OPTION = re.compile(r"-[abefhklmnpstuvxBCEHPT]+|--(login|posix|norc|noprofile)")
"""Options of shells that have no value, and give no program as -c does."""
_ARCHIVES = (".py", ".pyc", ".pyz", ".zip")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""Python's options that are followed by a value."""

_OPTION = re.compile(r"-[bBdEIOPqsSuvx]+|-[WX].+")
"""Python's other options before a program; a session (-i) or a question (-V) has no program."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program, as its supervisor starts it.

    Attributes:
        kind: "python" runs in this Python with a connection to the supervisor; "julia" and
            "command" do not know of it.
        argv: The command to start. With a connection it gets that in its environment.
        path: The script, folder or archive that it runs; None for a module or a command.
        module: The name of the module that it runs, if it runs one.
        note: What the user should know; "" if nothing.
    """

    kind: str
    argv: tuple[str, ...]
    path: Path | None = None
    module: str | None = None
    note: str = ""


def find_program(words: Sequence[str]) -> Program:
    """What the words are: Python with or without ``python`` before it, Julia, or a command.

    Looks at no file except to tell a folder or an executable; `check_program` looks whether it
    is there.

    Raises:
        InvalidArgumentError: There are no words, or only "-m", or the first is empty.
    """
    if not words or not words[0] or list(words) in (["-m"], ["-c"]):
        raise InvalidArgumentError(_USAGE)
    first = Path(words[0])
    if _PYTHON.fullmatch(first.name) and (len(words) > 1):
        return _named_python(words)
    if words[0] in ("-m", "-c") or first.suffix in _ARCHIVES or _is_package(first):
        return _python((), words)
    if _JULIA.fullmatch(first.name):
        scripts = [Path(word) for word in words[1:] if word.endswith(".jl")]
        return Program("julia", _command(words), scripts[0] if scripts else None)
    return Program("command", _command(words))


def is_python(word: str) -> bool:
    """Whether a command is named as a Python is."""
    return _PYTHON.fullmatch(Path(word).name) is not None


def check_program(program: Program, words: Sequence[str]) -> None:
    """Check that the program is on this machine.

    Raises:
        InvalidArgumentError: It would be read from standard input.
        FileError: It is not; the message has its name and where it was looked for.
        RequirementError: A Julia program would not find our Julia package.
    """
    if _reads_input(words):
        raise InvalidArgumentError(
            f"{shlex.join(words)!r} reads its program from standard input, which is empty for the "
            "programs of a run; save it in a file, and name that"
        )
    if program.kind == "python":
        if program.path is not None:
            _check_script(program.path)
        if program.module is not None:
            _check_module(program.module)
        return
    if shutil.which(words[0]) is not None:
        if program.kind == "julia":
            package_folder()
        return
    named = Path(words[0])
    here = f"the folder {Path.cwd()}" if named.name != words[0] else "a folder of PATH"
    if os.path.exists(named):  # noqa: PTH110 - false for a name that is too long
        raise FileError(
            f"{words[0]!r} is neither a .py file nor executable; run: chmod +x "
            f"{shlex.quote(words[0])}, or if it is Python's, put python before it"
        )
    raise FileError(f"the command {words[0]!r} does not exist in {here}, or is not executable")


def _reads_input(words: Sequence[str]) -> bool:
    """Whether an interpreter, or a shell, is given no program but standard input."""
    name, rest = Path(words[0]).name, words[1:]
    if _PYTHON.fullmatch(name):
        rest = _after_options(rest, _OPTION, _WITH_VALUE)
    elif name in _SHELLS:
        rest = _after_options(rest, _SHELL_OPTION)
    elif not _JULIA.fullmatch(name):
        return False
    return not rest or rest[0] == "-"


def _after_options(
    words: Sequence[str], option: re.Pattern[str], with_value: Collection[str] = ()
) -> Sequence[str]:
    """The words from the first that is neither an option of an interpreter nor its value."""
    while words and (words[0] in with_value or option.fullmatch(words[0])):
        words = words[2 if words[0] in with_value else 1 :]
    return words


def _named_python(words: Sequence[str]) -> Program:
    """What ``python ...`` is: this Python's program, or a command if it is another Python's."""
    name = Path(words[0])
    path = shutil.which(words[0])
    bare = name.name == words[0]
    same = path is not None and _same_python(Path(path))
    of_other_version = "." in name.name and name.name != f"python3.{sys.version_info.minor}"
    rest = _after_options(words[1:], _OPTION, _WITH_VALUE)
    has_program = rest and (not rest[0].startswith("-") or (rest[0] in ("-m", "-c") and rest[1:]))
    if not has_program or not (same or (bare and not of_other_version)):
        note = (
            f"{words[0]} is not the Python of pyreactant, {sys.executable}, so it runs as any "
            "command: pass its processes to jax.distributed.initialize()"
        )
        return Program("command", _command(words), note="" if same else note)
    note = ""
    if not same and path is not None:
        note = (
            f"{words[0]} means {sys.executable}, with which pyreactant runs; name {path} with its "
            "path to use that one"
        )
    return replace(_python(words[1 : len(words) - len(rest)], rest), note=note)


def _python(options: Sequence[str], words: Sequence[str]) -> Program:
    path = None if words[0] in ("-m", "-c") else Path(words[0])
    argv = (sys.executable, *options, "-m", "pyreactant.process.supervised", *words)
    return Program("python", argv, path, words[1] if words[0] == "-m" else None)


def _command(words: Sequence[str]) -> tuple[str, ...]:
    return (sys.executable, "-m", "pyreactant.process.supervised.command", *words)


def _same_python(path: Path) -> bool:
    """Whether an executable is of this Python's environment; both may be links."""
    mine = Path(sys.executable)
    return path.parent.resolve() == mine.parent.resolve() and path.resolve() == mine.resolve()


def _is_package(path: Path) -> bool:
    """Whether it is a folder to run; one without __main__.py only if no command has its name."""
    if os.path.exists(path / "__main__.py"):  # noqa: PTH110 - false for a name that is too long
        return True
    is_folder = os.path.isdir(path)  # noqa: PTH112
    return is_folder and not _JULIA.fullmatch(path.name) and shutil.which(path) is None


def _check_module(name: str) -> None:
    """Look for the module's outermost package, which imports nothing."""
    package = name.partition(".")[0]
    if not package:
        raise FileError(
            f"the module {name!r} has a relative name, which needs a package; name it in full, "
            f"such as PACKAGE{name}"
        )
    try:
        spec = PathFinder.find_spec(package, [str(Path.cwd())]) or find_spec(package)
    except (ImportError, ValueError):  # of a module without a specification, such as __main__
        spec = None
    if spec is None:
        why = f"; for the script, leave -m out: {name}" if Path(name).is_file() else ""
        raise FileError(
            f"there is no module {package!r} in {Path.cwd()} or in {sys.executable}{why}"
        )


def _check_script(script: Path) -> None:
    try:
        exists = script.exists()
        empty = script.is_dir() and not (script / "__main__.py").exists()
    except OSError as error:
        raise FileError(f"the script {str(script)!r} cannot be read ({error.strerror})") from None
    if not exists:
        raise FileError(f"the script {str(script)!r} does not exist in {Path.cwd()}")
    if empty:
        raise FileError(f"{str(script)!r} is a folder without __main__.py, not a script")


_JAX = {
    "JAX_PLATFORMS": "PYREACTANT_PLATFORM",
    "JAX_NUM_CPU_DEVICES": "PYREACTANT_NUM_CPU_DEVICES",
    "JAX_LOCAL_DEVICE_IDS": LOCAL_DEVICES,
}
"""JAX's variables, with those of ours that say the same."""

_JAX_PROCESSES = (
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_COORDINATOR_PORT",
)
"""JAX's variables about the processes; those that a launcher set are for the supervisor."""

_FORCED = "xla_force_host_platform_device_count"


def program_environment(
    program: Program,
    settings: Mapping[str, str],
    go: Go,
    *,
    index: int,
    token: str,
    stall_timeout: float,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The whole environment of one program.

    Args:
        settings: The ``PYREACTANT_*`` variables that this run sets for it.
        token: Mark of the run's processes on this machine.
    """
    left_out = (SECRET, SECRET_FILE, PROFILE, *_JAX_PROCESSES)
    variables = {
        **{k: v for k, v in environ.items() if k not in left_out},
        "PYTHONUNBUFFERED": "1",
        **settings,
        TOKEN: token,
        COUNT: str(go.num_processes),
        INDEX: str(index),
        # For programs that call JAX's initialize only if these say that there are several.
        "JAX_NUM_PROCESSES": str(go.num_processes),
        "JAX_PROCESS_ID": str(index),
        "PYREACTANT_RESTART_COUNT": str(go.restarts),
        STALL_TIMEOUT: f"{min(stall_timeout, 1e6):g}",  # JAX and Julia take no infinity
    }
    if go.coordinator:
        variables |= {COORDINATOR: go.coordinator, "JAX_COORDINATOR_ADDRESS": go.coordinator}
        variables |= around_proxies(go.coordinator, variables)
    variables |= _for_jax(variables, settings, environ)
    if program.kind == "julia":
        variables |= for_julia(variables)
    return variables


def _for_jax(
    variables: Mapping[str, str], settings: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """JAX's own variables; the user's stay unless an option of this run says otherwise."""
    new = {}
    for name, ours in _JAX.items():
        value = variables.get(ours)
        if value and (ours in settings or not environ.get(name)):
            new[name] = _jax_platforms(value) if name == "JAX_PLATFORMS" else value
    if _FORCED in environ.get("XLA_FLAGS", ""):
        new.pop("JAX_NUM_CPU_DEVICES", None)  # JAX refuses a second setting
    return new


def _jax_platforms(platform: str) -> str:
    """JAX's name of a platform; an accelerator has the CPU beside it, as by default."""
    if platform == "gpu":  # with "gpu" JAX would insist on CUDA and ROCm
        platform = "rocm" if Path("/dev/kfd").exists() else "cuda"
    return platform if platform == "cpu" else f"{platform},cpu"


def for_julia(variables: Mapping[str, str]) -> dict[str, str]:
    """What lets ``using PyReactant`` find our package, and a PythonCall this Python."""
    # An empty entry is Julia's own default path. The program's own project comes first. Ours has no
    # manifest and comes last: Julia does not look for what it needs in places that follow it.
    path = [variables.get("JULIA_LOAD_PATH", "")]
    new = {}
    with contextlib.suppress(PyReactantError):  # without a setup, that project has the packages
        place = find_place(variables)
        path.append(str(place.project))
        if place.depot and not variables.get("JULIA_DEPOT_PATH"):
            new["JULIA_DEPOT_PATH"] = place.depot
    new |= {
        "JULIA_LOAD_PATH": ":".join([*path, str(package_folder())]),
        "JULIA_CONDAPKG_BACKEND": variables.get("JULIA_CONDAPKG_BACKEND") or "Null",
        "JULIA_PYTHONCALL_EXE": variables.get("JULIA_PYTHONCALL_EXE") or sys.executable,
    }
    may_have_gpus = variables.get("PYREACTANT_PLATFORM") not in ("cpu", "tpu")
    if (
        may_have_gpus
        and not variables.get(LOCAL_DEVICES)
        and (count := facts.usable_gpus(variables))
    ):
        # Reactant must be told, or it asks the launcher.
        new[LOCAL_DEVICES] = ",".join(map(str, range(count)))
    return new
