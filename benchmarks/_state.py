"""Benchmarks of checkpoints, beside Orbax and beside plain files on the same disk."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.arrays.checkpoint import store
from pyreactant.arrays.checkpoint.format import Array
from tests.harness import REPOSITORY, environment

from ._measure import Pair, added_memory, keeping_bytecode, timed

ARRAYS = 40
_RUN = (sys.executable, "-m", "pyreactant", "run", "--platform", "cpu")
_BOUNDS = {
    "save, relative to Orbax": 0.6,
    "save, relative to write and fsync": 1.5,
    "the loop waits for a save in the background": 0.05,
    "restore, the same mesh, relative to Orbax": 0.8,
    "restore, the same mesh, relative to reading the files": 1.5,
    "restore, another mesh, relative to Orbax": 0.8,
    "restore, another mesh, relative to reading the files": 2.5,
}
_MORE_MEMORY = 256 * 2**20
_AFTER_KILL = 3.0  # seconds


def checkpoints(mebibytes: int, repetitions: int) -> list[Pair]:
    """Save and restore 40 arrays in 2 processes of 4 devices; restore in one process, too."""
    with tempfile.TemporaryDirectory() as name:
        two, one = (_figures(Path(name), n, mebibytes, repetitions) for n in (2, 1))
    pairs = []
    for count, figures in ((2, two), (1, one)):
        what = f"{ARRAYS} arrays, {mebibytes} MiB, {count} x {8 // count} devices"
        for figure, (ours, reference) in figures.items():
            if figure in _BOUNDS:
                pairs.append(Pair(f"{figure}: {what}", ours, reference, _BOUNDS[figure]))
            else:
                bound = reference + _MORE_MEMORY
                pairs.append(Pair(f"{figure}: {what}", [ours], None, bound, unit="B"))
    return pairs


def _figures(folder: Path, processes: int, mebibytes: int, repetitions: int) -> dict[str, Any]:
    program = str(REPOSITORY / "benchmarks" / "state_processes.py")
    argv = [*_RUN, "--processes", str(processes), "--devices-per-process", str(8 // processes)]
    argv += ["--out", str(folder / f"run-{processes}"), "--quiet", "--", program, str(folder)]
    settings = keeping_bytecode(environment())
    subprocess.run([*argv, str(mebibytes), str(repetitions)], check=True, env=settings)
    figures: dict[str, Any] = json.loads((folder / f"{processes}.json").read_text())
    return figures


RESUMED = """
import json, os, sys, time
from pathlib import Path

ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
import jax, jax.numpy as jnp, numpy as np
import pyreactant as pr
imported = time.time()
pr.initialize()
sharding = pr.NamedSharding(pr.Mesh((-1,), ("d",)), ("d",)).to_jax()

def start():
    return {"step": jnp.int32(0), "w": jnp.ones((8, 1 << 20))}

like = jax.eval_shape(start)
shardings = {"step": pr.NamedSharding(pr.Mesh((-1,), ("d",)), ()).to_jax(), "w": sharding}
step = jax.jit(lambda s: {"step": s["step"] + 1, "w": s["w"] * 0.5}, out_shardings=shardings)
with pr.Checkpoints("steps") as checkpoints:
    before = time.time()
    state = checkpoints.restore(like, shardings)
    restored = time.time()
    state = jax.block_until_ready(step(state or jax.jit(start, out_shardings=shardings)()))
    first = time.time()
    if checkpoints.restore() is None:
        checkpoints.save(0, state)
        checkpoints.restore()
        Path(f"pid-{pr.process_index()}").write_text(str(os.getpid()))
        Path(f"ready-{pr.process_index()}").touch()
        time.sleep(1000)
row = {"first": first, "others": imported - began + restored - before}
Path(f"first-{pr.process_index()}").write_text(json.dumps(row))
"""


def resumed(repetitions: int) -> Pair:
    """Time from SIGKILL to the first step after it, beyond imports and the restore."""
    seconds = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(repetitions + 1):
            with tempfile.TemporaryDirectory() as name:
                seconds.append(_resumed(Path(name), cache))
    return Pair("from SIGKILL to the next step, over imports", seconds[1:], None, _AFTER_KILL)


def _resumed(folder: Path, cache: str) -> float:
    (folder / "train.py").write_text(RESUMED)
    argv = [*_RUN, "--processes", "2", "--devices-per-process", "2", "--quiet", "--max-restarts"]
    settings = keeping_bytecode(environment(PYREACTANT_COMPILE_CACHE=cache))
    with subprocess.Popen([*argv, "1", "--", "train.py"], cwd=folder, env=settings) as run:
        while run.poll() is None and len(list(folder.glob("ready-*"))) < 2:
            time.sleep(0.01)
        killed = time.time()
        os.kill(int((folder / "pid-1").read_text()), signal.SIGKILL)
    rows = [json.loads((folder / f"first-{n}").read_text()) for n in range(2)]
    return max(row["first"] - killed - row["others"] for row in rows)


def commands(steps: int, arrays: int, repetitions: int) -> list[Pair]:
    """Time of `checkpoints list` and `show`, from their start to their end."""
    with tempfile.TemporaryDirectory() as name:
        pr.save(Path(name, "0"), {"w": np.ones(3)})
        for step in range(1, steps):
            shutil.copytree(Path(name, "0"), Path(name, str(step)))
        many = Path(name, "many")
        pr.save(many, {f"{i:05}": np.full(4, i) for i in range(arrays)})
        return [
            Pair(f"checkpoints {what}", _command(repetitions, *words), None, bound)
            for what, words, bound in (
                (f"list, {steps} steps", ("list", name), 0.5),
                (f"show, {arrays} arrays", ("show", str(many)), 1.0),
            )
        ]


def _command(repetitions: int, *words: str) -> list[float]:
    argv = [sys.executable, "-m", "pyreactant", "checkpoints", *words]
    how: dict[str, Any] = {
        "check": True,
        "stdout": subprocess.DEVNULL,
        "env": keeping_bytecode(environment()),
    }
    return [timed(partial(subprocess.run, argv, **how)) for _ in range(repetitions + 1)][1:]


def merged(processes: int, repetitions: int) -> list[Pair]:
    """What process 0 needs to make one database of those of all processes, in simulation."""
    arrays = {str(i): Array((processes, 64), "float32", (1, 64)) for i in range(ARRAYS)}
    one = np.ones((1, 64), np.float32)
    seconds, memory = [], []
    with tempfile.TemporaryDirectory() as name:
        parts = [Path(name, f"ocdbt.process_{i}") for i in range(processes)]
        for i, part in enumerate(parts):
            part.mkdir()
            place = (slice(i, i + 1), slice(0, 64))
            pieces = [(array, place, one) for array in arrays]
            store.write_arrays(part, arrays, pieces, describe=i == 0)
        for repetition in range(repetitions):
            whole = Path(name, f"whole-{repetition}")
            whole.mkdir()
            for part in parts:
                (whole / part.name).symlink_to(part)
            links = [whole / part.name for part in parts]
            start = time.perf_counter()
            memory.append(added_memory(partial(store.merge, whole, links)))
            seconds.append(time.perf_counter() - start)
    what = f"merge of {ARRAYS} arrays of {processes} processes"
    share = processes / 4096
    return [
        Pair(what, seconds, None, 10 * share),
        Pair(f"{what}, memory", memory, None, max(share, 0.1) * 400 * 2**20, unit="B"),
    ]
