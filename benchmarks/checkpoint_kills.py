"""Kill a loop that saves at 40 points, and look whether what stays is whole and right.

``python -m benchmarks.checkpoint_kills [--points N] [--place disk|gs|s3]``. Each program goes on in
the folder that the one before left, which it cleans first. Most points lie in a save, in a deletion
of old steps or in the cleaning at the start. A bucket is one of tests/checkpoint/buckets.py.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pyreactant as pr
from pyreactant.arrays.checkpoint.folder import Folder, parse, steps_in
from tests.checkpoint import buckets
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


def _kill(folder: Folder, seconds: float) -> None:
    """Kill the loop so long after it opens its folder."""
    argv = [sys.executable, "-c", LOOP, str(folder)]
    settings = environment(**os.environ)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=settings) as loop:
        assert loop.stdout is not None
        loop.stdout.readline()
        time.sleep(seconds)
        loop.send_signal(signal.SIGKILL)


def _begun(folder: Folder) -> int:
    """How many steps the folder has, whole or not; -1 if it does not exist."""
    try:
        return sum(path.name[0].isdigit() for path in folder.iterdir())
    except FileNotFoundError:
        return -1


def _wrong(folder: Folder, before: int) -> str:
    """What is not as it must be after a kill; "" if nothing."""
    steps = steps_in(folder)
    if not steps:
        return "no step" if before >= 0 else ""
    if steps[-1] < before:
        return f"the latest step is {steps[-1]}, after {before}"
    for step in steps:
        found = pr.restore(f"{folder}/{step}")
        if found["step"] != step + 1 or not (found["w"] == step).all():
            return f"step {step} has other numbers"
    return ""


@contextlib.contextmanager
def _at(place: str) -> Iterator[Folder]:
    """A folder on a disk or in a bucket, which all processes reach."""
    if place == "disk":
        with tempfile.TemporaryDirectory() as name:
            yield parse(f"{name}/run")
        return
    with buckets.serving() as services:
        os.environ.update(services.settings)
        yield parse(f"{place}://bucket/run")


def main() -> None:
    """Kill, look, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--place", choices=("disk", "gs", "s3"), default="disk")
    args = parser.parse_args()
    pr.initialize(platform="cpu", num_cpu_devices=1)
    chance, wrong, halves, before = random.Random(0), 0, 0, -1
    with _at(args.place) as folder:
        for point in range(args.points):
            _kill(folder, chance.uniform(0.0, 1.0 if args.place == "disk" else 4.0))
            if (begun := _begun(folder)) < 0:
                continue
            halves += begun > len(steps_in(folder))
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
