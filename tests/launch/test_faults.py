"""Each fault once: the whole run ends, and the report names the process.

`make faults` injects every fault before initialize, cold and warm, in either process, under one
supervisor and under two, 20 times each, and measures times. The cause is a pure function of the
events (tests/unit/test_launch_cause.py).
"""

from pathlib import Path

import pytest

from tests.launch.runs import FAULTY, Run, left_behind, run_local, run_tasks, script

pytestmark = pytest.mark.slow

CAUSES = {
    "raise": ("user", 1, "raised ValueError: broken here"),
    "kill": ("lost", 6, "was killed by SIGKILL"),
    "stop": ("timeout", 7, "stopped answering while stopped by a signal"),
    "segv": ("lost", 6, "was killed by SIGSEGV"),
    "abort": ("lost", 6, "was killed by SIGABRT"),
    "abort-unguarded": ("lost", 6, "was killed by SIGABRT"),
    "term": ("lost", 6, "was killed by SIGTERM"),
    "exit0": ("user", 1, "exit code 0|has ended its program"),
    "leave0": ("user", 1, "ended with exit code 0"),
    "exit3": ("user", 1, "exit code 3"),
    "never": ("rendezvous", 4, "never reached initialize"),
}
STALL = ("--stall-timeout", "6")
"""A busy machine may not run a pulse thread for seconds."""
CASES = [
    ("local", "raise", "cold", 0),
    ("tasks", "kill", "warm", 0),
    ("tasks", "stop", "warm", 1),
    ("local", "exit0", "start", 0),
    ("local", "leave0", "cold", 1),
    ("tasks", "exit3", "warm", 1),
    ("local", "never", "start", 1),
    ("local", "abort-unguarded", "warm", 1),
    ("tasks", "term", "warm", 0),
]


def check(run: Run, fault: str, process: int) -> None:
    cause, code, words = CAUSES[fault]
    report = run.report
    assert [f.code for f in run.finished] == [code] * len(run.finished), run
    assert (report["cause"], report["exit_code"]) == (cause, code), run
    assert report["first_error"]["process"] == process, run
    assert any(word in report["summary"] for word in words.split("|")), run
    assert f"process {process} on " in report["summary"]
    assert len(report["processes"]) == 2
    assert report["facts"]["jax"]
    if fault == "raise":
        assert 'raise ValueError("broken here")' in report["first_error"]["traceback"]
        assert "process/supervised" not in report["first_error"]["traceback"]
    if fault in ("stop", "never"):
        assert "faulty.py" in report["first_error"]["stacks"]


ABORTS = """
import os, time
from pyreactant.arrays.runtimes.guard.guard import AbortsDelayed
AbortsDelayed()
if os.environ["PYREACTANT_PROCESS_INDEX"] == "1":
    os.abort()
time.sleep(1000)
"""


def test_an_abort_that_the_guard_delays_is_no_stall(tmp_path: Path) -> None:
    """Python's lock is held while abort() waits for the guard, so that no pulse comes.

    Without a runtime: on a busy machine one that loads or compiles may be silent for as long.
    """
    options = ("-n", "2", "--platform", "cpu", "--stall-timeout", "5")
    run = run_local(tmp_path, *options, "--", script(tmp_path, ABORTS))
    assert run.code == 6, run
    assert run.report["first_error"]["process"] == 1
    assert "was killed by SIGABRT" in run.report["summary"]


@pytest.mark.parametrize(("how", "fault", "when", "process"), CASES)
def test_fault(how: str, fault: str, when: str, process: int, tmp_path: Path) -> None:
    start = run_local if how == "local" else run_tasks
    local = ["--processes", "2"] if how == "local" else []
    guard = {"PYREACTANT_GUARD": "0"} if fault == "abort-unguarded" else {}
    settings = guard if how == "local" else [guard] * 2
    arguments = [*local, *STALL, "--", FAULTY, fault, str(process), when]
    run = start(tmp_path, *arguments, settings=settings)
    check(run, fault, process)
    assert not left_behind(tmp_path)
