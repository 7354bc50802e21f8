"""Benchmarks of the supervisor: a successful run, and a roll-call of 1024 processes."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyreactant._system.facts import facts
from pyreactant.launch._head import Head
from pyreactant.launch._options import RunOptions
from pyreactant.launch._rollcall import RollCall
from pyreactant.launch._state import ProcessState
from pyreactant.launch._supervisor import _hello
from tests.harness import environment, free_port, run_environments

from ._measure import Pair, interleave, keeping_bytecode, timed

SCRIPT = str(Path(__file__).with_name("two_processes.py"))
_SECRET = "0123456789abcdef0123456789abcdef"


def run(repetitions: int) -> Pair:
    """Time that a supervised run of two processes adds to starting both by hand."""
    with tempfile.TemporaryDirectory() as folder:
        ours, reference = interleave(
            lambda: timed(lambda: _supervised(folder)),
            lambda: timed(lambda: _by_hand(folder)),
            repetitions,
        )
    return Pair("pyreactant run, 2 processes, over by hand", ours, reference, 0.3, difference=True)


def _supervised(folder: str) -> None:
    argv = [
        sys.executable,
        "-m",
        "pyreactant",
        "run",
        "--platform",
        "cpu",
        "--processes",
        "2",
        "--devices-per-process",
        "2",
        "--",
        SCRIPT,
    ]
    settings = keeping_bytecode(environment())
    subprocess.run(argv, check=True, cwd=folder, env=settings, capture_output=True)


def _by_hand(folder: str) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, SCRIPT],
            cwd=folder,
            env=keeping_bytecode(settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for settings in run_environments(2, 2)
    ]
    codes = [process.wait() for process in running]
    if any(codes):
        raise RuntimeError("a process started by hand failed")


def roll_call(count: int, repetitions: int) -> Pair:
    """Time from the first connection until the last of `count` processes receives "go"."""
    seconds = [asyncio.run(_roll_call(count)) for _ in range(repetitions + 1)]
    return Pair(f"roll-call of {count} processes, until all may go", seconds[1:], None, 5.0)


async def _roll_call(count: int) -> float:
    """Play process 0, as `pyreactant.launch._supervisor` does, without starting a program."""

    def broadcast(order: Mapping[str, Any]) -> None:
        for member in list(call.members.values()):
            member.send(order)

    states = [ProcessState(i) for i in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        head = Head(
            RunOptions([SCRIPT], quiet=True),
            states,
            broadcast,
            coordinator=lambda: "127.0.0.1:1",
            run="benchmark",
            folder=Path(folder),
            restart=0,
        )
        call = RollCall(_SECRET.encode(), head.admit, head.apply, head.lose, heartbeat_timeout=60.0)
        address = f"127.0.0.1:{free_port()}"
        await call.listen(address, count)
        head.admit(_hello(0, count, facts()))
        leading = asyncio.create_task(head.run())
        members = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks._members",
            address,
            str(count),
            env={**os.environ, "PYREACTANT_SECRET": _SECRET},
            stdout=subprocess.PIPE,
        )
        seconds, _ = await members.communicate()
        leading.cancel()
        await call.close()
    return float(seconds)
