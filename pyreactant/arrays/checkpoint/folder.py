"""A folder of steps: which folders in it are whole checkpoints, ours or Orbax's.

Nothing here needs NumPy, so that a list of steps comes at once.
"""

import contextlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import FileError, InvalidArgumentError
from .bucket import COMMIT, Bucket

METADATA = "_METADATA"
STEP_METADATA = "_CHECKPOINT_METADATA"
ITEMS = ("state", "default", "items", "pytree")
"""Names of the item in a step: ours and MaxText's, and those of Orbax's interfaces."""

_REQUESTS = 32
"""Requests to a bucket at a time."""

_SHOWN = 20
"""Names that a message has."""

_URL = re.compile(r"[a-z][a-z0-9+.-]+:/|(gs|s3):", re.IGNORECASE)  # a Path has one slash
_UNREADABLE = "cannot be read ({}); let its files be read by this user, or name another folder"


Folder = Path | Bucket


def parse(folder: str | os.PathLike[str] | Bucket) -> Folder:
    """The whole path of a folder on a disk, or the folder in a bucket.

    Raises:
        FileError: It is a URL of another kind, or no path.
        InvalidArgumentError: It is neither text nor a `Path`.
    """
    if isinstance(folder, Bucket):
        return folder
    if not isinstance(folder, (str, os.PathLike)):
        raise InvalidArgumentError(f"a folder must be text or a Path, got {folder!r:.100}")
    name = os.fspath(folder)
    if _URL.match(name):
        return Bucket.parse(name)
    try:
        path = Path(folder).resolve()
    except ValueError as error:  # a zero byte
        raise FileError(f"{name!r} is no path ({error}); name a folder") from None
    if "\\" in str(path):  # tensorstore takes it for a slash
        raise FileError(f"the path of a checkpoint must have no backslash, got {path}; rename it")
    return path


def is_whole(step: Folder) -> bool:
    """Whether all of a step was written; on a disk it has its name only then."""
    return not isinstance(step, Bucket) or (step / COMMIT).is_file()


def item_of(folder: Folder, prefer: str = "state") -> Folder:
    """The item in a folder: the folder itself, or the one in a step.

    Raises:
        FileError: There is none.
    """
    if (item := _item_in(folder, prefer)) is not None:
        return item
    try:
        inside = sorted(path.name for path in folder.iterdir())
        if not is_whole(folder):
            raise FileError(
                f"{folder} is no whole checkpoint: it lacks {COMMIT}, which is written last into "
                "one in a bucket; name the folder of another step"
            )
    except OSError as error:
        raise FileError(
            f"{folder} is no checkpoint ({error.strerror}); name the folder of a step"
        ) from None
    raise FileError(
        f"{folder} is no checkpoint: a step has a folder {prefer!r} with {METADATA}, but "
        f"this has {', '.join(inside[:_SHOWN]) or 'nothing'}; name the folder of a step"
    )


def _item_in(folder: Folder, prefer: str) -> Folder | None:
    """As `item_of`; None if there is none. FileError if the system does not let us look."""
    try:
        if not is_whole(folder):
            return None
        for item in (folder, *(folder / name for name in (prefer, *ITEMS))):
            if (item / METADATA).is_file():
                return item
    except OSError as error:
        raise FileError(f"{folder}: {_UNREADABLE.format(error.strerror)}") from None
    return None


def items_in(folder: Folder, item: str = "state") -> dict[Folder, Folder]:
    """The whole steps in a folder, by their numbers, each with its item; other folders are none.

    Raises:
        FileError: The folder, or a step in it, cannot be read.
    """
    try:
        paths = [p for p in folder.iterdir() if p.name.isascii() and p.name.isdigit()]
    except OSError as error:
        raise FileError(
            f"{folder}: cannot be read ({error.strerror}); name a folder of steps"
        ) from None
    ordered = sorted(paths, key=lambda path: int(path.name))
    items = {path: _item_in(path, item) for path in ordered}
    return {path: inside for path, inside in items.items() if inside is not None}


def steps_in(folder: Folder, item: str = "state") -> list[int]:
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

    Of a bucket the bytes are None. `written` and `leaves` are None if what says so cannot be read.
    """

    number: int
    written: float | None
    nbytes: int | None
    leaves: int | None


def list_steps(folder: Folder) -> list[Step]:
    """The steps of a folder, ascending.

    Raises:
        FileError: The folder cannot be read, or has none.
    """

    def look(at: tuple[Folder, Folder]) -> Step | None:
        try:
            return _step(*at)
        except FileNotFoundError:  # a run has just deleted it
            return None
        except PermissionError as error:
            raise FileError(f"{at[0]}: {_UNREADABLE.format(error.strerror)}") from None

    items = items_in(folder).items()
    if isinstance(folder, Bucket):  # each answer takes its time
        with ThreadPoolExecutor(_REQUESTS) as threads:
            looked = [*threads.map(look, items)]
    else:
        looked = [look(at) for at in items]
    if steps := [step for step in looked if step is not None]:
        return steps
    raise FileError(f"{folder} has no checkpoints; name a folder of steps such as {folder}/900")


def _step(path: Folder, item: Folder) -> Step:
    leaves = None
    try:
        leaves = len(json.loads((item / METADATA).read_text("utf-8"))["tree_metadata"])
    except (OSError, ValueError, LookupError, TypeError):
        pass  # `verify` says what is wrong
    if isinstance(path, Path):
        return Step(int(path.name), path.stat().st_mtime, _bytes_in(path), leaves)
    written = None
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        said = json.loads((path / STEP_METADATA).read_text("utf-8"))
        written = said["commit_timestamp_nsecs"] / 1e9
    return Step(int(path.name), written, None, leaves)


def _bytes_in(folder: str | Path) -> int:
    """Bytes of the files in a folder; quick, because there are many."""
    with os.scandir(folder) as entries:
        return sum(
            _bytes_in(entry.path) if entry.is_dir() else entry.stat().st_size for entry in entries
        )
