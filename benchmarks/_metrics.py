"""Benchmarks of `pyreactant.log` under the supervisor."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.harness import environment

from ._measure import Pair, keeping_bytecode

SCRIPT = str(Path(__file__).with_name("logged_calls.py"))


def log(repetitions: int) -> list[Pair]:
    """Time of one call with three names, one of them reduced; by itself, and with a JAX array."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "pyreactant", "run", "--out", f"{folder}/run"]
        subprocess.run(
            [*argv, "--platform", "cpu", "--", SCRIPT, str(repetitions + 1)],
            check=True,
            cwd=folder,
            env=keeping_bytecode(environment()),
            capture_output=True,
        )
        log = Path(folder, "run", "process-0.log").read_text()
    found = json.loads(log.splitlines()[-1])
    return [
        Pair(f"pyreactant.log of three {what}, one call", found[kind][1:], None, 20e-6)
        for kind, what in (("numbers", "numbers"), ("array", "numbers, one a JAX array"))
    ]
