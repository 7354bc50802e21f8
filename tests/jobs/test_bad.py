"""What cannot travel or is not there: a clear error, before anything is started."""

import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.runs import record as _record
from pyreactant.runs import store, targets
from pyreactant.runs.call import resolve, signature_in
from pyreactant.runs.keeper import ended
from tests import harness
from tests.harness import environment, require
from tests.jobs import program
from tests.jobs.disk import small_disk

FUNCTION = "def main(x=None):\n    return x\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(FUNCTION)
    return tmp_path


def refused(code: int, what: Any, *arguments: Any, **options: Any) -> str:
    """The message; nothing was recorded."""
    with pytest.raises(pr.PyReactantError) as caught:
        pr.submit(what, *arguments, **options)
    assert caught.value.exit_code == code, caught.value
    assert store.names() == []
    return str(caught.value)


class Callable:
    def __call__(self) -> None: ...

    def method(self) -> None: ...


def test_functions_that_cannot_travel() -> None:
    def inner() -> None: ...

    assert "<lambda> is a lambda; define it with def" in refused(2, lambda: None)
    assert "is defined inside another function; define it with def" in refused(2, inner)
    assert "a Callable has no name by which it can travel" in refused(2, Callable())
    assert "a method has no name" in refused(2, Callable().method)
    assert "later is async or a generator" in refused(2, program.later)
    assert "there is no file 'absent.py'" in refused(2, "absent.py:main")
    assert refused(2, "train.py:absent") == "train.py defines no absent; it has main"
    Path("broken.py").write_text("def main(:\n")
    assert "broken.py, line 1, is not valid Python" in refused(2, "broken.py:main")
    assert 'named as "FILE.py:NAME"' in refused(2, "train.py")
    assert 'named as "FILE.py:NAME"' in refused(2, "train.py:not a name")
    assert "there is no module 'absent'" in refused(2, "absent:main")
    assert "a job runs a function" in refused(2, 3)
    assert "a job runs a function" in refused(2, [])
    assert "there is no program 'absent.py'" in refused(2, ["absent.py", "1"])
    assert "name a program" in refused(2, ["-m"])
    assert "there is no program 'x.jl'" in refused(2, ["julia", "-t", "2", "x.jl"])


def test_a_function_of_a_prompt() -> None:
    code = "import pyreactant as pr\ndef f(): pass\npr.submit(f)"
    ran = harness.run([sys.executable, "-c", code], env=environment())
    assert "f is defined in a notebook, at a prompt or with python -c" in ran.stderr
    assert "%%writefile" in ran.stderr


@dataclasses.dataclass
class Data:
    x: int = 0


Pair = namedtuple("Pair", "a b")
LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"x": [object()]}, "the argument x[0] cannot travel: its type is object"),
        ({"x": {1, 2}}, "pass sorted(x)"),
        ({"x": iter([1])}, "pass list(x)"),
        ({"x": b"bytes"}, "numpy.frombuffer"),
        ({"x": Data()}, "dataclasses.asdict(x)"),
        ({"x": Pair(1, 2)}, "x._asdict()"),
        ({"x": LOOP}, "it contains itself"),
        ({"x": len}, "a function travels by its name"),
        ({"x": np.array([None])}, "an array of dtype object needs pickle"),
        ({"x": np.ma.array([1])}, "x.filled(...)"),
        ({"x": {b"key": 1}}, "the type of a key is bytes"),
        ({"x": os.environ}, "pass dict, list"),
        (3, "arguments must be a dict by name, or a list, got int"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_arguments_that_cannot_travel(argument: Any, words: str) -> None:
    assert words in refused(2, "train.py:main", argument)


def test_deep_nesting() -> None:
    deep: Any = 1
    for _ in range(1000):
        deep = [deep]
    assert "nested more than 200 deep" in refused(2, "train.py:main", [deep])


def test_wrong_arguments_of_a_function() -> None:
    remote = pr.remote(program.fails)
    with pytest.raises(pr.InvalidArgumentError, match="missing a required argument: 'text'"):
        remote.submit()
    assert remote.local is program.fails
    assert "fails(): too many positional arguments" in refused(2, program.fails, ["a", "b"])
    assert "fails(): missing a required argument: 'text'" in refused(2, remote)


@pytest.mark.parametrize(
    ("definition", "arguments", "words"),
    [
        ("def f(a, /, b, *, c): ...", {"b": 1, "c": 2}, "missing a required argument: 'a'"),
        ("def f(a, b=print(1)): ...", {"a": 1, "y": 2}, "got an unexpected keyword argument 'y'"),
        ("def f(a, *, c=1): ...", [1, 2], "too many positional arguments"),
        ("def f(a, *, c): ...\nf and f", [1], "missing a required argument: 'c'"),
    ],
)
def test_wrong_arguments_of_a_named_function(
    definition: str, arguments: Any, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "named.py"
    file.write_text(definition)
    assert f"f(): {words}" in refused(2, f"{file}:f", arguments)


@pytest.mark.parametrize(
    "definition",
    [
        "def f(*args, **named): ...",
        "def f(x=1): ...",
        "def f(): ...\nf = print",
        "import functools\n@functools.cache\ndef f(): ...",
        "if True:\n    def f(): ...\nelse:\n    def f(x): ...",
    ],
)
def test_arguments_that_the_source_does_not_rule_out(definition: str, tmp_path: Path) -> None:
    file = tmp_path / "named.py"
    file.write_text(definition)
    call = resolve(f"{file}:f")
    signature = signature_in(call)
    assert signature is None or signature.bind(x=1)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (targets.Local(processes="2"), "processes must be a whole number (int), got '2'"),
        (
            targets.Local(processes=np.int64(2)),
            "processes must be a whole number (int), got np.int",
        ),
        (targets.Local(processes=True), "processes must be a whole number (int), got True"),
        (
            targets.Local(timeout=np.float32(3)),
            "timeout must be a finite number (float) or None, got",
        ),
        (targets.Local(timeout=float("inf")), "timeout must be a finite number (float) or None"),
        (targets.Local(platform=Path("cpu")), "platform must be text or None, got PosixPath"),
        (targets.Slurm(stall_timeout=-1), "stall_timeout must be a positive number, got -1"),
        (targets.Slurm(account=Path("x")), "account must be text or None"),
        (targets.Slurm(options="--exclusive"), "options must be a list of texts, got '--excl"),
        (targets.TPU("v6e-16", lifetime="6"), "lifetime must be a finite number (float), got '6'"),
        (targets.TPU("v6e-16", spot="no"), "spot must be True or False, got 'no'"),
    ],
    ids=lambda value: value.kind if isinstance(value, targets.Target) else None,
)
def test_settings_of_another_type(target: Any, message: str) -> None:
    assert refused(2, "train.py:main", on=target).startswith(message)


def test_targets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    submit = "train.py:main"
    assert "on= must be a target" in refused(2, submit, on="slurm")
    assert "processes must be 1 to 4096" in refused(2, submit, on=targets.Local(processes=0))
    assert "platform must be one of cpu" in refused(2, submit, on=targets.Local(platform="x"))
    assert "nodes must be 1 or more" in refused(2, submit, on=targets.Slurm(nodes=0))
    assert "must start with -" in refused(2, submit, on=targets.Slurm(options=["x"]))
    least = targets.Slurm(nodes=2, min_processes=3, max_restarts=1)
    assert "min_processes must be 1 to 2, the number of" in refused(2, submit, on=least)
    least = targets.Slurm(nodes=2, min_processes=1)
    assert "needs max_restarts=1 or more; got 1 with max" in refused(2, submit, on=least)
    place = {"project": "my-project", "zone": "us-east5-b"}
    unknown = targets.TPU("v6e-17", **place)
    assert "v6e-17" in refused(2, submit, on=unknown)
    monkeypatch.delenv("PROJECT", raising=False)
    assert "give project, or set PROJECT" in refused(2, submit, on=targets.TPU("v6e-16"))
    both = targets.TPU("v6e-16", spot=True, reserved=True, **place)
    assert "spot or reserved, not both" in refused(2, submit, on=both)
    monkeypatch.setenv("PATH", str(tmp_path))
    message = refused(3, submit, on=targets.Slurm())
    assert message.startswith("sbatch is not installed on this machine; run this command on a lo")
    assert "ssh LOGIN_NODE" in message
    with pytest.raises(pr.InvalidArgumentError, match="must be one of local, "):
        targets.make("moon", {})
    with pytest.raises(pr.InvalidArgumentError, match="the target local has no setting 'nodes'"):
        targets.make("local", {"nodes": 2})
    with pytest.raises(pr.InvalidArgumentError, match="accelerator_type"):
        targets.make("tpu", {})
    assert targets.make("tpu", {"accelerator_type": "v6e-4", "retries": 2}).max_restarts == 2
    assert targets.TPU("v6e-4", retries=2).settings() == {
        "accelerator_type": "v6e-4",
        "max_restarts": 2,
    }


def test_julia_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Path("train.jl").write_text("println(1)")
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))  # where `pyreactant setup` notes its Julia
    for what in ("train.jl", ["train.jl", "3"], ["julia", "-t", "2", "train.jl"]):
        message = refused(3, what)
        assert "a Julia program needs Julia, but 'julia' is not in PATH; install it" in message
        assert "pyreactant setup" in message
    tpu = targets.TPU("v6e-16", project="my-project", zone="us-east5-b")
    assert "needs backend='reactant' on TPU" in refused(2, "train.jl", on=tpu)


def test_gcloud_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require(__import__("importlib.util").util.find_spec("google.cloud.tpu_v2"), "google-cloud-tpu")
    monkeypatch.setenv("PATH", str(tmp_path))
    target = targets.TPU("v6e-16", project="my-project", zone="us-east5-b")
    assert "gcloud is not in PATH; install it" in refused(3, "train.py:main", on=target)


def test_code_and_environment(folder: Path) -> None:
    assert "there is no '" in refused(2, "train.py:main", copies=["absent"])
    assert "must lie below" in refused(2, "train.py:main", copies=["/etc/hosts"])
    assert "requirements 'absent' cannot be read" in refused(
        2, "train.py:main", requirements="absent"
    )
    assert "env names LAW_ABSENT, which is not set here" in refused(
        2, "train.py:main", env=["LAW_ABSENT"]
    )
    given = refused(2, "train.py:main", env=["LAW_ABSENT=secret"])
    assert "env must be the name of a variable, and has a value, too; set it here, and" in given
    assert "secret" not in given
    assert "env= must be names, or a dict of text" in refused(2, "train.py:main", env={"A": 1})
    for name in ("PYREACTANT_NUM_PROCESSES", "PYREACTANT_JOB", "JAX_PROCESS_ID"):
        message = refused(2, "train.py:main", env={name: "3"})
        assert f"env must not name {name}, which the run itself sets" in message
    os.mkfifo("pipe")
    os.mkfifo("pipe.py")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    for name in ("pipe", "socket"):
        message = refused(2, "train.py:main", copies=[name])
        assert f"only files and folders travel, but '{folder / name}' is neither" in message
        assert "write what it gives to a file" in message
    assert "only files and folders travel" in refused(2, ["pipe.py"])
    assert "only files and folders travel" in refused(2, ["python", "pipe.py"])
    assert "requirements 'pipe' is not a file" in refused(2, "train.py:main", requirements="pipe")
    with Path("large").open("wb") as file:
        file.truncate(101 << 20)
    message = refused(2, "train.py:main", copies=["large"])
    assert "must be at most 100 MiB" in message
    assert "large (101 MiB)" in message


def test_two_shells_adopt_a_job() -> None:
    own = "20260101-000000-ab12"
    record = _record.create("x", "kubernetes", {}, adopted=(own, 1.0))
    with pytest.raises(pr.StateError, match=f"another shell adopts the job {own} at this moment"):
        _record.create("x", "kubernetes", {}, adopted=(own, 1.0))
    _record.release(record)


def test_unknown_moved_and_foreign_jobs(folder: Path) -> None:
    assert "there is no job 4711" in missing("4711")
    assert "a job id is like" in missing("../..")
    record = _record.create("x", "local", {})
    _record.release(record)
    assert pr.Job.find(record.id[-4:]).id == record.id
    moved = record.folder.with_name("20200101-000000-beef")
    record.folder.rename(moved)
    assert f"was moved from {record.folder} to {moved}; move it back" in missing(moved.name)
    moved.rename(record.folder)
    good, job = (record.folder / "job.json").read_bytes(), pr.Job(record)
    (record.folder / "job.json").write_bytes(good.replace(b'"settings": {}', b'"settings": null'))
    assert "is damaged or cannot be read (this version writes other fields); " in missing(record.id)
    (record.folder / "job.json").write_text("{")
    assert "is damaged" in missing(record.id)
    (record.folder / "job.json").write_bytes(good)
    for text in ("", "{", '{"state": "done", "more": 1}', '{"reason": ""}', "[" * 100_000):
        (record.folder / "state.json").write_text(text)
        with pytest.raises(pr.FileError, match=r"state\.json is damaged"):
            job.status()
        ((_, row, status),) = store.rows()
        assert (row, status.state) == (None, "lost"), "others are not listed"
    (record.folder / "state.json").unlink()
    (record.folder / "job.json").unlink()
    assert "is not the folder of a job" in missing(record.id)
    with pytest.raises(pr.FileError, match=f"the record of the job {record.id} was removed"):
        job.status()
    first, second = (_record.create("x", "local", {}) for _ in range(2))
    assert "jobs have an id like 2" in missing("2")
    more = [_record.create("x", "local", {}) for _ in range(3)]
    said = re.search("([0-9]+) jobs have an id like 2: (.*) and ([0-9]+) more;", missing("2"))
    assert said is not None
    assert int(said[1]) == len(said[2].split(", ")) + int(said[3])
    if os.geteuid() == 0:
        os.chown(first.folder, 12345, 12345)
        assert "belongs to another user, not to you" in missing(first.id)
    for one in (first, second, *more):
        _record.release(one)


def missing(name: str) -> str:
    with pytest.raises(pr.InvalidArgumentError) as caught:
        pr.Job.find(name)
    return str(caught.value)


def test_a_job_whose_submission_was_killed(folder: Path) -> None:
    record = _record.create("x", "local", {})
    job = pr.Job(record)
    assert job.status().state == "requested"
    _record.release(record)
    assert job.status().state == "lost"
    assert "ended before the job was started" in job.status().reason
    with pytest.raises(pr.RemoteError, match="before the job was started") as caught:
        job.result()
    assert (caught.value.kind, caught.value.exit_code) == ("lost", 6)


def test_the_state_folder_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "file"))
    with pytest.raises(pr.RequirementError, match="set XDG_STATE_HOME to a folder"):
        pr.submit("train.py:main")


FULL = """
import pyreactant as pr
try:
    pr.submit("train.py:main").result(timeout=60)
except pr.RemoteError as error:
    print(error.kind, error)
"""


def test_a_value_larger_than_the_disk(folder: Path) -> None:
    Path("train.py").write_text("import numpy as np\ndef main():\n    return np.zeros(1 << 20)\n")
    argv = [*small_disk(folder / "state", 1), sys.executable, "-c", FULL]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=100)
    assert "RequirementError" in ran.stdout, ran
    assert "No space left on device; free some space, remove old jobs with: pyreactant jobs" in (
        ran.stdout
    )


FILLED = """
import subprocess, sys, time
import pyreactant as pr
job = pr.submit("train.py:main")
while "is full" not in job.status().reason:
    time.sleep(0.1)
print(job.status().state, job.status().reason)
jobs = [sys.executable, "-m", "pyreactant", "jobs"]
subprocess.run([*jobs, "list"], check=True)
try:
    pr.submit("train.py:main")
except pr.RequirementError as error:
    print(error)
(job.record.run / "process-0.log").write_text("")
try:
    print("value", job.result(timeout=60))  # there was room before the function returned
except pr.RemoteError as error:
    print(error)
subprocess.run([*jobs, "clean", job.id], check=True)
"""


def test_output_that_fills_the_disk(folder: Path) -> None:
    """How jobs stand can still be asked, and the job ends once there is room."""
    Path("train.py").write_text(
        "def main():\n    for _ in range(30000):\n        print('x' * 100)\n    return 1\n"
    )
    argv = [*small_disk(folder / "state", 1), sys.executable, "-c", FILLED]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran
    stuck, *listed, refused_, ended, removed = ran.stdout.splitlines()
    assert stuck.startswith("running the disk of ")
    assert stuck.endswith(" is full; free some space")
    assert "running" in "".join(listed)
    assert "No space left on device; free some space, remove old jobs" in refused_
    assert ended
    assert removed.startswith("removed ")


CUT = """
import subprocess, sys, time
from pathlib import Path
import pyreactant as pr
job = pr.submit("train.py:main", [str(Path("go").absolute())])
while not Path("go.waits").exists():  # before it, the job could not even start on a full disk
    time.sleep(0.05)
filler = Path(sys.argv[1], "filler")
with filler.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
Path("go").touch()
jobs = [sys.executable, "-m", "pyreactant", "jobs", "logs", job.id]
while "is full" not in subprocess.run(jobs, capture_output=True, text=True).stderr:
    time.sleep(0.1)
print(subprocess.run(jobs, capture_output=True, text=True).stderr)
filler.unlink()
Path("go.room").touch()
job.wait(timeout=100)
print(subprocess.run(jobs, capture_output=True, text=True).stderr)
"""


WRITES_LATE = """
import os, time

def wait_for(path):
    end = time.monotonic() + 100
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.05)

def main(go):
    open(f"{go}.waits", "w").close()
    wait_for(go)
    print("x" * 9000, flush=True)
    wait_for(f"{go}.room")
"""


def test_a_log_that_a_full_disk_has_cut(folder: Path) -> None:
    """It is said, also when there is room again."""
    Path("train.py").write_text(WRITES_LATE)
    argv = [*small_disk(folder / "state", 1), sys.executable, "-c", CUT, str(folder / "state")]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran
    before, after = filter(None, ran.stdout.splitlines())
    assert before.startswith("pyreactant: the log of process 0 is cut: the disk of ")
    assert before.endswith(" is full; free some space")
    assert "the log of process 0 is cut: " in after
    assert "No space left on device" in after


RAISES_ODDLY = r"""
def main(how):
    text = "a\udc80b"
    if how:
        raise ValueError(text)
    raise FileNotFoundError(2, text, text)
"""


def test_an_error_with_a_lone_surrogate_can_be_printed(folder: Path) -> None:
    Path("train.py").write_text(RAISES_ODDLY)
    for how in (True, False):
        with pytest.raises(pr.RemoteError) as caught:
            pr.submit("train.py:main", [how]).result(timeout=60)
        error = caught.value
        for text in (str(error), error.traceback, *(row["message"] for row in error.others)):
            text.encode()
        assert "a\\udc80b" in str(error)


def test_what_a_report_notes_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = _record.create("x", "local", {})
    record.run.mkdir()
    report = {"cause": "done", "exit_code": 0, "summary": "", "notes": ["no process joined"]}
    (record.run / "report.json").write_text(json.dumps(report))
    record.write_status(ended(record, 0))
    _record.release(record)
    assert pr.Job(record).result() is None
    assert capsys.readouterr().err == "pyreactant: no process joined\n"
    assert pr.Job(record).status().reason == "no process joined"
