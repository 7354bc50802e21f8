"""TOML files of Julia projects: read, and edited without changing anything else in them."""

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import FileError

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def load(path: Path) -> dict[str, Any]:
    """The content of a file; empty if the file does not exist.

    Raises:
        FileError: The file cannot be read, or is not TOML; the message has the line.
    """
    return parse(path, read(path))


def read(path: Path) -> str:
    """The text of a file, with its own line endings; empty if the file does not exist.

    Raises:
        FileError: The file cannot be read, or is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _bad(path, line, f"byte {data[error.start]:#04x} is not UTF-8") from None


def parse(path: Path, text: str) -> dict[str, Any]:
    """The content of a text.

    Raises:
        FileError: The text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why = str(error)
        at = re.search(r" ?\(at (?:line (\d+), column \d+|end of document)\)$", why)
        line = int(at[1]) if at and at[1] else text.count("\n") + 1
        raise _bad(path, line, why[: at.start()] if at else why) from None
    except RecursionError:
        raise _bad(path, 1, "it is nested too deeply") from None


def edit(
    path: Path, text: str, change: "Callable[[TOMLDocument | dict[str, Any]], object]", by_hand: str
) -> str:
    """The text after a change; comments, order and spaces stay.

    Args:
        path: The file, for messages.
        text: The text of the file.
        change: The change. It is applied to tomlkit's document and to a plain dictionary of the
            same content; the results must be equal, which proves that nothing else changed.
        by_hand: What a person would write into the file, for messages.

    Raises:
        FileError: The text is not TOML, or tomlkit cannot edit it.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    expected = parse(path, text)
    change(expected)
    try:
        document = tomlkit.parse(text)
        change(document)
        edited = tomlkit.dumps(document)
        proven = same(_filled(tomllib.loads(edited)), _filled(expected))
    except (TOMLKitError, tomllib.TOMLDecodeError, TypeError, ValueError, LookupError):
        proven = False
    if not proven:
        raise FileError(
            f"{path} cannot be edited without changing something else in it; "
            f"write it by hand: {by_hand}"
        )
    return edited


def same(one: Any, other: Any) -> bool:
    """Whether two TOML values are equal; nan equals nan."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and bool(one == other)


def _filled(content: dict[str, Any]) -> dict[str, Any]:
    """The content without empty tables: tomlkit drops a table with its last dotted key."""
    return {key: value for key, value in content.items() if value != {}}


def _bad(path: Path, line: int, why: str) -> FileError:
    return FileError(f"{path}, line {line}: must be TOML, but {why}; fix that line, then try again")
