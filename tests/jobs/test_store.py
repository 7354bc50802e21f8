"""A value in Cloud Storage comes back if the launcher of a TPU job was off.

The bucket is a folder: a stand-in for gcloud copies there, with the options that the real one has.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.base.storage import FORM_IN_WORDS
from pyreactant.runs import record as _record
from pyreactant.runs import submit, values
from pyreactant.runs.call import resolve
from pyreactant.runs.code import find_code
from tests.harness import environment

GCLOUD = """#!/bin/sh
test "$1 $2 $3 $4" = "storage cp --recursive --no-user-output-enabled" || exit 2
place() { case $1 in gs://*) echo "$BUCKET/${1#gs://}" ;; *) echo "$1" ;; esac; }
case $6 in gs://*) mkdir -p "$(place "$6")" ;; esac
if [ ! -e "$(place "$5")" ]; then echo "ERROR: no objects matched" >&2; exit 1; fi
cp -r "$(place "$5")" "$(place "$6")"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    gcloud = tmp_path / "bin" / "gcloud"
    gcloud.parent.mkdir()
    gcloud.write_text(GCLOUD)
    gcloud.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gcloud.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("BUCKET", str(tmp_path / "bucket"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import numpy as np\ndef main(n):\n    return np.arange(n)\n")
    return tmp_path


def target(store: str = "gs://mine/values/") -> pr.targets.TPU:
    return pr.targets.TPU("v6e-16", project="my-project", zone="us-east5-b", store=store)


def submitted() -> pr.Job:
    """A job whose keeper was killed as soon as it had started its slices."""
    call, on = resolve("train.py:main"), target()
    record = _record.create(call.text, on.kind, on.settings())
    submit._prepare(record, call, find_code(call), on)
    encoder = values.Encoder("the argument")
    tree = encoder.encode({"args": [4], "kwargs": {}})
    values.write_encoded(record.work / "arguments", tree, encoder.arrays)
    record.write_status(_record.Status("running"))
    _record.release(record)
    return pr.Job(record)


def test_the_value_of_a_lost_job(folder: Path) -> None:
    job = submitted()
    status = job.status()
    assert status.state == "lost"
    assert f"the value is in gs://mine/values/{job.id}/ if the program ended well" in status.reason
    with pytest.raises(pr.RemoteError, match="its keeper was killed"):
        job.result(timeout=5)  # the program has not ended: nothing is there
    vm = folder / "vm"
    argv = [sys.executable, "-m", "pyreactant.runs.worker", str(job.record.work), str(vm)]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert (folder / "bucket" / "mine" / "values" / job.id / "value" / "tree.json").exists()
    assert job.result(timeout=5).tolist() == np.arange(4).tolist()
    assert sorted(path.name for path in job.record.out.iterdir()) == ["value"]


def test_a_store_that_cannot_be_written(folder: Path) -> None:
    """The program fails with gcloud's reason; its value is also where it was."""
    job = submitted()
    (folder / "bucket").write_text("")
    argv = [
        sys.executable,
        "-m",
        "pyreactant.runs.worker",
        str(job.record.work),
        str(folder / "vm"),
    ]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert ran.returncode
    assert "gcloud cannot copy" in ran.stderr
    assert "see whether the bucket exists" in ran.stderr


def test_settings() -> None:
    plan = target().plan(_record.draft("train.py:main", "tpu", {}))
    assert plan.endswith("\nstore      the value also in gs://mine/values/ID/")


@pytest.mark.parametrize(
    "store",
    [
        "/tmp/x",
        "gs://",
        "gs:///x",
        "s3://mine",
        "gs://Mine",
        "mine",
        "gs://mine/../x",
        "gs://mine/..",
    ],
)
def test_a_dry_run_refuses_a_store_outside_of_cloud_storage(store: str) -> None:
    """The VMs' own disks go with them."""
    where = [
        "--on",
        "tpu",
        "--project",
        "my-project",
        "--zone",
        "us-east5-b",
        "--topology",
        "v6e-16",
    ]
    argv = ["run", *where, "--dry-run", f"--store={store}", "--", "train.py"]
    argv = [sys.executable, "-m", "pyreactant", *argv]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    told = f"--store must be {FORM_IN_WORDS}, got {store!r}"
    assert ran.stderr.split("error: ")[1] == f"{told}\n"
