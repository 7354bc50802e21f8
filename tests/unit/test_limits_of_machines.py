"""Limits of the machine that a supervisor meets: open files, and memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from pyreactant.base.child import MemoryKills
from tests.harness import environment

PROGRAM = (
    "import resource; "
    "from pyreactant.base import process as d; "
    "d.raise_limit({needed}, '100 processes', spare=100); "
    "import subprocess, sys; "
    "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True); "
    "child = subprocess.Popen([sys.executable, '-c', 'import sys, resource; sys.stdin.read(); "
    "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])'], stdin=subprocess.PIPE); "
    "d.restore_limit(child.pid); "
    "child.communicate(); "
    "d.restore_limit(child.pid)"
)


def limited(options: str, needed: int, folder: Path) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(needed=needed)
    return subprocess.run(
        ["bash", "-c", f'ulimit {options}; exec "$@"', "-", sys.executable, "-c", program],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit")
def test_a_soft_limit_is_raised_and_programs_have_their_own(tmp_path: Path) -> None:
    assert limited("-Sn 64", 300, tmp_path).stdout.split() == ["400", "64"]
    assert limited("-Sn 400", 300, tmp_path).stdout.split() == ["400", "400"]
    assert limited("-n 350; ulimit -Sn 64", 300, tmp_path).stdout.split() == ["350", "64"]


def test_a_hard_limit_is_named(tmp_path: Path) -> None:
    done = limited("-n 64", 300, tmp_path)
    assert done.stderr.rstrip().endswith(
        "RequirementError: 100 processes need 300 open files, but the limit is 64 (ulimit -Hn); "
        "raise it with ulimit -n 300, or ask the administrator of this machine to"
    )


def test_only_a_recent_kill_for_lack_of_memory_counts() -> None:
    """An earlier kill of another process must not turn a kill -9 into a lack of memory."""
    kills, now = [3], [100.0]
    watch = MemoryKills(lambda: kills[0], lambda: now[0])

    def wait(seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            now[0] += 0.1
            watch.sample()

    assert not watch.is_recent()
    kills[0] += 1
    assert watch.is_recent()
    wait(0.9)
    assert watch.is_recent()
    wait(1.5)
    assert not watch.is_recent()
    wait(50)
    kills[0] += 1
    wait(0.5)
    assert watch.is_recent()
