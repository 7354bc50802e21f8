"""The process group: arguments win over the environment; incomplete or bad values raise."""

import os
import shutil
import socket
import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import pyreactant as pr
from pyreactant.process.group import ProcessGroup, port_of, resolve
from pyreactant.process.group.coordinator import check_coordinator
from pyreactant.process.group.group import join_address, split_address
from tests.harness import environment, free_port, require

ENVIRONMENT = {
    "PYREACTANT_NUM_PROCESSES": "4",
    "PYREACTANT_PROCESS_INDEX": "3",
    "PYREACTANT_COORDINATOR_ADDRESS": "host:1234",
    "PYREACTANT_LOCAL_DEVICE_IDS": "0,2",
}


def test_precedence() -> None:
    assert resolve(environ={}) == ProcessGroup()
    assert resolve(environ=ENVIRONMENT) == ProcessGroup(4, 3, "host:1234", (0, 2), "environment")
    explicit = resolve(
        coordinator_address="other:1", num_processes=2, process_index=1, environ=ENVIRONMENT
    )
    assert explicit == ProcessGroup(2, 1, "other:1", None, "arguments")
    assert resolve(num_processes=1, environ=ENVIRONMENT).source == "arguments"


@pytest.mark.parametrize(
    ("bad_arguments", "message"),
    [
        ({"num_processes": 2}, "give num_processes, process_index and coordinator_address"),
        ({"process_index": 1}, "give num_processes, process_index and coordinator_address"),
        ({"num_processes": 2, "process_index": 1}, "needs coordinator_address='host:port'"),
        (
            {"num_processes": 2, "process_index": 2, "coordinator_address": "h:1"},
            "process_index must be from 0 to 1 with num_processes=2, got 2",
        ),
        (
            {"num_processes": 2, "process_index": -1, "coordinator_address": "h:1"},
            "process_index must be from 0 to 1",
        ),
        ({"num_processes": 0}, "num_processes must be 1 or more, got 0"),
        ({"num_processes": 1, "local_device_ids": [0, 0]}, "must be different numbers from 0"),
        *(
            ({"num_processes": 2, "process_index": 0, "coordinator_address": a}, "'host:port'")
            for a in ("host", "host:", ":1", "host:0", "host:65536", "host:x", "::1:80", "a b:1")
        ),
    ],
)
def test_bad_arguments(bad_arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        resolve(**bad_arguments, environ={})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"PYREACTANT_PROCESS_INDEX": ""}, "but not PYREACTANT_PROCESS_INDEX; set all three"),
        ({"PYREACTANT_NUM_PROCESSES": "two"}, "must be a whole number, got 'two'"),
        ({"PYREACTANT_LOCAL_DEVICE_IDS": "0;1"}, "whole numbers separated by commas"),
        ({"PYREACTANT_COORDINATOR_ADDRESS": ""}, "needs coordinator_address"),
    ],
)
def test_bad_environment(change: dict[str, str], message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        resolve(environ=ENVIRONMENT | change)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"SLURM_STEP_NUM_TASKS": "2"}, "SLURM_JOB_ID must be set"),
        ({"SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "1"}, "SLURM_JOB_ID must be set"),
        ({"SLURM_STEP_ID": "4294967290", "SLURM_JOB_NUM_NODES": "2"}, "SLURM_JOB_ID must be set"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_RANK must be set"),
        ({"PMI_SIZE": "2"}, "PMI_RANK must be set"),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "TPU_WORKER_ID must be set"),
    ],
)
def test_part_of_a_launcher_is_no_single_process(environ: dict[str, str], message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        resolve(environ=environ)
    alone = environ | {"PYREACTANT_NUM_PROCESSES": "1"}
    assert resolve(environ=alone) == ProcessGroup(source="environment")
    assert resolve(num_processes=1, environ=environ).source == "arguments"


OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
PMI = {"PMI_SIZE": "2", "PMI_RANK": "1"}
GKE = {"TPU_WORKER_HOSTNAMES": "t0,t1,t2,t3", "TPU_WORKER_ID": "1"}
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2",
    "SLURM_STEP_NODELIST": "n1",
}


def test_the_first_launcher_decides() -> None:
    decided = []
    launchers = [ENVIRONMENT, SLURM, OPEN_MPI, PMI, GKE]
    for first in range(len(launchers)):
        environ = {k: v for launcher in launchers[first:] for k, v in launcher.items()}
        group = resolve(environ=environ | {"PYREACTANT_COORDINATOR_ADDRESS": "host:1234"})
        decided.append((group.source, group.num_processes))
    assert decided == [
        ("environment", 4),
        ("Slurm", 2),
        ("Open MPI", 2),
        ("PMIx", 2),
        ("Cloud TPU on GKE", 4),
    ]


@pytest.mark.parametrize("launcher", [SLURM, OPEN_MPI, PMI, GKE])
def test_coordinator_alone_moves_only_the_meeting_point(launcher: dict[str, str]) -> None:
    moved = launcher | {"PYREACTANT_COORDINATOR_ADDRESS": "10.0.0.1:1234"}
    group = resolve(environ=moved)
    assert (group.coordinator_address, group.process_index) == ("10.0.0.1:1234", 1)


def test_coordinator_without_a_launcher() -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"COORDINATOR_ADDRESS set but not .*NUM_PRO"):
        resolve(environ={"PYREACTANT_COORDINATOR_ADDRESS": "host:1234"})


@pytest.mark.parametrize("launcher", [SLURM, PMI, GKE, {}])
def test_local_device_ids(launcher: dict[str, str]) -> None:
    launcher = launcher | {"PYREACTANT_COORDINATOR_ADDRESS": "h:1"} if launcher else {}
    assert resolve(local_device_ids=[1], environ=launcher).local_device_ids == (1,)
    named = launcher | {"PYREACTANT_LOCAL_DEVICE_IDS": "2,3"}
    assert resolve(environ=named).local_device_ids == (2, 3)
    assert resolve(local_device_ids=[1], environ=named).local_device_ids == (1,)


def test_hosts_are_as_many_as_processes() -> None:
    ProcessGroup(2, 0, "a:1", hosts=("a", "b"))
    for hosts in [("a",), ("a", ""), ()]:
        with pytest.raises(pr.InvalidArgumentError, match="hosts must name the host of each of 2"):
            ProcessGroup(2, 0, "a:1", hosts=hosts)


@given(st.text(max_size=40))
def test_ports_lie_above_those_of_clients(run_id: str) -> None:
    assert 61440 <= port_of(run_id) < 65536


def test_steps_and_requeues_have_ports_of_their_own() -> None:
    runs = [f"slurm 4711.{step} restart {n}" for step in range(20) for n in range(5)]
    assert len({port_of(run) for run in runs}) > 95


def test_addresses() -> None:
    assert split_address("host:80") == ("host", 80)
    assert split_address("[fe80::1]:80") == ("fe80::1", 80)
    assert join_address("fe80::1", 80) == "[fe80::1]:80"
    assert join_address("host", 80) == "host:80"


@given(st.text(max_size=12))
def test_any_address_is_read_or_explained(text: str) -> None:
    try:
        host, port = split_address(text)
    except pr.InvalidArgumentError:
        return
    assert host
    assert 0 < port < 65536


def test_the_check_of_a_port_listens_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that waits for a listener would go on, and find none."""
    monkeypatch.setattr(socket.socket, "listen", lambda *_: pytest.fail("it listens"))
    check_coordinator(ProcessGroup(2, 0, f"127.0.0.1:{free_port()}"), 5.0)


ONE_PORT = """
ip link set lo up && echo 30000 30000 > /proc/sys/net/ipv4/ip_local_port_range && exec "$@"
"""
WAIT = """
from pyreactant.process.group import ProcessGroup
from pyreactant.process.group.coordinator import check_coordinator
check_coordinator(ProcessGroup(2, 1, "127.0.0.1:30000"), 1.0)
"""


def test_a_connection_with_itself_is_no_listener() -> None:
    """TCP makes one where nobody listens if the system takes that port for the caller's end."""
    require(os.geteuid() == 0 and shutil.which("unshare"), "root, for a network of its own")
    python = [sys.executable, "-c", WAIT]
    ran = subprocess.run(
        ["unshare", "--net", "sh", "-c", ONE_PORT, "sh", *python],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "found nothing listening at 127.0.0.1:30000 after 1 s" in ran.stderr
