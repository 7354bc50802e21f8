"""Program: one computation by name, with a body for each runtime and a NumPy oracle."""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._errors import InvalidArgumentError

_NAME = r"[^\W\d][\w!]*"
_OPERATOR = r"[^\w\s.:,;'\"`(){}\[\]#@$?\\]{1,3}|\\"
_JULIA = re.compile(rf"{_OPERATOR}|({_NAME}\.)+({_NAME}|{_OPERATOR})")


@dataclass(frozen=True, slots=True)
class Program:
    """A pure function of arrays, the same in every runtime.

    Programs travel as names, never as code: a worker runs what is installed there.

    Args:
        name: Its name in reports.
        jax: The JAX body, "package.module:function".
        julia: The Julia body, "Module.function", "Module.Submodule.function", or an operator
            such as "*". Its arrays have their axes in Python's order, counted from 1; 0-d arrays
            are numbers.
        oracle: A NumPy body with the same arguments, "package.module:function".
        julia_project: Folder of the Julia project that provides the Julia body's module; None for
            Julia's standard libraries and pyreactant's own programs.
        inputs: Shape of each argument in a cross-check, in whole numbers and in "n" or multiples
            such as "4n", where n is the size of the run.

    Raises:
        InvalidArgumentError: A name or a shape has another form.
    """

    name: str
    jax: str | None = None
    julia: str | None = None
    oracle: str | None = None
    julia_project: str | None = None
    inputs: tuple[tuple[str | int, ...], ...] = ()

    def __post_init__(self) -> None:
        for field in ("jax", "oracle"):
            body = getattr(self, field)
            if body is None:
                continue
            if not isinstance(body, str) or body.count(":") != 1 or not all(body.split(":")):
                raise InvalidArgumentError(
                    f"Program {self.name!r}: {field}= must be a name such as "
                    f"'jax.numpy:matmul' (package.module:function), got {body!r}; put the "
                    "function in a module and give its name"
                )
        body = self.julia
        if body is not None and not (isinstance(body, str) and _JULIA.fullmatch(body)):
            raise InvalidArgumentError(
                f"Program {self.name!r}: julia= must be a name such as 'Module.function' or an "
                f"operator such as '*', got {body!r}; put the function in a module of a Julia "
                "project and give its name (Base.sum, for what Julia has without a module)"
            )
        project = self.julia_project
        if project is not None and not (isinstance(project, str) and project):
            raise InvalidArgumentError(
                f"Program {self.name!r}: julia_project= must be the path of a folder as text, got "
                f"{project!r}"
            )
        object.__setattr__(self, "inputs", _shapes(self.name, self.inputs))


def _shapes(name: str, inputs: Any) -> tuple[tuple[str | int, ...], ...]:
    """The shapes as tuples, so that a program can be the key of a cache."""
    if isinstance(inputs, (tuple, list)) and all(isinstance(s, (tuple, list)) for s in inputs):
        shapes = tuple(map(tuple, inputs))
        if all(_is_size(entry) for shape in shapes for entry in shape):
            return shapes
    raise InvalidArgumentError(
        f"Program {name!r}: inputs= must be one shape per argument, of whole numbers from 1 and "
        f"'n' or multiples such as '4n', for instance (('n', '4n'), ('4n',)), got {inputs!r}"
    )


def _is_size(entry: Any) -> bool:
    if isinstance(entry, str):
        return re.fullmatch(r"([1-9][0-9]*)?n", entry) is not None
    return isinstance(entry, int) and not isinstance(entry, bool) and entry > 0


def load(program: Program, field: str) -> Callable[..., Any]:
    """Import the function that a program's field names.

    Raises:
        InvalidArgumentError: The program has no such body, or it cannot be imported.
    """
    body = getattr(program, field)
    if body is None:
        raise InvalidArgumentError(
            f"Program {program.name!r} has no {field} body; give {field}='package.module:function'"
        )
    module, _, path = body.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(
            f"Program {program.name!r}: cannot import {field}={body!r}: {error}"
        ) from error
    if not callable(found):
        raise InvalidArgumentError(f"Program {program.name!r}: {body!r} is not a function")
    return found
