"""Preferences as Julia reads them; a change keeps the rest of the files."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyreactant import preferences
from pyreactant.base.errors import FileError, InvalidArgumentError, RequirementError, StateError
from pyreactant.julia import place
from tests.harness import environment

REACTANT = "3c362404-f566-11ee-1572-e11a4b42c853"
JLL = "0192cb87-2b54-54ad-80e0-3be72ad8a3c0"


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of ours that prefers IFRT, isolated from other tests."""
    package = tmp_path / "pyreactant" / "_julia_package"
    (package / "src").mkdir(parents=True)
    (package / "src" / "PyReactant.jl").touch()
    monkeypatch.setattr(place, "_PACKAGE", package.parent)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A Julia project that names Reactant, in a folder whose name needs quoting."""
    folder = tmp_path / "mit Leerzeichen und ünïcode ☃"
    folder.mkdir()
    (folder / "Project.toml").write_text(f'# mine\n[deps]\nReactant = "{REACTANT}" # ours\n')
    return folder


def says(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def test_set_get_unset(project: Path) -> None:
    assert preferences.get("xla_runtime", project=project) is None
    file = preferences.set("xla_runtime", "IFRT", project=project)
    assert file == project / "LocalPreferences.toml"
    assert says(file) == {"Reactant": {"xla_runtime": "IFRT"}}
    assert preferences.get("xla_runtime", project=str(project)) == "IFRT"
    preferences.set("gpu", "cuda", project=project)
    preferences.set("gpu_version", "13.1", project=project)
    assert says(file)["Reactant_jll"] == {"gpu": "cuda", "gpu_version": "13.1"}
    # Julia ignores preferences of packages that the project does not name.
    named = says(project / "Project.toml")
    assert named["deps"] == {"Reactant": REACTANT}
    assert named["extras"] == {"Reactant_jll": JLL}
    assert (project / "Project.toml").read_text().startswith("# mine\n[deps]\nReactant = ")
    preferences.unset("gpu", project=project)
    preferences.unset("gpu", project=project)
    assert preferences.get("gpu", project=project) is None
    assert preferences.get("gpu_version", project=project) == "13.1"


def test_a_project_that_is_still_empty(tmp_path: Path) -> None:
    project = tmp_path / "new"
    project.mkdir()
    preferences.set("xla_runtime", "PJRT", project=project)
    assert says(project / "Project.toml") == {"extras": {"Reactant": REACTANT}}
    assert preferences.get("xla_runtime", project=project) == "PJRT"


def test_everything_else_stays(project: Path) -> None:
    local = project / "LocalPreferences.toml"
    text = (
        "# at the top\r\n[Other]\r\nkey = [1,\r\n  2, # two\r\n]\r\n\r\n"
        '[Reactant]   # ours\r\nxla_runtime = "PJRT" # why\r\nmine = 1979-05-27T07:32:00Z\r\n'
        "[[Many]]\r\na.b = 1\r\n[[Many]]\r\n"
    )
    local.write_bytes(text.encode())
    local.chmod(0o640)
    preferences.set("xla_runtime", "IFRT", project=project)
    assert local.read_bytes().decode() == text.replace("PJRT", "IFRT")
    assert local.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(project: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text("[Other]\na = 1\n")
    (project / "LocalPreferences.toml").symlink_to(real)
    preferences.set("xla_runtime", "IFRT", project=project)
    assert (project / "LocalPreferences.toml").is_symlink()
    assert says(real) == {"Other": {"a": 1}, "Reactant": {"xla_runtime": "IFRT"}}


def test_nothing_is_written_where_nothing_changes(project: Path) -> None:
    file = preferences.set("xla_runtime", "IFRT", project=project)
    before = {path: path.stat().st_mtime_ns for path in (file, project / "Project.toml")}
    preferences.set("xla_runtime", "IFRT", project=project)
    preferences.unset("gpu", project=project)
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_precedence_is_julias(project: Path) -> None:
    """JuliaLocalPreferences win over LocalPreferences, local over project, project over package."""
    package = place._PACKAGE / "_julia_package" / "Project.toml"
    package.write_text(
        f'[deps]\nReactant = "{REACTANT}"\n[preferences.Reactant]\nxla_runtime = "IFRT"\n'
    )
    assert preferences.find("xla_runtime", project=project).file == package
    named = project / "Project.toml"
    text = named.read_text()
    named.write_text(text + '[preferences.Reactant]\nxla_runtime = "PJRT"\n')
    assert preferences.find("xla_runtime", project=project).file == named
    preferences.set("xla_runtime", "IFRT", project=project)
    local = project / "LocalPreferences.toml"
    assert preferences.find("xla_runtime", project=project).file == local
    (project / "JuliaLocalPreferences.toml").write_text("")
    assert preferences.get("xla_runtime", project=project) == "PJRT"  # the other file is ignored
    assert preferences.set("xla_runtime", "IFRT", project=project).name.startswith("Julia")
    assert preferences.get("xla_runtime", project=project) == "IFRT"
    # The form in which Preferences.jl clears preferences of lower precedence.
    cleared = '[Reactant]\n__clear__ = ["xla_runtime"]\n'
    (project / "JuliaLocalPreferences.toml").write_text(cleared)
    assert preferences.get("xla_runtime", project=project) is None
    (project / "JuliaProject.toml").write_text("")  # Julia then does not read Project.toml
    assert preferences.get("xla_runtime", project=project) == "IFRT"
    preferences.set("xla_runtime", "PJRT", project=project)
    assert says(project / "JuliaProject.toml") == {"extras": {"Reactant": REACTANT}}


def test_the_name_is_the_projects_own(project: Path) -> None:
    (project / "Project.toml").write_text(f'[weakdeps]\nMine = "{REACTANT.upper()}"\n')
    file = preferences.set("xla_runtime", "IFRT", project=project)
    assert says(file) == {"Mine": {"xla_runtime": "IFRT"}}
    assert says(project / "Project.toml") == {"weakdeps": {"Mine": REACTANT.upper()}}
    (project / "Project.toml").write_text(f'name = "Reactant"\nuuid = "{REACTANT}"\n')
    file.unlink()
    assert says(preferences.set("xla_runtime", "PJRT", project=project)) == {
        "Reactant": {"xla_runtime": "PJRT"}
    }
    (project / "Project.toml").write_text(f'[deps]\nReactant = "{JLL}"\n')
    with pytest.raises(FileError, match=f"Reactant in .deps. must have the UUID {REACTANT}, got"):
        preferences.set("xla_runtime", "IFRT", project=project)


@pytest.mark.parametrize(
    ("call", "kind", "match"),
    [
        (
            lambda p: preferences.get("runtime", project=p),
            InvalidArgumentError,
            "must be one of xla_runtime, gpu, gpu_version, got 'runtime'",
        ),
        (
            lambda p: preferences.set("xla_runtime", "ifrt", project=p),
            InvalidArgumentError,
            "xla_runtime must be PJRT or IFRT, got 'ifrt'",
        ),
        (
            lambda p: preferences.set("gpu", "metal", project=p),
            InvalidArgumentError,
            "gpu must be none, cuda or rocm, got 'metal'",
        ),
        (
            lambda p: preferences.set("gpu_version", 12.9, project=p),
            InvalidArgumentError,
            "gpu_version must be none, or a version such as 12.9, got 12.9",
        ),
        (
            lambda p: preferences.get("gpu", project=p / "none"),
            InvalidArgumentError,
            "project must be an existing folder of a Julia project",
        ),
    ],
)
def test_refused(
    project: Path, call: Callable[[Path], Any], kind: type[Exception], match: str
) -> None:
    with pytest.raises(kind, match=match):
        call(project)


@pytest.mark.parametrize("name", ["LocalPreferences.toml", "Project.toml"])
@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (b"\n[Reactant\n", 4),
        (b"\nkey = 1 2\n", 4),
        (b"\na = 1\na = 2\n", 5),
        (b'\n\n\nb = "', 6),
        (b"\n\xff = 3\n", 4),
    ],
)
def test_damaged(project: Path, name: str, damage: bytes, line: int) -> None:
    file = project / name
    file.write_bytes(f'[deps]\nReactant = "{REACTANT}"\n'.encode() + damage)
    before = {path: path.read_bytes() for path in project.iterdir() if path.is_file()}
    for call in (
        lambda: preferences.get("xla_runtime", project=project),
        lambda: preferences.set("xla_runtime", "IFRT", project=project),
    ):
        with pytest.raises(FileError, match=f"{name}, line {line}: must be TOML, but .*; fix"):
            call()
    assert before == {path: path.read_bytes() for path in project.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    "text", ["Reactant = 3", "[Reactant]\nxla_runtime = 3", '[Reactant]\nxla_runtime = "TFRT"']
)
def test_it_says_what_cannot_be(project: Path, text: str) -> None:
    (project / "LocalPreferences.toml").write_text(text)
    with pytest.raises(FileError, match=r"must be a table, got 3|must be PJRT or IFRT, got"):
        preferences.get("xla_runtime", project=project)


def test_several_processes_need_ifrt(project: Path) -> None:
    preferences.check_runtime(1, project=project)
    with pytest.raises(InvalidArgumentError, match="IFRT in a run of 2 processes, got none, which"):
        preferences.check_runtime(2, project=project)
    preferences.set("xla_runtime", "PJRT", project=project)
    preferences.check_runtime(1, project=project)
    with pytest.raises(InvalidArgumentError, match=r"got PJRT from .*LocalPreferences.toml; "):
        preferences.check_runtime(2, project=project)
    preferences.set("xla_runtime", "IFRT", project=project)
    preferences.check_runtime(2, project=project)


def test_not_while_julia_runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preferences.set("xla_runtime", "IFRT", project=project)
    juliacall = types.SimpleNamespace(CONFIG={"inited": True})
    monkeypatch.setitem(sys.modules, "juliacall", juliacall)
    for call in (
        lambda: preferences.set("xla_runtime", "PJRT", project=project),
        lambda: preferences.unset("xla_runtime", project=project),
    ):
        with pytest.raises(
            StateError, match=r"changing a preference must happen in .*; restart, and do it"
        ):
            call()
    preferences.set("xla_runtime", "IFRT", project=project)  # a call that changes nothing
    assert preferences.get("xla_runtime", project=project) == "IFRT"
    juliacall.CONFIG["inited"] = False
    preferences.set("xla_runtime", "PJRT", project=project)


def test_the_project_in_use(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_JULIACALL_EXE", sys.executable)
    monkeypatch.setenv("PYTHON_JULIACALL_PROJECT", str(project))
    preferences.set("xla_runtime", "IFRT")
    assert preferences.get("xla_runtime") == "IFRT"
    assert (project / "LocalPreferences.toml").is_file()


@pytest.mark.parametrize("made", [True, False])
def test_a_read_only_folder(made: bool) -> None:
    importlib.import_module("tomlkit")  # another user may lack permission
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        if made:
            preferences.set("xla_runtime", "IFRT", project=folder)
            (folder / "pyreactant" / "lock").chmod(0o666)
        with (
            not_ours(folder),
            pytest.raises(RequirementError, match=r"cannot write .*: Permission denied; name"),
        ):
            preferences.set("xla_runtime", "PJRT", project=folder)
        assert list(folder.glob("*.partial")) == []


@contextlib.contextmanager
def not_ours(folder: Path) -> Iterator[None]:
    """Make the folder read-only; root, who can write everywhere, becomes another user."""
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield
        folder.chmod(0o755)
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_killed_anywhere(project: Path) -> None:
    """A kill leaves the old files or the new ones; the next change removes temporary files."""
    program = (
        "import os, signal, sys\n"
        "from itertools import count\n"
        "from pyreactant import preferences\n"
        "import tomlkit\n"
        "preferences.find('gpu', project=sys.argv[1])\n"
        "steps = count()\n"
        "def hook(event, arguments):\n"
        "    if event in ('open', 'os.rename', 'fcntl.flock', 'os.mkdir', 'os.remove'):\n"
        "        if next(steps) == int(sys.argv[2]): os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.addaudithook(hook)\n"
        "preferences.set('gpu', sys.argv[3], project=sys.argv[1])\n"
    )
    preferences.set("gpu", "none", project=project)
    local, named = project / "LocalPreferences.toml", project / "Project.toml"
    old = local.read_bytes()
    new = old.replace(b"none", b"cuda")
    for step in range(100):
        named.write_text(f'[deps]\nReactant = "{REACTANT}"\n')
        argv = [sys.executable, "-c", program, str(project), str(step), "cuda"]
        ran = subprocess.run(argv, env=environment(), capture_output=True, text=True)
        assert local.read_bytes() in (old, new)
        assert says(named) in (
            {"deps": {"Reactant": REACTANT}},
            {"deps": {"Reactant": REACTANT}, "extras": {"Reactant_jll": JLL}},
        )
        if ran.returncode == 0:
            break
        assert ran.returncode == -signal.SIGKILL, ran.stderr
        local.write_bytes(old)
    assert step > 8
    assert local.read_bytes() == new
    assert {path.name for path in project.iterdir()} == {
        "LocalPreferences.toml",
        "Project.toml",
        "pyreactant",
    }
