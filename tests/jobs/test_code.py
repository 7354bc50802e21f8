"""What is copied: git's tracked files as they are on the disk, else the script and the copies."""

import gc
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.runs import call as _call
from pyreactant.runs.code import check_imports, find_code
from tests import harness
from tests.harness import environment, pyreactant


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = tmp_path / "repository"
    (top / "package" / "inner").mkdir(parents=True)
    for name in ("train.py", "package/__init__.py", "package/inner/__init__.py", "gone.py"):
        (top / name).write_text("def main():\n    return __name__\n")
    (top / "data").write_text("tracked")
    (top / "link").symlink_to("data")
    git(top, "init", "--quiet")
    git(top, "add", "--all")
    (top / "untracked.py").write_text("main = print\n")
    (top / "gone.py").unlink()
    (top / "data").write_text("as it is on the disk")
    monkeypatch.chdir(top / "package")
    return top


def test_a_repository(repository: Path, tmp_path: Path) -> None:
    call = _call.resolve("../untracked.py:main")
    code = find_code(call)
    expected = ["data", "link", "package/__init__.py", "package/inner/__init__.py", "train.py"]
    assert sorted(map(str, code.files)) == [*expected, "untracked.py"]
    code.copy(tmp_path / "copy")
    assert (tmp_path / "copy" / "data").read_text() == "as it is on the disk"
    assert (tmp_path / "copy" / "link").read_text() == "as it is on the disk"
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    assert code.inside(Path.cwd()) == "package"
    assert str(code) == "6 files of code, 0 KiB"
    (repository / "package" / "data").write_text("x")
    assert Path("package/data") in find_code(call, ["data"]).files


def test_a_function_of_a_package(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(repository))
    call = _call.resolve("package.inner:main")
    assert (call.root, call.file, call.module) == (repository, None, "package.inner")
    assert _call.resolve("json:dumps").root is None, "an installed module is not copied"
    assert find_code(_call.resolve("json:dumps")).files == ()


def test_outside_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("main = print\n")
    Path("more").mkdir()
    Path("more", "data").write_text("")
    Path("other.py").write_text("")
    call = _call.resolve("train.py:main")
    assert find_code(call).files == [Path("train.py")]
    assert find_code(call, ["more"]).files == [Path("more/data"), Path("train.py")]


def test_a_repository_that_git_refuses(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / ".git" / "HEAD").write_text("no")
    with pytest.raises(pr.RequirementError, match="git cannot list the files of"):
        find_code(_call.resolve("../train.py:main"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pr.RequirementError, match="install git"):
        find_code(_call.resolve("../train.py:main"))


def refused(call: _call.Call, *copies: str) -> str:
    """The message about a file that would not travel; "" if there is none."""
    try:
        check_imports(call, find_code(call, copies))
    except pr.FileError as error:
        return str(error)
    return ""


PROGRAMS = {
    "a module": ("import helper", "helper.py"),
    "a name of a module": ("from helper import VALUE", "helper.py"),
    "in a function": ("def main():\n    import helper", "helper.py"),
    "a package": ("import pack.sub as sub", "pack/__init__.py"),
    "a module of a package": ("from pack import sub", "pack/__init__.py"),
    "of a folder without __init__": ("from loose import part", "loose/part.py"),
    "of what is copied": ("import copied", "helper.py"),
    "one that may be absent": (
        "try:\n    import helper\nexcept ImportError:\n    pass",
        "helper.py",
    ),
    "with the name of one of Python's": ("import queue", "queue.py"),
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with modules beside the program."""
    monkeypatch.chdir(tmp_path)
    for name in ("helper.py", "pack/__init__.py", "pack/sub.py", "loose/part.py", "queue.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("VALUE = 1\n")
    Path("copied.py").write_text("import helper\n")
    return tmp_path


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_module_that_does_not_travel(modules: Path, program: str) -> None:
    text, absent = PROGRAMS[program]
    Path("train.py").write_text(f"{text}\nmain = print\n")
    copies = ["copied.py"] if "copied" in text else []
    message = refused(_call.resolve("train.py:main"), *copies)
    importing = "copied.py" if copies else "train.py"
    assert message == (
        f"{importing} imports {absent}, which would not travel with the job: it is another file; "
        f"give copies=['{absent}']"
    )
    everything = ["helper.py", "pack", "loose", "queue.py", "copied.py"]
    assert refused(_call.resolve(["train.py"]), *everything) == ""


def test_an_untracked_module(repository: Path) -> None:
    (repository / "package" / "__init__.py").write_text("from . import new\nmain = print\n")
    (repository / "package" / "new.py").write_text("import train\nimport untracked\n")
    (repository / "train.py").write_text("import package.new\nmain = print\n")
    message = refused(_call.resolve("../train.py:main"))
    assert "train.py imports new.py, which would not travel with the job" in message
    assert "it is not tracked by git; give copies=['new.py']" in message
    message = refused(_call.resolve("../train.py:main"), "new.py")
    assert "new.py imports ../untracked.py" in message
    git(repository, "add", "--all")
    assert refused(_call.resolve("../train.py:main")) == ""


@pytest.mark.parametrize("kind", ["module", "script", "Julia", "code"])
def test_other_programs_that_need_a_module(modules: Path, kind: str) -> None:
    Path("pack", "__main__.py").write_text("import helper\n")
    Path("train.py").write_text("import helper\n")
    Path("train.jl").write_text('# include("nothing.jl")\ninclude("part.jl")\n')
    Path("part.jl").write_text("")
    words = {
        "module": ["-m", "pack"],
        "script": ["train.py", "9"],
        "Julia": ["julia", "train.jl"],
        "code": ["-c", "import helper"],
    }[kind]
    absent = "part.jl" if kind == "Julia" else "helper.py"
    assert f" imports {absent}, which would not" in refused(_call.resolve(words))
    assert refused(_call.resolve(words), absent) == ""


def test_modules_that_need_not_travel(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Python and of packages, those that only a type checker imports, and folders."""
    Path("json").mkdir()  # without modules it hides nothing
    Path("train.py").write_text(
        "import json, os.path, numpy, absent\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import helper\nmain = print\n"
    )
    assert refused(_call.resolve("train.py:main")) == ""
    Path("train.py").write_text("import helper\nmain = print\n")
    assert refused(_call.resolve("train.py:main")) != ""
    monkeypatch.setattr(sys, "path", ["", str(modules), *sys.path])
    assert refused(_call.resolve("train.py:main")) == "", "PYTHONPATH travels, too"


def test_a_module_that_does_not_travel_stops_the_submission(modules: Path) -> None:
    Path("train.py").write_text("import helper\n")
    for more in (["--detach"], ["--detach", "--dry-run"], ["--on", "slurm", "--dry-run"]):
        ran = pyreactant("run", *more, "--", "train.py", XDG_STATE_HOME=str(modules / "state"))
        assert ran.returncode == 2, ran
        assert "train.py imports helper.py, which would not travel" in ran.stderr
        assert "give --copy helper.py" in ran.stderr
        assert not (modules / "state").exists()


PACKAGE = """
import os
import pyreactant as pr
from . import helper

@pr.remote(requirements="requirements.txt")
def main():
    import needed
    return __name__, helper.VALUE, needed.VALUE, os.path.basename(os.getcwd())

if __name__ == "__main__":
    print(main())
"""


def test_a_package_with_requirements(tmp_path: Path) -> None:
    """`python -m package.main`: relative imports work, and requirements are installed once."""
    wheel = tmp_path / "needed-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("needed.py", "VALUE = 'of the requirement'\n")
        about = "Metadata-Version: 2.1\nName: needed\nVersion: 1\n"
        archive.writestr("needed-1.dist-info/METADATA", about)
        about = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("needed-1.dist-info/WHEEL", about)
        archive.writestr("needed-1.dist-info/RECORD", "")
    work = tmp_path / "work"
    (work / "package").mkdir(parents=True)
    (work / "package" / "__init__.py").write_text("")
    (work / "package" / "helper.py").write_text("VALUE = 'of the helper'\n")
    (work / "package" / "main.py").write_text(PACKAGE)
    (work / "requirements.txt").write_text(f"{wheel}\n")
    settings = environment(
        XDG_STATE_HOME=str(tmp_path / "state"), XDG_CACHE_HOME=str(tmp_path / "cache")
    )
    settings["PYTHONPATH"] += os.pathsep + str(work)
    argv = [sys.executable, "-m", "package.main"]
    ran = harness.run(argv, env=settings, cwd=work, timeout=200)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "('package.main', 'of the helper', 'of the requirement', 'code')\n"


def test_threads_name_functions_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 cannot parse in two threads if the program has a callback of gc, as JAX has."""

    def watch(phase: str, info: dict[str, int]) -> None:
        sum(range(50))  # long enough for another thread to take over

    monkeypatch.chdir(tmp_path)
    lines = (f"def main{i}(x):\n    return (x + {i}) * [1, 2, {i}]\n" for i in range(100))
    Path("long.py").write_text("".join(lines))
    interval = sys.getswitchinterval()
    gc.callbacks.append(watch)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            calls = list(pool.map(_call.resolve, [f"long.py:main{i}" for i in range(20)]))
    finally:
        sys.setswitchinterval(interval)
        gc.callbacks.remove(watch)
    assert [call.name for call in calls] == [f"main{i}" for i in range(20)]
