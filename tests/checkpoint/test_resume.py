"""The example resumes: killed, preempted, with another number of processes, bit for bit."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pyreactant.arrays.checkpoint.folder import steps_in
from tests.harness import REPOSITORY, environment, run
from tests.launch.runs import RUN

pytestmark = pytest.mark.only("jax")

TRAIN = str(REPOSITORY / "examples" / "resume" / "train.py")
ENDLESS = 10**6


def command(folder: Path, processes: int, steps: int, *options: str) -> Sequence[str]:
    machine = ("--processes", str(processes), "--devices-per-process", str(4 // processes))
    out = folder / f"run-{time.monotonic_ns()}"
    program = (TRAIN, str(folder / "steps"), str(steps))
    return (*RUN, "--out", str(out), "--platform", "cpu", *machine, *options, "--", *program)


def latest(folder: Path) -> int:
    steps = folder / "steps"
    return max(steps_in(steps), default=-1) if steps.exists() else -1


def disturb(folder: Path, processes: int, number: signal.Signals) -> int:
    """Start the training, signal its supervisor after some new steps, and return its exit code."""
    before = latest(folder)
    with (folder / "log").open("ab") as log:
        argv = command(folder, processes, ENDLESS)
        training = subprocess.Popen(argv, env=environment(), stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 200
        while latest(folder) < before + 20:
            assert training.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        training.send_signal(number)
        return training.wait(200)
    finally:
        training.kill()
        training.wait()


def last_bits(printed: str, steps: int) -> str:
    """The digest that the example prints after so many steps."""
    (line,) = [line for line in printed.splitlines() if f"step {steps}: " in line]
    return line.rpartition(" ")[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example_goes_on_bit_for_bit(tmp_path: Path) -> None:
    assert disturb(tmp_path, 2, signal.SIGKILL) == -signal.SIGKILL
    assert disturb(tmp_path, 1, signal.SIGTERM) == 6
    assert disturb(tmp_path, 2, signal.SIGTERM) == 6
    steps = latest(tmp_path) + 20
    last = run(command(tmp_path, 1, steps), env=environment(), timeout=300)
    assert last.returncode == 0, last.stderr
    (tmp_path / "other").mkdir()
    whole = run(command(tmp_path / "other", 2, steps), env=environment(), timeout=300)
    assert whole.returncode == 0, whole.stderr
    assert last_bits(last.stdout, steps) == last_bits(whole.stdout, steps)


MOVES = """
import sys
import pyreactant as pr

mesh = pr.Mesh((-1,), ("d",))
tree = pr.restore(sys.argv[1], shardings=pr.NamedSharding(mesh, ()))
assert type(tree["w"]) is pr.ShardedArray
pr.save(sys.argv[2], tree)
"""


@pytest.mark.julia
@pytest.mark.timeout(0)
def test_the_state_goes_through_the_other_runtime(named_julia: None, tmp_path: Path) -> None:
    """Reactant restores what the example saved on JAX, saves it, and the example goes on there."""
    moved, other = tmp_path / "moved", tmp_path / "other"
    moved.mkdir()
    other.mkdir()
    first = run(command(tmp_path, 2, 40), env=environment(), timeout=300)
    assert first.returncode == 0, first.stderr
    step = f"steps/{latest(tmp_path)}"
    argv = [sys.executable, "-c", MOVES, str(tmp_path / step), str(moved / step)]
    settings = {"PYREACTANT_BACKEND": "reactant", "PYREACTANT_PLATFORM": "cpu"}
    went = run(argv, env=environment(PYREACTANT_NUM_CPU_DEVICES="4", **settings), timeout=1800)
    assert went.returncode == 0, went.stderr
    last = run(command(moved, 1, 60), env=environment(), timeout=300)
    whole = run(command(other, 2, 60), env=environment(), timeout=300)
    assert last_bits(last.stdout, 60) == last_bits(whole.stdout, 60)
