"""Times steps in a profile of `pyreactant run --profile` and of jax.profiler.trace, in turns.

`benchmarks/_profile.py` starts it: ``python benchmarks/profiled_steps.py REPETITIONS STEPS``.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from pyreactant.process.supervised.profiling import Planned, Steps

multiply = jax.jit(lambda x: x @ x * 1e-3)


def ours(x: jax.Array, steps: int, folder: Path) -> float:
    """Seconds of the steps in a profile of ours."""
    plan = Planned(Steps(0, steps), folder, lambda told: None)
    plan.step(0)
    begin = time.perf_counter()
    for step in range(1, steps):
        x = multiply(x).block_until_ready()
        plan.step(step)
    seconds = time.perf_counter() - begin
    plan.step(steps)
    return seconds


def by_jax(x: jax.Array, steps: int, folder: Path) -> float:
    """Seconds of the steps in a profile by hand."""
    with jax.profiler.trace(folder):
        begin = time.perf_counter()
        for _ in range(1, steps):
            x = multiply(x).block_until_ready()
        return time.perf_counter() - begin


def main(repetitions: int, steps: int) -> None:
    x = jnp.ones((256, 256))
    multiply(x).block_until_ready()
    seconds: dict[str, list[float]] = {"ours": [], "jax": []}
    for repetition in range(repetitions):
        for name, record in [("ours", ours), ("jax", by_jax)][:: 1 if repetition % 2 else -1]:
            with tempfile.TemporaryDirectory() as folder:
                seconds[name].append(record(x, steps, Path(folder)) / (steps - 1))
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
