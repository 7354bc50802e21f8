"""`pyreactant run --profile`: a file for each process, and each missing one is named."""

from pathlib import Path

import jax
import pytest

from tests.harness import environment, spawn
from tests.hosts import joined_hosts, on_hosts
from tests.launch.runs import RUN, Run, run_local, run_script, script
from tests.perfetto import opened

ROOT = Path(__file__).parents[2]

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
    assert len([*session.iterdir()]) == 6  # with the traces for Perfetto, and collectives
    for index, file in enumerate(profiles(run)):
        planes = jax.profiler.ProfileData.from_file(file).planes
        names = {e.name for plane in planes for line in plane.lines for e in line.events}
        seen = {name for name in names if name.startswith("step ")}
        # pr.log of step 1 begins it, after that step.
        assert seen == {f"step {step} of {index}" for step in (2, 3, 4)}
    xprof, timeline = run.report["notes"]
    assert f"xprof {run.folder}/profile" in xprof
    path = run.folder / "profile" / "timeline.tar"
    assert timeline == f"timeline of 2 processes: {path}, for https://ui.perfetto.dev"
    assert timeline in " ".join(run.finished[0].log.split())
    entries, traces = opened(path)
    assert sorted(entries) == ["process-0.json", "process-1.json"]
    for name, trace in traces.items():
        number = name.removeprefix("process-").removesuffix(".json")
        assert entries[name]["machine"]["name"].startswith(f"process {number} on ")
        assert f"step 3 of {number}" in {event.get("name") for event in trace["traceEvents"]}
    begun = {row["index"]: row["profile"]["began_ns"] for row in run.report["processes"]}
    offsets = [entry.get("clocks", {}).get("offset_ns", 0) for entry in entries.values()]
    assert sorted(offsets) == [0, abs(begun[0] - begun[1])]


WAITS = """
import time
from pathlib import Path
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import pyreactant as pr

jax.distributed.initialize()
mesh = Mesh(np.array(jax.devices()), ("x",))
rows = NamedSharding(mesh, PartitionSpec("x"))
x = jax.make_array_from_callback((4, 4), rows, lambda index: np.ones((4, 4), np.float32)[index])

@jax.jit
def total(x):
    return x.sum()

for step in range(7):
    begun = Path(f"step-{step}")
    if jax.process_index() == 0:
        begun.touch()
    while not begun.exists():
        time.sleep(0.01)
    if jax.process_index() == 1:
        time.sleep(0.5)
    total(x).block_until_ready()
    pr.log(step, loss=1.0)
"""


def test_the_process_that_the_others_wait_for_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ["-n", "2", "--devices-per-process", "2", "--profile", "1:5", "--html", str(page)]
    run = run_script(tmp_path, WAITS, *options)
    assert run.code == 0, run
    waits = run.report["waits"]
    (row,) = waits["rows"]
    assert row["collective"].startswith("all-reduce")
    assert row["program"] == "jit_total"
    assert row["times"] == 5
    assert row["last"] == 1
    assert row["last_times"] >= 3  # another program may delay process 0 for once
    assert row["last_host"] == run.report["processes"][1]["host"]
    assert 0 < row["mean_seconds"] <= row["worst_seconds"]
    text = " ".join((run.folder / "report.txt").read_text().split())
    assert "who waited for whom: collective" in text
    assert f"process 1 on {row['last_host']} {row['last_times']} " in text
    assert "who waited for whom:" in run.finished[0].log
    assert "The longest wait: all-reduce" in page.read_text()


def test_a_process_that_is_killed_is_named(tmp_path: Path) -> None:
    run = run_script(tmp_path, PROGRAM, "-n", "2", "--profile", "2:3", arguments=["kill"])
    assert run.code == 6, run
    assert profiles(run)[1] == ""
    why = ": the process ended while it recorded"
    (note,) = [note for note in run.report["notes"] if note.endswith(why)]
    assert note.startswith("no profile of process ")  # that of process 0 may be missing, too
    assert "process 1 on " in note
    timeline = run.folder / "profile" / "timeline.tar"
    if profiles(run)[0]:  # the timeline is of what there is
        assert [*opened(timeline)[0]] == ["process-0.json"]
        assert any(n.startswith("timeline of 1 of 2 processes: ") for n in run.report["notes"])
    else:
        assert not timeline.exists()


def test_a_run_does_not_take_over_the_profile_of_the_run_around_it(tmp_path: Path) -> None:
    run = run_script(tmp_path, PROGRAM, PYREACTANT_PROFILE=f"1:2:{tmp_path}/outer")
    assert run.code == 0, run
    assert not (tmp_path / "outer").exists()


SKEW = 3_000_000_000

SKEWED_CLOCK = f"""
import os, time
if os.environ.get("PYREACTANT_PROCESS_INDEX") == "1":
    true = time.time_ns
    time.time_ns = lambda: true() + {SKEW}
"""
"""A stand-in for a host whose clock is 3 s ahead, since a namespace cannot have a clock of its own:
what `time.time_ns` shows on it. The profiler's own clock stays the true one, so that the timeline
has to be 3 s off for this process, and shows how exactly the clocks were compared."""


def test_clocks_of_two_hosts(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SKEWED_CLOCK)
    with joined_hosts(tmp_path) as namespaces:
        environments = [
            environment(
                PYREACTANT_PLATFORM="cpu",
                PYREACTANT_NUM_PROCESSES="2",
                PYREACTANT_PROCESS_INDEX=str(index),
                PYREACTANT_COORDINATOR_ADDRESS="hosta:4711",
                PYREACTANT_SECRET="0123456789abcdef0123456789abcdef",
                PYTHONPATH=f"{tmp_path}:{ROOT}",
            )
            for index in range(2)
        ]
        argv = [*RUN, "--out", str(tmp_path / "run"), "--profile", "1:2", "--"]
        argvs = on_hosts(namespaces, tmp_path, *argv, script(tmp_path, PROGRAM))
        run = Run(spawn(argvs, environments, tmp_path, 120), tmp_path / "run")
    assert run.code == 0, run
    first, second = (row["profile"] for row in run.report["processes"])
    assert (first["clock_offset_ns"], first["clock_error_ns"]) == (0, 0)
    assert abs(second["clock_offset_ns"] + SKEW) <= second["clock_error_ns"] < 1e9
    entries, _ = opened(run.folder / "profile" / "timeline.tar")
    begins = [entry.get("clocks", {}).get("offset_ns", 0) for _, entry in sorted(entries.items())]
    truth = first["began_ns"] - second["began_ns"]
    assert abs(begins[0] - begins[1] - SKEW - truth) <= second["clock_error_ns"]
    (note,) = [note for note in run.report["notes"] if note.startswith("timeline of 2 processes")]
    assert "; the clocks agree within " in note


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
