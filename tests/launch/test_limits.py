"""Limits of time, restarts and memory, and the report when a run exceeds them."""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import environment, require, spawn
from tests.launch.runs import RUN, Run, left_behind, run_script, script

FAILS_FIRST = """
import os, sys
print("meets at", os.environ["PYREACTANT_COORDINATOR_ADDRESS"])
if os.environ["PYREACTANT_RESTART_COUNT"] < sys.argv[1]:
    raise ValueError("not yet")
"""


def test_a_restart_that_helps(tmp_path: Path) -> None:
    run = run_script(tmp_path, FAILS_FIRST, "-n", "2", "--max-restarts", "3", arguments=["2"])
    assert run.code == 0, run
    report = run.report
    assert (report["cause"], report["first_error"]) == ("done", None)
    assert [r["cause"] for r in report["restarts"]] == ["user", "user"]
    assert all("raised ValueError: not yet" in r["summary"] for r in report["restarts"])
    assert "restart 2 of 3" in run.finished[0].log
    met = [line for line in run.log(0).splitlines() if line.startswith(b"meets at 127.0.0.1:")]
    assert len(met) == len(set(met)) == 3
    assert met == [x for x in run.log(1).splitlines() if x.startswith(b"meets")]
    assert not left_behind(tmp_path)


def test_restarts_that_do_not_help(tmp_path: Path) -> None:
    run = run_script(tmp_path, FAILS_FIRST, "-n", "2", "--max-restarts", "1", arguments=["9"])
    assert run.code == 1
    assert len(run.report["restarts"]) == 1
    assert run.report["summary"].endswith("raised ValueError: not yet")


@pytest.mark.parametrize("text", ["import os; os._exit(4)", "import os; os.kill(os.getpid(), 9)"])
def test_restarts_after_other_failures(text: str, tmp_path: Path) -> None:
    run = run_script(tmp_path, text, "--max-restarts", "1")
    assert len(run.report["restarts"]) == 1


def test_no_restart_where_something_is_missing(tmp_path: Path) -> None:
    text = "import pyreactant as pr; raise pr.RequirementError('no GPU here')"
    run = run_script(tmp_path, text, "--max-restarts", "3")
    assert run.code == 3
    assert not run.report["restarts"]


NO_THREAD = "thd.cc:157] pthread_create failed: Resource temporarily unavailable"


@pytest.mark.parametrize(
    "end",
    [
        "os.abort()",  # XLA
        "raise KeyboardInterrupt",  # OpenBLAS sends SIGINT
        "raise pr.RendezvousError('process 1 of 2 was refused')",  # gRPC
        "raise pr.RequirementError('the package numpy cannot be imported')",
    ],
)
def test_a_library_without_threads(end: str, tmp_path: Path) -> None:
    """As with `ulimit -u 30`, which does not hold for root: its words are the cause."""
    text = f"import os, sys\nimport pyreactant as pr\nprint({NO_THREAD!r}, flush=True)\n{end}\n"
    run = run_script(tmp_path, text, "-n", "2")
    assert run.code == 3, run
    assert run.report["cause"] == "environment"
    assert "does not start a process or a thread (pthread_create failed: " in run.report["summary"]
    assert "of this user (ulimit -u, here " in run.report["summary"]


def test_a_program_without_threads(tmp_path: Path) -> None:
    run = run_script(tmp_path, 'raise RuntimeError("can\'t start new thread")')
    assert (run.code, run.report["cause"]) == (3, "environment"), run
    assert "does not start a process or a thread (can't start new thread)" in run.report["summary"]


def test_other_errors_of_a_program_without_threads(tmp_path: Path) -> None:
    """They are its own: a library may do without."""
    run = run_script(tmp_path, f"print({NO_THREAD!r}, flush=True)\nraise ValueError('mine')\n")
    assert (run.code, run.report["cause"]) == (1, "user"), run


SLOW = """
import os, time
def computes():
    time.sleep(1000)
if os.environ["PYREACTANT_PROCESS_INDEX"] != "0":
    computes()
"""


@pytest.mark.slow
def test_timeout_names_who_still_ran(tmp_path: Path) -> None:
    # All have begun by then, on a busy machine, too.
    run = run_script(tmp_path, SLOW, "-n", "3", "--timeout", "15", "--max-restarts", "3")
    assert run.code == 7
    report = run.report
    assert report["cause"] == "timeout"
    assert not report["restarts"]  # the limit applies to the whole run
    assert report["summary"].startswith("the run took more than 15 s; process 1 on ")
    assert ", process 2 on " in report["summary"]
    assert report["summary"].endswith(" still ran")
    assert report["first_error"]["process"] == 1
    assert [bool(p["stacks"]) for p in report["processes"]] == [False, True, True]
    assert "in computes" in report["first_error"]["stacks"]
    assert "Python stacks of process 1:" in run.finished[0].log
    assert not left_behind(tmp_path)


def test_a_program_that_may_open_no_more_files(tmp_path: Path) -> None:
    """Its supervisor learns the exception, and has the traceback from the log."""
    text = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = []
while True:
    files.append(open("/dev/null"))
"""
    run = run_script(tmp_path, text)
    assert run.code == 1
    report = run.report
    assert "raised OSError: [Errno 24] Too many open files" in report["summary"], run
    lines = report["first_error"]["log_tail"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "line 6" in lines[1]
    assert lines[-1] == "OSError: [Errno 24] Too many open files: '/dev/null'"


def test_a_run_within_its_timeout(tmp_path: Path) -> None:
    assert run_script(tmp_path, "print(1)", "--timeout", "100").report["cause"] == "done"


HUNGRY = """
import os, time
kept = []
while os.environ["PYREACTANT_PROCESS_INDEX"] == "1":
    kept.append(b"x" * (10 << 20))
time.sleep(1000)
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A control group with 300 MB of memory, of either version."""
    require(os.geteuid() == 0, "control groups need root")
    name = f"pyreactant-{uuid.uuid4().hex[:8]}"
    limits = {"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"}
    for root, limit in limits.items():
        folder = Path(root, name)
        if not Path(root, "cgroup.procs").exists() or not os.access(root, os.W_OK):
            continue
        folder.mkdir()
        try:
            if (folder / limit).exists():
                (folder / limit).write_text(str(300 << 20))
                yield folder
                return
        finally:
            folder.rmdir()
    require(False, "no memory controller that can be written to")


def test_out_of_memory(cgroup: Path, tmp_path: Path) -> None:
    """The kernel only sends SIGKILL; the report still names the lack of memory."""
    argv = [*RUN, "--out", str(tmp_path / "run"), "-n", "2", "--", script(tmp_path, HUNGRY)]
    inside = ["sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', str(cgroup), *argv]
    run = Run(spawn([inside], [environment()], tmp_path, 90), tmp_path / "run")
    assert run.code == 6, run
    assert run.report["cause"] == "out of memory"
    assert run.report["first_error"]["process"] == 1
    assert "was killed because its machine or cgroup is out of memory" in run.report["summary"]


def test_memory_that_python_does_not_get(tmp_path: Path) -> None:
    text = "import resource as r\nr.setrlimit(r.RLIMIT_AS, (1 << 30, 1 << 30))\nbytearray(1 << 33)"
    run = run_script(tmp_path, text, "-n", "2")
    assert (run.code, run.report["cause"]) == (6, "out of memory"), run


def test_a_program_that_the_system_does_not_start(tmp_path: Path) -> None:
    """With too long an argument, as with too low a limit of processes."""
    text = (
        "import sys\nfrom pathlib import Path\n"
        "from pyreactant.runs.supervisor import RunOptions, supervise\n"
        "program = ['sh', '-c', 'true', 'x' * 200_000]\n"
        "sys.exit(supervise(RunOptions(program, processes=2, folder=Path('run'))))"
    )
    argv = [sys.executable, script(tmp_path, text)]
    run = Run(spawn([argv], [environment()], tmp_path, 60), tmp_path / "run")
    assert (run.code, run.report["cause"]) == (3, "environment"), run
    assert "the system does not start a process or a thread ([Errno 7]" in run.report["summary"]
    assert run.report["first_error"]["process"] == 0
