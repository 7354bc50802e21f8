"""A supervisor forwards a signal once, then enforces it; its end follows the programs' end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyreactant.runs.supervisor.guardian import children
from tests.harness import environment
from tests.launch.runs import READY, RUN, ended, left_behind, pid, run_script, running, until

WAITS = "ready()\ntime.sleep(1000)"


def test_ctrl_c_reaches_every_program_once(tmp_path: Path) -> None:
    text = """
try:
    ready()
    time.sleep(1000)
except KeyboardInterrupt:
    print("interrupted")
    time.sleep(0.5)  # a second one would end this
    print("ended by itself")
    raise
"""
    with running(tmp_path, text, "--max-restarts", "3") as run:
        run.send_signal(signal.SIGINT)
        code, report = ended(run, tmp_path)
    assert (code, report["cause"]) == (130, "interrupted")
    assert report["summary"] == "the supervisor got SIGINT"
    assert report["first_error"]["process"] is None
    assert not report["restarts"]
    for process in range(2):
        log = (tmp_path / "run" / f"process-{process}.log").read_text()
        assert log.startswith("interrupted\nended by itself\nTraceback"), log
    assert [p["exit_code"] for p in report["processes"]] == [130, 130]


IGNORES = """
class Ends:
    def __del__(self):
        ready()
        time.sleep(1000)

Ends()
time.sleep(1000)
"""


def test_ctrl_c_where_python_ignores_it(tmp_path: Path) -> None:
    """As in JAX's callback for the garbage collector; the program went on until the grace ended."""
    with running(tmp_path, IGNORES, "--grace", "1000") as run:
        run.send_signal(signal.SIGINT)
        code, report = ended(run, tmp_path)
    assert (code, report["cause"]) == (130, "interrupted")
    assert [p["exit_code"] for p in report["processes"]] == [130, 130]


DEAF = """
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: print("no", flush=True))
ready()
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, (130, "interrupted")), (signal.SIGTERM, (6, "preempted"))],
)
def test_the_deaf_are_killed_after_the_grace(
    number: signal.Signals, expected: tuple[int, str], tmp_path: Path
) -> None:
    with running(tmp_path, DEAF, "--grace", "0.5") as run:
        run.send_signal(number)
        code, report = ended(run, tmp_path)
    assert (code, report["cause"]) == expected
    assert [p["state"] for p in report["processes"]] == ["ended by the supervisor with SIGKILL"] * 2
    # The supervisor forwards the signal once, and sends SIGTERM once more at the end.
    assert (tmp_path / "run" / "process-1.log").read_text() in ("no\n", "no\nno\n")


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with running(tmp_path, DEAF, "--grace", "1000") as run:
        run.send_signal(signal.SIGTERM)
        assert run.stdout is not None
        lines = iter(run.stdout.readline, "")
        told = next(line for line in lines if "got SIGTERM" in line)  # after 3 s
        run.send_signal(signal.SIGTERM)
        code, report = ended(run, tmp_path)
    assert "waiting for process 0 on " in told
    assert "to end, at most 1000 s (--grace); a second signal, or Ctrl-C, ends all" in told
    assert (code, report["cause"]) == (6, "preempted")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_sigterm_to_programs_that_do_not_cooperate(number: signal.Signals, tmp_path: Path) -> None:
    with running(tmp_path, WAITS, "--max-restarts", "3") as run:
        run.send_signal(number)
        code, report = ended(run, tmp_path)
    assert (code, report["cause"]) == (6, "preempted")
    assert report["summary"] == f"the supervisor got {number.name}"
    assert [p["state"] for p in report["processes"]] == ["ended by the supervisor with SIGTERM"] * 2
    assert not report["restarts"]


@pytest.mark.parametrize(
    ("number", "own"), [(signal.SIGUSR1, True), (signal.SIGUSR2, False), (signal.SIGALRM, True)]
)
def test_a_warning_ends_nothing(number: signal.Signals, own: bool, tmp_path: Path) -> None:
    handler = f'signal.signal({number}, lambda *_: print("warned", flush=True))\n'
    text = (
        (handler if own else "")
        + """
ready()
while not Path("enough").exists():
    time.sleep(0.05)
"""
    )
    with running(tmp_path, text) as run:
        run.send_signal(number)
        programs = [pid(tmp_path, process) for process in range(2)]
        (guardian,) = (p for p in children(run.pid) if p.pid not in programs)
        # Slurm may warn every process of a step.
        for other in (guardian.pid, *(programs if not own else ())):
            os.kill(other, number)
        time.sleep(0.5)
        assert guardian in children(run.pid)
        (tmp_path / "enough").touch()
        code, report = ended(run, tmp_path)
    assert (code, report["cause"]) == (0, "done")
    for process in range(2):
        log = (tmp_path / "run" / f"process-{process}.log").read_text()
        assert log == ("warned\n" if own else "")


def test_a_guardian_that_has_only_begun_is_not_ended_by_a_warning() -> None:
    code = (
        "import os, signal, time\n"
        "from pyreactant.runs.supervisor.guardian import children\n"
        "from pyreactant.runs.supervisor.leftovers import Leftovers\n"
        "left = Leftovers()\n"
        "left.begin('token')\n"
        "(guardian,) = children(os.getpid())\n"
        "for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):\n"
        "    os.kill(guardian.pid, number)\n"
        "time.sleep(0.3)\n"
        "print([child.ended for child in children(os.getpid())])\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"  # this process is ended by it, as before
    )
    argv = [sys.executable, "-c", code]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.returncode) == ("[False]\n", -signal.SIGUSR1), ran.stderr


def test_a_hangup_after_nohup_ends_nothing(tmp_path: Path) -> None:
    text = "echo $$ > pid; while [ ! -e enough ]; do sleep 0.05; done"
    run = [*RUN, "--out", str(tmp_path / "run"), "--", "sh", "-c", text]
    argv = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *run]
    settings = environment(PYREACTANT_PLATFORM="cpu")
    with subprocess.Popen(argv, cwd=tmp_path, env=settings, stdin=subprocess.DEVNULL) as process:
        try:
            until((tmp_path / "pid").exists, process)
            process.send_signal(signal.SIGHUP)
            time.sleep(0.3)
        finally:
            (tmp_path / "enough").touch()
        assert process.wait(60) == 0


def test_asking_for_stacks_ends_no_process(tmp_path: Path) -> None:
    """Python takes the signal's handler away some time before its process is gone."""
    text = """
import faulthandler
from pyreactant.process.supervised.main import STACKS_SIGNAL
faulthandler.unregister(STACKS_SIGNAL)
ready()
if index == "1":
    while not Path("pid-0").exists():
        time.sleep(0.02)
    sys.exit(3)
time.sleep(1000)
"""
    run = run_script(tmp_path, READY + text, "-n", "2")
    assert run.code == 1, run
    states = [p["state"] for p in run.report["processes"]]
    assert states == ["ended by the supervisor with SIGTERM", "exit code 3"]


@pytest.mark.parametrize("stopped", [False, True])
def test_programs_die_with_their_supervisor(stopped: bool, tmp_path: Path) -> None:
    with running(tmp_path, WAITS) as run:
        if stopped:
            os.kill(pid(tmp_path, 1), signal.SIGSTOP)
        run.kill()
        run.wait()
        until(lambda: not left_behind(tmp_path))
