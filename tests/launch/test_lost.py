"""Supervisors that are killed, stopped or interrupted: the others end and report the cause."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.launch.runs import (
    READY,
    RUN,
    Run,
    left_behind,
    running_tasks,
    script,
    task_environments,
    until,
)

LOOP = READY + "ready()\ntime.sleep(1000)"


@contextmanager
def started(folder: Path, *options: str) -> Iterator[Sequence["subprocess.Popen[bytes]"]]:
    """The three supervisors of a run; yields when all programs run."""
    argv = [*RUN, "--out", str(folder / "run"), *options, "--", script(folder, LOOP)]
    with running_tasks([argv] * 3, task_environments(folder, 3), folder) as found:
        yield found


def test_the_supervisor_of_process_1_is_killed(tmp_path: Path) -> None:
    with started(tmp_path, "--max-restarts", "3") as supervisors:
        supervisors[1].kill()
        assert [s.wait(60) for s in supervisors] == [6, -9, 6]
        until(lambda: not left_behind(tmp_path))
    report = Run([], tmp_path / "run").report
    assert (report["cause"], report["first_error"]["process"]) == ("lost", 1)
    assert "process 1 on " in report["summary"]
    ends = ("was lost: its connection closed", "Connection reset by peer)", "Broken pipe)")
    assert report["summary"].endswith(ends), report["summary"]
    assert not report["restarts"]


def test_the_supervisor_of_process_0_is_killed(tmp_path: Path) -> None:
    with started(tmp_path) as supervisors:
        supervisors[0].kill()
        assert [s.wait(60) for s in supervisors] == [-9, 6, 6]
        until(lambda: not left_behind(tmp_path))
    for process in (1, 2):
        report = json.loads((tmp_path / "run" / f"report-process-{process}.json").read_text())
        (row,) = report["processes"]
        assert (row["index"], row["state"], row["phase"]) == (
            process,
            "ended by the supervisor with SIGTERM",
            "exited",
        )
        assert (report["cause"], report["first_error"]["process"]) == ("lost", 0)
        assert report["summary"].startswith(f"process {process} on ")
        # The kernel resets a connection with unread data, otherwise it closes it.
        ends = ("process 0 closed the connection", "Connection reset by peer)", "Broken pipe)")
        assert report["summary"].endswith(ends), report["summary"]


@pytest.mark.parametrize("process", [0, 1])
def test_a_stopped_supervisor_is_given_up(process: int, tmp_path: Path) -> None:
    """Its connection stays open, so only missing heartbeats show that it stopped."""
    with started(tmp_path, "--heartbeat-timeout", "2") as supervisors:
        supervisors[process].send_signal(signal.SIGSTOP)
        others = [s for s in supervisors if s is not supervisors[process]]
        assert [s.wait(60) for s in others] == [6, 6]
        supervisors[process].send_signal(signal.SIGCONT)
        assert supervisors[process].wait(60) == 6
    report = Run([], tmp_path / "run").report
    words = {
        0: "ended its program: no heartbeat from process 0 for 2 s",
        1: "was lost: no heartbeat for ",
    }
    assert words[process] in report["summary"]
    assert report["first_error"]["process"] == process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 6)])
@pytest.mark.parametrize("process", [0, 1])
def test_a_signal_to_one_supervisor_ends_all(
    process: int, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with started(tmp_path) as supervisors:
        supervisors[process].send_signal(number)
        assert [s.wait(60) for s in supervisors] == [code] * 3
        assert not left_behind(tmp_path)
    where = "the supervisor" if process == 0 else "process 1"
    assert Run([], tmp_path / "run").report["summary"] == f"{where} got {number.name}"


def test_ctrl_c_while_process_0_is_not_there(tmp_path: Path) -> None:
    """No other process is connected, so the grace period does not apply."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = task_environments(tmp_path, 2)[1]
        settings["PYREACTANT_COORDINATOR_ADDRESS"] = f"127.0.0.1:{silent.getsockname()[1]}"
        argv = [*RUN, "--out", "run", "--grace", "1000", script(tmp_path, LOOP)]
        with subprocess.Popen(argv, env=settings, cwd=tmp_path, stderr=subprocess.PIPE) as run:
            silent.accept()
            run.send_signal(signal.SIGINT)
            _, said = run.communicate(timeout=60)
    assert run.returncode == 4
    assert b"a signal asked this process to stop, but process 0 does not answer" in said
