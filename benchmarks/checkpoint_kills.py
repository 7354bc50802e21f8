"""Kill a loop that saves at 40 points, and look whether what stays is whole and right.

``python -m benchmarks.checkpoint_kills [--points N]``. Each program goes on in the folder that the
one before left, which it cleans first. Most points lie in a save, in a deletion of old steps or in
the cleaning at the start.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyreactant as pr
from pyreactant.arrays.checkpoint.folder import steps_in
from tests.harness import environment

LOOP = """
import sys, numpy as np, pyreactant as pr
pr.initialize(platform="cpu", num_cpu_devices=4)
print("starts", flush=True)
mesh = pr.Mesh((4,), ("d",))
sharding = pr.NamedSharding(mesh, ("d",))
with pr.Checkpoints(sys.argv[1], keep=2) as checkpoints:
    state = checkpoints.restore() or {"step": 0}
    for step in range(state["step"], 10**6):
        w = pr.device_put(np.full((4, 250_000), step, np.float32), sharding)
        checkpoints.save(step, {"w": w, "step": step + 1})
"""


def _kill(folder: Path, seconds: float) -> None:
    """Kill the loop so long after it opens its folder."""
    argv = [sys.executable, "-c", LOOP, str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment()) as loop:
        assert loop.stdout is not None
        loop.stdout.readline()
        time.sleep(seconds)
        loop.send_signal(signal.SIGKILL)


def _wrong(folder: Path, before: int) -> str:
    """What is not as it must be after a kill; "" if nothing."""
    steps = steps_in(folder)
    if not steps:
        return "no step" if before >= 0 else ""
    if steps[-1] < before:
        return f"the latest step is {steps[-1]}, after {before}"
    for step in steps:
        found = pr.restore(folder / str(step))
        if found["step"] != step + 1 or not (found["w"] == step).all():
            return f"step {step} has other numbers"
    return ""


def main() -> None:
    """Kill, look, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=40)
    args = parser.parse_args()
    pr.initialize(platform="cpu", num_cpu_devices=1)
    chance, wrong, halves, before = random.Random(0), 0, 0, -1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "run")
        for point in range(args.points):
            _kill(folder, chance.uniform(0.0, 1.0))
            if not folder.exists():
                continue
            halves += any(not path.name.isdigit() for path in folder.glob("[0-9]*"))
            if why := _wrong(folder, before):
                wrong += 1
                print(f"point {point}: {why}", flush=True)
            before = max(steps_in(folder), default=-1)
    print(
        f"{args.points} kills, {halves} left half a step, {wrong} with a wrong or lost step; the "
        f"latest step is {before}"
    )


if __name__ == "__main__":
    main()
