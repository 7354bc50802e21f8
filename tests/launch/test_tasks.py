"""One supervisor per process, as with srun, mpirun or ssh: they meet, or report why not."""

import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness import QUICK_COMPILING, environment, free_port, spawn
from tests.launch.runs import (
    RUN,
    Run,
    left_behind,
    run_local,
    run_tasks,
    script,
    task_environments,
)
from tests.unit.test_process_group_plain import ONE_HOST, ONE_TASK

# In two parts, so that the test of the table of variables does not find it.
UNKNOWN = "PYREACTANT_" + "NO_SUCH"
HELLO = """
import os
print("hello", os.environ["PYREACTANT_PROCESS_INDEX"], os.environ["PYREACTANT_NUM_PROCESSES"])
"""


def tasks(folder: Path, *options: str, text: str = HELLO, **more: Any) -> Run:
    return run_tasks(folder, *options, "--", script(folder, text), **more)


def codes(run: Run) -> list[int | None]:
    return [f.code for f in run.finished]


def report_of(run: Run, process: int) -> dict[str, Any]:
    """The report of one process, for processes that process 0's report does not cover."""
    return json.loads((run.folder / f"report-process-{process}.json").read_text())


def test_all_of_it_is_in_one_folder(tmp_path: Path) -> None:
    run = tasks(tmp_path, count=3)
    assert codes(run) == [0, 0, 0], run
    for process in range(3):
        assert run.log(process) == f"hello {process} 3\n".encode()
    assert [p["exit_code"] for p in run.report["processes"]] == [0, 0, 0]
    assert sorted(p.name for p in run.folder.iterdir()) == [
        "process-0.log",
        "process-1.log",
        "process-2.log",
        "report.json",
        "report.txt",
    ]
    assert "[0] hello 0 3" in run.finished[0].log
    assert "hello" not in run.finished[1].log
    assert not left_behind(tmp_path)


def test_a_process_that_was_not_started(tmp_path: Path) -> None:
    run = tasks(tmp_path, "--start-timeout", "2", count=3, started=[0, 2])
    assert codes(run) == [4, 4], run
    assert run.report["cause"] == "rendezvous"
    assert run.report["first_error"]["process"] == 1
    assert run.report["summary"] == (
        "process 1 did not join the roll-call within 2 s (2 of 3 joined); check that each process "
        "was started, and read its own log"
    )
    assert [p["state"] for p in run.report["processes"]] == [
        "in phase joined",
        "did not join",
        "in phase joined",
    ]
    assert "process 1 did not join" in run.finished[1].log  # the other processes receive the reason


def test_process_0_was_not_started(tmp_path: Path) -> None:
    run = tasks(tmp_path, "--start-timeout", "1", started=[1])
    assert codes(run) == [4]
    report = report_of(run, 1)
    assert (report["cause"], report["exit_code"]) == ("rendezvous", 4)
    assert "process 1 could not reach process 0 at 127.0.0.1:" in report["summary"]
    assert "check that process 0 runs on that host and that no firewall" in report["summary"]
    assert report["summary"] in run.finished[0].log
    assert not (run.folder / "report.json").exists()


def test_two_processes_with_one_index(tmp_path: Path) -> None:
    one = {"PYREACTANT_PROCESS_INDEX": "1"}
    run = tasks(tmp_path, "--start-timeout", "20", count=3, settings=[{}, one, one])
    assert codes(run) == [4, 4, 4], run
    assert "two processes have index 1: one on " in run.report["summary"]
    assert "give each process its own index" in run.report["summary"]


def test_counts_that_disagree(tmp_path: Path) -> None:
    run = tasks(tmp_path, settings=[{}, {"PYREACTANT_NUM_PROCESSES": "3"}])
    assert codes(run) == [4, 4], run
    words = "process 0 was started with 2 processes, process 1 on "
    assert words in run.report["summary"]
    assert run.report["summary"].endswith(" with 3; give every process the same number")
    assert words in run.finished[1].log


def test_a_wrong_secret(tmp_path: Path) -> None:
    wrong = {"PYREACTANT_SECRET": "another secret of some length"}
    page = str(tmp_path / "page.html")
    run = tasks(tmp_path, "--start-timeout", "2", "--html", page, settings=[{}, wrong])
    assert codes(run) == [4, 4], run
    assert "process 1 did not join the roll-call" in run.report["summary"]
    refused = "a connection from 127.0.0.1: it does not have this run's secret"
    assert run.report["refused"] == [refused]
    assert f"refused: {refused}" in run.finished[0].log
    assert (
        "the run's secret differs between the two; set PYREACTANT_SECRET or"
        in (report_of(run, 1)["summary"])
    )
    # Process 1, which is alone, writes a page too.
    assert "secret differs" in (tmp_path / "page-process-1.html").read_text()
    assert "process 1 did not join" in (tmp_path / "page.html").read_text()


def test_a_secret_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("a secret of some length\n")
    path.chmod(0o600)
    said = {"PYREACTANT_SECRET": "", "PYREACTANT_SECRET_FILE": str(path)}
    assert codes(tasks(tmp_path, settings=[said, said])) == [0, 0]
    path.chmod(0o644)
    run = tasks(tmp_path / "run", settings=[said, said], started=[0])
    assert codes(run) == [2]
    assert f"other users can read it; run: chmod 600 {path}" in run.finished[0].log


ODD = [{}, {"XLA_FLAGS": "--xla_odd"}, {}]


def test_different_environments(tmp_path: Path) -> None:
    run = tasks(tmp_path, settings=ODD, count=3)
    assert codes(run) == [3, 3, 3], run
    assert (run.report["cause"], run.report["first_error"]["process"]) == ("environment", 1)
    host = socket.gethostname()
    assert (
        f"process 1 on {host} has XLA_FLAGS --xla_odd, the other 2 {QUICK_COMPILING}"
        in run.report["summary"]
    )
    assert "or pass --allow-different-environments" in run.finished[2].log
    assert not list(run.folder.glob("*.log"))  # no program was started


def test_different_environments_that_are_allowed(tmp_path: Path) -> None:
    run = tasks(tmp_path, "--allow-different-environments", settings=ODD, count=3)
    assert codes(run) == [0, 0, 0], run


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = {"PYREACTANT_COORDINATOR_ADDRESS": f"127.0.0.1:{other.getsockname()[1]}"}
        run = tasks(tmp_path, settings=[address, address], started=[0])
    assert codes(run) == [4]
    assert "for the roll-call, but it cannot be bound (Address already in use)" in str(run)
    assert "choose another port in PYREACTANT_COORDINATOR_ADDRESS" in str(run)


@pytest.mark.parametrize("started", [[0], [1], [0, 1]])
def test_a_host_that_does_not_resolve(started: list[int], tmp_path: Path) -> None:
    """It was "rendezvous", and process 0 waited until the start's time was over."""
    address = {"PYREACTANT_COORDINATOR_ADDRESS": "no-such-host.invalid:4711"}
    run = tasks(tmp_path, settings=[address, address], started=started)
    assert codes(run) == [3] * len(started), run
    for finished in run.finished:
        assert "pyreactant: environment: process " in finished.log
        assert "'no-such-host.invalid' does not resolve here" in finished.log
    assert not list(run.folder.glob("*.log"))  # no program was started


def test_processes_where_the_launcher_has_started_several(tmp_path: Path) -> None:
    run = tasks(tmp_path, "--processes", "2")
    assert codes(run) == [2, 2], run
    assert "this is already process 1 of 2 (environment); omit --processes" in str(run)
    assert "set PYREACTANT_NUM_PROCESSES=1 to start 2 processes that run without" in str(run)


@pytest.mark.parametrize("alone", [ONE_TASK, ONE_HOST])
def test_several_processes_in_the_one_process_of_a_launcher(
    alone: dict[str, str], tmp_path: Path
) -> None:
    program = script(tmp_path, HELLO)
    run = run_local(tmp_path, "--processes", "2", "--", program, settings=alone)
    assert (run.code, run.log(1)) == (0, b"hello 1 2\n"), run


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("JAX_LOCAL_DEVICE_IDS", "x", "JAX_LOCAL_DEVICE_IDS must be whole numbers separated by"),
        ("JAX_COORDINATOR_BIND_ADDRESS", "x", "with a free port, .*got 'x' .it is no host:port"),
        ("JAX_COORDINATOR_BIND_ADDRESS", "192.0.2.1:80", "got '192.0.2.1:80' .Cannot assign"),
    ],
)
def test_a_variable_of_jax_that_keeps_processes_apart(
    variable: str, value: str, words: str, tmp_path: Path
) -> None:
    program = script(tmp_path, "import pyreactant as pr\npr.initialize()")
    options = ("-n", "2", "--platform", "cpu")
    run = run_local(tmp_path, *options, "--", program, settings={variable: value})
    assert run.code == 2, run
    assert re.search(words, run.report["summary"])


@pytest.mark.slow
def test_the_pods_of_a_train_job_meet(tmp_path: Path) -> None:
    """Kubeflow's variables alone; they were once ignored, and each pod ran alone."""
    address = f"localhost:{free_port()}"
    pods = [
        environment(
            PYREACTANT_PLATFORM="cpu",
            PYREACTANT_SECRET="0123456789abcdef0123456789abcdef",
            JAX_COORDINATOR_ADDRESS=address,
            JAX_NUM_PROCESSES="2",
            JAX_PROCESS_ID=str(index),
        )
        for index in range(2)
    ]
    argv = [*RUN, "--out", str(tmp_path / "run"), "--", script(tmp_path, HELLO)]
    run = Run(spawn([argv] * 2, pods, tmp_path, 90), tmp_path / "run")
    assert codes(run) == [0, 0], run
    assert run.log(1) == b"hello 1 2\n"
    # A pod that Kubeflow numbers does not start processes of its own either.
    (again,) = spawn([[*argv[:4], "--processes", "2", *argv[-2:]]], pods[1:], tmp_path, 90)
    assert again.code == 2
    assert "already process 1 of 2 (JAX_*)" in again.log


def test_a_folder_that_process_0_finds_taken(tmp_path: Path) -> None:
    """The others do not wait for it, and write nothing into the folder."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious").write_text("")
    run = tasks(tmp_path, count=3)
    assert codes(run) == [2, 2, 2], run
    words = f"run's folder '{run.folder}' exists and is not empty; name another with --out"
    assert f"error: the {words}" in run.finished[0].log
    for process in (1, 2):
        said = f"error: process 0 on {socket.gethostname()} cannot start: the {words}"
        assert said in run.finished[process].log
    assert [p.name for p in run.folder.iterdir()] == ["precious"]


def test_a_variable_that_process_1_cannot_use(tmp_path: Path) -> None:
    """Process 2 comes after it, and still hears why."""
    run = tasks(tmp_path, count=3, settings=[{}, {UNKNOWN: "1"}, {}])
    assert codes(run) == [2, 2, 2], run
    report = run.report
    assert (report["cause"], report["first_error"]["process"]) == ("user", 1)
    words = f"process 1 on {socket.gethostname()} cannot start: "
    assert report["summary"].startswith(words)
    assert UNKNOWN in report["summary"]
    assert words in run.finished[2].log
    assert "process 0 on" not in run.finished[1].log


def test_an_option_that_does_not_exist(tmp_path: Path) -> None:
    run = tasks(tmp_path, "--no-such-option")
    assert codes(run) == [2, 2], run
    for finished in run.finished:
        assert finished.log.count("no such option") == 1
    assert not run.folder.exists()


def test_restarts(tmp_path: Path) -> None:
    text = """
import os
print("meets at", os.environ["PYREACTANT_COORDINATOR_ADDRESS"])
if os.environ["PYREACTANT_PROCESS_INDEX"] == "1":
    assert os.environ["PYREACTANT_RESTART_COUNT"] == "1"
"""
    run = tasks(tmp_path, "--max-restarts", "2", text=text)
    assert codes(run) == [0, 0], run
    (restart,) = run.report["restarts"]
    assert "process 1 on " in restart["summary"]
    assert "raised AssertionError" in restart["summary"]
    met = [line for line in run.log(1).splitlines() if line.startswith(b"meets")]
    assert len(set(met)) == 2


UNWRITTEN = """
import sys, time
from pyreactant.runs.supervisor.report import RunReport
def write(*_):
    time.sleep(12)
    raise ValueError("the disk")
RunReport.write = write
from pyreactant.cli import main
main()
"""


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    """The others end with the true cause, however long it takes and whatever goes wrong."""
    program = script(tmp_path, "import sys; sys.exit(5)")
    options = ["run", "--heartbeat-timeout", "5", "--out", "run", "--", program]
    argvs = [[sys.executable, "-c", UNWRITTEN, *options], [sys.executable, "-m", "pyreactant"]]
    argvs[1] += options
    head, other = spawn(argvs, task_environments(tmp_path, 2), tmp_path, 90)
    assert "the disk" in head.log
    assert other.code == 1, other.log
    # "ends" while Python's exit hooks run, which takes its time on a busy machine.
    assert "with exit code 5" in other.log
    assert "heartbeat" not in other.log
