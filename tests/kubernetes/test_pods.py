"""Runs of whole manifests, by a stand-in for the cluster whose pods are processes."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import harness
from tests.harness import environment
from tests.kubernetes.pods import run_manifest

PROGRAM = """
import os, signal, sys, time
import pyreactant as pr
group = pr.initialize(platform="cpu")
index, attempt = os.environ["PYREACTANT_PROCESS_INDEX"], os.environ["PYREACTANT_RESTART_COUNT"]
print("process", index, "attempt", attempt, os.path.dirname(pr.__file__), flush=True)
print("env", os.environ.get("OWN"), os.environ.get("PYREACTANT_SECRET"), flush=True)
print("slices", os.environ.get("MEGASCALE_NUM_SLICES"), flush=True)
pr.barrier("all are here")
if sys.argv[1:] == ["killed"] and (index, attempt) == ("1", "0"):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1:] == ["raises"] and index == "1":
    raise ValueError("no data")
if sys.argv[1:] == ["killed"] and attempt == "0" or sys.argv[1:] == ["raises"]:
    time.sleep(300)
"""
Written = Callable[..., Path]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write the manifest of a run."""

    def write(*words: str, options: tuple[str, ...] = ()) -> Path:
        (tmp_path / "train.py").write_text(PROGRAM)
        file = tmp_path / "job.yaml"
        argv = ["run", "--on", "kubernetes", "--nodes", "2", "--manifest", file.name, *options]
        ran = harness.run(
            [sys.executable, "-m", "pyreactant", *argv, "--", "train.py", *words],
            cwd=tmp_path,
            env=environment(OWN="of the user", XDG_STATE_HOME=str(tmp_path / "state")),
        )
        assert ran.returncode == 0, ran.stderr
        assert f"kubectl create -f {file.name}" in ran.stderr
        assert not (tmp_path / "state").exists(), "nothing was submitted"
        return file

    return write


@pytest.mark.slow
def test_two_pods(written: Written, tmp_path: Path) -> None:
    file = written(options=("--env", "OWN"))
    assert file.stat().st_mode & 0o777 == 0o600
    assert "of the user" not in file.read_text(), "a secret is in the archive only"
    with_other_slices(file)
    end = run_manifest(file, tmp_path / "run")
    (attempt,) = end["attempts"]
    assert (attempt["action"], {*attempt["codes"].values()}) == ("Completed", {0}), logs(tmp_path)
    for index in range(2):
        log = (tmp_path / "run" / f"{index}.0.log").read_text()
        package = "/run/pyreactant/here/pyreactant"  # /var/run is a link to /run
        assert f"[{index}] process {index} attempt 0 {package}\n" in log, log
        assert f"[{index}] env of the user None\n" in log, log
        assert "MEGASCALE_NUM_SLICES=3 is not what the JobSet says; it is unset from now on" in log
        assert f"[{index}] slices None\n" in log, log
    assert kept(tmp_path / "run", 0, 0)["cause"] == "done"


def with_other_slices(file: Path) -> None:
    """As a provider set their number after a preemption (ray-project/ray#62893)."""
    documents = [*yaml.safe_load_all(file.read_text())]
    job = documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    container["env"].append({"name": "MEGASCALE_NUM_SLICES", "value": "3"})
    file.write_text(yaml.safe_dump_all(documents))


def logs(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted((folder / "run").glob("*.log"))]


@pytest.mark.slow
def test_a_pod_that_is_killed_starts_all_again(written: Written, tmp_path: Path) -> None:
    file = written("killed", options=("--max-restarts", "1"))
    end = run_manifest(file, tmp_path / "run")
    first, second = end["attempts"]
    assert (first["action"], {*first["codes"].values()}) == ("RestartJobSet", {6}), logs(tmp_path)
    assert (second["action"], {*second["codes"].values()}) == ("Completed", {0}), logs(tmp_path)
    log = (tmp_path / "run" / "1.1.log").read_text()
    assert "[1] process 1 attempt 1 " in log, log
    end = kept(tmp_path / "run", 0, 0)
    assert (end["cause"], end["exit_code"]) == ("lost", 6)
    assert "process 1" in end["summary"]


@pytest.mark.slow
def test_a_program_that_raises_is_not_started_again(written: Written, tmp_path: Path) -> None:
    end = run_manifest(written("raises", options=("--max-restarts=5",)), tmp_path / "run")
    (attempt,) = end["attempts"]
    assert attempt["action"] == "FailJobSet"
    # Only process 0's pod fails, so that the cluster keeps the others' logs.
    assert sorted(attempt["codes"].values()) == [0, 1], logs(tmp_path)
    assert "ValueError: no data" in kept(tmp_path / "run", 0, 0)["summary"]


@pytest.mark.slow
def test_a_requirement_that_pip_cannot_install(written: Written, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("/no/such/package.whl\n")
    file = written(options=("--requirements", "requirements.txt"))
    end = run_manifest(file, tmp_path / "run")
    (attempt,) = end["attempts"]
    assert attempt["action"] == "FailJobSet"
    assert 3 in attempt["codes"].values()
    # The cluster ends the other pods, perhaps before they have said it, too.
    assert "pip cannot install what the program needs" in "".join(logs(tmp_path))


def kept(folder: Path, process: int, attempt: int) -> dict[str, Any]:
    """What the cluster keeps of a container that has ended."""
    text = (folder / f"{process}.{attempt}.json").read_text()
    assert len(text) <= 4096
    return dict(json.loads(text))


@pytest.mark.slow
def test_what_is_refused(tmp_path: Path) -> None:
    def refused(*argv: str) -> str:
        ran = harness.run([sys.executable, "-m", "pyreactant", "run", *argv], cwd=tmp_path)
        assert (ran.returncode, ran.stdout) == (2, ""), ran
        return ran.stderr

    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "job.yaml").touch()
    on = ["--on", "kubernetes", "--manifest"]
    assert "job.yaml exists, and is not replaced" in refused(*on, "job.yaml", "--", "train.py")
    assert "a manifest is for a run on kubernetes" in refused("--manifest=x", "--", "train.py")
    assert "cannot be written" in refused(*on, "no/job.yaml", "--", "train.py")
    (tmp_path / "large").write_bytes(random.Random(1).randbytes(1 << 20))
    large = refused(*on, "x.yaml", "--copy", "large", "--", "train.py")
    assert "at most 900 KiB when they are packed" in large
    assert not (tmp_path / "x.yaml").exists()
