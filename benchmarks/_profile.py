"""Benchmark of a step that `pyreactant run --profile` records."""

import json
import subprocess
import sys
from pathlib import Path

from tests.harness import environment

from ._measure import Pair

SCRIPT = str(Path(__file__).with_name("profiled_steps.py"))


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
