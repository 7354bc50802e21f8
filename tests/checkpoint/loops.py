"""Loops that save steps, here and in processes that are killed."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pyreactant as pr
from tests import harness

LOOP = """
import itertools, sys
import numpy as np
import pyreactant as pr

folder, keep, size, waits = sys.argv[1], *map(int, sys.argv[2:])
with pr.Checkpoints(folder, keep=keep or None) as checkpoints:
    state = checkpoints.restore() or {"step": 0}
    for step in itertools.count(state["step"] + 1):
        checkpoints.save(step, {"w": np.full(size, step, np.float32), "step": step})
        if step % 5 == 0:
            print("saved", flush=True)
            sys.stdin.read(waits)
"""


def tree(step: int) -> dict[str, Any]:
    return {"w": np.full(1000, step, np.float32), "step": step}


def fill(folder: Path | str, numbers: Any, **options: Any) -> None:
    with pr.Checkpoints(folder, **options) as checkpoints:
        for step in numbers:
            checkpoints.save(step, tree(step))


@contextlib.contextmanager
def loops(
    folder: Path | str, *, keep: int = 0, size: int = 1000, **settings: str
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a process that goes on from the last step, and says after five that it saved."""
    started = []

    def start(*, waits: bool = False) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", LOOP, folder, keep, size, int(waits)]
        process = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=harness.environment(PYREACTANT_PLATFORM="cpu", **settings),
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "saved\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
