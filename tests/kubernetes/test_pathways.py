"""Jobs through Pathways: what Google's generator writes, and our process beside a pretended proxy.

jaxlib has the client of Pathways' proxy and no server. Where a program needs devices, JAX's client
for CPUs stands in for the proxy's (`PRETENDED`), and Pathways' own containers do nothing.
"""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import pyreactant as pr
from pyreactant.process.group import resolve
from pyreactant.process.group.resolvers import explain
from pyreactant.runs.places.kubernetes.adopt import adopt
from pyreactant.runs.record import draft
from tests import harness
from tests.checkpoint.buckets import Storage
from tests.harness import REPOSITORY, environment
from tests.kubernetes.api import Api
from tests.kubernetes.controller import Pod, job_failure, restarts
from tests.kubernetes.played import until
from tests.kubernetes.pods import jobset_of
from tests.kubernetes.pods import pods as pods_of
from tests.kubernetes.test_manifest import CASES, documents, plan

pytestmark = pytest.mark.timeout(900)

Kubernetes = pr.targets.Kubernetes
STORE = "gs://bucket/jobs"
THROUGH = "--pathways", "--store", STORE
PROXY = {"JAX_PLATFORMS": "proxy", "JAX_BACKEND_TARGET": "grpc://localhost:29000"}
PRETENDED = """
import os
import signal
from jax.extend.backend import ifrt_proxy
from jaxlib import xla_client
ifrt_proxy.get_client = lambda target, options: xla_client.make_cpu_client(num_devices=8)
import numpy as np
import pyreactant as pr


def train(word):
    pr.initialize()
    sharding = pr.NamedSharding(pr.Mesh((8,), ("x",)), ("x",))
    array = pr.device_put(np.arange(16.0, dtype=np.float32), sharding)
    print("processes", pr.num_processes(), "devices", len(pr.devices()), flush=True)
    if word == "fails" and os.environ["PYREACTANT_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "fails":
        raise ValueError("no data")
    return float(array.gather().sum())
"""


(COMMAND,) = re.findall(
    r"\$ (pyreactant run .*--pathways .*)", (REPOSITORY / "docs" / "kubernetes.md").read_text()
)


def head_and_workers(jobset: Any) -> list[Any]:
    return [one["template"]["spec"] for one in jobset["spec"]["replicatedJobs"]]


def test_the_command_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    argv = [sys.executable, "-m", *shlex.split(COMMAND)]
    ran = harness.run(argv, cwd=tmp_path, env=environment(KUBECONFIG="/none"))
    assert ran.returncode == 0, ran.stderr
    assert "--gcs_scratch_location=gs://my-bucket/jobs/ID/pathways" in ran.stdout
    assert [*yaml.safe_load_all(ran.stdout)][-1]["kind"] == "JobSet"


def test_its_one_process_is_in_the_head() -> None:
    record = draft("train.py", "kubernetes", CASES["pathways"].settings())
    longest = "20261128-122903-22e8"
    whole = type(record)(record.folder, longest, "train.py", "kubernetes", record.settings)
    jobset = jobset_of([*yaml.safe_load_all(CASES["pathways"].plan(whole))])
    (head, environ), *workers = pods_of(jobset)
    assert head == f"p-{longest}-pathways-head-0-0"
    assert len(environ["PYREACTANT_JOB_HOST"]) <= 63, "the label may have no more"
    group = resolve(environ=environ)
    assert (group.num_processes, group.process_index, group.source) == (1, 0, "Pathways")
    explained = explain(environ)
    assert explained.decider.name == "Pathways"
    assert "one process has all devices: there is no roll-call" in explained.notes[0]
    assert len(workers) == 8
    assert not any("PYREACTANT_JOB" in environ for _, environ in workers)


def test_a_launcher_of_several_does_not_run_each_alone() -> None:
    said = "Pathways says that this process is the only one, but WORLD_SIZE=2, RANK=1"
    with pytest.raises(pr.InvalidArgumentError, match=said):
        resolve(environ={**PROXY, "RANK": "1", "WORLD_SIZE": "2"})
    assert resolve(environ={"JAX_PLATFORMS": "proxy,cpu"}).source == "Pathways"
    assert resolve(environ={"JAX_PLATFORMS": "cpu"}).source == "one process"


def test_what_is_ours_in_its_pods() -> None:
    jobset = jobset_of(documents("pathways"))
    head, workers = head_and_workers(jobset)
    own, theirs = (job["template"]["spec"] for job in (head, workers))
    for job in (head, workers):
        pod = job["template"]
        assert pod["metadata"]["labels"] == {"pyreactant/job": "ID"}
        named = pod["spec"]["serviceAccountName"], pod["spec"]["priorityClassName"]
        assert named == ("trainer", "high")
    assert own["nodeSelector"] == {"cloud.google.com/gke-nodepool": "cpu-np"}
    assert theirs["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert head["activeDeadlineSeconds"] == 6 * 3600
    assert head["template"]["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
    assert [one["name"] for one in own["containers"]] == ["main"]
    assert [one["name"] for one in own["initContainers"]] == ["pathways-rm", "pathways-proxy"]


@pytest.mark.parametrize(
    ("code", "disrupted", "action"),
    [
        *((code, False, "FailJobSet") for code in (1, 2, 3, 5)),
        *((code, False, "RestartJobSet") for code in (4, 6, 7, 137, 139)),
        (137, True, "RestartJobSetAndIgnoreMaxRestarts"),
    ],
)
def test_when_it_starts_again(code: int, disrupted: bool, action: str) -> None:
    jobset = jobset_of(documents("pathways"))
    failure = job_failure(head_and_workers(jobset)[0], [Pod("head", code, disrupted)])
    assert failure is not None
    assert restarts(jobset["spec"]["failurePolicy"], {"head": failure}, 0) == action


@pytest.mark.parametrize(
    "name", ["v4-8", "v4-32", "v5e-4", "v5e-8", "v5e-16", "v5p-128", "v6e-8", "v6e-256", "tpu7x-32"]
)
def test_the_workers_are_the_slice(name: str) -> None:
    """The generator counts pods and chips as we do."""
    without = Kubernetes(accelerator_type=name, slices=2)
    through = Kubernetes(accelerator_type=name, slices=2, pathways=True, store=STORE)
    (ours,) = head_and_workers(jobset_of([*yaml.safe_load_all(plan(without))]))
    jobset = jobset_of([*yaml.safe_load_all(plan(through))])
    _, workers = head_and_workers(jobset)
    found = [
        (
            job["completions"],
            job["template"]["spec"]["nodeSelector"],
            job["template"]["spec"]["containers"][0]["resources"]["limits"],
        )
        for job in (ours, workers)
    ]
    assert found[0] == found[1]
    assert jobset["spec"]["replicatedJobs"][1]["replicas"] == 2


def test_slices_that_it_does_not_know(api: Api) -> None:
    for name in ("v5e-1", "v6e-1"):
        said = rf"accelerator_type must be slices that Pathways knows, got {name} \(Unsupported"
        with pytest.raises(pr.InvalidArgumentError, match=said):
            pr.submit(
                ["train.py"], on=Kubernetes(accelerator_type=name, pathways=True, store=STORE)
            )
    assert api.seen == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([*THROUGH, "train.py"], 2, "--pathways needs --topology, such as v6e-16"),
        ([*THROUGH, "--topology", "v6e-16", "--nodes=2", "train.py"], 2, "its own nodes"),
        (
            [*THROUGH, "--topology", "v6e-16", "--backend", "reactant", "train.py"],
            2,
            "--backend must be one of jax",
        ),
        (
            [*THROUGH, "--topology", "v6e-16", "--platform", "tpu", "train.py"],
            2,
            "leave out --platform tpu",
        ),
        ([*THROUGH, "--topology", "v6e-1", "train.py"], 2, "slices that Pathways knows"),
        (
            [*THROUGH, "--topology", "v6e-16", "--env", "JAX_BACKEND_TARGET", "train.py"],
            2,
            "--env must not name JAX_BACKEND_TARGET, by which the program finds Pathways; leave",
        ),
        (["--pathways", "--topology", "v6e-16", "train.py"], 2, "--pathways needs --store"),
        (["--on", "local", "--pathways", "train.py"], 2, "--pathways"),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_what_is_refused(api: Api, words: list[str], code: int, said: str, dry: bool) -> None:
    *options, program = words
    how = "--dry-run" if dry else "--detach"
    argv = ["pyreactant", "run", "--on", "kubernetes", how, *options, "--", program]
    places = {k: os.environ[k] for k in ("KUBECONFIG", "XDG_STATE_HOME")}
    ran = harness.run(
        [sys.executable, "-m", *argv],
        env=environment(**places, JAX_BACKEND_TARGET="of this machine"),
    )
    assert (ran.returncode, ran.stdout) == (code, ""), ran
    assert said in " ".join(ran.stderr.split())
    assert api.seen == []


def test_a_julia_program(api: Api) -> None:
    Path("train.jl").touch()
    with pytest.raises(pr.RequirementError, match="Julia programs do not run on kubernetes yet"):
        pr.submit(["julia", "train.jl"], on=TARGET)
    assert api.seen == []


def absent(folder: Path) -> dict[str, str]:
    """An environment in which pathwaysutils is not installed."""
    name = "pathwaysutils"
    said = f"No module named {name!r}"
    (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError({said!r}, name={name!r})")
    return environment(PYTHONPATH=os.pathsep.join([str(folder), environment()["PYTHONPATH"]]))


@pytest.mark.parametrize("how", ["--dry-run", "--detach"])
def test_the_generator_is_absent(api: Api, tmp_path: Path, how: str) -> None:
    argv = ["pyreactant", "run", "--on", "kubernetes", "--topology=v6e-16", *THROUGH]
    settings = absent(tmp_path) | {"KUBECONFIG": os.environ["KUBECONFIG"]}
    ran = harness.run([sys.executable, "-m", *argv, how, "--", "train.py"], env=settings)
    assert (ran.returncode, ran.stdout) == (3, ""), ran
    assert "install it with: python -m pip install 'pyreactant[pathways]'" in ran.stderr
    assert api.seen == []


def initialized(*arguments: str, **settings: str) -> str:
    """What `initialize` says on the proxy, where it fails."""
    text = f"import pyreactant as pr\npr.initialize({', '.join(arguments)})"
    ran = harness.run([sys.executable, "-c", text], env={**environment(), **PROXY, **settings})
    assert ran.returncode != 0
    return " ".join(ran.stderr.split())


@pytest.mark.slow
def test_what_the_proxy_does_not_have(tmp_path: Path) -> None:
    several = "num_processes=2", "process_index=0", "coordinator_address='localhost:99'"
    for said, arguments in {
        "platform='tpu' does not go with Pathways": ("platform='tpu'",),
        "num_processes=2 does not go with Pathways": several,
        "compile_cache='cache' does not go with Pathways": ("compile_cache='cache'",),
    }.items():
        assert said in initialized(*arguments)
    said = initialized(**absent(tmp_path))
    assert "JAX_PLATFORMS=proxy needs the package pathwaysutils" in said
    assert "install it with: python -m pip install pathwaysutils" in said


@pytest.mark.slow
def test_no_proxy_answers() -> None:
    """The real client of the proxy, and nobody at its address."""
    said = initialized(PATHWAYS_PROXY_CONNECTION_TIMEOUT_SECS="3")
    assert "through Pathways this process has all devices: there is no roll-call" in said
    assert "JAX found no device: Unable to initialize backend 'proxy'" in said


TARGET = Kubernetes(accelerator_type="v6e-16", slices=2, pathways=True, store=STORE)


@pytest.fixture
def cluster(api: Api, pods: Storage, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A cluster whose pods are processes, and the program with the pretended proxy."""
    Path("train.py").write_text(PRETENDED)
    monkeypatch.syspath_prepend(Path.cwd())
    return api


def test_a_job_has_its_value_log_and_end(
    cluster: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = pr.submit("train.py:train", ["works"], on=TARGET)
    assert job.result(timeout=600) == 120.0
    assert job.status().state == "done"
    log = "".join(job.logs())
    assert "processes 1 devices 8\n" in log, log
    assert "through Pathways this process has all devices" in log
    assert sorted(file.name for file in job.folder.glob("**/process-*.log")) == ["process-0.log"]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    adopt(f"p-{job.id.lower()}")
    there = pr.Job.find(job.id)
    assert there.target == TARGET
    assert there.result(timeout=600) == 120.0
    there.target.discard(there.record)
    until(lambda: cluster.objects == {})


@pytest.mark.slow
def test_a_job_starts_again_after_a_loss_and_not_after_an_exception(cluster: Api) -> None:
    target = Kubernetes(**{**TARGET.settings(), "max_restarts": 3})
    job = pr.submit("train.py:train", ["fails"], on=target)
    with pytest.raises(pr.RemoteError, match="no data"):
        job.result(timeout=600)
    status = job.status()
    assert (status.state, status.cause, status.exit_code) == ("failed", "user", 1)
    assert job.cancel().state == "failed"
    (run,) = cluster.runs.values()
    assert (run.state["attempt"], run.state["counted"]) == (1, 1)
    assert "processes 1 devices 8\n" in "".join(job.logs())


@pytest.mark.slow
def test_a_job_is_cancelled(cluster: Api, pods: Storage) -> None:
    Path("sleeps.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(300)\n")
    job = pr.submit(["sleeps.py"], on=TARGET)
    until(lambda: job.status().state == "running" and "here" in "".join(job.logs()))
    assert pods.objects, "process 0 has tried its folder"
    pods.objects[f"jobs/{job.id}/pathways/scratch"] = next(iter(pods.objects.values()))
    assert job.cancel().state == "cancelled"
    assert (cluster.objects, pods.objects) == ({}, {})
