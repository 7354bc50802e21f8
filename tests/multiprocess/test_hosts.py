"""The runtime on two hosts with host names, and with a cut cable between them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import harness
from tests.harness import Finished, check_all_passed, environment, logs, spawn
from tests.hosts import joined_hosts, on_hosts


@pytest.fixture
def namespaces(tmp_path: Path) -> Iterator[list[str]]:
    with joined_hosts(tmp_path) as found:
        yield found


def _run(namespaces: list[str], folder: Path, program: str) -> list[Finished]:
    argv = [sys.executable, "-m", "tests.multiprocess.programs", program, "{}"]
    environments = [
        environment(
            PYREACTANT_BACKEND=harness.backend,
            PYREACTANT_PLATFORM="cpu",
            PYREACTANT_NUM_CPU_DEVICES="2",
            PYREACTANT_NUM_PROCESSES="2",
            PYREACTANT_PROCESS_INDEX=str(i),
            PYREACTANT_COORDINATOR_ADDRESS="hosta:4711",
        )
        for i in range(2)
    ]
    return spawn(on_hosts(namespaces, folder, *argv), environments, folder, 120)


@pytest.mark.slow
def test_two_hosts(namespaces: list[str], tmp_path: Path) -> None:
    program = "matmul_specs+constructors+barriers+listens_where_it_is_reached"
    check_all_passed(_run(namespaces, tmp_path, program))


@pytest.mark.slow
def test_cut_cable_ends_both_hosts(namespaces: list[str], tmp_path: Path) -> None:
    """Only the heartbeat timeout ends the wait, because no connection closes."""
    finished = _run(namespaces, tmp_path, "cuts_cable")
    for process in finished:
        assert process.code not in (0, None), logs(finished)
        assert "went on" not in process.log, logs(finished)
