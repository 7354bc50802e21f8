"""`pyreactant run --on slurm` on a real Slurm: it stays until the end, and is requeued."""

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.harness import environment
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.slow

PYREACTANT = [sys.executable, "-m", "pyreactant"]
STEPPING = Path(__file__).with_name("stepping.py")
HERE = ["run", "--on", "slurm", "--nodes", "2", "--platform", "cpu"]


@pytest.mark.parametrize("words", [["--signal=USR1"], ["--batch", "--signal=TERM"]])
def test_a_run_is_requeued_after_a_warning(
    words: list[str], cluster: Cluster, tmp_path: Path
) -> None:
    """Both processes save at one step and resume there; logs and report are the last ones."""
    env = environment(XDG_STATE_HOME=str(tmp_path / "state"))
    (tmp_path / "stepping.py").write_text(STEPPING.read_text())
    program = ["--", "stepping.py", str(tmp_path), "100"]
    options = ["--cpus-per-task=1", "--max-restarts=1", "--detach", "--json"]
    ran = cluster.run([*PYREACTANT, *HERE, *options, *program], env=env, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    job = json.loads(ran.stdout)["id"]
    for process in range(2):
        deadline = time.monotonic() + 60
        while not (tmp_path / f"alive-{process}").exists():
            assert time.monotonic() < deadline, cluster.logs()
            time.sleep(0.1)
    number = json.loads((tmp_path / f"state/pyreactant/jobs/{job}/handle.json").read_text())[
        "slurm"
    ]
    assert cluster.run(["scancel", *words, str(number)]).returncode == 0
    cluster.wait(number, until={"PENDING"})
    waiting = cluster.run([*PYREACTANT, "jobs", "status", job, "--json"], env=env, cwd=tmp_path)
    assert json.loads(waiting.stdout)["state"] == "queued"
    time.sleep(1.1)  # as in Cluster.requeue
    cluster.run(["scontrol", "update", f"JobId={number}", "StartTime=now"])
    ran = cluster.run([*PYREACTANT, "jobs", "result", job], env=env, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    stories = [(tmp_path / f"story-{i}").read_text().splitlines() for i in range(2)]
    assert stories[0] == stories[1]
    assert [line.split()[0] for line in stories[0]] == ["restart", "stopped", "restart", "done"]
    found = cluster.run([*PYREACTANT, "jobs", "status", job, "--json"], env=env, cwd=tmp_path)
    assert (json.loads(found.stdout)["state"], json.loads(found.stdout)["exit_code"]) == ("done", 0)
    by_number = [*PYREACTANT, "jobs", "status", str(number)]
    assert cluster.run([*by_number, "--json"], env=env, cwd=tmp_path).stdout == found.stdout
    shutil.rmtree(tmp_path / "state")
    without = cluster.run(by_number, env=env, cwd=tmp_path)
    assert f"{job}/run (does not exist)" in without.stdout, without


def test_a_run_stays_until_its_end_and_ctrl_c_cancels_it(cluster: Cluster, tmp_path: Path) -> None:
    env = environment(XDG_STATE_HOME=str(tmp_path / "state"))
    (tmp_path / "says.py").write_text("import sys\nprint('here')\nsys.exit(int(sys.argv[1]))\n")
    one = ["run", "--on", "slurm", "--cpus-per-task=1", "--platform", "cpu"]
    ran = cluster.run([*PYREACTANT, *one, "--", "says.py", "4"], env=env, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "here\n"), ran.stderr
    (tmp_path / "waits.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(100)\n")
    interrupted = [*PYREACTANT, *one, "--", "waits.py"]
    send = "import os, signal, subprocess, sys\n" + (
        "run = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)\n"
        "assert run.stdout.readline() == 'here\\n'\n"
        "run.send_signal(signal.SIGINT)\n"
        "sys.exit(run.wait(100))\n"
    )
    ran = cluster.run([sys.executable, "-c", send, *interrupted], env=env, cwd=tmp_path)
    assert ran.returncode == 130, ran.stderr
    assert "cancelling the job" in ran.stderr
    assert not cluster.run(["squeue", "--noheader", "--states=RUNNING,PENDING"]).stdout
