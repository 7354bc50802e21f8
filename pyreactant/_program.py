"""Program: one computation by name, with a body for each runtime and a NumPy oracle."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Program:
    """A pure function of arrays, the same in every runtime.

    Programs travel as names, never as code: what runs on a worker is what is installed
    there.

    Args:
        name: What reports call it.
        jax: The JAX body, "package.module:function".
        julia: The Julia body, "Module.function", or an operator such as "*".
        oracle: A NumPy body with the same arguments, "package.module:function".

    Raises:
        InvalidArgumentError: A name is not of that form.
    """

    name: str
    jax: str | None = None
    julia: str | None = None
    oracle: str | None = None

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
