"""docs/jobs.md: its commands with --dry-run print what it shows, and its example is the file."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pyreactant import targets
from pyreactant.runs.record import Record
from tests import harness
from tests.harness import REPOSITORY, environment

DOCS = (REPOSITORY / "docs" / "jobs.md").read_text()
EXAMPLE = REPOSITORY / "examples" / "remote" / "train.py"
# Each recipe is a command with --dry-run, followed by a block with its output.
RECIPES = re.findall(
    r"```bash\n(pyreactant run [^`]*--dry-run[^`]*)\n```\n+```text\n(.*?)```", DOCS, re.DOTALL
)
TARGETS = ["local", "slurm", "tpu"]


@pytest.mark.parametrize("number", range(len(TARGETS)), ids=TARGETS)
def test_plan(number: int, tmp_path: Path) -> None:
    command, printed = RECIPES[number]
    (tmp_path / "train.py").write_text("\n")
    done = harness.run(
        [sys.executable, "-m", "pyreactant", *shlex.split(command)[1:]],
        cwd=tmp_path,
        env=environment(XDG_STATE_HOME="/home/me/.local/state"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed
    assert not Path("/home/me").exists(), "a plan changes nothing"


def test_slurm_leaves_the_other_nodes_alone(tmp_path: Path) -> None:
    """What --min-processes changes in the script and in its step."""
    (tmp_path / "train.py").write_text("\n")
    options = ["--nodes=3", "--max-restarts=2", "--min-processes=2", "--dry-run", "--", "train.py"]
    done = harness.run(
        [sys.executable, "-m", "pyreactant", "run", "--on", "slurm", *options],
        cwd=tmp_path,
        env=environment(XDG_STATE_HOME="/home/me/.local/state"),
    )
    assert done.returncode == 0, done.stderr
    assert " --requeue --no-kill " in done.stdout
    spec = {"kind": "script", "program": ["train.py"]}
    job = Record(tmp_path, "id", "train.py", "slurm", {}, spec=spec)
    step = targets.Slurm(nodes=3, max_restarts=2, min_processes=2).step(job)
    assert step[:4] == ["srun", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"]
    assert {"--max-restarts=2", "--min-processes=2"} < {*step}


def test_there_are_recipes() -> None:
    assert len(RECIPES) == len(TARGETS)


def test_the_example(tmp_path: Path) -> None:
    """A decorated function on all processes: its output, and its value with the whole array."""
    assert f"```py\n{EXAMPLE.read_text()}```" in DOCS
    (tmp_path / "train.py").write_text(EXAMPLE.read_text())
    ran = harness.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment(XDG_STATE_HOME=str(tmp_path / "state")),
    )
    assert ran.returncode == 0, ran.stderr
    assert "devices on all hosts: 8\nthis is process 0 of 2\n" in ran.stdout
    assert ran.stdout.endswith("0.1 28.0\n")


def test_an_error_that_is_caught_and_one_that_is_not(tmp_path: Path) -> None:
    """The remote traceback is printed without being asked for; the error's text is a sentence."""
    (code,) = re.findall(r"```py\n(import numpy[^`]*RemoteError[^`]*)```", DOCS)
    (tmp_path / "train.py").write_text(EXAMPLE.read_text())
    settings = environment(XDG_STATE_HOME=str(tmp_path / "state"))
    raised = re.compile(
        r'  File ".*train\.py", line 16, in train\n(.*\n)*.*ShardingError: dimension 0'
    )

    def run(text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "caller.py").write_text(text)
        return harness.run([sys.executable, "caller.py"], cwd=tmp_path, env=settings)

    ran = run(code)
    assert ran.returncode == 0, ran.stderr
    assert "\nthe function raised ShardingError\nTraceback" in ran.stdout
    assert raised.search(ran.stdout)
    ran = run(code.replace("    print(error.traceback)", "    print(str(error))\n    raise"))
    assert ran.returncode == 1
    assert ran.stdout.splitlines()[-1].startswith("job ")
    _, _, uncaught = ran.stderr.partition("pyreactant.base.errors.RemoteError: job ")
    assert re.match(
        r"[^\n]*ShardingError: dimension 0[^\n]*\n\nProcess \d of the job printed:", uncaught
    )
    assert raised.search(uncaught)


def test_what_status_prints(tmp_path: Path) -> None:
    """The page's output, but for the job's id, the host, the time and the folder."""
    (shown,) = re.findall(r"\$ pyreactant jobs status 6788\n([^`]*)```", DOCS)
    code = "import pyreactant as pr\n\npr.initialize()\nif pr.process_index():\n    "
    (tmp_path / "train.py").write_text(f"{code}raise ValueError('no data')\npr.barrier('end')\n")
    settings = environment(XDG_STATE_HOME=str(tmp_path / "state"))
    command = [sys.executable, "-m", "pyreactant"]

    def ran(*words: str) -> str:
        done = harness.run([*command, *words], cwd=tmp_path, env=settings)
        return str(done.stdout)

    ran("run", "--detach", "--processes", "2", "--platform", "cpu", "--", "train.py")
    (job,) = (tmp_path / "state" / "pyreactant" / "jobs").iterdir()
    ran("jobs", "result", job.name)  # waits
    printed = re.sub(r" on \S+ raised ", " on login1 raised ", ran("jobs", "status", job.name))
    printed = re.sub(r"submitted .* ago", "submitted 9 s ago", printed)
    printed = printed.replace(str(job), "/home/me/.local/state/pyreactant/jobs/ID")
    assert printed.replace(job.name, "ID") == shown.replace("20261128-091810-6788", "ID")
