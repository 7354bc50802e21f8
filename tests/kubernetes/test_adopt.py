"""A job that another shell has submitted is taken over."""

import json
import os
import sys
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.runs.places.kubernetes import manifest
from pyreactant.runs.places.kubernetes.adopt import adopt
from tests import harness
from tests.harness import environment
from tests.kubernetes.api import Api
from tests.kubernetes.played import Played

Kubernetes = pr.targets.Kubernetes


def on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))


def test_a_job_of_another_machine(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN", "of the user")
    target = Kubernetes(context="team", max_restarts=2)
    job = pr.submit(["train.py", "--steps", "9"], on=target, env=["OWN"])
    pods = Played(api, job)
    pods.write(2)
    on_another_machine(tmp_path, monkeypatch)
    record = adopt(job.id[-4:], context="team")
    assert record.folder.parent.parent.parent == tmp_path / "another"
    assert not (record.work / "env.json").exists(), "the user's variables stay in the cluster"
    there = pr.Job.find(job.id)
    spec = {key: value for key, value in job.record.spec.items() if key != "out"}
    mine = (job.record.what, spec, job.record.created, job.target)
    assert (there.record.what, there.record.spec, there.record.created, there.target) == mine
    assert there.record.call() == job.record.call()
    assert "".join(there.logs()) == "line 0\nline 1\n"
    assert adopt(job.id, context="team") == record, "a second time it is the same"
    assert there.cancel().state == "cancelled"
    assert api.objects == {}


def test_a_job_of_a_manifest(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = pr.submit(["train.py"], on=Kubernetes())
    on_another_machine(tmp_path, monkeypatch)
    (jobset,) = [o for (kind, _, _), o in api.objects.items() if kind == "jobsets"]
    told = json.loads(jobset["metadata"]["annotations"][manifest.NOTED])
    noted = json.dumps({**told, "created": 0.0})
    jobset["metadata"]["annotations"][manifest.NOTED] = noted
    assert adopt(f"pr-{job.id.lower()}").created > told["created"]


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"what": 1, "spec": [], "settings": {}}'])
def test_a_damaged_annotation(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    job = pr.submit(["train.py"], on=Kubernetes())
    on_another_machine(tmp_path, monkeypatch)
    (jobset,) = [o for (kind, _, _), o in api.objects.items() if kind == "jobsets"]
    jobset["metadata"]["annotations"][manifest.NOTED] = text
    with pytest.raises(pr.InvalidArgumentError, match="is not one of this version of pyreactant"):
        adopt(job.id)
    assert not (tmp_path / "another").exists()


def test_what_is_refused(api: Api) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"got '3f9a'; there are: none"):
        adopt("3f9a")
    first, second = (pr.submit(["train.py"], on=Kubernetes()) for _ in range(2))
    both = ", ".join(sorted([first.id, second.id]))
    with pytest.raises(pr.InvalidArgumentError, match=f"got ''; there are: {both}"):
        adopt("")
    settings = environment(KUBECONFIG=os.environ["KUBECONFIG"])
    argv = [sys.executable, "-m", "pyreactant", "jobs", "adopt", "--on", "slurm", first.id]
    ran = harness.run(argv, env=settings)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--on must be kubernetes" in ran.stderr
