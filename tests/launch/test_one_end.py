"""One end: caller, report, `jobs` and batch system have the same state and exit code."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import harness
from tests.harness import environment, require
from tests.slurm.cluster import Cluster, missing, started

pytestmark = pytest.mark.slow

ENDS = {
    "pass": ("done", "done", 0),
    "raise ValueError('broken')": ("user", "failed", 1),
    "import sys; sys.exit(7)": ("user", "failed", 1),
    "import sys; sys.exit(256)": ("user", "failed", 1),
    "import os; os._exit(5)": ("user", "failed", 1),
    "import pyreactant as pr; raise pr.RequirementError('no chip')": ("environment", "failed", 3),
    "import pyreactant as pr; raise pr.MismatchError('wrong')": ("user", "failed", 5),
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": ("lost", "failed", 6),
    "import time; time.sleep(1000)": ("timeout", "failed", 7),
}
"""The cause in the report, the state that `jobs` shows, and the exit code."""


def script(folder: Path, text: str) -> str:
    (folder / "program.py").write_text(f"{text}\n")
    return "program.py"


def command(folder: Path, *words: str, cluster: Cluster | None = None) -> Any:
    """`pyreactant ...` in this folder, on the cluster's login node if there is one."""
    argv = [sys.executable, "-m", "pyreactant", *words]
    settings = environment(XDG_STATE_HOME=str(folder / "state"), PYREACTANT_PLATFORM="cpu")
    start = harness.run if cluster is None else cluster.run
    return start(argv, env=settings, cwd=folder, timeout=200)


def limit(text: str) -> list[str]:
    return ["--timeout", "8"] if "sleep" in text else []


@pytest.mark.parametrize("text", ENDS)
@pytest.mark.parametrize("detached", [False, True], ids=["foreground", "detached"])
def test_here(text: str, detached: bool, tmp_path: Path) -> None:
    cause, state, code = ENDS[text]
    how = ["--detach"] if detached else []
    ran = command(tmp_path, "run", "-n", "2", *limit(text), *how, "--", script(tmp_path, text))
    assert ran.returncode == (0 if detached else code), ran
    (row,) = json.loads(command(tmp_path, "jobs", "list", "--json").stdout)
    assert command(tmp_path, "jobs", "attach", row["id"]).returncode == code
    status = json.loads(command(tmp_path, "jobs", "status", row["id"], "--json").stdout)
    assert (status["state"], status["exit_code"]) == (state, code), status
    assert status["reason"].startswith("" if cause == "done" else f"{cause}: "), status
    (path,) = tmp_path.rglob("report.json")
    report = json.loads(path.read_text())
    assert (report["cause"], report["exit_code"]) == (cause, code)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    lacks = missing()
    require(not lacks, lacks)
    with started(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("text", [text for text in ENDS if "sleep" not in text])
def test_on_slurm(text: str, cluster: Cluster, tmp_path: Path) -> None:
    _, state, code = ENDS[text]
    options = ["--on", "slurm", "--nodes", "1", "--cpus-per-task", "1"]
    ran = command(tmp_path, "run", *options, "--", script(tmp_path, text), cluster=cluster)
    assert ran.returncode == code, ran
    (row,) = json.loads(command(tmp_path, "jobs", "list", "--json", cluster=cluster).stdout)
    assert (row["state"], row["exit_code"]) == (state, code), row
    number = json.loads((Path(row["folder"]) / "handle.json").read_text())["slurm"]
    job = cluster.wait(int(number))
    assert (job.state, job.code) == ("FAILED" if code else "COMPLETED", code), job
    assert command(tmp_path, "jobs", "attach", row["id"], cluster=cluster).returncode == code
