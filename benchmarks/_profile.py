"""Benchmarks of `pyreactant run --profile`: a step, the timeline, and the clocks of two hosts."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.harness import REPOSITORY, environment, spawn
from tests.hosts import joined_hosts, on_hosts

from ._measure import Pair

SCRIPT = str(Path(__file__).with_name("profiled_steps.py"))
_TIMELINE = str(Path(__file__).with_name("timeline.py"))

_SKEW = 3_000_000_000
_SKEWED_CLOCK = f"""
import os, time
if os.environ.get("PYREACTANT_PROCESS_INDEX") == "1":
    true = time.time_ns
    time.time_ns = lambda: true() + {_SKEW}
"""
_PROFILED = """
from pyreactant.process import supervised
from pyreactant.process.events import Profiled

supervised.tell(Profiled("", "no profile: this program says so, and the clocks are compared"))
"""


def step(repetitions: int) -> Pair:
    """Time of a step in a profile, over one in jax.profiler.trace."""
    argv = [sys.executable, SCRIPT, str(repetitions + 1), "200"]
    ran = subprocess.run(
        argv, check=True, env=environment(JAX_PLATFORMS="cpu"), capture_output=True
    )
    seconds = json.loads(ran.stdout.splitlines()[-1])
    return Pair(
        "a step in a profile, over JAX's own", seconds["ours"][1:], seconds["jax"][1:], 1.05
    )


def timeline(processes: int, collectives: int, repetitions: int) -> list[Pair]:
    """Time and memory of the timeline and the table of so many processes, 5 steps of each."""
    argv = [sys.executable, _TIMELINE, str(processes), str(collectives)]
    settings = environment(
        JAX_PLATFORMS="cpu",
        PYTHONPATH=str(REPOSITORY),
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    seconds, memory = [], []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run([*argv, folder], check=True, env=settings, capture_output=True)
        found = json.loads(ran.stdout.splitlines()[-1])
        if found["traces"] != processes or found["calls"] < 5 * collectives:
            raise RuntimeError(f"the timeline is not whole: {found}")
        seconds.append(found["seconds"])
        memory.append(found["memory"])
    name = f"timeline of {processes} processes, 5 steps of {collectives} collectives"
    return [
        Pair(name, seconds, None, 60.0),
        Pair(f"{name}: memory", memory, None, 500 * 2**20, unit="B"),
    ]


def clocks(repetitions: int) -> list[Pair]:
    """How far the compared clocks are off the truth, on two hosts, one 3 s ahead.

    The hosts are network namespaces, which need root; the skew is in `time.time_ns`, since a
    namespace has no clock of its own.
    """
    if os.geteuid() or not shutil.which("ip"):
        return []
    errors = [_clock_error() for _ in range(repetitions)]
    return [Pair("clocks of two network namespaces, one 3 s ahead", errors, None, 1e-3)]


def _clock_error() -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(_SKEWED_CLOCK)
        (folder / "program.py").write_text(_PROFILED)
        environments = [
            environment(
                PYREACTANT_NUM_PROCESSES="2",
                PYREACTANT_PROCESS_INDEX=str(index),
                PYREACTANT_COORDINATOR_ADDRESS="hosta:4711",
                PYREACTANT_SECRET="0123456789abcdef0123456789abcdef",
                PYTHONPATH=f"{folder}:{REPOSITORY}",
            )
            for index in range(2)
        ]
        argv = [sys.executable, "-m", "pyreactant", "run", "--out", str(folder / "run"), "--"]
        with joined_hosts(folder) as namespaces:
            argvs = on_hosts(namespaces, folder, *argv, str(folder / "program.py"))
            finished = spawn(argvs, environments, folder, 60)
        if any(process.code for process in finished):
            raise RuntimeError("\n".join(process.log for process in finished))
        report = json.loads((folder / "run" / "report.json").read_text())
    offset = int(report["processes"][1]["profile"]["clock_offset_ns"])
    return abs(offset + _SKEW) / 1e9
