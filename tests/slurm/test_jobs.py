"""`pyreactant jobs status`, `logs` and `cancel` of Slurm's numbers: arrays, unknown, ended jobs."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyreactant import PyReactantError
from pyreactant.runs.places.slurm_jobs import job_id
from tests.harness import environment
from tests.slurm.cluster import Cluster

PYREACTANT = [sys.executable, "-m", "pyreactant", "jobs"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4711_[1-3]", "names several tasks of an array, or none; name one, such as 4711_1"),
        ("4711_", "names several tasks of an array, or none"),
        ("4711_1,2", "names several tasks of an array, or none"),
        ("4711+1", "a component of a heterogeneous job, in which slurm/main.sbatch does not run"),
        ("4711.0", "it is a step; name its job, 4711"),
        ("4_711_2", "names several tasks"),
        ("٤٧", "not a number"),
        ("job", "not a number"),
        ("", "not a number"),
        ("4711 ", "not a number"),
    ],
)
def test_what_is_no_job_id(text: str, message: str) -> None:
    with pytest.raises(PyReactantError) as caught:
        job_id(text)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_ids_are_written_as_slurm_takes_them() -> None:
    assert [str(job_id(text)) for text in ("4711", "4711_2", "0047_02")] == [
        "4711",
        "4711_2",
        "47_2",
    ]


def asking(cluster: Cluster, folder: Path) -> Callable[..., tuple[int, str]]:
    """`pyreactant jobs ...` in a folder: its exit code and everything that it prints."""

    def ask(*arguments: str) -> tuple[int, str]:
        done = cluster.run([*PYREACTANT, *arguments], env=environment(), cwd=folder)
        return done.returncode, done.stdout + done.stderr

    return ask


def states(cluster: Cluster, array: int) -> dict[str, str]:
    """The state of each task that runs, waits or ends."""
    shown = cluster.run(["squeue", "--noheader", "--array", f"--jobs={array}", "--format=%K %T"])
    return dict(line.split() for line in shown.stdout.splitlines())


def test_tasks_of_an_array(cluster: Cluster, tmp_path: Path) -> None:
    """One task is asked about, read and cancelled; the others run on."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho task $SLURM_ARRAY_TASK_ID\nexec sleep 60\n")
    output = "--output=pyreactant-%j.out"
    array = cluster.submit(["--array=0-2", "--cpus-per-task=40", output, str(script)], cwd=tmp_path)
    ask = asking(cluster, tmp_path)
    deadline = time.monotonic() + 30
    while len(list(tmp_path.glob("pyreactant-*.out"))) < 2:
        assert time.monotonic() < deadline, cluster.logs()
        time.sleep(0.1)
    found = json.loads(ask("status", f"{array}_1", "--json")[1])
    assert (found["job"], found["state"]) == (f"{array}_1", "RUNNING")
    assert found["raw_id"] != array
    assert found["folder"] == str(tmp_path / "pyreactant-runs" / f"job-{found['raw_id']}")
    assert ask("logs", f"{array}_1") == (0, "task 1\n")
    log = tmp_path / "pyreactant-runs" / f"job-{found['raw_id']}" / "jax" / "process-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("of task 1\n")
    assert ask("logs", f"{array}_1", "--process", "0") == (0, "of task 1\n")

    # The third task waits for CPUs: Slurm shows the array's number as its own.
    waiting = json.loads(ask("status", f"{array}_2", "--json")[1])
    assert (waiting["state"], waiting["raw_id"], waiting["folder"]) == ("PENDING", None, None)
    assert "has not started, and has no logs yet" in ask("logs", f"{array}_2")[1]
    assert ask("cancel", f"{array}_9")[0] == 2

    code, said = ask("cancel", f"{array}_1")
    assert (code, f"cancelled job {array}_1: it is C" in said) == (0, True), said
    assert states(cluster, array)["0"] == "RUNNING"
    cluster.wait(found["raw_id"])
    code, said = ask("cancel", f"{array}_1")
    assert (code, said) == (
        0,
        f"job {array}_1 has ended or is ending (CANCELLED); nothing was cancelled\n",
    )
    code, said = ask("cancel", str(array))
    assert (code, f"cancelled job {array}, every task of its array" in said) == (0, True), said
    assert "RUNNING" not in states(cluster, array).values()


def test_jobs_that_slurm_does_not_know(cluster: Cluster, tmp_path: Path) -> None:
    ask = asking(cluster, tmp_path)
    for name in ("99999", "99999_1"):
        code, said = ask("cancel", name)
        assert code == 2
        assert f"Slurm does not know job {name} (any more), and nothing was cancelled" in said
    assert ask("status", "99999")[0] == 2
    code, said = ask("status", "99999_1")
    assert code == 2
    assert "find it with sacct --jobs=99999_1 --format=JobID,JobIDRaw" in said
    code, said = ask("cancel", "9999+1")
    assert code == 2
    assert "heterogeneous" in said
