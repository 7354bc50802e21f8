"""`pyreactant burnin --on slurm`: a job on two nodes, whose certificate comes to this folder."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.burnin.hook import VARIABLE, Fault
from tests.burnin.hook import environment as with_fault
from tests.harness import environment
from tests.slurm.cluster import Cluster

pytestmark = [pytest.mark.only("jax"), pytest.mark.timeout(900)]

BURNIN = [sys.executable, "-m", "pyreactant", "burnin"]
ON_SLURM = ["--on", "slurm", "--nodes", "2", "--platform", "cpu", "--devices-per-process", "1"]
KEY = {"PYREACTANT_SECRET": "a secret of more than sixteen characters"}


def burnin(cluster: Cluster, folder: Path, *options: str, **variables: str) -> Any:
    settings = environment(**KEY, XDG_STATE_HOME=str(folder / "state"), **variables)
    argv = [*BURNIN, *ON_SLURM, "--size", "48", *options]
    return cluster.run(argv, env=settings, cwd=folder, timeout=600)


def test_a_certificate_of_two_nodes(cluster: Cluster, tmp_path: Path) -> None:
    ended = burnin(cluster, tmp_path, "--minutes", "0.05", "--json", "--html", "page.html")
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    made = json.loads((tmp_path / "burnin.json").read_text())
    assert json.loads(ended.stdout) == made
    assert [host["host"] for host in made["hosts"]] == ["n1", "n2"]
    devices = [f["state"] for f in made["findings"] if f["kind"] == "device"]
    assert len(devices) == 2
    assert {*devices} <= {"passed", "suspicious"}  # the machine may be busy
    assert "links to other hosts" not in made["unseen"]
    assert (tmp_path / "page.html").exists()
    check = [*BURNIN, "check", "burnin.json"]
    checked = cluster.run(check, env=environment(**KEY), cwd=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.slow
def test_a_process_that_is_killed_there(cluster: Cluster, tmp_path: Path) -> None:
    """The nodes share this folder, so that the finished rounds are certified."""
    site = tmp_path / "site"
    site.mkdir()
    fault = Fault("kill", process=1, dtype="uint32", ndim=1, after=3)
    wrong = with_fault(fault, environment()["PYTHONPATH"])
    # The variables of a job come after Python's start, so the fault lies in a file.
    lines = ["import os", f"os.environ[{VARIABLE!r}] = {wrong[VARIABLE]!r}"]
    lines += ["from tests.burnin.hook import install_from_environment"]
    lines += ["install_from_environment()"]
    (site / "sitecustomize.py").write_text("\n".join(lines))
    path = f"{site}{os.pathsep}{environment()['PYTHONPATH']}"
    lost = burnin(cluster, tmp_path, "--minutes", "5", PYTHONPATH=path)
    assert lost.returncode == 6, (lost.stdout, lost.stderr)
    assert "PARTIAL: process 1 " in " ".join(lost.stdout.split())
    made = json.loads((tmp_path / "burnin.json").read_text())
    assert made["ran"]
    assert "process 1 " in made["partial"]
