"""The copy of the user's code that a job runs, made when the job is submitted."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .._errors import FileError, InvalidArgumentError, RequirementError
from ._call import Call
from ._record import private_folder, written

LIMIT = 100 << 20
"""Largest copy, in bytes."""


@dataclass(frozen=True, slots=True)
class Code:
    """Files to copy, found but not yet copied.

    Attributes:
        top: Folder below which all of them lie; None if nothing is copied.
        files: Their paths below `top`, each once.
        size: Their size in bytes.
    """

    top: Path | None
    files: Sequence[Path]
    size: int

    def __str__(self) -> str:
        """Number and size, for the user."""
        count = f"{len(self.files)} {'file' if len(self.files) == 1 else 'files'}"
        size = f"{self.size / 1024:.0f} KiB" if self.size < 1 << 20 else f"{self.size >> 20} MiB"
        return f"{count} of code, {size}"

    def inside(self, path: Path | None) -> str:
        """A path relative to the copy; "." for a folder outside."""
        if self.top is None or path is None or not path.is_relative_to(self.top):
            return "."
        return str(path.relative_to(self.top))

    def copy(self, folder: Path) -> None:
        """Copy the files.

        Raises:
            RequirementError: The disk is full.
            FileError: A file cannot be read.
        """
        private_folder(folder)
        made = {folder}
        for path in self.files:
            assert self.top is not None
            source, to = self.top / path, folder / path
            with written(folder):
                if to.parent not in made:
                    private_folder(to.parent)
                    made.add(to.parent)
                if source.is_symlink() and source.is_dir():
                    to.symlink_to(os.readlink(source))  # noqa: PTH115 - unchanged
                    continue
            _copy_file(source, to)


def find(call: Call, copies: Iterable[str | Path] = ()) -> Code:
    """What to copy: in a git repository its tracked files, else the script; and `copies`.

    Args:
        call: What runs.
        copies: Further files and folders, relative to the working directory.

    Raises:
        FileError: A file does not exist, or all are larger than `LIMIT`.
        InvalidArgumentError: One of the copies lies outside.
        RequirementError: The folder is in a git repository that git refuses to read.
    """
    wanted = [Path(path).absolute() for path in copies]
    if call.root is None and not wanted:
        return Code(None, (), 0)
    root = (call.root or Path.cwd()).resolve()
    top = _repository(root)
    found: dict[Path, None] = {}
    if top is not None:
        found = dict.fromkeys(_tracked(top))
    elif call.file is None and (call.module or call.program[:1] == ("-m",)):
        package = call.module.partition(".")[0] or (call.program[1:2] or [""])[0].partition(".")[0]
        wanted += [p for p in (root / package, root / f"{package}.py") if package and p.exists()]
    top = top or root
    if call.file is not None:
        wanted.append(call.file)
    for path in wanted:
        found |= dict.fromkeys(_below(path, top))
    files = list(found)
    size = sum((top / path).stat().st_size for path in files)
    if size > LIMIT:
        largest = sorted(files, key=lambda path: -(top / path).stat().st_size)[:3]
        some = ", ".join(f"{p} ({(top / p).stat().st_size >> 20} MiB)" for p in largest)
        raise FileError(
            f"the code must be at most {LIMIT >> 20} MiB, but the files of {top} are "
            f"{size >> 20} MiB; the largest are {some}; keep data outside of the repository and "
            "pass its path as an argument"
        )
    return Code(top, files, size)


def _repository(folder: Path) -> Path | None:
    """The root of the git repository with a folder; None if it is in none."""
    found = next((at for at in (folder, *folder.parents) if (at / ".git").exists()), None)
    if found is None:
        return None
    return Path(_git(found, "rev-parse", "--show-toplevel").rstrip("\n")).resolve()


def _tracked(top: Path) -> list[Path]:
    listed = _git(top, "ls-files", "-z", "--cached", "--recurse-submodules")
    paths = [Path(name) for name in listed.split("\0") if name]
    return [path for path in paths if (top / path).exists()]


def _git(folder: Path, *arguments: str) -> str:
    try:
        ran = subprocess.run(
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's own git
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequirementError(
            f"{folder} is a git repository, and git must list its files: {error}; install git"
        ) from None
    if ran.returncode:
        raise RequirementError(
            f"git cannot list the files of {folder}: {ran.stderr.strip()}; mend that, or submit "
            "from a folder that is no repository"
        )
    return ran.stdout


def _below(path: Path, top: Path) -> list[Path]:
    """The files of a path, relative to `top`."""
    if not path.exists():
        raise FileError(f"there is no {str(path)!r} to copy")
    path = path.parent.resolve() / path.name
    if not path.is_relative_to(top):
        raise InvalidArgumentError(
            f"what is copied must lie below {top}, because the job has it under the same relative "
            f"path, got {str(path)!r}; pass the path of data as an argument instead"
        )
    if not path.is_dir():
        return [path.relative_to(top)]
    inner = (p for p in sorted(path.rglob("*")) if p.is_file())
    skipped = {"__pycache__", ".git"}
    return [p.relative_to(top) for p in inner if not skipped.intersection(p.parts)]


def _copy_file(source: Path, to: Path) -> None:
    try:
        with source.open("rb"):
            pass
    except OSError as error:
        raise FileError(f"{source} cannot be read ({error.strerror})") from None
    with written(to):
        shutil.copy2(source, to)
