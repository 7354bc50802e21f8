"""`pyreactant run --profile`: a file for each process, and each missing one is named."""

from pathlib import Path

import jax
import pytest

from tests.launch.runs import Run, run_local, run_script

PROGRAM = """
import os, signal, sys
import jax
import pyreactant as pr

jax.distributed.initialize()
for step in range(6):
    with jax.profiler.TraceAnnotation(f"step {step} of {jax.process_index()}"):
        jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    pr.log(step, loss=1.0)
    if "kill" in sys.argv and step == 3 and jax.process_index() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def profiles(run: Run) -> list[str]:
    return [row["profile"]["file"] for row in run.report["processes"]]


def test_every_process_has_its_own_file(tmp_path: Path) -> None:
    run = run_script(tmp_path, PROGRAM, "-n", "2", "--profile", "1:3")
    assert run.code == 0, run
    session = run.folder / "profile" / "plugins" / "profile" / "steps-1"
    assert {Path(file).parent for file in profiles(run)} == {session}
    assert len([*session.iterdir()]) == 4  # with the traces that Perfetto opens
    for index, file in enumerate(profiles(run)):
        planes = jax.profiler.ProfileData.from_file(file).planes
        names = {e.name for plane in planes for line in plane.lines for e in line.events}
        seen = {name for name in names if name.startswith("step ")}
        # pr.log of step 1 begins it, after that step.
        assert seen == {f"step {step} of {index}" for step in (2, 3, 4)}
    assert f"xprof {run.folder}/profile" in run.report["notes"][0]


def test_a_process_that_is_killed_is_named(tmp_path: Path) -> None:
    run = run_script(tmp_path, PROGRAM, "-n", "2", "--profile", "2:3", arguments=["kill"])
    assert run.code == 6, run
    assert profiles(run)[1] == ""
    why = ": the process ended while it recorded"
    (note,) = [note for note in run.report["notes"] if note.endswith(why)]
    assert note.startswith("no profile of process ")  # that of process 0 may be missing, too
    assert "process 1 on " in note


def test_a_run_does_not_take_over_the_profile_of_the_run_around_it(tmp_path: Path) -> None:
    run = run_script(tmp_path, PROGRAM, PYREACTANT_PROFILE=f"1:2:{tmp_path}/outer")
    assert run.code == 0, run
    assert not (tmp_path / "outer").exists()


def test_a_step_that_is_never_reached(tmp_path: Path) -> None:
    run = run_script(tmp_path, PROGRAM, "--profile", "20:5")
    assert run.code == 0, run
    assert profiles(run) == [""]
    (note,) = run.report["notes"]
    assert note.startswith("no profile of process 0 on ")
    assert note.endswith(": step 20 was not reached; the last one was 5")
    assert note in run.finished[0].log


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "20:0", "--", "x.py"], "must be STEP:COUNT, such as 20:5"),
        (["--profile", "20:1", "--", "true"], "is for Python programs with JAX, got a command"),
    ],
)
def test_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    run = run_local(tmp_path, *arguments)
    assert run.code == 2
    assert message in run.finished[0].log
    assert not run.folder.exists()
