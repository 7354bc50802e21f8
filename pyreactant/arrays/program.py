"""Program: one computation by name, with a body for each runtime and a NumPy oracle."""

import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, overload

from ..base.errors import InvalidArgumentError
from ..base.imports import importing, users_place
from . import process_runtime
from .domain import Domain
from .dtypes import as_dtype
from .inputs import entries

Body = str | Callable[..., Any]

_NAME = r"[^\W\d][\w!]*"
_OPERATOR = r"[^\w\s.:,;'\"`(){}\[\]#@$?\\]{1,3}|\\"
_JULIA = re.compile(rf"{_OPERATOR}|({_NAME}\.)+({_NAME}|{_OPERATOR})")


@dataclass(frozen=True, slots=True)
class Program:
    """A pure function of arrays, the same in every runtime.

    A program can be called with placed arrays; it then compiles at the first call for such
    arguments. Between processes and machines programs travel as names, never as code: a worker
    imports what is installed. The bodies of a program that has a name itself, such as
    "mymodule:double" in a cross-check, may be any functions. Where you give the object, as to
    `pyreactant.crosscheck` in Python, each body must be a name or a function that has one.

    Args:
        name: Its name in reports.
        jax: The JAX body: "package.module:function", "path/to/file.py:function" or a function.
        julia: The Julia body, "Module.function", "Module.Submodule.function", or an operator
            such as "*". Its arrays have their axes in Python's order, counted from 1; 0-d arrays
            are numbers.
        oracle: A NumPy body with the same arguments, given as `jax` is.
        julia_project: Folder of the Julia project that provides the Julia body's module; None for
            Julia's standard libraries and pyreactant's own programs.
        inputs: Shape of each argument in a cross-check, in whole numbers and in "n" or multiples
            such as "4n", where n is the size of the run; its elements are random numbers in
            [-1, 1). An `Integers` or `Uniform` in its place has other numbers, and a dict is an
            argument that is a dict. A dict of all arguments has their names, in order.
        out_dtypes: Element type of each result in a cross-check; () expects what the oracle's
            results imply (docs/crosscheck.md).
        stablehlo: Path of a StableHLO module as text, in place of the JAX body. The arguments'
            arrays, in order, are those of its function @main, with the sizes of the file.
        domain: What the program does with its elements, such as Domain(moves=True), and which
            harder inputs it takes in a cross-check. None states nothing.

    Raises:
        InvalidArgumentError: A name or a shape has another form, or there are two JAX bodies.
        DTypeError: `out_dtypes` has something else than element types.

    Examples:
        >>> double = pr.Program("double", jax=lambda x: 2 * x)
        >>> float(double(pr.device_put(np.ones((8, 8), np.float32), sharding)).gather().sum())
        128.0
    """

    name: str
    jax: Body | None = None
    julia: str | None = None
    oracle: Body | None = None
    julia_project: str | None = None
    inputs: Any = ()
    out_dtypes: tuple[str, ...] = ()
    stablehlo: str | None = None
    domain: Domain | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidArgumentError(f"Program: name must be text, got {self.name!r}")
        for field in ("jax", "oracle"):
            body = getattr(self, field)
            named = isinstance(body, str) and all(body.rpartition(":"))
            if body is not None and not named and not callable(body):
                raise InvalidArgumentError(
                    f"Program {self.name!r}: {field}= must be a function, or a name such as "
                    f"'jax.numpy:matmul' (package.module:function), got {body!r}"
                )
        body = self.julia
        if body is not None and not (isinstance(body, str) and _JULIA.fullmatch(body)):
            raise InvalidArgumentError(
                f"Program {self.name!r}: julia= must be a name such as 'Module.function' or an "
                f"operator such as '*', got {body!r}; put the function in a module of a Julia "
                "project and give its name (Base.sum, for what Julia has without a module)"
            )
        _check_file(self)
        project = self.julia_project
        if project is not None and not (isinstance(project, str) and project):
            raise InvalidArgumentError(
                f"Program {self.name!r}: julia_project= must be the path of a folder as text, got "
                f"{project!r}"
            )
        object.__setattr__(self, "inputs", entries(self.name, self.inputs))
        if isinstance(self.out_dtypes, str) or not isinstance(self.out_dtypes, (tuple, list)):
            raise InvalidArgumentError(
                f"Program {self.name!r}: out_dtypes= must be one element type per result, such as "
                f"('float32', 'int32'), got {self.out_dtypes!r}"
            )
        names = tuple(as_dtype(dtype).name for dtype in self.out_dtypes)
        object.__setattr__(self, "out_dtypes", names)
        if self.domain is not None and not isinstance(self.domain, Domain):
            raise InvalidArgumentError(
                f"Program {self.name!r}: domain= must be a pyreactant.Domain, such as "
                f"Domain(moves=True), got {self.domain!r}"
            )

    @property
    def __name__(self) -> str:
        """The name of the JAX body, if it is a function; otherwise the program's."""
        return function_name(self.jax) if callable(self.jax) else self.name

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Run the program on placed arrays; see `pyreactant.compile`. Collective.

        The first call for arguments of these shapes, dtypes, shardings and structure compiles;
        globals and closures are read then, as in `jax.jit`. It compiles again if the program's
        name leads to another function, as after `importlib.reload`.

        Args:
            *args: Placed arrays, or trees of them.
            **static: Keyword arguments that are part of the program (hashable values).
        """
        return process_runtime.find().call(self, args, static)


class _Docstring:
    """The docstring of `Program` for the class, and that of its JAX body for a program."""

    def __init__(self, own: str | None) -> None:
        self._own = own

    def __get__(self, program: Program | None, owner: type | None = None) -> str | None:
        body = None if program is None else program.jax
        return self._own if body is None or isinstance(body, str) else body.__doc__


Program.__doc__ = _Docstring(Program.__doc__)  # type: ignore[assignment]


def _check_file(program: Program) -> None:
    path = program.stablehlo
    if path is not None and not (isinstance(path, str) and path):
        raise InvalidArgumentError(
            f"Program {program.name!r}: stablehlo= must be the path of a file as text, such as "
            f"'model.mlir', got {path!r}"
        )
    if path is not None and program.jax is not None:
        raise InvalidArgumentError(
            f"Program {program.name!r}: jax= and stablehlo= are both bodies for the JAX runtime; "
            "give one of them"
        )


@overload
def program(function: Callable[..., Any], /) -> Program: ...


@overload
def program(
    *,
    name: str | None = None,
    julia: str | None = None,
    oracle: Body | None = None,
    julia_project: str | None = None,
    inputs: Any = (),
    out_dtypes: tuple[str, ...] = (),
    domain: Domain | None = None,
) -> Callable[[Callable[..., Any]], Program]: ...


def program(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    julia: str | None = None,
    oracle: Body | None = None,
    julia_project: str | None = None,
    inputs: Any = (),
    out_dtypes: tuple[str, ...] = (),
    domain: Domain | None = None,
) -> Any:
    """Make a Program of a Python function; a decorator, with or without arguments.

    Args:
        function: The JAX body.
        name: Name in reports; the function's own by default.
        julia: See `Program`.
        oracle: See `Program`.
        julia_project: See `Program`.
        inputs: See `Program`.
        out_dtypes: See `Program`.
        domain: See `Program`.

    Examples:
        >>> @pr.program(julia="Models.step", oracle=lambda x, w: np.tanh(x @ w))
        ... def step(x, w):
        ...     return jnp.tanh(x @ w)
        >>> step(x, x).shape
        (8, 8)
    """

    def decorate(function: Callable[..., Any]) -> Program:
        return Program(
            name or function_name(function),
            jax=function,
            julia=julia,
            oracle=oracle,
            julia_project=julia_project,
            inputs=inputs,
            out_dtypes=out_dtypes,
            domain=domain,
        )

    return decorate if function is None else decorate(function)


def function_name(function: Any) -> str:
    """A function's name for reports; that of the inner function for a partial."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", None) or type(function).__name__)


def body_name(body: Body | None) -> str:
    """A body in the words of a message: its name, or that of the function."""
    return function_name(body) if callable(body) else str(body)


def with_names(program: Program) -> Program:
    """The program with names in place of functions, and a file's whole path, so that it travels.

    Raises:
        InvalidArgumentError: A function cannot be found by a name: a lambda, a partial, a method,
            or a function inside another.
    """
    if program.stablehlo is not None:
        path = str(Path(program.stablehlo).expanduser().resolve())
        program = replace(program, stablehlo=path)
    for field in ("jax", "oracle"):
        if callable(getattr(program, field)):
            name: Any = _travelling_name(program, field)
            program = replace(program, **{field: name})
    return program


def _travelling_name(program: Program, field: str) -> str:
    function = getattr(program, field)
    module = getattr(function, "__module__", None)
    path = getattr(function, "__qualname__", "")
    if module == "__main__":
        module = getattr(sys.modules["__main__"], "__file__", None)
    if module and path and "<" not in path:
        name = f"{module}:{path}"
        try:
            if find_object(name) is function or _wraps(program, find_object(name), field):
                return name
            if str(module).endswith(".py"):  # the script, which another process imports as a file
                return name
        except (ImportError, AttributeError, OSError):
            pass
    raise InvalidArgumentError(
        f"Program {program.name!r}: {field}={function!r} has no name by which another process "
        "finds it; define it with def at the top of a module or a script, and without partial"
    )


def _wraps(program: Program, value: Any, field: str) -> bool:
    """Whether a decorator replaced the function by this program."""
    return isinstance(value, Program) and getattr(value, field) == getattr(program, field)


def load(program: Program, field: str) -> Callable[..., Any]:
    """The function of a program's field; imported if the field is a name.

    Raises:
        InvalidArgumentError: The program has no such body, or it cannot be imported.
    """
    body = getattr(program, field)
    if body is None:
        raise InvalidArgumentError(
            f"Program {program.name!r} has no {field} body; give {field}=, a function or "
            "'package.module:function'"
        )
    if not isinstance(body, str):
        function: Callable[..., Any] = body
        return function
    with importing(f"Program {program.name!r}: cannot import {field}={body!r}"):
        function = find_object(body)
    if isinstance(function, Program):  # made by @pyreactant.program
        return load(function, field)
    if not callable(function):
        raise InvalidArgumentError(f"Program {program.name!r}: {body!r} is not a function")
    return function


def find_object(name: str) -> Any:
    module, _, path = name.rpartition(":")
    if module.endswith(".py"):
        return functools.reduce(getattr, path.split("."), _import_file(module))
    imported = _import(module)
    try:
        return functools.reduce(getattr, path.split("."), imported)
    except AttributeError as error:
        if users_place(error):  # raised by a line of the user's
            raise
        # A module of Python, or of a package, may have the name of the user's.
        file = getattr(imported, "__file__", None) or "a module that is built in"
        example = f"DIR/{module.replace('.', '/')}.py:{path}"
        raise AttributeError(
            f"{error}; Python imported {file}; for another file of this name write its path, such "
            f"as {example}, or rename it"
        ) from None


def _import(module: str) -> ModuleType:
    try:
        return sys.modules.get(module) or importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            file = f"{module.replace('.', '/')}.py"
            error.msg += f"; start where it can be imported, or name its file, such as {file}:NAME"
        raise


def _import_file(path: str) -> ModuleType:
    """A script as a module, once per process; its folder is importable, as when it is run."""
    file = Path(path).expanduser().resolve()
    main = sys.modules.get("__main__")
    if getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == file:  # type: ignore[union-attr]
        return main  # type: ignore[return-value]
    name = str(file)  # as in the messages of Python; the names of its functions work elsewhere, too
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ImportError(f"there is no file {path!r}")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
