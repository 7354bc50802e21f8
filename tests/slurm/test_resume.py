"""The example resumes on a real Slurm: requeued, killed, with fewer processes, bit for bit."""

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.checkpoint.test_resume import ENDLESS, TRAIN, command, last_bits, latest
from tests.harness import environment, run
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.only("jax")

PYREACTANT = [sys.executable, "-m", "pyreactant"]
HERE = ["run", "--on", "slurm", "--nodes=2", "--cpus-per-task=1", "--platform=cpu"]


def saves(folder: Path, cluster: Cluster, count: int = 20) -> None:
    """Wait for so many new steps."""
    before, deadline = latest(folder), time.monotonic() + 200
    while latest(folder) < before + count:
        assert time.monotonic() < deadline, cluster.logs()
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example_goes_on_with_fewer_processes(cluster: Cluster, tmp_path: Path) -> None:
    env = environment(XDG_STATE_HOME=str(tmp_path / "state"))
    del env["XLA_FLAGS"]  # a run on Slurm does not take them along, and they change bits
    shutil.copy(TRAIN, tmp_path)
    program = ["--", "train.py", str(tmp_path / "steps")]
    four = [*HERE, "--tasks-per-node=2", "--devices-per-process=1", "--max-restarts=1"]
    argv = [*PYREACTANT, *four, "--detach", "--json", *program, str(ENDLESS)]
    ran = cluster.run(argv, env=env, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    job = json.loads(ran.stdout)["id"]
    handle = tmp_path / "state" / "pyreactant" / "jobs" / job / "handle.json"
    number = json.loads(handle.read_text())["slurm"]
    saves(tmp_path, cluster)
    assert cluster.run(["scancel", "--signal=USR1", str(number)]).returncode == 0
    cluster.wait(number, until={"PENDING"}, timeout=120)
    assert latest(tmp_path) % 10  # saved when it was asked to stop, not when it was time
    time.sleep(1.1)  # as in Cluster.requeue
    cluster.run(["scontrol", "update", f"JobId={number}", "StartTime=now"])
    saves(tmp_path, cluster)
    assert cluster.job(number).fields["Restarts"] == "1"
    assert cluster.run(["scancel", "--signal=KILL", str(number)]).returncode == 0
    cluster.wait(number, timeout=120)
    steps = latest(tmp_path) + 20
    two = [*HERE, "--tasks-per-node=1", "--devices-per-process=2"]
    argv = [*PYREACTANT, *two, *program, str(steps)]
    last = cluster.run(argv, env=env, cwd=tmp_path, timeout=300)
    assert last.returncode == 0, last.stderr
    (tmp_path / "other").mkdir()
    whole = run(command(tmp_path / "other", 1, steps), env=env, timeout=300)
    assert whole.returncode == 0, whole.stderr
    assert last_bits(last.stdout, steps) == last_bits(whole.stdout, steps)
