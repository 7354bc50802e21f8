"""The types of the arguments of `initialize`."""

from typing import Any

import pytest

import pyreactant as pr

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"num_processes": "2"}, "num_processes must be a whole number, got '2' (str)"),
    ({"num_processes": True}, "num_processes must be a whole number, got True (bool)"),
    ({"process_index": "0"}, "process_index must be a whole number, got '0' (str)"),
    ({"process_index": 1.0}, "process_index must be a whole number, got 1.0 (float)"),
    ({"num_cpu_devices": 3.5}, "num_cpu_devices must be a whole number, got 3.5 (float)"),
    ({"num_cpu_devices": True}, "num_cpu_devices must be a whole number, got True (bool)"),
    ({"local_device_ids": "a"}, "local_device_ids must be a list of whole numbers such as [0, 1],"),
    ({"local_device_ids": "01"}, "local_device_ids must be a list of whole numbers such as [0, 1]"),
    ({"local_device_ids": 0}, "local_device_ids must be a list of whole numbers such as [0, 1],"),
    ({"local_device_ids": [0, 1.5]}, "local_device_ids must be a list of whole numbers such as"),
    ({"local_device_ids": []}, "local_device_ids must be a list of whole numbers such as [0, 1],"),
    ({"coordinator_address": 3333}, "coordinator_address must be text, got 3333 (int)"),
    ({"backend": 1}, "backend must be text, got 1 (int)"),
    ({"platform": b"cpu"}, "platform must be text, got b'cpu' (bytes)"),
    ({"initialization_timeout": "60"}, "initialization_timeout must be a number of seconds, got '"),
    ({"heartbeat_timeout": True}, "heartbeat_timeout must be a number of seconds, got True (bool)"),
    ({"compile_cache": 1}, "compile_cache must be a path, got 1 (int)"),
    ({"compile_cache": ""}, "compile_cache must name a folder, got ''"),
    ({"guard": "0"}, "guard must be True or False, got '0' (str)"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_an_argument_of_a_wrong_type(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError) as raised:
        pr.initialize(**arguments)
    assert message in str(raised.value)
