"""Errors of a run that cannot start: the cause and what to do."""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from pyreactant.process.group.group import around_proxies
from tests import harness
from tests.harness import (
    Finished,
    check_all_passed,
    environment,
    free_port,
    logs,
    run_environments,
    run_program,
    spawn,
)


def _start(folder: Path, *arguments: dict[str, Any], timeout: float = 60) -> list[Finished]:
    """Start one process per dict of arguments to `initialize`; each must raise."""
    program = [sys.executable, "-m", "tests.multiprocess.programs", "no_start"]
    argvs = [
        [*program, json.dumps({"backend": harness.backend, "platform": "cpu", **options})]
        for options in arguments
    ]
    return spawn(argvs, [environment()] * len(argvs), folder, timeout)


def test_taken_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        address = f"127.0.0.1:{port}"
        finished = _start(
            tmp_path, {"coordinator_address": address, "num_processes": 2, "process_index": 0}
        )
    check_all_passed(finished)
    assert f"must listen on port {port}" in finished[0].log
    assert "choose another port" in finished[0].log


@pytest.mark.parametrize("process_index", [0, 1])
def test_unresolvable_host(process_index: int, tmp_path: Path) -> None:
    options = {
        "coordinator_address": "no-such-host.invalid:1234",
        "num_processes": 2,
        "process_index": process_index,
    }
    finished = _start(tmp_path, options)
    check_all_passed(finished)
    assert "RequirementError" in finished[0].log
    assert "'no-such-host.invalid' does not resolve here" in finished[0].log


def test_nobody_listens(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    options = {"coordinator_address": address, "num_processes": 2, "process_index": 1}
    finished = _start(tmp_path, {**options, "initialization_timeout": 2})
    check_all_passed(finished)
    assert f"found nothing listening at {address} after 2 s" in finished[0].log


def test_missing_process(tmp_path: Path) -> None:
    """On their own, the runtimes abort without a Python exception, or wait without limit."""
    options = {"coordinator_address": f"127.0.0.1:{free_port()}", "num_processes": 3}
    options |= {"initialization_timeout": 4}
    finished = _start(tmp_path, *({**options, "process_index": i} for i in (0, 1)))
    check_all_passed(finished)
    for process in finished:
        assert "not all 3 processes came within 4 s" in process.log, logs(finished)


def test_one_says_more_processes(tmp_path: Path) -> None:
    """JAX takes process 0's count: process 1 would run with two processes, expecting three."""
    options = {"coordinator_address": f"127.0.0.1:{free_port()}", "initialization_timeout": 10}
    finished = _start(
        tmp_path,
        {**options, "num_processes": 2, "process_index": 0},
        {**options, "num_processes": 3, "process_index": 1},
    )
    check_all_passed(finished)
    for process in finished:
        assert "process 0 was started with num_processes=2, but process 1 on" in process.log
        assert "with num_processes=3; give every process the same" in process.log


def test_one_says_fewer_processes(tmp_path: Path) -> None:
    options = {"coordinator_address": f"127.0.0.1:{free_port()}", "initialization_timeout": 4}
    finished = _start(
        tmp_path,
        {**options, "num_processes": 3, "process_index": 0},
        {**options, "num_processes": 2, "process_index": 1},
    )
    check_all_passed(finished)
    assert "not all 3 processes came within 4 s" in finished[0].log
    assert "same num_processes" in finished[0].log


def test_index_beyond_the_run(tmp_path: Path) -> None:
    """On its own, JAX aborts the refused process."""
    options = {"coordinator_address": f"127.0.0.1:{free_port()}", "initialization_timeout": 6}
    finished = _start(
        tmp_path,
        {**options, "num_processes": 2, "process_index": 0},
        {**options, "num_processes": 3, "process_index": 2},
    )
    check_all_passed(finished)
    assert "process 2 of 3 was refused by the run at" in finished[1].log
    assert "not all 2 processes came within 6 s" in finished[0].log


def test_two_processes_with_one_index(tmp_path: Path) -> None:
    options = {"coordinator_address": f"127.0.0.1:{free_port()}", "initialization_timeout": 6}
    options |= {"num_processes": 3}
    finished = _start(tmp_path, *({**options, "process_index": i} for i in (0, 1, 1)))
    check_all_passed(finished)
    both = finished[1].log + finished[2].log
    assert "no two processes have one process_index" in both
    assert "not all 3 processes came" in both + finished[0].log


PROXY = "http://127.0.0.1:9"  # nobody listens there; gRPC would wait for it until the timeout
PLAIN_JAX = """
import os, sys
assert "127.0.0.1" in os.environ["no_proxy"].split(",")  # for any program, without JAX too
import jax
if sys.argv[1:]:
    jax.distributed.initialize(sys.argv[1], 2, int(os.environ["PYREACTANT_PROCESS_INDEX"]))
else:
    jax.distributed.initialize()
print(jax.process_count(), os.environ["no_proxy"], flush=True)
"""


def test_web_proxies_are_gone_around(tmp_path: Path) -> None:
    settings = {"http_proxy": PROXY, "https_proxy": PROXY, "no_proxy": "example.org"}
    check_all_passed(
        run_program("exchange_and_total", tmp_path, processes=2, devices=1, settings=settings)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("coordinator", "proxies", "no_proxy"),
    [
        ("", {"http_proxy": PROXY}, "127.0.0.1"),
        ("", {"grpc_proxy": PROXY, "no_grpc_proxy": "", "no_proxy": "b"}, "b,127.0.0.1"),
        ("localhost", {"https_proxy": PROXY, "NO_PROXY": "a.org"}, "a.org,127.0.0.1,localhost"),
        ("[::1]", {"all_proxy": PROXY, "http_proxy": PROXY}, "127.0.0.1,::1"),
    ],
)
def test_plain_jax_goes_around_web_proxies(
    tmp_path: Path, coordinator: str, proxies: dict[str, str], no_proxy: str
) -> None:
    script = tmp_path / "plain.py"
    script.write_text(PLAIN_JAX)
    program = [str(script), *([f"{coordinator}:{free_port()}"] if coordinator else [])]
    options = ["--processes", "2", "--platform", "cpu", "--out", str(tmp_path / "run"), "--"]
    argv = [sys.executable, "-m", "pyreactant", "run", *options, *program]
    (finished,) = spawn([argv], [environment(**proxies)], tmp_path, 120)
    assert finished.code == 0, finished.log
    for process in range(2):
        log = (tmp_path / "run" / f"process-{process}.log").read_text()
        assert log.splitlines()[-1] == f"2 {no_proxy}"


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        ({}, {}),
        ({"no_proxy": "a"}, {}),
        ({"http_proxy": ""}, {}),
        ({"HTTPS_PROXY": PROXY}, {"no_proxy": "h"}),
        ({"all_proxy": PROXY, "no_proxy": "a,h,b"}, {}),
        (
            {"http_proxy": PROXY, "no_proxy": "a", "NO_PROXY": "b"},
            {"no_proxy": "a,h", "NO_PROXY": "b,h"},
        ),
        ({"http_proxy": PROXY, "NO_PROXY": "b,"}, {"no_proxy": "b,h", "NO_PROXY": "b,h"}),
        ({"http_proxy": PROXY, "no_grpc_proxy": ""}, {"no_proxy": "h", "no_grpc_proxy": "h"}),
    ],
)
def test_lists_of_hosts_without_a_proxy(environ: dict[str, str], settings: dict[str, str]) -> None:
    assert around_proxies("h:1", environ) == settings
    wanted = {name: value.replace("h", "::1") for name, value in settings.items()}
    environ = {name: value.replace("h,", "::1,") for name, value in environ.items()}
    assert around_proxies("[::1]:1", environ) == wanted


def test_environment_of_part_of_a_run(tmp_path: Path) -> None:
    settings = run_environments(2, 2)[1]
    del settings["PYREACTANT_NUM_PROCESSES"]
    argv = [sys.executable, "-m", "pyreactant", "matmul"]
    (finished,) = spawn([argv], [settings], tmp_path, 60)
    assert finished.code == 2
    assert "but not PYREACTANT_NUM_PROCESSES; set all three or none" in finished.log
    assert "Traceback" not in finished.log
