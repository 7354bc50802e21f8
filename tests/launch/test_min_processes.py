"""A run that goes on with the machines that are left, or waits for one that comes back."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness import environment
from tests.hosts import cut_cable, joined_hosts, on_hosts
from tests.launch.runs import (
    READY,
    RUN,
    Run,
    left_behind,
    pid,
    run_local,
    run_tasks,
    running_tasks,
    script,
    task_environments,
    until,
)

# The first start waits to be broken; the second is done once each of its processes has begun.
PROGRAM = (
    READY
    + """
start, count = os.environ["PYREACTANT_RESTART_COUNT"], os.environ["PYREACTANT_NUM_PROCESSES"]
assert (index, count) == (os.environ["JAX_PROCESS_ID"], os.environ["JAX_NUM_PROCESSES"])
print(f"start {start}: {index} of {count}", flush=True)
if start == "0":
    ready()
    time.sleep(1000)
Path(f"begun-{index}").touch()
while len(list(Path().glob("begun-*"))) < int(count) or Path("hold").exists():
    time.sleep(0.05)
"""
)


@dataclass
class Three:
    """Three supervisors of one run, each as if on a machine of its own."""

    folder: Path
    argv: Sequence[str]
    environments: Sequence[Mapping[str, str]]
    supervisors: Sequence["subprocess.Popen[bytes]"] = ()

    def lose(self, index: int) -> None:
        """End a supervisor and its program as the end of their machine does."""
        self.supervisors[index].kill()
        self.supervisors[index].wait()
        with contextlib.suppress(ProcessLookupError):  # its guardian ends it, too
            os.kill(pid(self.folder, index), signal.SIGKILL)

    def come_back(self, index: int) -> "subprocess.Popen[bytes]":
        """Start the supervisor of a lost machine again."""
        return subprocess.Popen(
            self.argv,
            cwd=self.folder,
            env=self.environments[index],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )


@contextmanager
def three(
    folder: Path,
    wait: str,
    program: str = PROGRAM,
    settings: Sequence[Mapping[str, str]] | None = None,
) -> Iterator[Three]:
    """Three supervisors whose programs do not end in their first start."""
    argv = [*RUN, "--out", str(folder / "run"), "--max-restarts=1", "--min-processes=2"]
    argv += [f"--start-timeout={wait}", "--", script(folder, program)]
    run = Three(folder, argv, task_environments(folder, 3, settings))
    with running_tasks([argv] * 3, run.environments, folder) as run.supervisors:
        yield run


def test_the_run_goes_on_without_a_machine(tmp_path: Path) -> None:
    """Indices have no gaps, logs keep their numbers, and the report says who was there."""
    with three(tmp_path, "8") as run_of_three:
        (tmp_path / "hold").touch()
        run_of_three.lose(1)
        first, _, third = run_of_three.supervisors
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 2, first, third)
        late = run_of_three.come_back(1)
        said, _ = late.communicate(timeout=60)
        (tmp_path / "hold").unlink()
        assert [first.wait(60), third.wait(60)] == [0, 0]
    assert late.returncode == 6, said
    assert b"was lost, and the run goes on without it" in said
    assert not left_behind(tmp_path)
    run = Run([], tmp_path / "run")
    assert run.log(0) == b"start 0: 0 of 3\nstart 1: 0 of 2\n"
    assert run.log(2) == b"start 0: 2 of 3\nstart 1: 1 of 2\n"
    report = run.report
    assert report["summary"] == "all processes ended well"
    assert report["notes"][0].startswith("the run went on without process 1 on ")
    (restart,) = report["restarts"]
    assert (restart["cause"], restart["processes"]) == ("lost", [0, 1, 2])
    assert "process 1 " in restart["summary"]
    assert report["last_start"] == {"processes": [0, 2], "from_step": None}
    text = (tmp_path / "run" / "report.txt").read_text()
    assert re.search(r"start 1, processes 0-2, until .*: lost: process 1 ", text), text
    assert "start 2, processes 0, 2: done\n" in text
    rows = report["processes"]
    assert [row["process_index"] for row in rows if row["exit_code"] == 0] == [0, 1]
    assert rows[1]["state"].startswith("lost in phase ")


TRAINS = (
    READY
    + """
import numpy as np
import pyreactant as pr

pr.initialize()
mesh = pr.Mesh((len(pr.devices()),), ("x",))
ones = pr.device_put(np.ones(12), pr.NamedSharding(mesh, ("x",)))
first = os.environ["PYREACTANT_RESTART_COUNT"] == "0"
with pr.Checkpoints("steps") as checkpoints:
    if first:
        checkpoints.save(7, {"ones": ones})
    else:
        checkpoints.restore()
if first:
    ready()
    while True:
        ones.gather()
print(pr.num_processes(), ones.gather().sum(), flush=True)
"""
)


def test_a_sharded_program_goes_on(tmp_path: Path) -> None:
    """The others fail in a collective operation before their machine is known to be gone."""
    with three(tmp_path, "2", TRAINS) as run_of_three:
        run_of_three.lose(2)
        assert [s.wait(90) for s in run_of_three.supervisors[:2]] == [0, 0]
    run = Run([], tmp_path / "run")
    assert run.log(1).splitlines()[-1] == b"2 12.0"
    (restart,) = run.report["restarts"]
    assert "process 2 " in restart["summary"]
    assert restart["from_step"] is None
    assert run.report["last_start"] == {"processes": [0, 1], "from_step": 7}
    assert "start 2, processes 0, 1, from step 7: done" in (tmp_path / "run/report.txt").read_text()
    assert not left_behind(tmp_path)


def test_a_machine_comes_back(tmp_path: Path) -> None:
    run = Run([], tmp_path / "run")
    with three(tmp_path, "60") as run_of_three:
        until(lambda: run.log(2))  # the supervisor may be lost before it writes the first line
        run_of_three.lose(2)
        back = run_of_three.come_back(2)
        said, _ = back.communicate(timeout=60)
        assert [s.wait(60) for s in run_of_three.supervisors[:2]] == [0, 0]
    assert back.returncode == 0, said
    assert run.log(2) == b"start 0: 2 of 3\nstart 1: 2 of 3\n"
    assert run.report["summary"] == "all processes ended well"
    assert not left_behind(tmp_path)


def test_a_machine_comes_back_before_its_loss_is_noticed(tmp_path: Path) -> None:
    """Its connection is still open, since nothing closed it."""
    with three(tmp_path, "600") as run_of_three:
        first, old, third = run_of_three.supervisors
        old.send_signal(signal.SIGSTOP)
        os.kill(pid(tmp_path, 1), signal.SIGKILL)
        back = run_of_three.come_back(1)
        said, _ = back.communicate(timeout=120)
        assert [first.wait(60), third.wait(60)] == [0, 0]
        old.kill()
        until(lambda: not left_behind(tmp_path))  # what watches over its program ends after it
    assert back.returncode == 0, said
    run = Run([], tmp_path / "run")
    assert run.log(0) == b"start 0: 0 of 3\nstart 1: 0 of 3\n"
    assert "another one has come in its place" in run.report["restarts"][0]["summary"]


def test_tasks_of_slurm_do_not_come_back(tmp_path: Path) -> None:
    step = {
        "SLURM_JOB_ID": "14",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_TASKS_PER_NODE": "3",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NODEID": "0",
        "PYREACTANT_NUM_PROCESSES": "",
        "PYREACTANT_PROCESS_INDEX": "",
    }
    tasks = [{**step, "SLURM_PROCID": text, "SLURM_LOCALID": text} for text in "012"]
    with three(tmp_path, "600", settings=tasks) as run_of_three:
        run_of_three.lose(1)
        first, _, third = run_of_three.supervisors
        assert [first.wait(120), third.wait(120)] == [0, 0]
    report = Run([], tmp_path / "run").report
    assert report["notes"][0].startswith("the run went on without process 1 on ")
    assert not left_behind(tmp_path)


def test_too_few_are_left(tmp_path: Path) -> None:
    with three(tmp_path, "4") as run_of_three:
        for index in (1, 2):
            run_of_three.lose(index)
        assert run_of_three.supervisors[0].wait(60) == 6
    report = Run([], tmp_path / "run").report
    assert report["cause"] == "lost"
    assert report["summary"].endswith("; 1 process is left, and --min-processes asks for 2")
    assert not left_behind(tmp_path)


def test_a_signal_ends_the_wait(tmp_path: Path) -> None:
    with three(tmp_path, "600") as run_of_three:
        run_of_three.lose(1)
        first, _, third = run_of_three.supervisors
        until(lambda: not Path(f"/proc/{pid(tmp_path, 0)}").exists(), first)
        os.kill(first.pid, signal.SIGTERM)
        assert [first.wait(60), third.wait(60)] == [6, 6]
    assert Run([], tmp_path / "run").report["cause"] == "preempted"
    assert not left_behind(tmp_path)


@pytest.mark.slow
def test_a_cut_cable(tmp_path: Path) -> None:
    """No connection closes: one host goes on, and the other gives up by itself."""
    with joined_hosts(tmp_path) as namespaces:
        argv = [*RUN, "--out", str(tmp_path / "run"), "--heartbeat-timeout", "3"]
        argv += ["--max-restarts=1", "--min-processes=1", "--start-timeout=20"]
        argv += ["--", script(tmp_path, PROGRAM)]
        settings = [
            environment(
                PYREACTANT_NUM_PROCESSES="2",
                PYREACTANT_PROCESS_INDEX=str(index),
                PYREACTANT_COORDINATOR_ADDRESS="hosta:4711",
                PYREACTANT_SECRET="0123456789abcdef",
                FAULT_EVENT=str(tmp_path / "event"),
            )
            for index in range(2)
        ]
        argvs = on_hosts(namespaces, tmp_path, *argv)
        with running_tasks(argvs, settings, tmp_path) as supervisors:
            cut_cable(namespaces)
            assert [s.wait(90) for s in supervisors] == [0, 6]
            assert not left_behind(tmp_path)
    run = Run([], tmp_path / "run")
    assert run.log(0) == b"start 0: 0 of 2\nstart 1: 0 of 1\n"
    assert run.report["notes"] == ["the run went on without process 1 on hostb"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min-processes", "2"], "says how many processes are enough for a restart"),
        (["--max-restarts", "1", "--min-processes", "0"], "must be 1 or more, got 0"),
        (
            ["--max-restarts", "1", "--min-processes", "1", "-n", "2"],
            "with --processes 2 all processes are on this one",
        ),
        (
            ["--max-restarts", "1", "--min-processes", "1", "--platform", "tpu"],
            "--min-processes is not for TPUs",
        ),
    ],
)
def test_what_cannot_be(tmp_path: Path, options: list[str], message: str) -> None:
    run = run_local(tmp_path, *options, "--", "true")
    assert run.code == 2
    assert message in run.finished[0].log


def test_more_than_there_are(tmp_path: Path) -> None:
    run = run_tasks(tmp_path, "--max-restarts", "1", "--min-processes", "3", "--", "true")
    assert [f.code for f in run.finished] == [2, 2], run
    assert "must be at most the number of processes, which is 2 here" in run.finished[0].log
