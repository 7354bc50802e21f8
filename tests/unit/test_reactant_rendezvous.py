"""Reactant's rendezvous, without Julia: its arguments, and how an endless wait ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import environment, free_port, logs, spawn

LIMITED = """
import signal, time
from pyreactant.arrays.backend import StartOptions
from pyreactant.arrays.runtimes.reactant.setup import time_limit
from pyreactant.process.group import ProcessGroup
group = ProcessGroup(2, 1, "hosta:4711")
with time_limit(group, StartOptions(initialization_timeout={limit}), "its rendezvous"):
    print("waiting", flush=True)
    time.sleep({sleep})
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
time.sleep(0.5)
print("went on")
"""

CONNECT = """
import socket, sys, threading, types
from pyreactant.arrays.backend import StartOptions
from pyreactant.arrays.runtimes.reactant.meeting import meet
from pyreactant.arrays.runtimes.reactant.setup import connect
from pyreactant.process.group import ProcessGroup
index, address = int(sys.argv[1]), sys.argv[2]

def initialize(*arguments):
    print(arguments, flush=True)
    if index == 0:
        server = socket.create_server(("127.0.0.1", int(address.split(":")[1])))
        print("listens", flush=True)
        threading.Thread(target=server.accept, daemon=True).start()

options = StartOptions(initialization_timeout=20, heartbeat_timeout=7)
module = types.SimpleNamespace(initialize=initialize)
group = ProcessGroup(2, index, address)
meeting = meet(group, 20, 7)
connect(module, meeting, group, options, (4, 5)[:index])
print(meeting.exchange("ids", [index], 20))
meeting.close()
"""


def _start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_wait_without_end_ends_with_a_message() -> None:
    ran = _start(LIMITED.format(limit=0.5, sleep=60))
    output, words = ran.communicate(timeout=60)
    assert (ran.returncode, output) == (4, "waiting\n")
    assert words == (
        "pyreactant: RendezvousError: process 1 of 2 met the others at hosta:4711, but Reactant "
        "did not finish its rendezvous within 0.5 s; check that no firewall or proxy separates "
        "the hosts, or allow more time with initialization_timeout=\n"
    )


def test_what_ends_in_time_is_left_alone() -> None:
    ran = _start(LIMITED.format(limit=0.4, sleep=0.1))
    assert ran.communicate(timeout=60) == ("waiting\nwent on\n", "")


def test_ctrl_c_ends_the_wait_at_once() -> None:
    ran = _start(LIMITED.format(limit=600, sleep=600))
    assert ran.stdout is not None
    assert ran.stdout.readline() == "waiting\n"
    os.kill(ran.pid, signal.SIGINT)
    ran.communicate(timeout=60)
    assert ran.returncode == -signal.SIGINT


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_what_reactant_is_told(tmp_path: Path, host: str) -> None:
    """It gets every argument, so that it asks no launcher, and its port is free."""
    address = f"{host}:{free_port()}"
    argvs = [[sys.executable, "-c", CONNECT, str(index), address] for index in range(2)]
    finished = spawn(argvs, [environment()] * 2, tmp_path, 60)
    for index, process in enumerate(finished):
        assert process.code == 0, logs(finished)
        lines = process.log.splitlines()
        start = f"('{address}', 2, {index}, {(4,) if index else ()}, {index == 1}, '{address}', "
        assert lines[0].startswith(start)
        assert lines[0].endswith(", 7)")
        assert lines[-1] == "[[0], [1]]"
