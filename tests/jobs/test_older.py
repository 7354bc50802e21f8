"""Records of version 0.1, as its code wrote them: listed; status, logs, result and clean work.

``version_0_1.json`` has the files of five jobs: a function that returned, one that raised, a run in
the foreground, and what `tpu run` and `slurm submit` wrote. Only folders and the host are renamed.
"""

import json
import sys
from pathlib import Path

import pytest

from tests import harness
from tests.harness import environment

RECORDS = Path(__file__).with_name("version_0_1.json")
DONE, FAILED, HERE, SLICES, BATCH = (f"20261126-100000-000{i}" for i in range(1, 6))


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """The folder of the records."""
    folder = tmp_path / "state" / "pyreactant" / "jobs"
    text = RECORDS.read_text().replace("JOBS", str(folder)).replace("HERE", str(tmp_path))
    for job, files in json.loads(text).items():
        for name, content in files.items():
            path = folder / job / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return folder


def command(jobs: Path, *words: str, code: int = 0) -> str:
    """The output of `pyreactant jobs`."""
    settings = environment(XDG_STATE_HOME=str(jobs.parents[1]))
    argv = [sys.executable, "-m", "pyreactant", "jobs", *words]
    ran = harness.run(argv, env=settings, cwd=jobs.parents[2])
    assert ran.returncode == code, (words, ran)
    return ran.stdout


def test_they_are_listed(jobs: Path) -> None:
    rows = json.loads(command(jobs, "list", "--json"))
    assert [(row["id"], row["what"], row["target"], row["state"]) for row in rows] == [
        (DONE, "train.py:main", "local", "done"),
        (FAILED, "train.py:fails", "local", "failed"),
        (HERE, "train.py", "local", "done"),
        (SLICES, "matmul", "tpu", "done"),
        (BATCH, "cross-check", "slurm", "cancelled"),
    ]
    assert rows[0]["settings"] == {"platform": "cpu"}
    assert Path(rows[2]["run"]).parent.name == "pyreactant-runs"
    assert [Path(row["run"]).name for row in rows[3:]] == ["pyreactant-mine", "pyreactant-job-4711"]


def test_status_logs_and_result(jobs: Path) -> None:
    assert f"{DONE}: done, exit code 0" in command(jobs, "status", DONE)
    assert command(jobs, "logs", DONE) == "training\n"
    assert command(jobs, "logs", DONE, "--metrics") == "step 1: loss = 0.5\n"
    assert command(jobs, "result", DONE) == "{'rate': 0.5}\n"
    failed = json.loads(command(jobs, "result", FAILED, "--json", code=1))
    assert (failed["kind"], failed["process"], failed["host"]) == ("ValueError", 0, "host-1")
    assert "ValueError: the user's own mistake" in command(jobs, "logs", FAILED)
    for job in (FAILED, SLICES, BATCH):
        before = json.loads(command(jobs, "status", job, "--json"))["state"]
        assert json.loads(command(jobs, "cancel", job, "--json"))["state"] == before


def test_they_are_removed(jobs: Path) -> None:
    (jobs / HERE / "state.json").write_text("{")  # a damaged one, too
    assert json.loads(command(jobs, "clean", DONE, HERE, "--json")) == [DONE, HERE]
    assert len(json.loads(command(jobs, "clean", "--older-than", "0d", "--json"))) == 3
    assert not [path for path in jobs.iterdir() if not path.name.startswith(".")]
