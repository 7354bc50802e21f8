"""The laws of the TPU target: the stand-in API, Google's real client, real sshd, real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import harness
from tests.gcloud.cloud import Cloud, cloud, hosts_of
from tests.gcloud.tpu_api import TpuApi
from tests.harness import REPOSITORY, until
from tests.jobs.disk import small_disk


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("cloud"), TpuApi(workers=hosts_of), 2) as made:
        yield made


@pytest.fixture
def made(shared: Cloud, tmp_path: Path) -> Iterator[Cloud]:
    shared.folder = tmp_path
    shared.settings["XDG_STATE_HOME"] = str(tmp_path / "state")
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", tmp_path)
    yield shared
    assert shared.api.left() == [], "a test left slices behind"


def hold(made: Cloud, law: str, *more: str, before: tuple[str, ...] = ()) -> None:
    argv = [*before, sys.executable, "-m", "tests.jobs.laws", law, made.target(), *more]
    ran = harness.run(argv, env=made.settings, cwd=made.folder, timeout=250)
    logs = [p.read_text() for p in sorted(made.folder.glob("state/**/keeper.log"))]
    assert ran.returncode == 0, (ran.stdout, ran.stderr, *logs)


@pytest.mark.parametrize("law", [pytest.param("cancelled", marks=pytest.mark.slow), "value"])
def test_law(law: str, made: Cloud) -> None:
    hold(made, law)


@pytest.mark.slow
def test_a_value_larger_than_the_disk(made: Cloud) -> None:
    hold(made, "full_disk", before=small_disk(Path(made.settings["XDG_STATE_HOME"]), 6))


@pytest.mark.slow
def test_the_submitting_process_is_killed(made: Cloud) -> None:
    hold(made, "killed", "0.9")


@pytest.mark.slow
def test_a_killed_keeper(made: Cloud) -> None:
    """The value is lost, which `jobs status` says, and `jobs cancel` deletes the slices."""
    jobs = [sys.executable, "-m", "pyreactant", "jobs"]
    code = f"import pyreactant as pr; print(pr.submit('program.py:waits', on={made.target()}).id)"
    ran = harness.run([sys.executable, "-c", code], env=made.settings, cwd=made.folder)
    assert ran.returncode == 0, ran.stderr
    job = ran.stdout.strip()
    folder = made.folder / "state" / "pyreactant" / "jobs" / job
    until(lambda: "ACTIVE" in (folder / "keeper.log").read_text(), 60)
    mark = f"PYREACTANT_JOB={job}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue
    until(lambda: not _kept(folder), 20)
    ran = harness.run([*jobs, "status", job, "--json"], env=made.settings, cwd=made.folder)
    shown = json.loads(ran.stdout)
    assert shown["state"] == "lost"
    assert ran.returncode == 8
    assert "the value is lost; " in shown["reason"]
    assert f"{job} may still cost money: its launcher" in shown["reason"]
    assert made.api.left() != []
    ran = harness.run([*jobs, "cancel", job], env=made.settings, cwd=made.folder)
    assert ran.returncode == 0, ran.stderr
    assert made.api.left() == []


OLDER_KEEPER = """
import fcntl, json, os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
print("keeps", flush=True)
while not (folder / "cancel").exists():
    time.sleep(0.1)
state = {"state": "cancelled", "reason": "", "exit_code": 130, "since": time.time()}
(folder / "state.json").write_text(json.dumps(state))
"""
"""Holds the lock, looks for `cancel` and writes how the job ended, as the keeper of version 0.1."""


def test_a_job_that_a_keeper_of_version_0_1_runs_is_cancelled(made: Cloud) -> None:
    folder = made.folder / "state" / "pyreactant" / "jobs" / "20261126-100000-0006"
    folder.mkdir(parents=True)
    settings = {"accelerator_type": "v6e-8", "project": "my-project", "zone": "asia-northeast1-b"}
    job = {
        "what": "program.py:waits",
        "target": "tpu",
        "settings": {**settings, "retries": 1},
        "folder": str(folder),
        "id": folder.name,
        "origin": "submit",
        "created": time.time(),
        "host": os.uname().nodename,
        "pid": 1,
        "more": {"code": "1 file"},
        "schema": 1,
    }
    (folder / "job.json").write_text(json.dumps(job))
    (folder / "state.json").write_text(json.dumps({"state": "running", "since": time.time()}))
    argv = [sys.executable, "-c", OLDER_KEEPER, str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == b"keeps\n"
        argv = [sys.executable, "-m", "pyreactant", "jobs", "cancel", folder.name, "--json"]
        ran = harness.run(argv, env=made.settings, cwd=made.folder)
        assert (ran.returncode, json.loads(ran.stdout)["state"]) == (0, "cancelled"), ran
        assert keeper.wait(60) == 0


def test_a_run_in_the_foreground_is_listed(made: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in the foreground that does not get its slices in time."""
    monkeypatch.setattr(made.api, "script", [("WAITING_FOR_RESOURCES", None)])
    code, output = made.run(*made.run_options(), "--out", "out", "--wait", "0.01")
    assert code == 7, output
    argv = [sys.executable, "-m", "pyreactant", "jobs", "list", "--json"]
    ran = harness.run(argv, env=made.settings, cwd=made.folder)
    (row,) = json.loads(ran.stdout)
    assert (row["state"], row["exit_code"], row["origin"]) == ("failed", 7, "crosscheck")
    assert row["run"] == str(made.folder / "out")


@pytest.mark.slow
def test_the_logs_of_tpu_run(made: Cloud) -> None:
    options = made.run_options(script=True)
    code, output = made.run(
        *options, "--out", "out", "--copy", "program.py", "--", "program.py", "0"
    )
    assert code == 0, output
    jobs = [sys.executable, "-m", "pyreactant", "jobs"]
    ran = harness.run([*jobs, "list", "--json"], env=made.settings, cwd=made.folder)
    (row,) = json.loads(ran.stdout)
    assert (row["state"], row["exit_code"], row["what"]) == ("done", 0, "program.py")
    for process in "01":
        words = [*jobs, "logs", row["id"], "--process", process]
        ran = harness.run(words, env=made.settings, cwd=made.folder)
        assert ran.stdout == "arguments ['0']\n", ran


def _kept(folder: Path) -> bool:
    from pyreactant.runs.record import load

    return load(folder).is_kept()
