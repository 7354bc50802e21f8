"""The archive that every worker gets: this package, its Julia package, and the user's program."""

import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from .._errors import FileError, InvalidArgumentError
from ._startup import scripts_folder

_SCRIPTS = ("worker.sh", "requirements.txt", "uv.txt")
_LEFT_OUT = ("__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".hypothesis")


def check_program(program: Sequence[str], copies: Iterable[Path]) -> None:
    """Look whether what is to be copied is here.

    Raises:
        FileError: A file is not.
        InvalidArgumentError: A path leads out of the working directory.
    """
    script = [] if not program or program[0] == "-m" else [Path(program[0])]
    for path in (*script, *copies):
        if not path.exists():
            raise FileError(f"there is no {str(path)!r} in {Path.cwd()}")
        if path.is_absolute() or ".." in path.parts:
            raise InvalidArgumentError(
                f"{str(path)!r} must be below the working directory, since workers get it under "
                "the same name"
            )


def write_archive(
    file: Path, program: Sequence[str], copies: Iterable[Path], request: Path | None
) -> None:
    """Write a .tar.gz with a folder "code"; beside it scripts and the cross-check's request.

    Raises:
        FileError: Something cannot be read, or the archive not be written.
    """
    package = Path(__file__).resolve().parent.parent
    script = [] if not program or program[0] == "-m" else [Path(program[0])]
    try:
        with tarfile.open(file, "w:gz", compresslevel=6) as archive:
            _add(archive, package, f"code/{package.name}")
            for beside in ("julia", "slurm", "gcloud"):  # of a checkout; a wheel has them within
                if (package.parent / beside).is_dir() and (
                    package.parent / "pyproject.toml"
                ).exists():
                    _add(archive, package.parent / beside, f"code/{beside}")
            for name in _SCRIPTS:
                archive.add(scripts_folder() / name, name)
            if request is not None:
                archive.add(request, request.name)
            for path in (*script, *copies):
                _add(archive, path, f"code/{path}")
    except OSError as error:
        raise FileError(f"{error.filename or file}: {error.strerror or error}") from None


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    def keep(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return None if Path(info.name).name in _LEFT_OUT else info

    archive.add(path, name, filter=keep)


def unpack(file: Path, folder: Path) -> None:
    """Unpack what a worker sent; nothing lands outside of `folder`.

    Raises:
        FileError: It is damaged, or holds what must not be unpacked.
    """
    try:
        with tarfile.open(file, "r:gz") as archive:
            archive.extractall(folder, filter="data")
    except (OSError, tarfile.TarError, EOFError) as error:
        raise FileError(f"{file}: the worker's results are damaged ({error})") from None
