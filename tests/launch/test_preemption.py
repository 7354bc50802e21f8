"""Programs that call `reached_preemption`: all stop at one step, whichever gets the signal."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.launch.runs import ended, pid, running

STEPS = """
import random
import pyreactant as pr

pause, stride, last = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for step in range(0, last, stride):
    if pr.reached_preemption(step):
        print("stops at", step)
        break
    if step == 2 * stride:
        ready()
    time.sleep(random.random() * pause)
else:
    print("comes to its end")
"""


@pytest.mark.parametrize(
    ("number", "target", "pause", "stride"),
    [
        (signal.SIGTERM, None, 0.0, 1),
        (signal.SIGUSR1, None, 0.1, 7),
        (signal.SIGTERM, 1, 0.01, 7),
        (signal.SIGTERM, 0, 0.05, 1),
        (signal.SIGUSR1, 0, 0.0, 7),
        (signal.SIGUSR1, 2, 0.05, 1),
    ],
)
def test_all_stop_at_one_step(
    number: signal.Signals, target: int | None, pause: float, stride: int, tmp_path: Path
) -> None:
    settings = [str(pause), str(stride), "1000000"]
    with running(tmp_path, STEPS, "--max-restarts", "2", processes=3, arguments=settings) as run:
        time.sleep(pause * 3)
        os.kill(run.pid if target is None else pid(tmp_path, target), number)
        code, report = ended(run, tmp_path)
    assert (code, report["cause"]) == (6, "preempted"), report
    who = "the supervisor" if target is None else f"process {target}"
    assert report["summary"] == f"{who} got {number.name}"
    assert [p["exit_code"] for p in report["processes"]] == [0, 0, 0]
    assert not report["restarts"]
    said = {(tmp_path / "run" / f"process-{i}.log").read_text() for i in range(3)}
    assert len(said) == 1, said
    assert int(said.pop().removeprefix("stops at ")) % stride == 0


ENDS = """
import pyreactant as pr

pr.reached_preemption(0)
ready()
if index == "1":
    while not Path("enough").exists():
        time.sleep(0.05)
    print("reached", pr.reached_preemption(0))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_ending_before_the_agreed_step(number: signal.Signals, tmp_path: Path) -> None:
    """Process 1 is in step 0, so all stop at step 1; a run that ends before it has succeeded."""
    with running(tmp_path, ENDS) as run:
        run.send_signal(number)
        time.sleep(0.5)
        (tmp_path / "enough").touch()
        code, report = ended(run, tmp_path)
    assert (code, report["cause"]) == (0, "done")
    assert (tmp_path / "run" / "process-1.log").read_text() == "reached False\n"


LATE = """
import pyreactant as pr

ready()
while not Path("enough").exists():
    time.sleep(0.05)
for step in range(1_000_000):
    if pr.reached_preemption(step):
        sys.exit(print("stops at", step))
    time.sleep(0.05)
"""


def test_a_warning_before_the_first_step_is_not_forgotten(tmp_path: Path) -> None:
    with running(tmp_path, LATE) as run:
        run.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        (tmp_path / "enough").touch()
        code, report = ended(run, tmp_path)
    assert (code, report["cause"]) == (6, "preempted")
    logs = [(tmp_path / "run" / f"process-{i}.log").read_text() for i in range(2)]
    assert logs[0] == logs[1]
    assert logs[0].startswith("stops at ")


JOINS = {
    "plain JAX": "jax.distributed.initialize()",
    "pyreactant": "import pyreactant as pr; pr.initialize()",
}
"""How a program joins the others. JAX's preemption service answers in one, ours in the other."""

SAVES = """
import jax, jax.numpy as jnp

JOIN
import orbax.checkpoint as ocp

everywhere = jax.sharding.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P())
options = ocp.CheckpointManagerOptions(save_interval_steps=1000)
with ocp.CheckpointManager(Path("saved").resolve(), options=options) as manager:
    for step in range(1_000_000):
        manager.save(step, args=ocp.args.StandardSave({"w": jnp.zeros(4, device=everywhere)}))
        if manager.reached_preemption(step):
            break
        if step == 3:
            ready()
        time.sleep(0.05)
print("saved", manager.latest_step())
"""


@pytest.mark.parametrize("join", JOINS)
def test_orbax_saves_at_a_preemption(join: str, tmp_path: Path) -> None:
    with running(tmp_path, SAVES.replace("JOIN", JOINS[join])) as run:
        run.send_signal(signal.SIGTERM)
        code, report = ended(run, tmp_path)
    assert (code, report["cause"]) == (6, "preempted"), report
    logs = [(tmp_path / "run" / f"process-{i}.log").read_text() for i in range(2)]
    steps = {int(log.rpartition("saved ")[2]) for log in logs}
    assert len(steps) == 1, logs
    assert min(steps) >= 3, logs  # step 0 alone would be the ordinary interval
    assert (tmp_path / "saved" / str(*steps)).is_dir()


NEVER_ASKS = """
import jax

JOIN
ready()
time.sleep(600)
"""


@pytest.mark.parametrize("join", JOINS)
def test_a_program_that_never_asks_ends_within_the_grace_period(join: str, tmp_path: Path) -> None:
    with running(tmp_path, NEVER_ASKS.replace("JOIN", JOINS[join]), "--grace", "2") as run:
        run.send_signal(signal.SIGTERM)
        code, report = ended(run, tmp_path)
    assert (code, report["cause"]) == (6, "preempted"), report
    # JAX's service takes SIGTERM where it runs; only our own programs can end by it.
    ends = {process["exit_code"] for process in report["processes"]}
    assert ends == {-9 if join == "plain JAX" else -15}, report


RESTARTS = """
import pyreactant as pr

first = os.environ["PYREACTANT_RESTART_COUNT"] == "0"
for step in range(20):
    assert not pr.reached_preemption(step)
    if first and step == 2:
        ready()
        while True:  # until the supervisor ends it, of which it hears as of a preemption
            time.sleep(0.05)
"""


def test_the_signal_with_which_a_supervisor_ends_a_program_is_no_preemption(tmp_path: Path) -> None:
    with running(tmp_path, RESTARTS, "--max-restarts", "1", processes=2) as run:
        os.kill(pid(tmp_path, 1), signal.SIGKILL)
        code, report = ended(run, tmp_path)
    assert (code, report["summary"]) == (0, "all processes ended well"), report
    assert len(report["restarts"]) == 1
