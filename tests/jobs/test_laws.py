"""The laws of every target (`laws`), on processes of this machine and on a real Slurm cluster."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import harness
from tests.harness import REPOSITORY, environment, require
from tests.slurm.cluster import Cluster, missing, started

LAWS = {
    "local": ("value", "arrays", "raises", "faults", "cancelled", "script", "killed"),
    "slurm": (
        "value",
        "raises",
        "faults",
        "cancelled",
        "scancelled",
        "told_to_slurm",
        "batch_script_killed",
        "removed",
        "killed",
    ),  # the others are no matter of it
}
SLOW = {("slurm", law) for law in ("raises", "faults", "cancelled", "killed")}
CASES = [
    pytest.param(target, law, marks=[pytest.mark.slow] if (target, law) in SLOW else [])
    for target, laws in sorted(LAWS.items())
    for law in laws
]
TARGETS = {
    "local": "pr.targets.Local(processes=2)",
    "slurm": "pr.targets.Slurm(nodes=2)",
}
Hold = Callable[..., None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    lacks = missing()
    require(not lacks, lacks)
    with started(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
def hold(request: pytest.FixtureRequest, tmp_path: Path) -> Hold:
    """Check that a law holds on the target of the test."""

    def check(law: str, target: str, *more: str) -> None:
        shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", tmp_path)
        argv = [sys.executable, "-m", "tests.jobs.laws", law, TARGETS[target], *more]
        # A folder of which sbatch would make another one.
        settings = environment(XDG_STATE_HOME=str(tmp_path / "state %j"))
        if target == "slurm":
            cluster: Cluster = request.getfixturevalue("cluster")
            ran = cluster.run(argv, env=settings, cwd=tmp_path, timeout=250)
        else:
            ran = harness.run(argv, env=settings, cwd=tmp_path, timeout=250)
        logs = [p.read_text() for p in sorted(tmp_path.glob("state*/**/*.log"))]
        assert ran.returncode == 0, (ran.stdout, ran.stderr, *logs)
        assert ran.stdout.endswith("the law holds\n")

    return check


@pytest.mark.parametrize(("target", "law"), CASES)
def test_law(law: str, target: str, hold: Hold) -> None:
    hold(law, target)


def test_jobs_of_main_sbatch_are_listed(cluster: Cluster, tmp_path: Path) -> None:
    """Jobs of slurm/main.sbatch: one that runs to its end, and one that waits, with its reason."""
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", tmp_path)
    settings = environment(XDG_STATE_HOME=str(tmp_path / "state"))

    def pyreactant(*words: str) -> str:
        argv = [sys.executable, "-m", "pyreactant", *words]
        ran = cluster.run(argv, env=settings, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    one = ["--nodes=1", "--cpus-per-task=1", "--platform=cpu"]
    check = ["crosscheck", "--on", "slurm", "--backends=jax"]
    pyreactant(*check, *one, "--size=8")
    (row,) = json.loads(pyreactant("jobs", "list", "--json"))
    assert "matmul" in pyreactant("jobs", "attach", row["id"])
    shown = json.loads(pyreactant("jobs", "status", row["id"], "--json"))
    assert (shown["state"], shown["exit_code"], shown["origin"]) == ("done", 0, "crosscheck")
    number = str(json.loads((Path(shown["folder"]) / "handle.json").read_text())["slurm"])
    assert "matmul: right on jax" in pyreactant("jobs", "logs", number)
    assert (
        json.loads(pyreactant("jobs", "status", number, "--json"))["runs"]["jax"]["cause"] == "done"
    )
    assert json.loads(pyreactant("jobs", "clean", row["id"], "--json")) == [row["id"]]
    later = ["--sbatch=--begin=now+1hour", "--cpus-per-task", "1"]
    pyreactant(*check, *later)
    (row,) = json.loads(pyreactant("jobs", "list", "--json"))
    assert (row["state"], row["reason"], row["what"]) == ("queued", "BeginTime", "cross-check")
    assert row["origin"] == "crosscheck"
    assert json.loads(pyreactant("jobs", "cancel", row["id"], "--json"))["state"] == "cancelled"
    assert not cluster.run(["squeue", "--noheader"]).stdout
