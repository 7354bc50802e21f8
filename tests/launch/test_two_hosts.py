"""A run on two hosts with host names, and with a cut cable between them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import environment, spawn
from tests.hosts import cut_cable, joined_hosts, on_hosts
from tests.launch.runs import READY, RUN, Run, left_behind, running_tasks, script

SAYS = """
import os, socket
print(socket.gethostname(), os.environ["PYREACTANT_COORDINATOR_ADDRESS"].partition(":")[0])
"""


@pytest.fixture
def namespaces(tmp_path: Path) -> Iterator[list[str]]:
    with joined_hosts(tmp_path) as found:
        yield found


def settings(folder: Path) -> list[dict[str, str]]:
    return [
        environment(
            PYREACTANT_NUM_PROCESSES="2",
            PYREACTANT_PROCESS_INDEX=str(index),
            PYREACTANT_COORDINATOR_ADDRESS="hosta:4711",
            PYREACTANT_SECRET="0123456789abcdef",
            FAULT_EVENT=str(folder / "event"),
        )
        for index in range(2)
    ]


def test_two_hosts(namespaces: list[str], tmp_path: Path) -> None:
    argv = [*RUN, "--out", str(tmp_path / "run"), "--", script(tmp_path, SAYS)]
    argvs = on_hosts(namespaces, tmp_path, *argv)
    run = Run(spawn(argvs, settings(tmp_path), tmp_path, 60), tmp_path / "run")
    assert [f.code for f in run.finished] == [0, 0], run
    assert [run.log(0), run.log(1)] == [b"hosta hosta\n", b"hostb hosta\n"]
    assert [p["host"] for p in run.report["processes"]] == ["hosta", "hostb"]


def test_a_cut_cable_ends_both_hosts(namespaces: list[str], tmp_path: Path) -> None:
    """No connection closes: each host gives up the other and ends its own programs."""
    program = script(tmp_path, READY + "ready()\ntime.sleep(1000)")
    argv = [*RUN, "--out", str(tmp_path / "run"), "--heartbeat-timeout", "3", "--", program]
    argvs = on_hosts(namespaces, tmp_path, *argv)
    with running_tasks(argvs, settings(tmp_path), tmp_path) as supervisors:
        cut_cable(namespaces)
        assert [s.wait(60) for s in supervisors] == [6, 6]
        assert not left_behind(tmp_path)
    report = Run([], tmp_path / "run").report
    assert (report["cause"], report["exit_code"]) == ("lost", 6)
    assert report["summary"].startswith("process 1 on hostb was lost: no heartbeat for ")
    assert "its machine or the network to it is down" in report["summary"]
    assert report["first_error"]["host"] == "hostb"
    alone = (tmp_path / "run" / "report-process-1.txt").read_text()
    assert "process 1 on hostb: no heartbeat from process 0 for 3 s" in alone
