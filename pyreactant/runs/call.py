"""What a job runs: a function that travels by its name, or a program with its arguments.

Its environment has a few variables of every login, and those that the user names.
"""

import ast
import importlib.util
import inspect
import os
import shutil
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.errors import (
    FileError,
    InvalidArgumentError,
    PyReactantError,
    RequirementError,
    StateError,
    argument,
)
from ..base.packages import is_library
from ..base.settings import COORDINATOR, COUNT, INDEX, SETTINGS
from .spec import Env, What

importing: str | None = None
"""The function whose file this worker imports now."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function by its name, or a program.

    Attributes:
        text: What runs, in a few words.
        root: Folder that must be on the path to import it; None for an installed module.
        file: The script that defines the function, or that is the program; None for a module.
        module: Name under which the function's module is imported; "" for a program.
        name: Name of the function in its module, such as "main"; "" for a program.
        program: The program and its arguments, as for ``pyreactant run``; () for a function.
        script: Position of `file` in `program`.
        kind: "function", "script", "module", "code" (of python -c), "julia" or "command".
    """

    text: str
    root: Path | None
    file: Path | None
    module: str = ""
    name: str = ""
    program: tuple[str, ...] = ()
    script: int = 0
    kind: str = "function"


def resolve(what: What) -> Call:
    """What runs, after the checks that this machine can make.

    Raises:
        InvalidArgumentError: The function cannot travel; the message says what to do.
        FileError: The file does not exist.
    """
    if isinstance(what, str):
        return _by_name(what)
    if callable(what):
        return _of_function(what)
    if (
        isinstance(what, Sequence)
        and what
        and what[0]
        and all(isinstance(word, str) for word in what)
    ):
        return _of_program(tuple(what))
    raise InvalidArgumentError(
        'a job runs a function, its name such as "train.py:main", or a program as a list of words '
        f'such as ["train.py", "--steps", "9"], got {what!r}'
    )


def _by_name(text: str) -> Call:
    if text.endswith(".jl"):
        return _of_program((text,))
    place, colon, name = text.rpartition(":")
    if not colon or not place or not all(part.isidentifier() for part in name.split(".")):
        raise InvalidArgumentError(
            f'a function is named as "FILE.py:NAME" or "MODULE:NAME", got {text!r}; a program is a '
            "list of words"
        )
    if place.endswith(".py"):
        file = Path(place).absolute()
        if not file.is_file():
            raise FileError(f"there is no file {place!r} in {Path.cwd()}")
        _check_defined(name.split(".")[0], file, place)
        return Call(f"{file.name}:{name}", file.parent, file, file.stem, name)
    return _in_module(place, name)


def _check_defined(name: str, file: Path, place: str) -> None:
    """Check that a file binds a name at its top level, from its source alone."""
    try:
        tree = parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        at, what = getattr(error, "lineno", None), getattr(error, "msg", error)
        where = f", line {at}," if at else ""
        raise InvalidArgumentError(f"{place}{where} is not valid Python: {what}") from None
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef) and (node.name, node.decorator_list) == (
            name,
            [],
        ):
            raise InvalidArgumentError(_RUNS_NOTHING.format(f"{place}:{name}"))
    bound = {name for node in _at_top_level(tree) for name in _names_bound(node)}
    bound |= {x for node in ast.walk(tree) if isinstance(node, ast.Global) for x in node.names}
    if name in bound or bound & {"*", "__getattr__"}:
        return
    functions = [x.name for x in tree.body if isinstance(x, _DEFINITIONS)]
    there = f"; it has {', '.join(functions[:5])}" if functions else ""
    raise InvalidArgumentError(f"{place} defines no {name}{there}")


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The parameters of a function; None if they are not known."""
    function = function.local if is_remote(function) else function  # type: ignore[attr-defined]
    try:
        # Not of what a decorator wraps, to which it may pass other arguments.
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None  # it is not written in Python


def signature_in(call: Call) -> inspect.Signature | None:
    """The parameters of a function, from the source of its file; None if that does not tell them.

    Nothing of the file runs: only whether a parameter has a default is taken over.
    """
    if call.file is None:
        return None
    tree = parse(call.file.read_bytes())
    bindings = [node for node in _at_top_level(tree) if call.name in _names_bound(node)]
    if len(bindings) != 1 or not isinstance(bindings[0], ast.FunctionDef):
        return None
    if bindings[0].decorator_list:
        return None  # it may take other arguments
    return _signature(bindings[0].args)


def _names_bound(node: ast.AST) -> set[str]:
    """The names that a node itself gives a value."""
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return {node.id}
    if isinstance(node, _IMPORTS):
        return {(x.asname or x.name).split(".")[0] for x in node.names}
    return set()


def _signature(given: ast.arguments) -> inspect.Signature:
    """That of a function with these parameters, each of whose defaults is None."""
    given.defaults = [ast.Constant(None) for _ in given.defaults]
    given.kw_defaults = [default and ast.Constant(None) for default in given.kw_defaults]
    whole = ast.fix_missing_locations(ast.Expression(ast.Lambda(given, ast.Constant(None))))
    return inspect.signature(eval(compile(whole, "", "eval")))  # noqa: S307 - of constants


def _at_top_level(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one whose names the module gets: not what functions and classes contain."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*_DEFINITIONS, ast.Lambda)):
            yield from _at_top_level(child)


def parse(text: bytes) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        SyntaxError, ValueError: It is not valid Python.
    """
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python prints them where the program runs
        return ast.parse(text)


_PARSING = threading.Lock()  # for Python 3.11: python/cpython#106905
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_RUNS_NOTHING = (
    "{} is async or a generator, so calling it runs nothing; pass a function that returns "
    "asyncio.run(...) or list(...) of it"
)


def _of_function(function: Callable[..., Any]) -> Call:
    function = function.local if is_remote(function) else function  # type: ignore[attr-defined]
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None) or ""
    if not name or not module or inspect.ismethod(function):
        raise InvalidArgumentError(
            f"a {type(function).__name__} has no name by which it can travel; define a function "
            "with def at the top level of a file"
        )
    if "<lambda>" in name or "<locals>" in name:
        kind = "is a lambda" if "<lambda>" in name else "is defined inside another function"
        raise InvalidArgumentError(
            f"a function travels by its name, but {name} {kind}; define it with def at the top "
            "level of a file"
        )
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidArgumentError(_RUNS_NOTHING.format(name))
    if module != "__main__":
        return _in_module(module, name)
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if spec is not None and spec.name != "__main__" and spec.parent:  # python -m package.module
        return _in_module(spec.name, name)
    if file is None or not Path(file).is_file() or "get_ipython" in vars(main):
        raise InvalidArgumentError(
            f"{name} is defined in a notebook, at a prompt or with python -c, where no file has "
            "it; write it to a file, for instance with %%writefile train.py, and import it or pass "
            f'"train.py:{name}"'
        )
    path = Path(file).resolve()
    return Call(f"{path.name}:{name}", path.parent, path, path.stem, name)


def _in_module(module: str, name: str) -> Call:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    origin = spec.origin if spec is not None else None
    if origin is None or not Path(origin).is_file():
        raise FileError(f"there is no module {module!r} here from which {name} could be imported")
    file = Path(origin).resolve()
    depth = module.count(".") + (file.name == "__init__.py")
    root = file.parents[depth]
    return Call(f"{module}:{name}", None if is_library(str(file)) else root, None, module, name)


def is_function(words: Sequence[str]) -> bool:
    """Whether the program of a command line is a function, FILE.py:NAME."""
    return ".py:" in words[0] and not Path(words[0]).exists()


def kind_of(words: Sequence[str]) -> str:
    """The kind of the program of a command line, as in `Call`."""
    from .supervisor.program import find_program

    if is_function(words):
        return "function"
    program = find_program(words)
    if program.kind != "python":
        return program.kind
    return "module" if program.module else "script" if program.path else "code"


def _of_program(words: tuple[str, ...]) -> Call:
    # The supervisor's modules take time.
    from .supervisor.program import check_program, find_program, is_python

    if words[0].endswith(".jl"):
        words = ("julia", *words)
    program = find_program(words)
    if program.kind == "python":  # without "python" and its options
        words = program.argv[program.argv.index("pyreactant.process.supervised") + 1 :]
        if words[0] == "-c":
            return Call("python -c", Path.cwd(), None, program=words, kind="code")
        if words[0] == "-m":
            return Call(" ".join(words[:2]), Path.cwd(), None, program=words, kind="module")
    script = words.index(str(program.path)) if program.kind == "julia" and program.path else 0
    stays = program.kind == "julia" or (program.kind == "command" and is_python(words[0]))
    if stays and os.sep in words[0]:
        words = (os.path.abspath(words[0]), *words[1:])  # noqa: PTH100 - a link may be a venv's
    if program.kind == "command":
        check_program(program, words)
        first = next((i for i, word in enumerate(words) if i and not word.startswith("-")), 0)
        if stays and first and words[first].endswith(".py") and Path(words[first]).is_file():
            script = first
    file = Path(words[script]).absolute()
    text = Path(words[script]).name
    if program.kind == "julia" and not script:  # such as julia -e CODE
        return Call(text, Path.cwd(), None, program=words, kind="julia")
    if program.kind == "command" and not script and (stays or os.sep not in words[0]):
        return Call(text, Path.cwd(), None, program=words, kind="command")
    if not file.exists():
        raise FileError(f"there is no program {words[script]!r} in {Path.cwd()}")
    kind = "script" if program.kind == "python" else program.kind
    return Call(text, file.parent, file, program=words, script=script, kind=kind)


def find_julia(name: str) -> str:
    """The executable of a Julia program: of the PATH, else that of `pyreactant setup`.

    Raises:
        RequirementError: There is no Julia here, or not our Julia package.
    """
    from ..julia.place import find_place, package_folder

    package_folder()
    if (executable := shutil.which(name)) is not None:
        return executable
    if os.sep in name:
        raise RequirementError(
            f"a Julia program needs {name}, which does not exist here or is not executable; name a "
            "Julia that the machines of the run have, or leave its path out"
        )
    try:
        return str(find_place().executable)
    except PyReactantError as error:
        raise RequirementError(
            f"a Julia program needs Julia, but {name!r} is not in PATH; install it from "
            f"https://julialang.org/downloads, or as follows: {error}"
        ) from None


def is_remote(value: Any) -> bool:
    """Whether a function was made remote; without an import of that module."""
    return (type(value).__module__, type(value).__name__) == (f"{__package__}.submit", "Remote")


def check_not_importing() -> None:
    """Check that this call does not come from the top level of a file that a worker imports.

    Raises:
        StateError: It does: the worker would start a job, whose workers start jobs.
    """
    if importing is not None:
        raise StateError(
            f"a job was started while a worker imports the file of {importing}: calls at the top "
            'level of that file must stand below `if __name__ == "__main__":`'
        )


_ROOT = Path(__file__).resolve().parent.parent.parent
"""The folder from which pyreactant is imported."""
_LOGIN = ("HOME", "PATH", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
_PREFIXES = ("LANG", "LC_", "XDG_", "NVIDIA_", "CUDA_")
_OURS = frozenset(name for name, setting in SETTINGS.items() if setting.reader == "tests") | {
    "PYREACTANT_DEBUG",
    "PYREACTANT_METADATA",
    "PYREACTANT_TPU_API",
}


_OF_THE_RUN = {COUNT, INDEX, COORDINATOR, "PYREACTANT_SECRET", "PYREACTANT_SECRET_FILE"}
_OF_THE_RUN |= {name for name, setting in SETTINGS.items() if setting.reader == "program"}
_OF_THE_RUN |= {"JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"}
"""Variables that say which process of which run this is."""


def chosen(env: Env) -> dict[str, str]:
    """The variables that the user names: values, or names whose values are taken from here.

    Raises:
        InvalidArgumentError: A variable is not set here, or is no text.
    """
    if env is None:
        return {}
    if isinstance(env, str):
        env = [env]
    env = env if isinstance(env, Mapping) else list(env)
    if ours := [name for name in env if name in _OF_THE_RUN]:
        raise InvalidArgumentError(
            f"{argument('env')} must not name {ours[0]}, which the run itself sets for each of its "
            "processes; leave it out, and choose processes and runtime by the target's settings"
        )
    if not isinstance(env, Mapping):
        absent = [name for name in env if name not in os.environ]
        if absent and "=" in absent[0]:  # the value may be a secret
            raise InvalidArgumentError(
                f"{argument('env')} must be the name of a variable, and has a value, too; set it "
                f"here, and name {absent[0].partition('=')[0]}"
            )
        if absent:
            raise InvalidArgumentError(
                f"{argument('env')} names {absent[0]}, which is not set here; set it, or leave it "
                "out"
            )
        return {name: os.environ[name] for name in env}
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or "=" in name:
            raise InvalidArgumentError(
                f"env= must be names, or a dict of text, got {name!r}: {type(value).__name__}"
            )
    return dict(env)


def of_login(*more: str) -> dict[str, str]:
    """The variables of this process that every job gets.

    Args:
        more: Further prefixes of names.
    """
    prefixes = (*_PREFIXES, *more)
    kept = {k: v for k, v in os.environ.items() if k in _LOGIN or k.startswith(prefixes)}
    kept |= {name: os.environ[name] for name in _OURS if name in os.environ}
    # Not sys.path, whose first folder is the script's: the job has its copy.
    parts = [] if Path(sysconfig.get_path("purelib")) == _ROOT else [str(_ROOT)]
    parts += filter(None, [os.environ.get("PYTHONPATH")])
    return {**kept, **({"PYTHONPATH": os.pathsep.join(parts)} if parts else {})}
