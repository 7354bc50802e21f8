"""The files that juliapkg and Julia write in place: a kill may leave one of them cut short."""

import shutil
import tomllib
from pathlib import Path

from ._atomic import write

_FILES = ("*Project.toml", "*Manifest*.toml")
_BEFORE = Path("pyreactant", "before")
"""Copies of them; that the folder is there says that they were being written."""


def save(project: Path) -> None:
    """Keep a copy of each, before they are written."""
    (project / _BEFORE).mkdir(parents=True, exist_ok=True)
    for path in files(project):
        write(project / _BEFORE / path.name, path.read_bytes())


def mend(project: Path) -> None:
    """Replace those that were cut short by their copies: neither Julia nor we can read them."""
    if not (project / _BEFORE).is_dir():
        return
    for path in files(project):
        copy = project / _BEFORE / path.name
        if _is_whole(path):
            continue
        if copy.is_file():
            write(path, copy.read_bytes())
        else:  # it was new
            path.unlink()
    drop(project)


def drop(project: Path) -> None:
    """Remove the copies: all was written."""
    if (project / _BEFORE).is_dir():
        shutil.rmtree(project / _BEFORE)


def files(project: Path) -> list[Path]:
    """The project files and manifests of a project."""
    return sorted({path for pattern in _FILES for path in project.glob(pattern)})


def _is_whole(path: Path) -> bool:
    try:
        return bool(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        return False
