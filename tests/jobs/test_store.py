"""A value in Cloud Storage comes back if the launcher of a TPU job was off."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.base.storage import FORM_IN_WORDS
from pyreactant.runs import record as _record
from pyreactant.runs import submit
from pyreactant.runs.spec import RunSpec
from tests.checkpoint.buckets import Storage, cloud_storage
from tests.harness import environment


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """A bucket, the metadata server of a VM, and a program in the current folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no-login"))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import os, numpy as np\n"
        "def main(n):\n"
        "    return np.arange(n) + int(os.environ.get('PYREACTANT_RESTART_COUNT', 0))\n"
    )
    with cloud_storage() as storage:
        host = storage.url.removeprefix("http://")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", storage.url)
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        monkeypatch.setenv("GCE_METADATA_IP", host)
        yield storage


def target(store: str = "gs://bucket/values/") -> pr.targets.TPU:
    return pr.targets.TPU("v6e-16", project="my-project", zone="us-east5-b", store=store)


def submitted() -> pr.Job:
    """A job whose keeper was killed as soon as it had started its slices."""
    on = target()
    work = submit.check(RunSpec(what="train.py:main", on=on, arguments=[4]))
    record = _record.create(work.call.text, on.kind, on.settings())
    work.write(record, on)
    record.write_status(_record.Status("running"))
    _record.release(record)
    return pr.Job(record)


def on_a_vm(job: pr.Job, vm: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """What the worker of process 0 says."""
    argv = [sys.executable, "-m", "pyreactant.runs.worker", str(job.record.work), str(vm)]
    return _run(argv, **variables)


def result(job: pr.Job) -> "subprocess.CompletedProcess[str]":
    """The value in a process of its own: Google's library reads the server's address once."""
    return _run([sys.executable, "-m", "pyreactant", "jobs", "result", job.id])


def _run(argv: list[str], **variables: str) -> "subprocess.CompletedProcess[str]":
    server = {name: os.environ[name] for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP")}
    settings = environment(**server, **variables)
    return subprocess.run(argv, env=settings, capture_output=True, text=True, timeout=60)


def test_the_value_of_a_lost_job(bucket: Storage, tmp_path: Path) -> None:
    job = submitted()
    status = job.status()
    assert status.state == "lost"
    assert f"the value is in gs://bucket/values/{job.id} if the program ended well" in status.reason
    ran = result(job)
    assert (ran.returncode, ran.stdout) == (6, ""), ran  # the program has not ended
    assert "its keeper was killed" in ran.stderr
    for attempt in ("0", "1"):  # of the first one, which was preempted then, nothing is left
        ran = on_a_vm(job, tmp_path / "vm", PYREACTANT_RESTART_COUNT=attempt)
        assert ran.returncode == 0, ran.stderr
    (name,) = bucket.objects
    assert name.startswith(f"values/{job.id}/")
    ran = result(job)
    assert ran.returncode == 0, ran.stderr
    assert job.result(timeout=5).tolist() == (np.arange(4) + 1).tolist()
    assert sorted(path.name for path in job.record.out.iterdir()) == ["value"]


def test_a_store_that_cannot_be_written(bucket: Storage, tmp_path: Path) -> None:
    """The program fails with the reason; its value is also where it was."""
    job = submitted()
    bucket.denied = True
    ran = on_a_vm(job, tmp_path / "vm")
    assert ran.returncode
    assert f"gs://bucket/values/{job.id} (403: no storage.objects access)" in ran.stderr
    assert (tmp_path / "vm" / "value" / "tree.json").exists()


def test_settings() -> None:
    plan = target().plan(_record.draft("train.py:main", "tpu", {}))
    assert plan.endswith("\nstore      the value also in gs://bucket/values/ID")


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
