"""The user's code that travels with a job: which files are copied, and what would be absent.

In a git repository these are its tracked files as they are on the disk, else the script; and what
the user names.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.child import output_of
from ..base.counted import counted
from ..base.errors import FileError, InvalidArgumentError, RequirementError, argument
from .call import Call, parse
from .record import private_folder, written

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
        count = counted(len(self.files), "file")
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


def find_code(call: Call, copies: Iterable[str | Path] = ()) -> Code:
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
    paths: dict[Path, None] = {}
    if top is not None:
        paths = dict.fromkeys(_tracked(top))
    elif call.file is None and (call.module or call.program[:1] == ("-m",)):
        package = call.module.partition(".")[0] or (call.program[1:2] or [""])[0].partition(".")[0]
        wanted += [p for p in (root / package, root / f"{package}.py") if package and p.exists()]
    top = top or root
    if call.file is not None:
        wanted.append(call.file)
    for path in wanted:
        paths |= dict.fromkeys(_below(path, top))
    files = list(paths)
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
    root = next((at for at in (folder, *folder.parents) if (at / ".git").exists()), None)
    if root is None:
        return None
    return Path(_git(root, "rev-parse", "--show-toplevel").rstrip("\n")).resolve()


def _tracked(top: Path) -> list[Path]:
    listed = _git(top, "ls-files", "-z", "--cached", "--recurse-submodules")
    paths = [Path(name) for name in listed.split("\0") if name]
    return [path for path in paths if (top / path).exists()]


def _git(folder: Path, *arguments: str) -> str:
    try:
        argv = ["git", "-C", str(folder), *arguments]
        ran = output_of(argv, errors="surrogateescape", timeout=60)
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


def resolved(path: Path) -> Path:
    """The path as git lists it: a link keeps its own name."""
    return path.resolve() if path.name == ".." else path.parent.resolve() / path.name


def _below(path: Path, top: Path) -> list[Path]:
    """The files of a path, relative to `top`."""
    if not path.exists():
        raise FileError(f"there is no {str(path)!r} to copy")
    if not path.is_file() and not path.is_dir():
        raise InvalidArgumentError(
            f"only files and folders travel, but {str(path)!r} is neither, such as a pipe; write "
            "what it gives to a file"
        )
    path = resolved(path)
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


def check_imports(call: Call, code: Code) -> None:
    """Check that the files which a program imports from its own folder are copied.

    Files are read, and nothing is imported. Imports of copied files count as well, and so does
    Julia's ``include("FILE")``. What only a type checker imports does not count.

    Raises:
        FileError: A file beside the program would be absent where the job runs.
    """
    if code.top is None or call.root is None:
        return
    root, copied = call.root.resolve(), {code.top / path for path in code.files}
    # By PYTHONPATH, or an editable installation, jobs of this machine find what lies there.
    tops = {path.relative_to(root).parts[0] for path in copied if path.is_relative_to(root)}
    waiting: list[Path | str] = [*_first(call, root)]
    seen: set[Path] = set()
    while waiting:
        file = waiting.pop()
        for needed in _imported_files(file, root):
            top = needed.relative_to(root).parts[0] if needed.is_relative_to(root) else ""
            if needed not in copied and (top in tops or str(root) not in sys.path[1:]):
                path, option = os.path.relpath(needed), argument("copies")
                why = "not tracked by git" if (code.top / ".git").exists() else "another file"
                raise FileError(
                    f"{file.name if isinstance(file, Path) else 'the code'} imports {path}, which "
                    f"would not travel with the job: it is {why}; give "
                    + (f"{option} {path}" if option.startswith("-") else f"{option}=[{path!r}]")
                )
            if needed not in seen:
                seen.add(needed)
                waiting.append(needed)


def _first(call: Call, root: Path) -> Iterator[Path | str]:
    """The files with which a program begins, or its code."""
    if call.kind == "code":
        yield call.program[1]
    elif call.file is not None:
        yield call.file.parent.resolve() / call.file.name
    elif call.kind == "module":
        yield from _modules(root, f"{call.program[1]}.__main__")
    else:
        yield from _modules(root, call.module)


def _imported_files(file: Path | str, root: Path) -> Iterator[Path]:
    """The files below `root`, or beside a script of Julia, that a file or code imports."""
    if isinstance(file, Path) and file.suffix == ".jl":
        for name in _INCLUDE.findall(file.read_text(errors="replace")):
            included = file.parent / name
            if included.is_file():
                yield included.parent.resolve() / included.name
        return
    try:
        tree = parse(file.encode() if isinstance(file, str) else file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # Python says it where the job runs
    for node in _running(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name not in sys.builtin_module_names:
                    yield from _modules(root, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = root
            if node.level and isinstance(file, Path):
                base = [file, *file.parents][node.level]
            module = node.module or ""
            yield from _modules(base, module)
            for alias in node.names:
                yield from _modules(base, f"{module}.{alias.name}".lstrip("."))


_INCLUDE = re.compile(r'^[^#\n]*\binclude\(\s*"([^"$]+)"\s*\)', re.MULTILINE)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module, without those that only a type checker sees."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        test = node.test if isinstance(node, ast.If) else None
        name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
        if isinstance(node, ast.If) and name == "TYPE_CHECKING":
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _modules(folder: Path, name: str) -> Iterator[Path]:
    """The files of a dotted name, and of the packages above it, that lie in a folder."""
    for part in filter(None, name.split(".")):
        for file in (folder / part / "__init__.py", folder / f"{part}.py"):
            if file.is_file():
                yield file
                break
        folder /= part
