"""Benchmarks of the supervisor: a successful run, and a roll-call of 1024 processes."""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyreactant.base.facts import facts
from pyreactant.base.process import raise_limit
from pyreactant.process.events import End, Ended, Exited, Order, Phase, Report
from pyreactant.runs.supervisor.connection import hello
from pyreactant.runs.supervisor.head import Head
from pyreactant.runs.supervisor.mtls import Certifier
from pyreactant.runs.supervisor.options import RunOptions
from pyreactant.runs.supervisor.rollcall import RollCall
from pyreactant.runs.supervisor.state import ProcessState
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
    seconds = [asyncio.run(simulated(count, 0.0))["join"] for _ in range(repetitions + 1)]
    return Pair(f"roll-call of {count} processes, until all may go", seconds[1:], None, 5.0)


async def simulated(count: int, lasts: float, *, mtls: bool = False) -> dict[str, Any]:
    """Play process 0, as `pyreactant.runs.supervisor.supervisor` does, without starting a program.

    Args:
        count: Number of processes of the run.
        lasts: Seconds that the members' programs take.
        mtls: Whether every member asks for a certificate.
    """

    def broadcast(order: Order) -> None:
        call.broadcast(order)
        if isinstance(order, End):
            head.apply(Ended(process=0))

    raise_limit(count + 512, f"{count} processes")
    states = [ProcessState(i) for i in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        head = Head(
            RunOptions([SCRIPT], quiet=True, start_timeout=120),
            states,
            broadcast,
            coordinator=lambda: "127.0.0.1:1",
            run="benchmark",
            folder=Path(folder),
            restart=0,
        )
        call = RollCall(
            _SECRET.encode(),
            head.admit,
            head.apply,
            head.lose,
            heartbeat_timeout=60.0,
            certify=Certifier("benchmark", count).certify if mtls else lambda _: {},
        )
        address = f"127.0.0.1:{free_port()}"
        await call.listen(address, count)
        head.admit(hello(0, count, facts()))
        for phase in ("initializing", "initialized", "ending"):
            head.apply(Phase(phase, process=0))
        head.apply(Exited(0, "", process=0))
        leading = asyncio.create_task(head.run())
        members = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks._members",
            address,
            str(count),
            str(lasts),
            *(["mtls"] if mtls else []),
            env={**os.environ, "PYREACTANT_SECRET": _SECRET},
            stdout=subprocess.PIPE,
        )
        before = await _steady(head, lasts)
        report = await leading
        report.write(Path(folder))
        call.broadcast(Report(report.exit_code, report.summary))
        await call.close()
        out, _ = await members.communicate()
    found: dict[str, Any] = json.loads(out)
    return {
        **found,
        "cause": report.cause,
        "summary": report.summary,
        "steady": before,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "cpu": time.process_time(),
        "load": os.getloadavg()[0],
        "refused": list(call.refused),
    }


async def _steady(head: Head, lasts: float) -> float | None:
    """The part of a core that this process uses while the members' programs run."""
    if lasts < 5:
        return None
    while any("initialized" not in state.times for state in head.states):
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.5)
    began, used = time.perf_counter(), time.process_time()
    await asyncio.sleep(lasts - 3)
    return (time.process_time() - used) / (time.perf_counter() - began)


if __name__ == "__main__":
    many, seconds = int(sys.argv[1]), float(sys.argv[2])
    found = asyncio.run(simulated(many, seconds, mtls="mtls" in sys.argv[3:]))
    print(json.dumps(found, indent=2))
