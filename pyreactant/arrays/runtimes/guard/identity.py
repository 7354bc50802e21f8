"""What a value is, as a text that is equal on every process.

The `repr` of a function holds its address, and a set of texts has another order in each process.
"""

import dataclasses
import enum
import functools
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ....base.errors import InvalidArgumentError
from ...tree import Trees
from .digests import digest_of, values_digest

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
_ADDRESS = re.compile(r"\b0x[0-9a-f]{4,}", re.IGNORECASE)


def identity(value: Any, where: str) -> str:
    """A text that is equal for values that are the same on two processes.

    Functions are told apart by module, name, code, closure and defaults; dataclasses by their
    fields; other objects by their `repr`, or by their attributes if they define `__eq__`.

    Args:
        value: Any value, such as a static value of a program.
        where: What the value is, for the message.

    Raises:
        InvalidArgumentError: An object in it equals only itself, such as an open file.

    Examples:
        >>> identity((1, frozenset({"b", "a"})), "static value 'names'")
        "tuple(1, frozenset{'a', 'b'})"
    """
    return _Reader().text(value, where)


def structure_text(trees: Trees, structure: Any, where: str) -> str:
    """The structure of a tree, with "*" for each leaf, as a text that is equal on every process.

    Raises:
        InvalidArgumentError: As `identity`, of what its nodes hold beside leaves.
    """
    reader = _Reader()

    def node(kind: type, data: Any, children: Sequence[str]) -> str:
        if kind is type(None):
            return "None"
        if kind in (tuple, list):
            return f"{kind.__name__}({', '.join(children)})"
        if kind is dict:
            pairs = zip(data, children, strict=True)
            return f"{{{', '.join(f'{reader.text(key, where)}: {child}' for key, child in pairs)}}}"
        held = reader.text(data, f"{where}: what {kind.__qualname__} holds")
        return f"{_name(kind)}[{held}]({', '.join(children)})"

    return trees.fold(structure, "*", node)


class _Reader:
    """Reads one value, each object in it once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bool], tuple[Any, str]] = {}  # by id; the object is kept alive

    def text(self, value: Any, where: str, loose: bool = False) -> str:
        """The text of a value; with `loose`, the type's name for an object that equals only itself.

        What a function holds is read so: a program is compared as text, too.
        """
        if type(value) in _PLAIN:
            return repr(value)
        key = (id(value), loose)
        if key not in self._known:
            self._known[key] = (value, "(itself)")
            self._known[key] = (value, self._read(value, where, loose))
        return self._known[key][1]

    def _read(self, value: Any, where: str, loose: bool) -> str:
        kind = _name(type(value))
        if isinstance(value, enum.Enum):
            return f"{kind}.{value.name or value.value!r}"
        if isinstance(value, type):
            return _name(value)
        if isinstance(value, ModuleType):
            return value.__name__
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(np.asarray(value), kind, where, loose)
        if hasattr(value, "shape") and hasattr(value, "dtype"):  # its values may be elsewhere
            return f"{kind}({value.dtype}{tuple(value.shape)})"
        parts = self._parts(value, where, loose)
        return self._object(value, where, loose) if parts is None else f"{kind}{parts}"

    def _array(self, array: np.ndarray, kind: str, where: str, loose: bool) -> str:
        held = (
            self._each(array.flat, where, loose) if array.dtype.hasobject else values_digest(array)
        )
        return f"{kind}({array.dtype}{array.shape} {held})"

    def _parts(self, value: Any, where: str, loose: bool) -> str | None:
        """What a container, a number, a text or a function consists of; None for other objects."""
        if isinstance(value, (set, frozenset)):
            return f"{{{', '.join(sorted(self.text(item, where, loose) for item in value))}}}"
        if isinstance(value, (tuple, list)):
            return f"({self._each(value, where, loose)})"
        if isinstance(value, Mapping):
            pairs = [
                f"{self.text(k, where, loose)}: {self.text(v, f'{where}[{k!r}]', loose)}"
                for k, v in value.items()
            ]
            return f"{{{', '.join(sorted(pairs))}}}"
        for base in (str, bytes, int, float, complex):
            if isinstance(value, base):
                return f"({base.__repr__(value)})"
        if dataclasses.is_dataclass(value):
            return self._attributes(value, _compared(value), where, loose)
        return self._function(value, where)

    def _function(self, value: Any, where: str) -> str | None:
        """A callable that has a name, or wraps one that has; None for other objects."""
        if isinstance(value, FunctionType):
            closed = (value.__defaults__, value.__kwdefaults__, _cells(value))
            parts = [self._code(value.__code__, where), self.text(closed, where, loose=True)]
            return f" {_name(value)} {digest_of(parts):016x}"
        if isinstance(value, functools.partial):
            inner = (value.func, value.args, value.keywords)
            return f"({self.text(inner, where, loose=True)})"
        if isinstance(value, (MethodType, BuiltinFunctionType)):
            owner = self.text(value.__self__, where, loose=True)
            inside = value.__func__ if isinstance(value, MethodType) else value.__name__
            return f"({self.text(inside, where)} of {owner})"
        if isinstance(value, np.ufunc):
            return f" {value.__name__}"
        if callable(value) and hasattr(value, "__wrapped__"):  # such as what jax.jit returns
            return f"({self.text(value.__wrapped__, where, loose=True)})"
        if callable(value) and hasattr(value, "__qualname__"):
            return f" {_name(value)}"
        return None

    def _code(self, code: CodeType, where: str) -> str:
        constants = [
            self._code(c, where) if isinstance(c, CodeType) else self.text(c, where, loose=True)
            for c in code.co_consts
        ]
        return f"{code.co_code.hex()} {code.co_names} {constants}"

    def _object(self, value: Any, where: str, loose: bool) -> str:
        """An object by its `repr` if that holds no address, or by its attributes."""
        kind: Any = type(value)
        if kind.__repr__ is not object.__repr__ and not isinstance(value, io.IOBase):
            text = repr(value)
            if not _ADDRESS.search(text):
                return text
        if kind.__eq__ is not object.__eq__ and hasattr(value, "__dict__"):
            return f"{_name(kind)}{self._attributes(value, sorted(vars(value)), where, loose)}"
        if loose:
            return _name(kind)
        raise InvalidArgumentError(
            f"{where} must be something that the processes can compare, got an object of type "
            f"{_name(kind)}, which equals only itself; give a number, a text, a function or a "
            "tuple of these, make its type a frozen dataclass, or let the function close over it"
        )

    def _each(self, values: Iterable[Any], where: str, loose: bool) -> str:
        return ", ".join(
            self.text(value, f"{where}[{number}]", loose) for number, value in enumerate(values)
        )

    def _attributes(self, value: Any, names: Iterable[str], where: str, loose: bool) -> str:
        held = (
            f"{name}={self.text(getattr(value, name, None), f'{where}.{name}', loose)}"
            for name in names
        )
        return f"({', '.join(held)})"


def _name(value: Any) -> str:
    module, name = getattr(value, "__module__", None), str(value.__qualname__)
    return name if module in (None, "builtins") else f"{module}.{name}"


def _compared(value: Any) -> list[str]:
    """The fields of a dataclass that `==` compares."""
    return [field.name for field in dataclasses.fields(value) if field.compare]


def _cells(function: FunctionType) -> tuple[Any, ...]:
    """The values of the variables that a function closes over; `...` for one not yet set."""

    def content(cell: Any) -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            return ...

    return tuple(map(content, function.__closure__ or ()))
