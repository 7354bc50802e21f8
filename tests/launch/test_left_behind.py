"""Whatever programs start ends with the run, in other sessions too; and so does the guardian."""

import os
import signal
import sys
from pathlib import Path

from tests import harness
from tests.harness import environment
from tests.launch.runs import (
    READY,
    RUN,
    Run,
    left_behind,
    run_script,
    running_tasks,
    script,
    task_environments,
    until,
)

DETACHED = (
    READY
    + """
import subprocess
hidden = [["env", "-i", "setsid", "-f"]] if sys.argv[2] == "hidden" else []
for argv in (*hidden, ["setsid", "-f"], []):
    subprocess.Popen([*argv, sys.executable, "-c", "import time; time.sleep(1000)", os.getcwd()])
time.sleep(1)
ready()
time.sleep(float(sys.argv[1]))
"""
)


def started_here(folder: Path) -> list[int]:
    """Processes that name this folder on their command line; they may have no environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(folder) in words:
            found.append(int(entry.name))
    return found


def test_children_that_hide_are_killed_and_reported(tmp_path: Path) -> None:
    argv = [
        *RUN,
        "--out",
        str(tmp_path / "run"),
        "--",
        script(tmp_path, DETACHED),
        "2",
        "hidden",
    ]
    with running_tasks([argv] * 2, task_environments(tmp_path, 2), tmp_path) as supervisors:
        assert [s.wait(60) for s in supervisors] == [0, 0]
        assert not started_here(tmp_path)
        assert not left_behind(tmp_path)
    report = Run([], tmp_path / "run").report
    for row in report["processes"]:
        assert len(row["killed"]) == 3, report
        assert sum("without a process index" in text for text in row["killed"]) == 1
        assert all("time.sleep(1000)" in text for text in row["killed"])
    text = (tmp_path / "run" / "report.txt").read_text()
    assert "killed, because their programs left them behind:\n  process 0: " in text


def test_what_a_session_left_is_reported_once() -> None:
    """A process that is killed with its session may be there a moment later."""
    code = """
import os, subprocess
from pyreactant.runs.supervisor.leftovers import Leftovers
leftovers = Leftovers()
leftovers.begin("a token")
program = subprocess.Popen(["sh", "-c", "sleep 1000 & exit 0"], start_new_session=True)
leftovers.started(program.pid)
program.wait()
(told,) = leftovers.of_session(program.pid)
leftovers.ended(program.pid)
assert leftovers.kill(0) == {}
assert leftovers.of_session(program.pid) == []
leftovers.close()
print(told)
"""
    ran = harness.run([sys.executable, "-c", code], env=environment())
    assert "sleep 1000" in ran.stdout, ran.stderr


def guardians() -> list[int]:
    return [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if b"/guardian.py" in (_read(entry / "cmdline"))
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def guardian_of(supervisor: int) -> int:
    """The guardian of a supervisor."""
    (found,) = (g for g in guardians() if f"\nPPid:\t{supervisor}\n".encode() in _status(g))
    return found


def _status(pid: int) -> bytes:
    return _read(Path(f"/proc/{pid}/status"))


def test_a_guardian_ends_the_programs_of_a_killed_supervisor(tmp_path: Path) -> None:
    argv = [
        *RUN,
        "--out",
        str(tmp_path / "run"),
        "--",
        script(tmp_path, DETACHED),
        "1000",
        "seen",
    ]
    with running_tasks([argv] * 2, task_environments(tmp_path, 2), tmp_path) as supervisors:
        watched = [guardian_of(s.pid) for s in supervisors]
        assert started_here(tmp_path)
        os.killpg(supervisors[0].pid, signal.SIGKILL)  # the guardian is in a session of its own
        assert [s.wait(60) for s in supervisors] == [-9, 6]
        until(lambda: not left_behind(tmp_path) and not started_here(tmp_path))
        until(lambda: not any(Path(f"/proc/{g}/cwd").exists() for g in watched))


def test_a_killed_guardian_changes_nothing(tmp_path: Path) -> None:
    argv = [
        *RUN,
        "--out",
        str(tmp_path / "run"),
        "--",
        script(tmp_path, DETACHED),
        "5",
        "hidden",
    ]
    with running_tasks([argv], task_environments(tmp_path, 1), tmp_path) as (supervisor,):
        os.kill(guardian_of(supervisor.pid), signal.SIGKILL)
        assert supervisor.wait(60) == 0
        assert not started_here(tmp_path)
        assert not left_behind(tmp_path)


def test_a_report_after_a_restart_still_says_what_was_killed_and_lost(tmp_path: Path) -> None:
    text = """
import os, shutil, subprocess, sys, time
if os.environ["PYREACTANT_RESTART_COUNT"] == "0":
    subprocess.Popen(["env", "-i", "setsid", "-f", "sleep", "1000"]).wait()
    time.sleep(0.5)
    shutil.rmtree("run")
    sys.exit(3)
"""
    run = run_script(tmp_path, text, "--max-restarts", "1")
    assert run.code == 0, run
    (row,) = run.report["processes"]
    assert [words.split(" (")[0] for words in row["killed"]] == ["sleep 1000"]
    assert row["log_error"] == f"{row['log']}: it was deleted while the program ran"
    assert "(1 not complete)" in run.finished[0].log
    assert not left_behind(tmp_path)
