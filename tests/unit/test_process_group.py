"""Who am I: arguments before environment before one process; parts and nonsense raise."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import pyreactant as pr
from pyreactant.process_group import ProcessGroup, resolve
from pyreactant.process_group._data import split_address

SAID = {
    "PYREACTANT_NUM_PROCESSES": "4",
    "PYREACTANT_PROCESS_INDEX": "3",
    "PYREACTANT_COORDINATOR_ADDRESS": "host:1234",
    "PYREACTANT_LOCAL_DEVICE_IDS": "0,2",
}


def test_precedence() -> None:
    assert resolve(environ={}) == ProcessGroup()
    assert resolve(environ=SAID) == ProcessGroup(4, 3, "host:1234", (0, 2), "environment")
    explicit = resolve(
        coordinator_address="other:1", num_processes=2, process_index=1, environ=SAID
    )
    assert explicit == ProcessGroup(2, 1, "other:1", None, "arguments")
    assert resolve(num_processes=1, environ=SAID).source == "arguments"


@pytest.mark.parametrize(
    ("said", "message"),
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
def test_bad_arguments(said: dict[str, Any], message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        resolve(**said, environ={})


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
        resolve(environ=SAID | change)


@pytest.mark.parametrize("size", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_tasks_of_a_launcher_do_not_run_alone_by_mistake(size: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=rf"one of 2 tasks \({size}=2\).*=1 to let"):
        resolve(environ={size: "2"})
    assert resolve(environ={size: "1"}) == ProcessGroup()
    alone = {size: "2", "PYREACTANT_NUM_PROCESSES": "1"}
    assert resolve(environ=alone).num_processes == 1
    assert resolve(num_processes=1, environ={size: "2"}).num_processes == 1


def test_addresses() -> None:
    assert split_address("host:80") == ("host", 80)
    assert split_address("[fe80::1]:80") == ("fe80::1", 80)


@given(st.text(max_size=12))
def test_any_address_is_read_or_explained(text: str) -> None:
    try:
        host, port = split_address(text)
    except pr.InvalidArgumentError:
        return
    assert host
    assert 0 < port < 65536
