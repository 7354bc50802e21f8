"""The laws of every target, on Kubernetes: the stand-in of its API, whose pods are processes."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import harness
from tests.harness import REPOSITORY, environment, require
from tests.kubernetes.api import Api, running

pytestmark = pytest.mark.timeout(900)

SLOW = ("arrays", "raises", "faults", "cancelled", "removed", "script", "killed")
LAWS = ("value", *(pytest.param(law, marks=pytest.mark.slow) for law in SLOW))


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    require(os.geteuid() == 0, "root, for the pods' file systems")
    with running(tmp_path / "cluster") as there:
        yield there


@pytest.mark.parametrize("law", LAWS)
def test_law(law: str, api: Api, tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", tmp_path)
    settings = environment(
        XDG_STATE_HOME=str(tmp_path / "state"), KUBECONFIG=str(api.folder / "kubeconfig")
    )
    argv = [sys.executable, "-m", "tests.jobs.laws", law, "pr.targets.Kubernetes(nodes=2)"]
    ran = harness.run(argv, env=settings, cwd=tmp_path, timeout=800)
    logs = [p.read_text() for p in sorted(tmp_path.glob("**/*.log"))]
    assert ran.returncode == 0, (ran.stdout, ran.stderr, *logs)
    assert ran.stdout.endswith("the law holds\n")
