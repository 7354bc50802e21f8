"""A folder of steps: which folders in it are whole checkpoints, ours or Orbax's.

Nothing here needs NumPy, so that a list of steps comes at once.
"""

import contextlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import FileError, InvalidArgumentError

METADATA = "_METADATA"
ITEMS = ("state", "default", "items", "pytree")
"""Names of the item in a step: ours and MaxText's, and those of Orbax's interfaces."""

_SHOWN = 20
"""Names that a message has."""

_UNREADABLE = "cannot be read ({}); let its files be read by this user, or name another folder"


def local(folder: str | os.PathLike[str]) -> Path:
    """The whole path of a folder on a disk.

    Raises:
        FileError: It is a URL, or no path.
        InvalidArgumentError: It is neither text nor a `Path`.
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise InvalidArgumentError(f"a folder must be text or a Path, got {folder!r:.100}")
    _refuse_bucket(folder)
    try:
        return Path(folder).resolve()
    except ValueError as error:  # a zero byte
        raise FileError(f"{os.fspath(folder)!r} is no path ({error}); name a folder") from None


def _refuse_bucket(folder: str | os.PathLike[str]) -> None:
    name = re.sub("^(gs|s3):/(?!/)", r"\1://", os.fspath(folder))  # a Path has one slash
    if "://" in name:
        raise FileError(
            "a checkpoint must be in a folder of a disk that all processes share, got "
            f"{name!r}; a bucket cannot rename a step when it is whole, so name a "
            "folder of Filestore, FSx for Lustre or EFS, or of a bucket with a hierarchical "
            "namespace that gcsfuse mounts; copy whole steps to other buckets (rclone copy)"
        )


def item_of(folder: Path, prefer: str = "state") -> Path:
    """The item in a folder: the folder itself, or the one in a step.

    Raises:
        FileError: There is none.
    """
    _refuse_bucket(folder)
    if (item := _item_in(folder, prefer)) is not None:
        return item
    try:
        inside = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise FileError(
            f"{folder} is no checkpoint ({error.strerror}); name the folder of a step"
        ) from None
    raise FileError(
        f"{folder} is no checkpoint: a step has a folder {prefer!r} with {METADATA}, but "
        f"this has {', '.join(inside[:_SHOWN]) or 'nothing'}; name the folder of a step"
    )


def _item_in(folder: Path, prefer: str) -> Path | None:
    """As `item_of`; None if there is none. FileError if the system does not let us look."""
    try:
        for item in (folder, *(folder / name for name in (prefer, *ITEMS))):
            if (item / METADATA).is_file():
                return item
    except OSError as error:
        raise FileError(f"{folder}: {_UNREADABLE.format(error.strerror)}") from None
    return None


def items_in(folder: Path, item: str = "state") -> dict[Path, Path]:
    """The whole steps in a folder, by their numbers, each with its item; other folders are none.

    Raises:
        FileError: The folder, or a step in it, cannot be read.
    """
    _refuse_bucket(folder)
    try:
        paths = [p for p in folder.iterdir() if p.name.isascii() and p.name.isdigit()]
    except OSError as error:
        raise FileError(
            f"{folder}: cannot be read ({error.strerror}); name a folder of steps"
        ) from None
    ordered = sorted(paths, key=lambda path: int(path.name))
    items = {path: _item_in(path, item) for path in ordered}
    return {path: inside for path, inside in items.items() if inside is not None}


def steps_in(folder: Path, item: str = "state") -> list[int]:
    """The whole steps in a folder, ascending.

    Raises:
        FileError: The folder cannot be read, or another tool has padded its numbers with zeros.
    """
    paths = items_in(folder, item)
    for path in paths:
        if path.name != str(int(path.name)):
            raise FileError(
                f"{folder} must have steps without leading zeros, got {path.name!r}; rename them, "
                f"or read one with pyreactant.restore({str(path)!r})"
            )
    return [int(path.name) for path in paths]


@dataclass(frozen=True, slots=True)
class Step:
    """A step in a folder: its number, when it was written, its bytes on disk and its leaves.

    `leaves` is None if the metadata cannot be read.
    """

    number: int
    written: float
    nbytes: int
    leaves: int | None


def list_steps(folder: Path) -> list[Step]:
    """The steps of a folder, ascending.

    Raises:
        FileError: The folder cannot be read, or has none.
    """
    steps = []
    for path, item in items_in(folder).items():
        with contextlib.suppress(FileNotFoundError):  # a run has just deleted it
            try:
                steps.append(_step(path, item))
            except PermissionError as error:
                raise FileError(f"{path}: {_UNREADABLE.format(error.strerror)}") from None
    if not steps:
        raise FileError(f"{folder} has no checkpoints; name a folder of steps such as {folder}/900")
    return steps


def _step(path: Path, item: Path) -> Step:
    leaves = None
    try:
        leaves = len(json.loads((item / METADATA).read_text("utf-8"))["tree_metadata"])
    except (OSError, ValueError, LookupError, TypeError):
        pass  # `verify` says what is wrong
    return Step(int(path.name), path.stat().st_mtime, _bytes_in(path), leaves)


def _bytes_in(folder: str | Path) -> int:
    """Bytes of the files in a folder; quick, because there are many."""
    with os.scandir(folder) as entries:
        return sum(
            _bytes_in(entry.path) if entry.is_dir() else entry.stat().st_size for entry in entries
        )
