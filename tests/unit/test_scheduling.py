"""The tests' own way to distribute tests: a worker that dies ends one test, and not the run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPOSITORY

CONFTEST = """
import pytest
from tests.scheduling import pytest_xdist_make_scheduler

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.name))
"""
GROUP = "def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass\n"
DEADLY = "import os\ndef test_before(): pass\ndef test_it(): os._exit(0)\ndef test_after(): pass\n"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_worker_that_dies(workers: str, tmp_path: Path) -> None:
    """Also after it has finished other groups, for which pytest-xdist would wait forever.

    One worker is the case in which all that is left, one test first, is its replacement's.
    """
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(8):
        (tmp_path / f"test_{number}.py").write_text(DEADLY if number == 6 else GROUP)
    options = ["-n", workers, "--dist", "loadgroup", "--no-loadscope-reorder"]
    # Else it removes the folders of earlier runs at its end, which can take minutes.
    options += ["--basetemp", str(tmp_path / "temporary"), "-p", "no:cacheprovider"]
    ran = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "PYTHONFAULTHANDLER": "1"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, errors = ran.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(ran.pid, signal.SIGABRT)  # all of its processes print where their threads are
        pytest.fail("\n".join(ran.communicate()))
    assert "FAILED test_6.py::test_it - worker" in printed, printed + errors
    assert "1 failed, 23 passed" in printed
    assert ran.returncode == 1
