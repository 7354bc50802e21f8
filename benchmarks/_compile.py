"""Benchmarks of the hook into JAX's compiler, and of a second start with a compile cache."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.harness import REPOSITORY, environment

from ._measure import Pair, keeping_bytecode

SCRIPT = str(Path(__file__).with_name("compilations.py"))
_EXAMPLE = str(REPOSITORY / "examples" / "fsdp" / "main.py")


def hook(count: int, repetitions: int) -> Pair:
    """Time of compilations that are seen and counted, over JAX's own."""
    argv = [sys.executable, SCRIPT, str(repetitions + 1), str(count)]
    ran = subprocess.run(argv, check=True, env=environment(), capture_output=True)
    seconds = json.loads(ran.stdout)
    return Pair(f"{count} compilations, seen", seconds["hook"][1:], seconds["jax"][1:], 1.02)


def second_start(repetitions: int) -> Pair:
    """Time to the first step of examples/fsdp on 2 processes, with a cache over without one."""
    cold, warm = [], []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_first_step(folder, "cold"))
            warm.append(_first_step(folder, "warm"))
            report = json.loads(Path(folder, "warm", "report.json").read_text())
        compiled = [row["programs"]["compiled"] for row in report["processes"]]
        if any(compiled):
            raise RuntimeError(f"the second start compiled {compiled} programs")
    return Pair("examples/fsdp, 2 processes, first step of the second start", warm, cold, 0.5)


def _first_step(folder: str, name: str) -> float:
    """Seconds from the command until the first step's line."""
    argv = [sys.executable, "-m", "pyreactant", "run", "--out", f"{folder}/{name}"]
    argv += ["--platform", "cpu", "--processes", "2", "--devices-per-process", "4"]
    settings = keeping_bytecode(environment(PYREACTANT_COMPILE_CACHE=f"{folder}/cache"))
    settings.pop("XLA_FLAGS", None)  # as a user compiles
    begin = time.perf_counter()
    with subprocess.Popen(
        [*argv, "--", _EXAMPLE], env=settings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as running:
        assert running.stdout is not None
        first = next((line for line in running.stdout if b"step 0" in line), None)
        seconds = time.perf_counter() - begin
        running.stdout.read()
    if running.returncode or first is None:
        raise RuntimeError(f"examples/fsdp failed with exit code {running.returncode}")
    return seconds
