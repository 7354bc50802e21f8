"""What a cross-check is asked for, as a file that every process of every runtime reads."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from .. import __version__
from .._dtypes import as_dtype
from .._errors import FileError, InvalidArgumentError, PyReactantError
from .._mesh import Mesh
from .._program import Program
from .._sharding import Axes
from ._files import SCHEMA, check_version, read_json, write_json
from ._layout import Spec


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, alike on every runtime.

    Attributes:
        programs: Names of built-in programs, "package.module:object", or programs.
        size: Of each program, in its own terms; None is the program's own.
        dtype: Element type; None is the program's own first.
        seed: Of the inputs.
        mesh: None is all devices, as square as can be.
        specs: Of the first inputs, which choose among the layouts that a program takes; None
            is its first one.
        repeat: Calls to time, 1 or more.
        id: Of this one cross-check, so that files of an older one are known.
    """

    programs: tuple[str | Program, ...]
    size: int | None = None
    dtype: str | None = None
    seed: int = 0
    mesh: Mesh | None = None
    specs: tuple[Spec, ...] | None = None
    repeat: int = 3
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        if not self.programs:
            raise InvalidArgumentError(
                "nothing to cross-check: name programs, or all of them with --all "
                "(pyreactant crosscheck --list says which there are)"
            )
        names = self.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidArgumentError(f"each program once, got {', '.join(twice)} twice")
        for name, least in (("size", 1), ("seed", 0), ("repeat", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidArgumentError(f"{name} must be {least} or more, got {value}")
        if self.dtype is not None:
            as_dtype(self.dtype)

    @property
    def names(self) -> tuple[str, ...]:
        """What reports call the programs."""
        return tuple(p.name if isinstance(p, Program) else p for p in self.programs)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {
            "schema": SCHEMA,
            "pyreactant": __version__,
            "id": self.id,
            "programs": [asdict(p) if isinstance(p, Program) else p for p in self.programs],
            "size": self.size,
            "dtype": self.dtype,
            "seed": self.seed,
            "mesh": self.mesh and self.mesh.to_dict(),
            "specs": self.specs and [[_plain(entry) for entry in spec] for spec in self.specs],
            "repeat": self.repeat,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Request":
        """The request that `to_dict` described.

        Raises:
            KeyError, TypeError, ValueError: It is no such description.
        """
        return cls(
            programs=tuple(p if isinstance(p, str) else _program(p) for p in data["programs"]),
            size=data["size"],
            dtype=data["dtype"],
            seed=data["seed"],
            mesh=data["mesh"] and Mesh.from_dict(data["mesh"]),
            specs=data["specs"] and tuple(tuple(map(_entry, s)) for s in data["specs"]),
            repeat=data["repeat"],
            id=data["id"],
        )


def write_request(request: Request, path: Path) -> None:
    """Write it for the processes to read.

    Raises:
        FileError: It cannot be written.
    """
    write_json(request.to_dict(), path)


def read_request(path: Path) -> Request:
    """What the processes are asked for.

    Raises:
        FileError: The file is missing, damaged, or of another version.
    """
    data = read_json(path, "a request of pyreactant crosscheck")
    check_version(data, path)
    try:
        return Request.from_dict(data)
    except PyReactantError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path}: not a request of pyreactant crosscheck ({error!r})") from None


def _plain(entry: Axes) -> Any:
    return list(entry) if isinstance(entry, tuple) else entry


def _entry(entry: Any) -> Axes:
    return tuple(entry) if isinstance(entry, list) else entry


def _program(data: Mapping[str, Any]) -> Program:
    known = {f.name for f in fields(Program)}
    return Program(**{key: _tuples(value) for key, value in data.items() if key in known})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
