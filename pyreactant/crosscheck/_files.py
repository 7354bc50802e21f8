"""Files that a cross-check writes and reads: whole ones, of this version."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import __version__
from .._errors import FileError

SCHEMA = 1
"""Of the files that a cross-check writes; another number cannot be read."""


def write_json(data: Any, path: Path) -> None:
    """Write plain data, whole or not at all.

    Raises:
        FileError: It cannot be written.
    """
    write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write a file, whole or not at all.

    Raises:
        FileError: It cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # What a program printed may be no valid text.
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
        partial.replace(path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        partial.unlink(missing_ok=True)


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The object in a JSON file; `what` says in the message what it should be.

    Raises:
        FileError: There is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise FileError(
            f"{path}: truncated or damaged, so not {what}; copy it again, or run again"
        ) from None
    if not isinstance(found, dict):
        raise FileError(f"{path}: not {what}")
    return found


def check_version(data: Mapping[str, Any], path: Path) -> None:
    """Whether a file of a cross-check was written by this version.

    Raises:
        FileError: It was not: programs and inputs of another version may be others.
    """
    found = data.get("schema"), data.get("pyreactant")
    if found != (SCHEMA, __version__):
        raise FileError(
            f"{path}: written by pyreactant {found[1]} (format {found[0]}), and this is "
            f"{__version__} (format {SCHEMA}); run it again with this version"
        )
