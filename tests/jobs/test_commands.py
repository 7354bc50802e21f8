"""`pyreactant jobs` from another shell, runs in the foreground, Ctrl-C, what a worker forbids."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.runs import record as _record
from pyreactant.runs import store
from tests import harness
from tests.harness import REPOSITORY, environment, until
from tests.harness import pyreactant as command
from tests.jobs.laws import left


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", tmp_path)
    yield tmp_path
    assert not [name for name in store.names() if left(name)]


def listed() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(command("jobs", "list", "--json").stdout)
    return found


def test_a_function_takes_no_words() -> None:
    ran = command("run", "--detach", "--", "program.py:back", "3")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: a function is called without arguments here, got 3; pass")


def test_runs_in_the_foreground_are_listed(folder: Path) -> None:
    ran = command("run", "--processes", "1", "--out", "out", "--", "program.py", "3")
    assert ran.returncode == 1, ran.stderr
    (row,) = listed()
    assert (row["state"], row["exit_code"], row["origin"]) == ("failed", 1, "run")
    assert (row["what"], row["run"]) == ("program.py 3", str(folder / "out"))
    logs = command("jobs", "logs", row["id"])
    assert logs.stdout == "arguments ['3']\n"
    attached = command("jobs", "attach", row["id"][-4:])
    assert attached.returncode == 1
    assert attached.stdout == "arguments ['3']\n"
    assert "program.py 3 on local" in command("jobs", "status", row["id"]).stdout
    assert "failed" in command("jobs", "list").stdout
    of_lines = command("run", "--processes", "1", "--", "-c", "import os\nprint('done')")
    assert of_lines.returncode == 0, of_lines.stderr
    assert len(command("jobs", "list").stdout.splitlines()) == 3
    # Part of another job, it is no job of its own.
    ran = command("run", "--processes", "1", "--", "program.py", "0", PYREACTANT_JOB=row["id"])
    assert ran.returncode == 0, ran.stderr
    assert len(listed()) == 2
    Path("state").rename("moved")
    Path("state").write_text("")
    ran = command("run", "--processes", "1", "--", "program.py", "0")
    assert ran.returncode == 0, "a record that cannot be written ends no run"
    assert "`pyreactant jobs` will not list this run: cannot write" in ran.stderr
    Path("state").unlink()
    Path("moved").rename("state")


def test_a_run_in_the_foreground_is_cancelled_from_another_shell(folder: Path) -> None:
    Path("waits.py").write_text("import program\nprogram.waits()\n")
    argv = [sys.executable, "-m", "pyreactant", "run", "--processes", "2", "--", "waits.py"]
    with running(argv) as run:
        until(lambda: [*folder.glob("pyreactant-runs/*/process-0.log")])
        (row,) = listed()
        assert row["state"] == "running"
        assert json.loads(command("jobs", "cancel", row["id"], "--json").stdout)["exit_code"] == 130
        assert run.wait(100) == 130


BLOCKING = """
import sys
import pyreactant as pr
import program
print("submitting", flush=True)
pr.remote(on=pr.targets.Local(grace=float(sys.argv[1])))(getattr(program, sys.argv[2]))()
"""


@contextmanager
def running(argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone at the end of the block, however that ends."""
    with subprocess.Popen(
        argv, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def blocking(grace: float, function: str) -> Iterator[subprocess.Popen[str]]:
    """A process in a blocking call, whose job runs."""
    Path("blocking.py").write_text(BLOCKING)
    with running([sys.executable, "blocking.py", str(grace), function]) as caller:
        assert caller.stdout is not None
        while "waiting" not in (line := caller.stdout.readline()):
            assert line, caller.communicate()
        yield caller


def test_ctrl_c_cancels_and_waits() -> None:
    with blocking(30, "waits") as caller:
        caller.send_signal(signal.SIGINT)
        _, errors = caller.communicate(timeout=60)
    assert "cancelling the job" in errors
    assert "KeyboardInterrupt" in errors
    (row,) = listed()
    assert (row["state"], row["exit_code"]) == ("cancelled", 130)


def test_ctrl_c_leaves_what_is_attached_running() -> None:
    """Standard output has only what the job printed."""
    started = command("run", "--detach", "--json", "--", "sh", "-c", "echo begun; sleep 600")
    job = json.loads(started.stdout)["id"]
    argv = [sys.executable, "-m", "pyreactant", "jobs", "attach", job]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=environment(), stdout=pipe, stderr=pipe, text=True) as caller:
        try:
            assert caller.stdout is not None
            assert caller.stdout.readline() == "begun\n"
            caller.send_signal(signal.SIGINT)
            printed, errors = caller.communicate(timeout=60)
        finally:
            caller.kill()
            assert command("jobs", "cancel", job).returncode == 0
    assert (caller.returncode, printed) == (130, "")
    end = f"end it with: pyreactant jobs cancel {job}"
    assert errors == f"interrupted: the job {job} goes on; {end}\n"


def test_a_second_ctrl_c_returns_at_once(folder: Path) -> None:
    with Path("program.py").open("a") as file:
        file.write("def deaf():\n    signal.signal(signal.SIGINT, signal.SIG_IGN)\n    waits()\n")
    with blocking(4, "deaf") as caller:
        caller.send_signal(signal.SIGINT)
        assert caller.stderr is not None
        while "cancelling the job" not in (line := caller.stderr.readline()):
            assert line, "it ended"
        time.sleep(0.2)
        caller.send_signal(signal.SIGINT)
        caller.wait(60)
    job = pr.Job.find(store.names()[0])
    until(lambda: job.status().state == "cancelled")  # the keeper goes on


def test_a_job_at_the_top_level_of_the_file() -> None:
    Path("top.py").write_text(
        "import pyreactant as pr\n@pr.remote\ndef main():\n    return 1\nmain()\n"
    )
    with pytest.raises(pr.RemoteError) as caught:
        pr.submit("top.py:main").result(timeout=60)
    assert caught.value.kind == "StateError"
    assert 'below `if __name__ == "__main__":`' in str(caught.value)


def test_values_that_cannot_travel_or_are_absent() -> None:
    job = pr.submit("program.py:odd")
    with pytest.raises(pr.RemoteError, match=r"the value of the function\['x'\] cannot travel"):
        job.result(timeout=60)
    Path("star.py").write_text("from os.path import *\n")  # only running it shows what it has
    with pytest.raises(pr.RemoteError, match="the file has no 'absent'"):
        pr.submit("star.py:absent").result(timeout=60)
    with pytest.raises(pr.InvalidArgumentError, match=r"returns asyncio.run\(...\)"):
        pr.submit("program.py:later")
    Path("named.py").write_text("async def first(): ...\n\n\nlater = first\n")
    with pytest.raises(pr.RemoteError, match=r"return asyncio.run\(...\)"):
        pr.submit("named.py:later").result(timeout=60)


def test_functions_that_end_the_program() -> None:
    """Submitted at the same time by several threads, which must not disturb each other."""
    before = os.umask(0o022)
    with ThreadPoolExecutor() as pool:
        jobs = list(pool.map(lambda code: pr.submit("program.py:leaves", [code]), [0, None, 3]))
    assert os.umask(before) == 0o022, "submissions change the umask"
    assert [jobs[0].result(timeout=60), jobs[1].result(timeout=60)] == [None, None]
    with pytest.raises(pr.RemoteError, match="exit code 3"):
        jobs[2].result(timeout=60)


def test_arrays_on_all_processes_are_gathered() -> None:
    target = pr.targets.Local(processes=2, devices_per_process=2, platform="cpu")
    found = pr.submit("program.py:sharded", on=target).result(timeout=120)
    assert found["ours"].tolist() == found["jax"].tolist() == list(range(8))
    assert found["local"].dtype.name == "bfloat16"


def test_a_command_as_a_job(folder: Path) -> None:
    Path("run.sh").write_text('#!/bin/sh\necho "$1 of $PYREACTANT_NUM_PROCESSES"\n')
    Path("run.sh").chmod(0o755)
    jobs = [pr.submit(["./run.sh", "a b"]), pr.submit(["sh", "-c", "exit 4"])]
    jobs[0].check(timeout=60)
    assert "".join(jobs[0].logs()) == "a b of 1\n"
    with pytest.raises(pr.RemoteError, match="exit code 4"):
        jobs[1].check(timeout=60)


def test_python_with_code_as_a_job(folder: Path) -> None:
    """As `pyreactant run` takes it: arguments, the current folder's modules, an exit code."""
    ran = command("run", "--detach", "--json", "--", "python", "-c", "import sys; sys.exit(4)")
    job = pr.Job.find(json.loads(ran.stdout)["id"])
    assert "exit code 4" in job.wait(timeout=60).reason
    Path("helper.py").write_text("VALUE = 'of the copy'\n")
    code = "import sys, helper; print(sys.argv, helper.VALUE, __name__)"
    job = pr.submit(["-c", code, "a b"], copies=["helper.py"])
    job.check(timeout=60)
    assert "".join(job.logs()) == "['-c', 'a b'] of the copy __main__\n"
    assert (job.record.spec["kind"], job.record.what) == ("code", "python -c")
    with pytest.raises(pr.FileError, match=r"the code imports helper\.py, which would not travel"):
        pr.submit(["-c", code])
    with pytest.raises(pr.RemoteError, match="ZeroDivisionError"):
        pr.submit(["python", "-c", "1 / 0"]).check(timeout=60)


SHOWS = """
import json, os, sys
found = sys.argv[1:], os.environ["JULIA_LOAD_PATH"], os.environ["PYREACTANT_PROCESS_INDEX"]
print(json.dumps([*found, os.path.exists(sys.argv[-2]), os.environ.get("LAW_SECRET")]))
"""


def test_a_julia_program_as_a_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executable is a stand-in that shows what Julia would read."""
    julia = folder / "bin" / "julia"
    julia.parent.mkdir()
    julia.write_text(f"#!{sys.executable}\n{SHOWS}")
    julia.chmod(0o755)
    (folder / "train.jl").write_text("println(1)")
    monkeypatch.setenv("PATH", f"{julia.parent}:{os.environ['PATH']}")
    on = pr.targets.Local(processes=2)
    job = pr.submit(["julia", "-t", "2", "train.jl", "9"], on=on, env={"LAW_SECRET": "x"})
    assert job.result(timeout=60) is None
    for index in range(2):
        words, path, process, exists, secret = json.loads("".join(job.logs(index)))
        assert (words, process, exists) == (["-t", "2", "train.jl", "9"], str(index), True)
        assert str(REPOSITORY / "julia") in path.split(":")
        assert secret == "x"
    monkeypatch.chdir(julia.parent)
    job = pr.submit("../train.jl")
    assert job.result(timeout=60) is None
    assert '["../train.jl"]' in "".join(job.logs()), "a folder without a file of the code"


@pytest.mark.slow
def test_old_jobs_are_removed() -> None:
    ended, young, running = (_record.create("x", "local", {}) for _ in range(3))
    ended.write_status(_record.Status("done", "", 0, time.time() - 8 * 86400))
    young.write_status(_record.Status("failed", "why", 1))
    shown = command("jobs", "clean", "--dry-run").stdout
    assert shown == f"would remove {ended.id}  x\n"
    assert command("jobs", "clean").stdout == f"removed {ended.id}  x\n"
    refused = command("jobs", "clean", running.id)
    assert refused.returncode == 2
    assert "is requested; only an ended job can be removed" in refused.stderr
    silent = command("jobs", "logs", running.id, "--process", "7")
    assert (silent.returncode, silent.stdout) == (0, "")
    assert silent.stderr == "pyreactant: process 7 has printed nothing\n"
    twice = young.id, young.id[-4:]
    assert json.loads(command("jobs", "clean", *twice, "--json").stdout) == [young.id]
    assert store.names() == [running.id]
    for record in (ended, young, running):
        _record.release(record)
    assert os.listdir(_record.jobs_folder()) == [running.id]
    unborn = _record.jobs_folder() / "20200101-000000-beef"  # its submission was killed
    unborn.mkdir()
    os.utime(unborn, (0, 0))
    assert command("jobs", "clean", running.id).returncode == 0
    assert command("jobs", "list").stdout == "there are no jobs\n"
    assert command("jobs", "clean").stdout == "no job to remove\n"
    assert not unborn.exists()


@pytest.mark.slow
def test_a_damaged_record_does_not_hide_the_others_and_can_be_removed() -> None:
    damaged, good = (_record.create("x", "ray", {"address": "127.0.0.1:1"}) for _ in range(2))
    (damaged.folder / "job.json").write_text("[]")
    rows = {row["id"]: row for row in listed()}
    assert rows[good.id]["state"] == "requested"
    advice = f"pyreactant jobs clean {damaged.id}"
    assert rows[damaged.id]["reason"].endswith(advice)
    kept = command("jobs", "clean", damaged.id)
    assert (kept.returncode, "a process of this machine still keeps it" in kept.stderr) == (2, True)
    for record in (damaged, good):
        _record.release(record)
    assert command(*advice.split()[1:], "--dry-run").stdout.startswith("would remove")
    assert damaged.folder.exists()
    shown = command(*advice.split()[1:]).stdout
    assert shown == f"removed {damaged.id}  damaged, all of {damaged.folder}\n"
    for name in ("handle.json", "state.json"):
        (good.folder / name).write_text("{")
        assert name in listed()[0]["reason"]
    assert command("jobs", "clean", good.id).returncode == 0
    assert os.listdir(_record.jobs_folder()) == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["jobs", "status", "4711-0"], 2, "there is no job 4711-0"),
        (
            ["jobs", "clean", "--older-than", "-1"],
            2,
            "it must be a duration, such as 90s, got '-1'",
        ),
        (["run", "--on", "moon", "--", "program.py"], 2, "a target must be one of local"),
        (
            ["run", "--nodes", "2", "--", "program.py"],
            2,
            "--nodes is an option of --on slurm or --on kubernetes, and not of a run in the",
        ),
        (
            ["run", "--detach", "--all-output", "--", "program.py"],
            2,
            "--all-output is an option of a run in the foreground on this machine, and not of",
        ),
        (
            ["run", "--copy", "program.py", "--", "program.py"],
            2,
            "--copy is an option of --detach on this machine or --on slurm or --on tpu or --on ray",
        ),
        (["run", "--detach", "--", "absent.py"], 2, "there is no program 'absent.py'"),
        (
            ["crosscheck", "--on", "ray"],
            2,
            "--on must be slurm or tpu for a cross-check",
        ),
        (
            ["crosscheck", "--on", "tpu", "--repeat", "3"],
            2,
            "--repeat is an option of a cross",
        ),
        (["crosscheck", "--nodes", "3"], 2, "--nodes is an option of --on slurm"),
    ],
    ids=[
        *("unknown", "age", "target", "place", "detached", "here", "program"),
        *("check", "checked", "checked-here"),
    ],
)
def test_wrong_commands(words: list[str], code: int, message: str) -> None:
    ran = command(*words)
    assert (ran.returncode, message in ran.stderr) == (code, True), ran.stderr


def tool(path: str, says: str = "MINE") -> None:
    """An executable script of the user."""
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(f'#!/bin/sh\necho {says} "$@"\n')
    Path(path).chmod(0o755)


def test_a_program_with_a_path_is_that_of_the_path(folder: Path) -> None:
    """The PATH has others of these names, and this Python is one of them."""
    for name in ("date", "python3", "julia", "true"):
        tool(f"bin/{name}")
    Path("date").write_text("print('MINE')\n")
    Path("x.py").write_text("")
    Path("x.jl").write_text("")
    commands = [
        ("./bin/date",),
        ("bin/date", "a b"),
        (str(folder / "bin" / "date"),),
        ("bin/../bin/true",),
        ("bin/python3", "x.py"),
        ("./bin/python3", "-c", "print()"),
        ("bin/julia", "x.jl"),
        ("python", "date"),
    ]
    ran = [pr.submit(list(words)) for words in commands]
    for words, job in zip(commands, ran, strict=True):
        job.result(timeout=100)
        assert "".join(job.logs()).startswith("MINE"), words
    os.chdir("bin")
    job = pr.submit(["./date"])
    job.result(timeout=100)
    assert "".join(job.logs()) == "MINE\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/etc/passwd", "root"], "'/etc/passwd' is neither a .py file nor executable"),
        (["./absent"], "the command './absent' does not exist in the folder"),
        (["absent"], "the command 'absent' does not exist in a folder of PATH"),
        (["plain"], "'plain' is neither a .py file nor executable; run: chmod +x plain"),
    ],
)
def test_what_is_no_program_is_refused_before_the_start(words: list[str], message: str) -> None:
    """As in the foreground."""
    Path("plain").write_text("")
    for run in (["run", "--detach"], ["run"], ["run", "--on", "slurm", "--dry-run"]):
        ran = command(*run, "--", *words)
        assert (ran.returncode, message in ran.stderr) == (2, True), (run, ran)


@pytest.mark.slow
def test_what_is_copied_lies_below_the_folder() -> None:
    """The folder above would lie among the files of the job itself."""
    Path("in/link").mkdir(parents=True)
    Path("sib").mkdir()
    Path("call.json").write_text("x")
    Path("in/p.py").write_text("")
    Path("in/out").symlink_to(Path("sib").absolute())
    os.chdir("in")
    for copies in ("..", "../", "link/../..", "../.", "out/..", "../../", "../sib", "../call.json"):
        ran = command("run", "--detach", "--copy", copies, "--", "p.py")
        assert (ran.returncode, "what is copied must lie below" in ran.stderr) == (2, True), ran
    assert listed() == []


NEVER_INITIALIZES = """
import pyreactant as pr

@pr.remote(on=pr.targets.Local(processes=2, platform="cpu"))
def total():
    import jax.numpy as jnp
    return float(jnp.ones(3).sum())

if __name__ == "__main__":
    print(total())
"""


def test_a_function_that_never_initializes_is_no_silent_copy() -> None:
    """The report, `jobs status` and the caller's end say it."""
    Path("calls.py").write_text(NEVER_INITIALIZES)
    called = harness.run([sys.executable, "calls.py"], env=environment())
    assert (called.returncode, called.stdout) == (0, "3.0\n"), called
    (row,) = listed()
    report = json.loads((Path(row["run"]) / "report.json").read_text())
    (note,) = report["notes"]
    assert note.endswith("each of the 2 ran as process 0 of 1")
    assert note in " ".join(called.stderr.split())
    assert note in " ".join(command("jobs", "status", row["id"]).stdout.split())
