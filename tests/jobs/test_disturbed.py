"""A job whose keeper, lock or folder somebody disturbs: it ends, and nothing of it stays."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.runs import record as _record
from tests.harness import REPOSITORY, environment, pyreactant, until
from tests.jobs.laws import left

pytestmark = pytest.mark.slow

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", tmp_path)
    return tmp_path


@pytest.fixture
def job() -> Iterator[pr.Job]:
    """A job that runs, with a secret; nothing of it runs at the end."""
    made = pr.submit("program.py:waits", env={"LAW_SECRET": SECRET})
    until(lambda: "waiting" in "".join(made.logs()))
    yield made
    remaining = left(made.id)
    for process in marked(made):
        os.kill(process, signal.SIGKILL)
    assert not remaining


def marked(job: pr.Job) -> list[int]:
    """The processes of a job, keeper included."""
    mark = f"PYREACTANT_JOB={job.id}".encode()
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                processes.append(int(entry.name))
        except OSError:
            continue
    return processes


command = partial(pyreactant, "jobs")


def keeper_of(job: pr.Job) -> int:
    """The process of a job's keeper."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"pyreactant.runs.keeper" in words and os.fsencode(job.folder) in words:
            return int(entry.name)
    raise AssertionError(f"the job {job.id} has no keeper")


def secrets(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("words", [("status",), ("list",), ("cancel",), ("result",)], ids=" ".join)
def test_whoever_looks_next_deletes_the_secrets(job: pr.Job, words: tuple[str, ...]) -> None:
    """The keeper was killed, and has not deleted them."""
    assert secrets(job.folder)
    os.kill(keeper_of(job), signal.SIGKILL)
    until(lambda: not job.record.is_kept(), 20)
    command(*words, *([] if words == ("list",) else [job.id]))
    assert secrets(job.folder) == []
    assert job.status().state == "lost"


def test_secrets_of_slurm_and_ray_are_deleted_too() -> None:
    record = _record.create("x", "slurm", {})
    for name in _record.SECRETS:
        (record.folder / name).parent.mkdir(exist_ok=True)
        (record.folder / name).write_text(SECRET)
    assert len(secrets(record.folder)) == 3
    record.write_status(_record.Status("lost", "why", 6))
    assert secrets(record.folder) == []
    _record.release(record)


@pytest.mark.parametrize("stopped", ["keeper", "all"])
def test_a_stopped_keeper_is_cancelled(job: pr.Job, stopped: str) -> None:
    for process in marked(job) if stopped == "all" else [keeper_of(job)]:
        os.kill(process, signal.SIGSTOP)
    assert job.status().state == "running"
    ran = command("cancel", job.id, "--json")
    assert (ran.returncode, json.loads(ran.stdout)["state"]) == (0, "cancelled"), ran


def test_a_keeper_that_is_stopped_again_and_again_is_killed(job: pr.Job) -> None:
    keeper = keeper_of(job)
    argv = [sys.executable, "-m", "pyreactant", "jobs", "cancel", job.id, "--timeout", "2"]
    with subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE, text=True) as cancel:
        while cancel.poll() is None:
            try:
                os.kill(keeper, signal.SIGSTOP)
            except ProcessLookupError:
                break
            time.sleep(0.001)
        out, _ = cancel.communicate(timeout=60)
    assert cancel.returncode == 0, out
    assert job.status().state == "cancelled"


def test_a_stopped_run_in_the_foreground_is_cancelled(folder: Path) -> None:
    Path("waits.py").write_text("import program\nprogram.waits()\n")
    argv = [sys.executable, "-m", "pyreactant", "run", "--processes", "1", "--", "waits.py"]
    with subprocess.Popen(
        argv, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        until(lambda: [*folder.glob("pyreactant-runs/*/process-0.log")])
        os.kill(run.pid, signal.SIGSTOP)
        (row,) = json.loads(command("list", "--json").stdout)
        assert row["state"] == "running"
        assert command("cancel", row["id"]).returncode == 0
        assert run.wait(60) == 130


@pytest.mark.parametrize("what", ["the job", "all jobs", "the state folder"])
def test_a_folder_that_is_removed(job: pr.Job, folder: Path, what: str) -> None:
    """The keeper ends the programs, and itself."""
    removed = {
        "the job": job.folder,
        "all jobs": job.folder.parent,
        "the state folder": folder / "state",
    }
    keeper = keeper_of(job)
    shutil.rmtree(removed[what])
    until(lambda: not Path(f"/proc/{keeper}").exists(), 60)
    assert command("cancel", job.id).returncode == 2
    assert not job.folder.exists()


def test_the_record_of_a_run_in_the_foreground_that_is_removed(folder: Path) -> None:
    """The run does not need it."""
    Path("waits.py").write_text(
        "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n"
    )
    argv = [sys.executable, "-m", "pyreactant", "run", "--processes", "1", "--", "waits.py"]
    with subprocess.Popen(argv, env=environment(), stderr=subprocess.PIPE, text=True) as run:
        until(lambda: [*folder.glob("pyreactant-runs/*/process-0.log")])
        shutil.rmtree(folder / "state")
        time.sleep(0.5)
        assert run.poll() is None
        Path("go").touch()
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 0, errors
    assert "error" not in errors


def test_a_folder_that_is_moved_and_comes_back(job: pr.Job) -> None:
    job.folder.rename(job.folder.with_name("moved"))
    time.sleep(1)  # the keeper looks ten times a second
    job.folder.with_name("moved").rename(job.folder)
    assert job.status().state == "running"
    assert job.cancel().state == "cancelled"
