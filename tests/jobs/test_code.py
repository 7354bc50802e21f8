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
from pyreactant.runs.code import find_code
from tests import harness
from tests.harness import environment


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
