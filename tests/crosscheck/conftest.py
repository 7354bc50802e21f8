"""Two finished runs of a cross-check, shared by the tests."""

import fcntl
import os
from pathlib import Path

import pytest

from tests.crosscheck.runs import PROGRAMS, STAND_IN, second_runtime, small


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cross-check of `PROGRAMS` on jax and on the stand-in; read-only for tests."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = shared / "crosscheck-runs"
    with (shared / "crosscheck-runs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker runs them, and the others reuse them
        if not folder.exists():
            made = tmp_path_factory.mktemp("runs")
            with second_runtime(tmp_path_factory.mktemp("site")):
                report = small(PROGRAMS, backends=["jax", STAND_IN], size=16, out=made)
            assert report.passed, report.to_text()
            made.rename(folder)
    return folder
