"""The laws of a target, each a function that is run where jobs are submitted.

``python -m tests.jobs.laws LAW TARGET`` in a folder with program.py; TARGET is an expression of
`pr.targets` with two processes. It ends with 0 if the law holds. ``LAW,LAW+LAW`` checks two laws at
the same time, and then the third.
"""

import compileall
import dataclasses
import importlib
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.runs import record as _record
from pyreactant.runs import store
from pyreactant.runs.places import ray
from pyreactant.runs.places.ray import cluster as ray_cluster
from tests import harness
from tests.harness import until

WAIT = 300  # seconds, on a busy machine

TREE: dict[Any, Any] = {
    "none": None,
    "pair": (1, (2.5, "x"), []),
    "list": [True, False, {}],
    "big": [2**53 + 1, -(2**70)],
    "odd": [float("inf"), -0.0, 1 + 2j],
    3: "whole number as key",
    "$array": "a key that looks like a mark",
}
ARRAYS: dict[str, Any] = {
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "by_columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "empty": np.zeros((0, 2), np.int8),
    "big_endian": np.arange(3, dtype=">i4"),
    "words": np.array(["a", "bcd"]),
    "scalar": np.float16(1.5),
}


def left(job: str, seconds: float = 20) -> list[str]:
    """Processes of a job that still run, after some time in which its keeper may end."""
    deadline = time.monotonic() + seconds
    while (found := _running(job)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _running(job: str) -> list[str]:
    mark = f"PYREACTANT_JOB={job}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def pyreactant(*words: str, code: int = 0) -> str:
    """The output of a command in another process."""
    argv = [sys.executable, "-m", "pyreactant", "jobs", *words]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert ran.returncode == code, (words, ran)
    return ran.stdout


def failure(job: pr.Job) -> pr.RemoteError:
    """The error with which a job ends."""
    with pytest.raises(pr.RemoteError) as caught:
        job.result(timeout=WAIT)
    return caught.value


def value(target: pr.targets.Target) -> None:
    """Arguments and value come back as they were; another shell sees the same."""
    import ml_dtypes

    half = np.arange(4, dtype=ml_dtypes.bfloat16)
    list(store.rows())  # what Slurm says now is remembered, and is older than the job
    os.environ["LAW_SECRET"] = "of the user"
    given = [TREE, half]
    job = pr.submit("program.py:back", given, on=target, env=["LAW_SECRET"])
    found = job.result(timeout=WAIT)
    (tree, half_back), named = found["args"], found["named"]
    assert tree == TREE, tree
    assert [type(x) for x in tree["pair"]] == [int, tuple, list]
    assert math.copysign(1, tree["odd"][1]) == -1
    assert half_back.dtype == half.dtype
    assert (half_back == half).all()
    assert (named, found["process"], found["count"]) == ({}, 0, "2")
    assert found["module"] == "program"
    assert found["variables"] == ["of the user", None]
    status = job.status()
    assert (status.state, status.exit_code) == ("done", 0)
    for index in range(2):
        text = "".join(job.logs(index))
        assert f"process {index} is here\n" in text, text
        assert pyreactant("logs", job.id, "--process", str(index)) == text
    assert [(m.step, m.name, m.value) for m in job.metrics()] == [(3, "loss", 0.5)]
    assert pyreactant("logs", job.id, "--metrics", "-f") == "step 3: loss = 0.5\n"
    shown = json.loads(pyreactant("status", job.id, "--json"))
    assert (shown["state"], shown["target"]) == ("done", target.kind)
    assert shown["what"] == "program.py:back"
    result = json.loads(pyreactant("result", job.id[-4:], "--json"))["value"]
    assert Path(result["args"]["$tuple"][1]["$array"]).exists()
    assert job.cancel() == status, "an ended job keeps its state"
    assert not (job.folder / "work" / "env.json").exists(), "a secret outlives its job"
    for path in (job.folder, *job.folder.iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path
    assert b"of the user" not in b"".join(
        p.read_bytes() for p in job.folder.rglob("*") if p.is_file() and "value" not in p.parts
    )
    assert not left(job.id)
    if target.kind in ("ray", "tpu"):
        return
    # A second job, while what the controller said about the first is remembered.
    again = pr.submit("program.py:back", on=target)
    assert not again.status().ended
    assert again.result(timeout=WAIT)["process"] == 0


def arrays(target: pr.targets.Target) -> None:
    """Arrays keep dtype, order of bytes and shape; a blocking call shows process 0's lines."""
    sys.path.insert(0, str(Path.cwd()))
    program = importlib.import_module("program")
    remote = pr.remote(on=target)(program.back)
    shown = io.StringIO()
    with redirect_stdout(shown):
        found = remote(**ARRAYS)["named"]
    assert "process 0 is here\n" in shown.getvalue()
    assert "process 1 is here" not in shown.getvalue()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert (found[name] == array).all(), name
    assert type(found["scalar"]) is np.float16


def raises(target: pr.targets.Target) -> None:
    """An exception on process 1 is raised here, with its process, host and traceback."""
    job = pr.submit("program.py:fails", ["the user's own mistake"], on=target)
    error = failure(job)
    assert (error.kind, error.process, error.exit_code) == ("ValueError", 1, 1), error
    assert error.host
    assert "the user's own mistake" in str(error)
    assert re.search(r"program\.py.*in fails", error.traceback), error.traceback
    assert "runs/worker.py" not in error.traceback
    assert job.status().state == "failed"
    assert "the user's own mistake" in pyreactant("result", job.id, "--json", code=1)
    assert not left(job.id)


def dies(target: Any) -> None:
    """A process that is killed is named, with the cause."""
    faults(target, {"dies": ("lost", 6)})


def faults(target: Any, expected: Mapping[str, tuple[str, int]] | None = None) -> None:
    """A process that is killed, lacks memory or hangs is named, with the cause."""
    target = dataclasses.replace(target, stall_timeout=8.0)
    expected = expected or {
        "dies": ("lost", 6),
        "lacks_memory": ("out of memory", 6),
        "hangs": ("timeout", 7),
    }
    jobs = {name: pr.submit(f"program.py:{name}", on=target) for name in expected}
    for name, (kind, code) in expected.items():
        error = failure(jobs[name])
        assert (error.kind, error.process, error.exit_code) == (kind, 1, code), error
        assert error.host


def cancelled(target: pr.targets.Target) -> None:
    """A cancelled job leaves nothing; it can be cancelled again, and by another shell."""
    job = pr.submit("program.py:waits", on=target)
    until(lambda: "waiting" in "".join(job.logs()))
    until(lambda: job.status().state == "running")
    assert "waiting" in pyreactant("logs", job.id), "another shell sees less"
    # Whoever follows the output gets it all, and then the end.
    seen: list[str] = []
    reader = threading.Thread(target=lambda: seen.extend(job.logs(follow=True)))
    reader.start()
    with pytest.raises(pr.DeadlineError, match="it goes on"):
        job.result(timeout=0.2)
    assert json.loads(pyreactant("cancel", job.id, "--json"))["state"] == "cancelled"
    assert not left(job.id)
    reader.join(30)
    assert "waiting" in "".join(seen)
    again = job.cancel()
    assert (again.state, again.exit_code) == ("cancelled", 130)
    pyreactant("result", job.id, code=130)
    assert failure(job).kind == "cancelled"


def scancelled(target: pr.targets.Target) -> None:
    """A job that its user ends by Slurm's own command was cancelled, not preempted."""
    job = pr.submit("program.py:waits", on=target)
    until(lambda: "waiting" in "".join(job.logs()))
    subprocess.run(["scancel", f"--name=pyreactant-{job.id}"], check=True)
    status = job.wait(timeout=WAIT)
    assert (status.state, status.reason) == ("cancelled", "cancelled in Slurm"), status
    assert status.exit_code == 130
    assert not left(job.id)


def told_to_slurm(target: Any) -> None:
    """Slurm has the exit code of the run, so what depends on its success does not run."""
    codes = {"dies": 6, "fails": 1, "back": 0}
    jobs = {
        name: pr.submit(f"program.py:{name}", [name] if name == "fails" else [], on=target)
        for name in codes
    }
    for name, job in jobs.items():
        assert job.wait(timeout=WAIT).exit_code == codes[name]
        after = f"--dependency=afterok:{job.record.handle()['slurm']}"
        later = pr.submit("program.py:back", on=dataclasses.replace(target, options=(after,)))
        until(lambda: later.status().ended or "Never" in later.status().reason)  # noqa: B023
        assert later.status().ended == (codes[name] == 0), (name, later.status())
        later.cancel()


def batch_script_killed(target: pr.targets.Target) -> None:
    """Whoever kills the batch script did not preempt the job."""
    job = pr.submit("program.py:waits", on=target)
    until(lambda: "waiting" in "".join(job.logs()))
    script = ["pkill", "-KILL", "-f", f"pyreactant.runs.places.slurm .*{job.id}"]
    subprocess.run(script, check=True)
    status = job.wait(timeout=WAIT)
    assert (status.state, status.exit_code) == ("lost", 6), status
    assert status.reason == "the batch script was killed by SIGKILL"
    assert not left(job.id)


def removed(target: pr.targets.Target) -> None:
    """Nobody can ask about a job whose folder is removed, so its keeper ends it."""
    job = pr.submit("program.py:waits", on=target)
    until(lambda: "waiting" in "".join(job.logs()))
    until(lambda: job.status().state == "running")
    shutil.rmtree(job.folder)
    if target.kind == "kubernetes":  # the cluster keeps it, and any shell can take it over
        shown = json.loads(pyreactant("adopt", job.id[-4:], "--on", "kubernetes", "--json"))
        assert (shown["id"], shown["state"]) == (job.id, "running")
        job = pr.Job.find(job.id)
        assert (job.record.what, job.target) == ("program.py:waits", target)
        until(lambda: "waiting" in "".join(job.logs(1)))
        assert job.cancel().state == "cancelled"
    until(lambda: not _running(job.id))
    if target.kind == "slurm":
        queue = ["squeue", "--me", "--noheader", "--states=RUNNING,PENDING"]
        until(lambda: not subprocess.check_output(queue))


def full_disk(target: pr.targets.Target) -> None:
    """A value larger than the disk here stays where it is until there is room.

    The state folder is a small disk of its own, in a mount namespace of this process.
    """
    size = 8 << 20 if target.kind == "tpu" else 32 << 20
    if isinstance(target, pr.targets.Ray):
        target = dataclasses.replace(target, hosts=1)
    job = pr.submit("program.py:large", [size], on=target)
    if target.kind == "tpu":
        until(lambda: "free some space: the slices keep" in job.status().reason)
        with pytest.raises(pr.DeadlineError):
            job.result(timeout=0.1)
    else:
        for _ in range(2):
            with pytest.raises(pr.FileError, match="free some space and fetch it again"):
                job.result(timeout=WAIT)
        assert job.status().state == "done"
    folder = os.environ["XDG_STATE_HOME"]
    subprocess.run(["mount", "-o", "remount,size=128m", folder], check=True)
    assert job.result(timeout=WAIT).nbytes == size
    assert not left(job.id)


def cleaned(target: Any) -> None:
    """A job on Ray that is removed before its value was fetched leaves no keeper behind."""
    job = pr.submit("program.py:back", on=dataclasses.replace(target, hosts=1))
    job.wait(timeout=WAIT)
    address = job.record.handle()["address"]
    cluster = ray_cluster.cluster_at(address)
    asked = {"do": "status", "name": ray._name(job.record), "folder": str(job.folder)}
    assert cluster.ask(60, **asked)["state"] == "done"
    assert json.loads(pyreactant("clean", job.id, "--json")) == [job.id]
    assert cluster.ask(60, **asked) == {"absent": True}
    # A submission that is killed before and after its keeper exists.
    for handle, words in (({}, "the submitting process ended before"), ({"started": True}, "gone")):
        record = _record.create("x", "ray", target.settings())
        record.write_handle({"address": address, **handle})
        _record.release(record)
        assert words in pr.Job(record).status().reason, pr.Job(record).status()
        store.remove(record.folder)
    assert not job.folder.exists()
    assert not left(job.id)


def script(target: pr.targets.Target) -> None:
    """A whole script, from the copy that was made when it was submitted."""
    job = pr.submit(["program.py", "3", "b c"], on=target)
    Path("program.py").write_text("raise SystemExit('the copy was not used')\n")
    assert failure(job).exit_code == 1
    # The first process to end ends the other, on a slow machine before it has printed.
    assert "arguments ['3', 'b c']" in "".join([*job.logs(0), *job.logs(1)])


def killed(target: pr.targets.Target, points: str = "0.5 0.95") -> None:
    """The submitting process is killed at points of `submit`: the job is found, and ends.

    The first one is killed at the end, where its events are counted; that its job runs is awaited
    only if 1 is among the points.
    """
    expression = sys.argv[2]
    # Else the submission that is counted makes these, and has more events than the others.
    _record.private_folder(_record.jobs_folder())
    compileall.compile_dir(Path(pr.__file__).parent, quiet=1)
    before = set(store.names())
    asked = [float(part) for part in points.split()]
    count = 0
    for part in (1.0, *(part for part in asked if part < 1)):
        last = part == 1
        point = -1 if last else round(part * (count - 1))
        ran = _submitting(expression, point)
        assert ran.returncode == -signal.SIGKILL, (point, ran)
        new = [name for name in store.names() if name not in before]
        before.update(new)
        rows = {row["id"]: row for row in json.loads(pyreactant("list", "--json"))}
        if last:
            count = int(ran.stdout.split()[-1])
            assert len(rows.keys() & set(new)) == 1, (new, rows)
        for name in set(new) & set(rows):  # before its record is whole there is no job
            job_ = pr.Job.find(name)
            awaited = not last or 1 in asked
            if awaited and job_.status().state not in ("lost", "failed"):
                until(lambda: job_.status().state in ("running", "lost", "failed"))  # noqa: B023
            ended = job_.cancel()
            assert ended.ended, (point, ended)
            assert ended.state != "lost" or "submitting process" in ended.reason, (point, ended)
            assert not left(name), point
    print(f"{count} points")


_SUBMIT = """
import os, signal, sys
import pyreactant as pr
EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "subprocess.Popen", "os.chmod")
point, seen, on = int(sys.argv[1]), 0, False

def hook(event, arguments):
    global seen
    if on and event in EVENTS:
        if seen == point:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1

sys.addaudithook(hook)
target = eval(sys.argv[2])
on = True
pr.submit("program.py:waits", on=target)
on = False
print(seen, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def _submitting(expression: str, point: int) -> subprocess.CompletedProcess[str]:
    """A process that submits a job and is killed at the point: an event of Python's audit."""
    argv = [sys.executable, "-c", _SUBMIT, str(point), expression]
    return harness.run(argv)


def hold(names: str, target: pr.targets.Target, *more: str) -> None:
    """Check laws; those with a comma between them at the same time."""
    for group in names.split("+"):
        with ThreadPoolExecutor() as pool:
            checks = [pool.submit(globals()[law], target, *more) for law in group.split(",")]
            for check in checks:
                check.result()


if __name__ == "__main__":
    hold(sys.argv[1], eval(sys.argv[2]), *sys.argv[3:])
    print("the law holds")
