"""Odd functions and odd places: each ends with a value, or a message that says what to do."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.runs import record as _record
from pyreactant.runs import store
from pyreactant.runs.record import Status
from tests import harness
from tests.harness import environment, pyreactant, require

PROGRAM = """
import os, sys, time

def back(**named):
    '''Its last character is cut short.'''
    sys.stdout.buffer.write(b"caf\\xc3")
    return {**named, "large": 10**5000}

def forks():
    '''The child returns from the function, and its parent does not.'''
    if child := os.fork():
        os.waitpid(child, 0)
        raise ValueError("in the parent")

def leaves():
    os._exit(0)

def gives_object():
    return [object()]

def waits():
    time.sleep(300)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    Path("odd.py").write_text(PROGRAM)


def test_odd_ends_of_a_function() -> None:
    jobs = {name: pr.submit(f"odd.py:{name}") for name in ("forks", "leaves", "gives_object")}
    with pytest.raises(pr.RemoteError, match="in the parent"):
        jobs["forks"].result(timeout=60)
    assert not (jobs["forks"].folder / "out" / "value").exists(), "the value is that of a fork"
    with pytest.raises(pr.FileError, match=r"is done, but left no value: its process 0 ended"):
        jobs["leaves"].result(timeout=60)
    with pytest.raises(pr.RemoteError) as caught:
        jobs["gives_object"].result(timeout=60)
    assert "the value of the function[0] cannot travel: its type is object; pass dict" in str(
        caught.value
    )
    assert caught.value.traceback.startswith(
        "pyreactant.base.errors.InvalidArgumentError: the value"
    )


def test_odd_names_and_values() -> None:
    job = pr.submit("odd.py:back", {"$array": 0, "a b": 1})
    assert job.result(timeout=60) == {"$array": 0, "a b": 1, "large": 10**5000}
    assert "".join(job.logs()) == "caf\ufffd"
    with pytest.raises(pr.InvalidArgumentError, match="process must be 0 or more, got -1"):
        list(job.logs(-1))
    ran = pyreactant("jobs", "result", job.id)
    assert (ran.returncode, len(ran.stdout)) == (
        0,
        5000 + len("{'$array': 0, 'a b': 1, 'large': 1}\n"),
    )


def test_a_record_that_was_removed() -> None:
    job = pr.submit("odd.py:waits")
    shutil.rmtree(job.folder.rename("removed"))  # at once: the job may be writing into it
    with pytest.raises(pr.FileError, match="was removed"):
        job.cancel()
    mark = f"PYREACTANT_JOB={job.id}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            assert mark not in (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (Status("failed", "it reached its limit", 7, cause="timeout"), "timeout", "its limit"),
        (Status("preempted", "Slurm", 6, cause="preempted"), "preempted", "got SIGTERM"),
        (Status("failed", "the launcher broke", 1), "preempted", "got SIGTERM"),
        (Status("failed", "timeout: says a sentence", 1), "preempted", "got SIGTERM"),
        (Status("lost", "its keeper was killed", 6), "lost", "its keeper was killed"),
        (Status("cancelled", "interrupted", 130), "cancelled", "interrupted"),
    ],
)
def test_whose_word_counts(status: Status, kind: str, words: str) -> None:
    """The report's, unless Slurm knows another cause."""
    record = _record.create("x", "local", {})
    record.run.mkdir()
    report = {"cause": "preempted", "summary": "process 0 got SIGTERM", "processes": []}
    (record.run / "report.json").write_text(json.dumps(report))
    record.write_status(status)
    _record.release(record)
    with pytest.raises(pr.RemoteError, match=words) as caught:
        pr.Job(record).result()
    assert (caught.value.kind, caught.value.exit_code) == (kind, status.exit_code)


def test_a_submitting_process_that_blocks_interrupts() -> None:
    """As all processes of Ray do; the keeper can be asked to end all the same."""
    caught = []

    def submit() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # of this thread
        caught.append(pr.submit("odd.py:waits"))

    thread = threading.Thread(target=submit)
    thread.start()
    thread.join()
    assert caught[0].cancel().state == "cancelled"


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


SQUEUE = "#!/bin/sh\necho '12|RUNNING|None|x'\n"


def test_a_state_folder_that_is_read_only(tmp_path: Path) -> None:
    require(os.geteuid() == 0, "root, to mount a folder")
    on_slurm = _record.create("x", "slurm", {})
    on_slurm.write_handle({"slurm": 12})
    _record.release(on_slurm)
    squeue = tmp_path / "squeue"
    squeue.write_text(SQUEUE)
    squeue.chmod(0o755)
    ended = _record.create("x", "local", {})
    ended.write_status(_record.Status("done", "", 0))
    _record.release(ended)
    running = _record.create("x", "local", {})
    running.write_status(_record.Status("running"))
    code = "import sys; from pyreactant.cli import main; main()"
    settings = environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
    for words in (["list"], ["clean", ended.id], ["cancel", running.id]):
        argv = ["unshare", "-m", "sh", "-c", READ_ONLY, str(tmp_path / "state")]
        argv += [sys.executable, "-c", code, "jobs", *words]
        ran = subprocess.run(argv, env=settings, capture_output=True, text=True, timeout=60)
        if words == ["list"]:
            assert len(ran.stdout.splitlines()) == 4, ran  # with the header
            assert f"{on_slurm.id}  starting" in ran.stdout
            continue
        folder = _record.jobs_folder() / words[1]
        assert ran.returncode == 3, ran
        why = "Read-only file system; make it writable, and try again"
        assert ran.stderr == f"error: cannot write {folder}: {why}\n"
    _record.release(running)


def test_the_list_says_what_is_wrong_with_a_job() -> None:
    record = _record.create("x", "local", {})
    _record.release(record)
    record.folder.rename(record.folder.with_name("moved"))
    ran = pyreactant("jobs", "list")
    assert f"?  (the folder of the job {record.id} was moved" in ran.stdout, ran


def test_the_list_shows_what_runs_and_the_last_that_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    running = _record.create("first", "local", {})
    running.write_status(_record.Status("running"))

    def add(number: int) -> None:
        ended = _record.create(f"job {number}", "local", {})
        ended.write_status(_record.Status("failed" if number == 0 else "done", "", number and 0))
        _record.release(ended)

    for number in range(21):
        add(number)

    def listed(*words: str) -> tuple[list[str], str]:
        ran = pyreactant("jobs", "list", *words)
        assert ran.returncode == 0, ran
        return [line.rpartition(" local  ")[2] for line in ran.stdout.splitlines()], ran.stderr

    assert listed()[1] == "pyreactant: 1 earlier job has ended, too; --all lists them\n"
    add(21)
    numbered = [f"job {number}" for number in range(22)]
    (header, *rows), said = listed()
    assert header.split() == ["job", "state", "age", "place", "what"]
    assert len({*rows}) == 21
    assert {*rows} < {"first", *numbered}
    assert "first" in rows  # it is the earliest, and runs
    assert said == "pyreactant: 2 earlier jobs have ended, too; --all lists them\n"
    assert {*listed("--all")[0]} == {header, "first", *numbered}
    assert listed("--all")[1] == ""
    assert listed("--state", "failed") == ([header, "job 0"], "")
    assert listed("--state", "lost") == (["there are no jobs in state lost"], "")
    argv = [sys.executable, "-m", "pyreactant", "jobs", "list"]
    every = subprocess.run([*argv, "--json"], env=environment(), capture_output=True, timeout=120)
    assert len(json.loads(every.stdout)) == 23
    wrong = harness.run([*argv, "--state", "nope"], env=environment())
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: --state must be one of requested, queued, ")
    _record.release(running)


def test_a_number_where_slurm_has_no_configuration(tmp_path: Path) -> None:
    """One sentence of ours, and of scontrol's four lines the one that says it."""
    tool = tmp_path / "scontrol"
    why = "Could not establish a configuration source"
    said = f"scontrol: error: lookup failed\nscontrol: fatal: {why}"
    tool.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    tool.chmod(0o755)
    ran = pyreactant("jobs", "status", "9", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert ran.returncode == 3
    assert ran.stderr == (
        "error: no run of pyreactant has the id 9, and scontrol does not reach Slurm's controller: "
        f"{why}; check with scontrol ping that it runs, and run this "
        "command on a login node of the cluster\n"
    )


def test_a_number_is_that_of_slurm() -> None:
    """Not the end of another job's id, whose last part may end with the same digits."""
    jobs = _record.jobs_folder()
    for name, number in (("20261127-052745-d412", 7), ("20261127-052746-aaaa", 12)):
        (jobs / name).mkdir(parents=True)
        (jobs / name / "handle.json").write_text(json.dumps({"slurm": number}))
    try:
        assert store.folder_of("12").name.endswith("aaaa")
        assert store.folder_of("d412").name.endswith("d412")
    finally:
        for name in ("20261127-052745-d412", "20261127-052746-aaaa"):
            shutil.rmtree(jobs / name)
