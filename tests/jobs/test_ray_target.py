"""The Ray target without a cluster: wrong settings, the plan, a frozen head, a vanished cluster."""

import importlib.util
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.runs import record as _record
from pyreactant.runs import store, targets
from pyreactant.runs.places.ray import cluster
from tests.harness import free_port, require, until


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topology": "v6e-17"}, "no Cloud TPU slice is called 'v6e-17'; the nearest are v6e-16"),
        ({"topology": "v6e-16", "hosts": 4}, "a slice has its own hosts and no GPUs"),
        ({"topology": "v6e-16", "num_gpus": 1}, "a slice has its own hosts and no GPUs"),
        ({"slices": 2}, "slices needs topology, such as v6e-16"),
        ({"hosts": 0}, "hosts must be 1 or more, got 0"),
        ({"num_gpus": -1}, "num_gpus must be 0 or more, got -1"),
        ({"hosts": True}, "hosts must be a whole number (int), got True"),
        ({"wait": float("nan")}, "wait must be a finite number (float), got nan"),
        ({"keep": "a day"}, "keep must be a finite number (float), got 'a day'"),
        ({"keep": 0.0}, "keep must be a positive number, got 0.0"),
        ({"timeout": -1}, "timeout must be a positive number, got -1"),
        (
            {"address": "head:99999"},
            "address, or RAY_ADDRESS, must have a port from 1 to 65535, such as HOST:6379, got "
            "port 99999 in 'head:99999'",
        ),
        ({"address": "ray://[::1]:0"}, "address, or RAY_ADDRESS, must have a port from 1 to 65535"),
        ({"platform": "x"}, "platform must be one of cpu, gpu, tpu, got 'x'"),
    ],
)
def test_wrong_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match="^" + re.escape(message)):
        targets.make("ray", settings).check()


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(pr.RequirementError, match=r"pip install 'pyreactant\[ray\]'"):
        pr.targets.Ray(topology="v6e-16").check()


def test_two_versions_of_ray_are_named() -> None:
    require(importlib.util.find_spec("ray"), "ray")
    from ray._private.utils import check_version_info

    from pyreactant.runs.places.ray import driver as ray_driver

    other = {"ray_version": "1.2.3", "python_version": "3.4.5"}
    with pytest.raises(RuntimeError) as caught:
        check_version_info(other, "here", raise_on_mismatch=True)
    text = ray_driver.one_line(caught.value)
    assert text.startswith(
        "Version mismatch: The cluster was started with: Ray: 1.2.3 Python: 3.4.5 This process"
    )
    assert text.endswith(f"Python: {platform.python_version()}")


def test_plan() -> None:
    target = pr.targets.Ray(topology="v6e-16", slices=2, address="10.0.0.2:6379", timeout=60.0)
    assert target.plan(_record.draft("train.py:main", "ray", target.settings())) == (
        "cluster    10.0.0.2:6379\n"
        "keeper     detached actor pyreactant-job-ID on the head\n"
        'reserve    SlicePlacementGroup(topology="4x4", accelerator_version="v6e", num_slices=2), '
        "within 3600 s\n"
        "run        8 processes, one on each host: pyreactant run --out ../../runs --quiet "
        "--grace 10 --start-timeout 300 --backend=jax --platform=tpu --timeout=60 -- "
        "-m pyreactant.runs.worker work ../out\n"
        "keep       logs and value on the cluster until they are fetched, 24 h"
    )


def test_the_address_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another shell finds the job without the variable."""
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    settings = pr.targets.Ray(hosts=2).settings()
    monkeypatch.delenv("RAY_ADDRESS")
    made = targets.make("ray", settings)
    assert isinstance(made, pr.targets.Ray)
    assert made.address == "10.0.0.2:6379"


def running(address: str) -> pr.Job:
    """A job that ran on a cluster when it was asked last."""
    record = _record.create("train.py:main", "ray", {"address": address})
    record.write_handle({"address": address})
    record.write_status(_record.Status("running"))
    _record.release(record)
    return pr.Job(record)


def test_a_cluster_that_vanished(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job stays as it was, until the user says that it is over; then it can be removed."""
    address = f"127.0.0.1:{free_port()}"
    job = running(address)
    status = job.status()
    assert status.state == "running"
    assert status.reason == (
        f"the Ray cluster at {address} cannot be reached: nothing listens there; see whether its "
        "head runs"
    )
    assert "".join(job.logs()) == ""
    monkeypatch.setattr("pyreactant.runs.job._PATIENCE_IF_GONE", 0.0)
    for waiting in (job.result, lambda: [*job.logs(follow=True)]):
        with pytest.raises(pr.RemoteError, match=f"{address} cannot be reached: .*") as error:
            waiting()
        assert (error.value.kind, error.value.exit_code) == ("lost", 6)
    assert f"{address} cannot be reached" in capsys.readouterr().err
    with pytest.raises(pr.InvalidArgumentError, match="pyreactant jobs cancel"):
        store.remove(job.folder)
    assert (job.cancel().state, job.cancel().exit_code) == ("cancelled", 130)
    assert "with the cluster its jobs have ended" in job.status().reason
    with pytest.raises(pr.RemoteError, match="cancelled by the user"):
        job.result(timeout=5)
    store.remove(job.folder)
    assert not job.folder.exists()
    assert capsys.readouterr().err == "", "there is no keeper any more"


@pytest.fixture
def frozen() -> Iterator[str]:
    """A head that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_frozen_head(frozen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said within the limit; nothing is taken for ended."""
    require(importlib.util.find_spec("ray"), "ray")
    monkeypatch.setattr("pyreactant.runs.places.ray.cluster._GREETING", 3.0)
    job = running(frozen)
    status = job.status()
    assert status.state == "running"
    assert f"the Ray cluster at {frozen} does not answer within 3 s" in status.reason
    with pytest.raises(pr.RequirementError, match="does not answer within 3 s"):
        job.cancel()
    assert job.record.cancelling, "the request is noted"
    assert job.status().state == "running"


def test_an_ended_job_of_a_frozen_head_is_removed(
    frozen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require(importlib.util.find_spec("ray"), "ray")
    monkeypatch.setattr("pyreactant.runs.places.ray.cluster._GREETING", 3.0)
    job = running(frozen)
    job.record.write_status(_record.Status("done", "", 0))
    store.remove(job.folder)
    assert not job.folder.exists()
    assert capsys.readouterr().err == (
        f"pyreactant: the keeper of the job {job.id} could not be ended, and stays on the cluster "
        f"for at most 24 h: the Ray cluster at {frozen} does not answer within 3 s; see whether "
        "its head runs, and try again\n"
    )


def test_submitting_to_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    require(importlib.util.find_spec("ray"), "ray")
    script = tmp_path / "train.py"
    script.write_text("")
    on = pr.targets.Ray(hosts=2, address=f"127.0.0.1:{free_port()}")
    with pytest.raises(pr.RequirementError, match="nothing listens there"):
        pr.submit([str(script)], on=on)
    ((_, record, status),) = store.rows()
    assert record is not None
    assert (status.state, status.exit_code) == ("failed", 3)
    assert not list(record.folder.glob("*.tar*"))


def test_a_cluster_of_this_machine_that_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ray notes the cluster that was started last; it tried for 90 s to reach it."""
    require(importlib.util.find_spec("ray"), "ray")
    monkeypatch.setattr(cluster, "_CONNECT", 0.0)  # a child that was started would end by that
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{free_port()}")
    with pytest.raises(cluster.UnreachableError, match="no Ray cluster on this machine") as error:
        cluster.Cluster("auto").connect()
    assert error.value.gone
    with pytest.raises(cluster.UnreachableError, match="known; correct address") as error:
        cluster.Cluster("no-such-host.invalid:6379").connect()
    assert not error.value.gone  # a name may be known again in a moment
    with pytest.raises(cluster.UnreachableError, match="label empty or too long"):
        cluster.Cluster("a..b:6379").connect()


def test_what_is_waited_for_is_said(
    frozen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require(importlib.util.find_spec("ray"), "ray")
    monkeypatch.setattr(cluster, "_SILENT", 0.0)
    monkeypatch.setattr(cluster, "_GREETING", 3.0)
    with pytest.raises(cluster.UnreachableError, match="does not answer within 3 s"):
        cluster.Cluster(frozen).connect()
    said = f"pyreactant: waiting for the Ray cluster at {frozen}, for 90 s at most\n"
    assert capsys.readouterr().err == said


HOLDS = """
import sys, time
from pathlib import Path
from pyreactant.runs.places.ray.keeper import remove_at_end
job, names = Path(sys.argv[1]), sys.argv[2:]
held = [remove_at_end(job / name, str(job)) for name in names]
print("held", flush=True)
time.sleep(600)
"""
"""A Ray worker of each host of a job on this machine, in one process."""

WRITES = """
import itertools, sys, time
from pathlib import Path
print("writes", flush=True)
end = time.monotonic() + 1.5
for number in itertools.count():
    if time.monotonic() > end:
        break
    try:
        Path(sys.argv[1], str(number)).touch()
    except FileNotFoundError:
        break
"""
"""A program that is not ended at once: the folder cannot be removed while it writes."""


@pytest.mark.slow
def test_the_folders_of_a_killed_ray_worker_are_removed(tmp_path: Path) -> None:
    """Ray may kill an actor before it removes its folder; nothing must be left on the host."""
    folders = [tmp_path / "job" / f"host-{number}" for number in (1, 2)]
    for folder in folders:
        folder.mkdir(parents=True)
    (tmp_path / "job" / "runs").mkdir()
    argv = [sys.executable, "-c", HOLDS, str(tmp_path / "job"), *(f.name for f in folders)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as worker:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITES, str(folders[1])], stdout=subprocess.PIPE
        )
        for process in (worker, writer):
            assert process.stdout is not None
            process.stdout.readline()
        worker.kill()
    until(lambda: not (tmp_path / "job").exists(), why=lambda: "the removal is not tried again")
    writer.communicate(timeout=60)
