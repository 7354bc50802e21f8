"""srun without main.sbatch, `pyreactant explain` in each shell, and `pyreactant slurm`."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import environment, require
from tests.launch.runs import FAULTY
from tests.launch.test_any_program import PLAIN
from tests.slurm.cluster import Cluster, missing, started
from tests.slurm.test_main import settings

PYREACTANT = (sys.executable, "-m", "pyreactant")
# In two parts, so that the test of the table of variables does not find it.
UNKNOWN = "PYREACTANT_" + "NO_SUCH"
TWO = ("srun", "--nodes=2", "--ntasks=2", "--kill-on-bad-exit=1", "--wait=5")


def test_without_a_supervisor(cluster: Cluster, tmp_path: Path) -> None:
    """Under srun alone, Slurm provides the process index and the coordinator's address."""
    matmul = [*PYREACTANT, "matmul", "--report", "report.json"]
    done = cluster.run([*TWO, *matmul], env=settings(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["num_processes"], len(found["devices"])) == (2, 4)


@pytest.mark.slow
def test_a_plain_jax_program_takes_its_processes_from_the_supervisor(
    cluster: Cluster, tmp_path: Path
) -> None:
    """JAX's own resolver for Slurm applies too, and would look for the coordinator elsewhere."""
    run = [
        *PYREACTANT,
        "run",
        "--out",
        "run",
        "--all-output",
        "--platform",
        "cpu",
        "--",
        "python",
    ]
    done = cluster.run([*TWO, *run, str(PLAIN / "levanter_style.py")], env=settings(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for process in range(2):
        text = (tmp_path / "run" / f"process-{process}.log").read_text()
        # Gloo may print in the same line.
        assert f"levanter {process}/2 gathered [0, 1]" in text


def test_explain_in_a_step(cluster: Cluster, tmp_path: Path) -> None:
    done = cluster.run([*TWO, "--label", *PYREACTANT, "explain"], env=settings(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for process in range(2):
        lines = [x for x in done.stdout.splitlines() if x.startswith(f"{process}: ")]
        assert any(f"process {process} of 2" in line for line in lines), done.stdout


@pytest.mark.parametrize("allocate", [["salloc", "--nodes=2", "--ntasks=2"]])
def test_explain_in_a_shell_of_a_job(cluster: Cluster, tmp_path: Path, allocate: list[str]) -> None:
    done = cluster.run([*allocate, *PYREACTANT, "explain"], env=settings(), cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert "not one of its 2 tasks" in done.stderr
    assert "srun --kill-on-bad-exit=1" in done.stderr
    # With --processes the request is explicit.
    said = ["run", "--processes", "2", "--out", str(tmp_path / "run"), "--", "-c.py"]
    (tmp_path / "-c.py").write_text("")
    done = cluster.run([*allocate, *PYREACTANT, *said], env=settings(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_explain_in_a_batch_shell(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\n{' '.join(PYREACTANT)} explain\n")
    job = cluster.submit(
        ["--nodes=2", "--ntasks-per-node=1", f"--output={tmp_path}/out", str(script)],
        env=settings(),
        cwd=tmp_path,
    )
    assert cluster.wait(job).code == 2
    assert "srun --kill-on-bad-exit=1" in (tmp_path / "out").read_text()


@pytest.mark.slow
def test_two_steps_of_one_job_do_not_meet(cluster: Cluster, tmp_path: Path) -> None:
    """With JAX's own detection both steps would use one port."""
    script = tmp_path / "job.sh"
    matmul = f"{' '.join(PYREACTANT)} matmul --report"
    step = "srun --overlap --nodes=2 --ntasks=2 --cpus-per-task=1"
    script.write_text(
        f"#!/bin/bash\n{step} {matmul} a &\n{step} {matmul} b &\nwait %1 && wait %2\n"
    )
    job = cluster.submit(
        [
            "--nodes=2",
            "--ntasks-per-node=1",
            "--cpus-per-task=2",
            f"--output={tmp_path}/out",
            str(script),
        ],
        env=settings(),
        cwd=tmp_path,
    )
    ended = cluster.wait(job)
    assert (ended.state, ended.code) == ("COMPLETED", 0), (tmp_path / "out").read_text()
    for name in "ab":
        assert json.loads((tmp_path / name).read_text())["num_processes"] == 2


def test_a_task_that_never_comes(cluster: Cluster, tmp_path: Path) -> None:
    task = '[ $SLURM_PROCID = 1 ] && sleep 100; exec "$@"'
    run = [
        *PYREACTANT,
        "run",
        "--start-timeout",
        "3",
        "--out",
        "run",
        "--",
        FAULTY,
        "raise",
        "0",
        "warm",
    ]
    done = cluster.run([*TWO, "bash", "-c", task, "task", *run], env=settings(), cwd=tmp_path)
    assert done.returncode != 0
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (report["cause"], report["first_error"]["process"]) == ("rendezvous", 1)
    assert "process 1 on n2 did not join the roll-call within 3 s (1 of 2" in report["summary"]


def test_a_stopped_process(cluster: Cluster, tmp_path: Path) -> None:
    run = [
        *PYREACTANT,
        "run",
        "--stall-timeout",
        "8",  # a busy machine may not run a pulse thread for seconds
        "--out",
        "run",
        "--",
        FAULTY,
        "stop",
        "1",
        "warm",
    ]
    env = settings(FAULT_EVENT=str(tmp_path / "event"))
    done = cluster.run([*TWO, *run], env=env, cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert "process 1 on n2 stopped answering while stopped by a signal" in report["summary"]
    assert "faulty.py" in report["first_error"]["stacks"]


def test_a_usage_error(cluster: Cluster, tmp_path: Path) -> None:
    """Whoever meets it, and however soon srun ends the other task."""
    task = f'[ $SLURM_PROCID = $0 ] && export {UNKNOWN}=1; exec "$@"'
    run = [*PYREACTANT, "run", "--out", "run", "--", "-m", "this"]
    for process in ("0", "1"):
        done = cluster.run([*TWO, "bash", "-c", task, process, *run], env=settings(), cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert UNKNOWN in done.stderr
    done = cluster.run([*TWO, *run[:-4], "--no-such-option"], env=settings(), cwd=tmp_path)
    assert done.returncode == 2, done.stderr


@pytest.fixture
def cut_off(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    lacks = missing(separate_networks=True)
    require(not lacks, lacks)
    with started(tmp_path_factory.mktemp("cut"), separate_networks=True) as running:
        yield running


@pytest.mark.slow
def test_a_node_that_is_cut_off(cut_off: Cluster, tmp_path: Path) -> None:
    """Its supervisor ends its program, process 0's names the node, and srun does not hang."""
    script = tmp_path / "forever.py"
    script.write_text(
        "import os, time\n"
        "open('alive-' + os.environ['PYREACTANT_PROCESS_INDEX'], 'w').close()\n"
        "while True: time.sleep(0.1)\n"
    )
    run = [*PYREACTANT, "run", "--heartbeat-timeout", "3", "--out", "run", "--", str(script)]
    step = cut_off.start([*TWO, *run], env=settings(), cwd=tmp_path)
    deadline = time.monotonic() + 30
    while len(list(tmp_path.glob("alive-*"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    cut_off.cable("n2", "down")
    _, printed = step.communicate(timeout=60)
    assert step.returncode == 6, printed
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["cause"] == "lost"
    assert "process 1 on n2 was lost: no heartbeat for" in report["summary"]
    left = cut_off.run_on("n2", ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]).stdout
    assert "forever.py" not in left


def test_the_run_goes_on_without_a_node(cluster: Cluster, tmp_path: Path) -> None:
    """With --no-kill of job and step Slurm leaves the other nodes alone."""
    script = tmp_path / "twice.py"
    script.write_text(
        "import os, time\n"
        "start = os.environ['PYREACTANT_RESTART_COUNT']\n"
        "index = os.environ['PYREACTANT_PROCESS_INDEX']\n"
        "open(f'begun-{start}-{index}', 'w').close()\n"
        "while start == '0': time.sleep(0.1)\n"
    )
    run = [*PYREACTANT, "run", "--max-restarts=1", "--min-processes=1", "--start-timeout=10"]
    allocate = ["salloc", "--nodes=2", "--ntasks=2", "--no-kill", "srun", "--no-kill"]
    step = cluster.start(
        [*allocate, *run, "--out", "run", "--", str(script)], env=settings(), cwd=tmp_path
    )
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("begun-0-*"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        cluster.run(["scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test"])
        _, printed = step.communicate(timeout=120)
    finally:
        cluster.run(["scontrol", "update", "NodeName=n2", "State=RESUME"])
        while cluster.run(["sinfo", "--noheader", "--format=%T"]).stdout != "idle\n":
            assert time.monotonic() < deadline + 120
            time.sleep(0.2)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["cause"] == "done", printed
    assert "the run went on without process 1 on n2" in report["notes"]
    assert {path.name for path in tmp_path.glob("begun-*")} == {
        "begun-0-0",
        "begun-0-1",
        "begun-1-0",
    }


def test_slurm_commands(cluster: Cluster, tmp_path: Path) -> None:
    env = settings()

    def command(*arguments: str, code: int = 0) -> str:
        done = cluster.run([*PYREACTANT, *arguments], env=env, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    check = ("crosscheck", "--on", "slurm")
    said = command(*check, "--size", "128", "--out", "my out", "--time", "5")
    job = int(said.split()[2].rstrip(";"))
    cluster.wait(job)
    found = json.loads(command("jobs", "status", str(job), "--json"))
    assert (found["state"], found["folder"]) == ("COMPLETED", str(tmp_path / "my out"))
    assert found["runs"]["jax"]["cause"] == "done"
    assert f"job {job}: COMPLETED on n[1-2]" in command("jobs", "status", str(job))
    assert "matmul: right on jax, against an independent NumPy reference" in command(
        "jobs", "logs", str(job)
    )
    assert "[0]" not in command("jobs", "logs", str(job), "--process", "1")
    assert "process 7 of job" in command("jobs", "logs", str(job), "--process", "7", code=2)
    said = command(*check, "--sbatch", "--hold")
    job = int(said.split()[2].rstrip(";"))
    assert "PENDING" in command("jobs", "status", str(job))
    command("jobs", "cancel", str(job))
    assert cluster.wait(job).state == "CANCELLED"
    assert "Slurm does not know job 99999" in command("jobs", "status", "99999", code=2)
    assert "failed: sbatch: error:" in command(*check, "--constraint", "tpu", code=2)


def test_slurm_commands_where_there_is_none(cluster: Cluster, tmp_path: Path) -> None:
    argv = ["env", f"PATH={tmp_path}", *PYREACTANT, "crosscheck", "--on", "slurm"]
    done = cluster.run(argv, env=environment(), cwd=tmp_path)
    assert done.returncode == 3
    assert (
        "sbatch is not installed on this machine; run this command on a login node" in done.stderr
    )
