"""Many jobs are asked for together: once for each namespace, and one that is silent holds none."""

import os
from collections import Counter
from pathlib import Path

import pytest
import yaml

import pyreactant as pr
from pyreactant.runs import record as _record
from pyreactant.runs import store
from pyreactant.runs.places import kubernetes
from tests.harness import free_port
from tests.kubernetes.api import Api
from tests.kubernetes.played import Played

Kubernetes = pr.targets.Kubernetes


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit is reached on a busy machine."""
    monkeypatch.setattr(kubernetes.client, "_BRIEF", 300.0)
    monkeypatch.setattr(kubernetes.client, "_CONNECT", 300.0)
    monkeypatch.setattr(kubernetes, "_POSITIONS", 1e9)
    monkeypatch.setattr(kubernetes, "_LATE", 600.0)


def asked(api: Api) -> Counter[str]:
    """What was asked for, and how often; nothing was watched."""
    assert not [path for _, path in api.seen if "watch=" in path]
    return Counter(path.partition("/namespaces/")[2].partition("?")[0] for _, path in api.seen)


def stands() -> dict[str, str]:
    """State and reason of each job."""
    return {name: f"{status.state}: {status.reason}" for name, _, status in store.rows()}


def test_a_question_for_each_namespace(api: Api) -> None:
    """Whatever the states are, and however many jobs."""
    jobs = [
        pr.submit(["train.py"], on=Kubernetes(context="team" if n % 2 else "owner"))
        for n in range(8)
    ]
    for number, (code, action) in enumerate(((1, "FailJobSet"), (None, ""), (0, "Completed"))):
        for job in jobs[2 * number : 2 * number + 2]:
            Played(api, job).note(code, action)
    api.seen.clear()
    found = stands()
    assert [found[job.id].partition(":")[0] for job in jobs] == [
        *("failed", "failed", "running", "running", "done", "done", "starting", "starting")
    ]
    assert "ended with exit code 1" in found[jobs[0].id]
    kinds = ("jobsets", "pods", "jobs")
    assert asked(api) == {f"{where}/{kind}": 1 for where in ("default", "team") for kind in kinds}
    api.seen.clear()
    assert stands() == found
    assert asked(api) == {f"{w}/{kind}": 1 for w in ("default", "team") for kind in kinds[:2]}


def test_queued_jobs_are_asked_for_together(api: Api) -> None:
    api.kueue = True
    jobs = [pr.submit(["train.py"], on=Kubernetes(queue="team-a")) for _ in range(3)]
    for number, job in enumerate(jobs):
        name = f"pr-{job.id.lower()}"
        api.suspend(name)
        uid = api.objects["jobsets", "default", name]["metadata"]["uid"]
        labels = {"kueue.x-k8s.io/job-uid": uid}
        api.put("workloads", f"w{number}", labels=labels, status={"conditions": []})
    api.pending["team-a"] = ["w2", "w0", "w1"]
    api.seen.clear()
    places = ("2nd", "3rd", "1st")
    expected = (f"queued: {place} in queue team-a" for place in places)
    assert stands() == {job.id: said for job, said in zip(jobs, expected, strict=True)}
    once = ("jobsets", "workloads", "localqueues/team-a/pendingworkloads")
    assert asked(api) == {f"default/{kind}": 1 for kind in once}


def test_contexts_that_do_not_answer(api: Api) -> None:
    """One is not there, one is in no kubeconfig any more, and one refuses: each says it."""
    file = Path(os.environ["KUBECONFIG"])
    config = yaml.safe_load(file.read_text())
    address = {"server": f"https://127.0.0.1:{free_port()}"}
    config["clusters"].append(
        {"name": "absent", "cluster": {**config["clusters"][0]["cluster"], **address}}
    )
    context = {"cluster": "absent", "user": "owner"}
    config["contexts"].append({"name": "absent", "context": context})
    file.write_text(yaml.safe_dump(config))
    job = pr.submit(["train.py"], on=Kubernetes())
    for number in range(6):
        record = _record.create("train.py", "kubernetes", {})
        _record.release(record)
        where = ("absent", "gone", "stranger")[number % 3]
        handle = {"context": where, "namespace": "default", "started": True}
        record.write_handle(handle)
    api.seen.clear()
    found = stands()
    assert found[job.id] == "starting: "
    for said in ("must be one of the", "does not accept the login", "cannot be reached"):
        having = [text for text in found.values() if said in text]
        assert len(having) == 2, (said, found)
        assert having[0].startswith("requested: ")
    assert asked(api) == {"default/jobsets": 2, "default/pods": 1}


def test_a_login_that_hangs(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job, other = (pr.submit(["train.py"], on=Kubernetes()) for _ in range(2))

    def hangs(*_: object) -> None:
        api.ended.wait(60)
        raise pr.RequirementError("too late")

    with monkeypatch.context() as patched:
        patched.setattr(kubernetes, "_LATE", 0.2)
        patched.setattr(kubernetes, "cluster_at", hangs)
        said = "the context owner has not answered within 0.2 s"
        assert stands()[job.id].startswith(f"requested: {said}; see why with: kubectl --context ow")
    assert {job.cancel().state, other.cancel().state} == {"cancelled"}
