"""The run's secret: its sources, and what is refused."""

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from pyreactant import FileError, InvalidArgumentError
from pyreactant.process.group import ProcessGroup
from pyreactant.process.group.coordinator import run_secret

GROUP = ProcessGroup(2, 0, "hosta:4711", run_id="slurm 1.0 restart 0")
LONG = "0123456789abcdef"


def secret_file(folder: Path, content: str = LONG, mode: int = 0o600) -> Path:
    path = folder / "the secret"
    path.write_text(content)
    path.chmod(mode)
    return path


def test_environment_and_file_mean_the_same(tmp_path: Path) -> None:
    path = str(secret_file(tmp_path, f"{LONG}\n"))
    expected = run_secret(GROUP, {"PYREACTANT_SECRET": LONG})
    assert run_secret(GROUP, {"PYREACTANT_SECRET_FILE": path}) == expected
    other = {"PYREACTANT_SECRET": LONG, "PYREACTANT_SECRET_FILE": "/no/such/file"}
    assert run_secret(GROUP, other) == expected
    assert LONG.encode() not in expected


def test_every_run_and_every_secret_makes_another() -> None:
    groups = [
        GROUP,
        ProcessGroup(2, 0, "hosta:4712", run_id="slurm 1.0 restart 0"),
        ProcessGroup(2, 0, "hosta:4711", run_id="slurm 1.0 restart 1"),
        ProcessGroup(2, 0, "hosta:4711"),
    ]
    found = {run_secret(g, {"PYREACTANT_SECRET": s}) for g in groups for s in (LONG, LONG + "x")}
    assert len(found) == 8
    last = ProcessGroup(2, 1, "hosta:4711", run_id="slurm 1.0 restart 0")
    environ = {"PYREACTANT_SECRET": LONG}
    assert run_secret(last, environ) == run_secret(GROUP, environ)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = secret_file(tmp_path, mode=mode)
    with pytest.raises(FileError, match=rf"other users can read it; run: chmod 600 '{path}'"):
        run_secret(GROUP, {"PYREACTANT_SECRET_FILE": str(path)})


def test_too_short(tmp_path: Path) -> None:
    words = r"must hold a secret of 16 characters or more, got 15; make one with: python -c"
    with pytest.raises(InvalidArgumentError, match=f"PYREACTANT_SECRET {words}"):
        run_secret(GROUP, {"PYREACTANT_SECRET": LONG[:-1]})
    path = secret_file(tmp_path, LONG[:-1] + "\n\n")
    with pytest.raises(InvalidArgumentError, match=rf"_FILE \({path}\) {words}"):
        run_secret(GROUP, {"PYREACTANT_SECRET_FILE": str(path)})


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileError, match=r"from /no/file \(No such file.*\); set PYREACTANT_SECRET"):
        run_secret(GROUP, {"PYREACTANT_SECRET_FILE": "/no/file"})


def test_a_secret_that_is_no_text() -> None:
    assert run_secret(GROUP, {"PYREACTANT_SECRET": os.fsdecode(b"\xff" * 16)})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory for this test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path


def test_a_key_file_is_made_at_first_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_secret(GROUP, {})
    path = home / ".config/pyreactant/key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(path.read_text().strip()) == 64
    assert run_secret(GROUP, {}) == first
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    assert run_secret(GROUP, {}) != first
    assert (home / "xdg/pyreactant/key").exists()


def _into(
    queue: "multiprocessing.SimpleQueue[bytes]", barrier: "multiprocessing.synchronize.Barrier"
) -> None:
    barrier.wait()
    queue.put(run_secret(GROUP, {}))


def test_several_processes_at_once_make_one_key(home: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue, barrier = context.SimpleQueue(), context.Barrier(6)
    processes = [context.Process(target=_into, args=(queue, barrier)) for _ in range(6)]
    for process in processes:
        process.start()
    found = {queue.get() for _ in processes}
    for process in processes:
        process.join()
    assert len(found) == 1
    assert [p.name for p in (home / ".config/pyreactant").iterdir()] == ["key"]


@pytest.mark.parametrize("folder", ["/proc/home", "/dev/null/home"])
def test_a_home_that_cannot_be_written_names_the_variable(
    home: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setenv("HOME", folder)
    with pytest.raises(
        FileError, match=r"cannot be created \(.*\); set PYREACTANT_SECRET, the same"
    ):
        run_secret(GROUP, {})


def test_a_home_that_cannot_be_entered(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", denied)
    with pytest.raises(
        FileError, match=r"cannot be created \(Permission denied\); set PYREACTANT_"
    ):
        run_secret(GROUP, {})
