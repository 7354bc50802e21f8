"""One connection for each kind of object and each log, over breaks: nothing is asked twice."""

import threading
import time
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.runs.places.kubernetes import client, watch
from pyreactant.runs.places.kubernetes.client import Cluster, NoAnswerError
from pyreactant.runs.places.kubernetes.watch import Watch
from tests.kubernetes.api import OWNER, Api
from tests.kubernetes.played import Played, until

LABELS = "pyreactant/job"


def asked(api: Api, kind: str) -> list[str]:
    return [path for verb, path in api.seen if verb == "GET" and f"/{kind}" in path.split("?")[0]]


def states(there: Watch) -> list[str]:
    return sorted(one["metadata"]["name"] for one in there.objects())


def secret(name: str) -> Any:
    metadata = {"name": name, "labels": {LABELS: "1"}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}}


def test_a_job_that_is_waited_for_is_asked_for_once(api: Api) -> None:
    job = pr.submit(["train.py"], on=pr.targets.Kubernetes())
    ended: list[Any] = []
    waiter = threading.Thread(target=lambda: ended.append(job.wait(timeout=120)))
    waiter.start()
    until(lambda: len(asked(api, "pods")) == 2)
    pods = Played(api, job)
    until(lambda: job.record.status().state == "running")
    pods.note(0, "Completed")
    waiter.join(120)
    assert ended[0].state == "done"
    for kind in ("jobsets", "pods"):
        first, second = asked(api, kind)
        assert "watch" not in first, (kind, first)
        assert "watch=true" in second, (kind, second)
    job.cancel()


def watched(api: Api) -> Watch:
    """A watch of Secrets that has begun."""
    there = Watch(Cluster(), "secrets", LABELS)
    assert states(there) == []
    time.sleep(watch._ONCE)
    assert states(there) == []
    until(lambda: len(asked(api, "secrets")) == 2)
    return there


def test_a_watch_goes_on_over_breaks(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half line, an event that does not come, events that repeat, and a version that the API
    does not know any more."""
    monkeypatch.setattr(client, "_WATCH", 2)
    there, cluster = watched(api), Cluster()
    harms: tuple[dict[str, int], ...] = ({"cuts": 1}, {"missing": 1}, {"repeats": 5}, {})
    for number, harm in enumerate(harms):
        for name, value in harm.items():
            setattr(api, name, value)
        if not harm:
            api.forget()
        cluster.create("secrets", secret(f"s-{number}"))
        until(lambda: states(there) == [f"s-{n}" for n in range(number + 1)])  # noqa: B023
    assert (api.cuts, api.missing) == (0, 0)
    cluster.delete("secrets", "s-0")
    until(lambda: states(there) == ["s-1", "s-2", "s-3"])


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_said_until_it_does(api: Api) -> None:
    there = watched(api)
    api.faults = [(500, {}, b"etcd is away")] * 3
    api.cuts = 1
    api.put("secrets", "s", labels={LABELS: "1"})

    def said() -> str:
        try:
            return f"there are {states(there)}"
        except NoAnswerError as error:
            return str(error)

    until(lambda: "etcd is away" in said())
    until(lambda: said() == "there are ['s']")


def test_a_log_is_followed_over_one_connection(api: Api) -> None:
    """No line is lost or comes twice, also where the connection breaks in a line."""
    job = pr.submit(["train.py"], on=pr.targets.Kubernetes())
    pods = Played(api, job)
    pods.write(40)
    text: list[str] = []
    reader = threading.Thread(target=lambda: text.extend(job.logs(follow=True)))
    reader.start()
    seen = 40
    for step in range(6):
        until(lambda: "".join(text).count("\n") == seen)  # noqa: B023
        if step == 2:
            until(lambda: len(asked(api, "log")) == 2)
        if step >= 3:
            api.cuts = 1
        pods.write(25)
        seen += 25
    until(lambda: "".join(text).count("\n") == seen)
    until(lambda: sum("follow=true" in path for path in asked(api, "log")) == 4)
    requests = asked(api, "log")
    pods.write(10)
    pods.note(0, "Completed")
    reader.join(120)
    assert "".join(text) == "".join(f"line {number}\n" for number in range(seen + 10))
    assert all("sinceTime=" in path for path in requests[1:])
    job.cancel()


def test_a_job_that_kueue_suspends_and_admits_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is queued meanwhile, with Kueue's reason and its place in the queue, where that can be
    read; the log of the later pod follows the first's."""
    monkeypatch.setattr("pyreactant.runs.places.kubernetes._POSITIONS", 0.1)
    api.kueue = True
    job = pr.submit(["train.py"], on=pr.targets.Kubernetes(queue="team-a"))
    pods = Played(api, job)
    pods.write(3)
    text: list[str] = []
    reader = threading.Thread(target=lambda: text.extend(job.logs(follow=True)))
    reader.start()
    until(lambda: job.status().state == "running" and "".join(text).count("\n") == 3)
    api.suspend(pods.name)
    until(lambda: job.status().state == "queued")
    assert job.status().reason == "it waits in the queue team-a"
    said = "insufficient unused quota for google.com/tpu in flavor tpu, 16 more needed"
    uid = api.objects["jobsets", "default", pods.name]["metadata"]["uid"]
    quota = {"type": "QuotaReserved", "status": "False", "message": said}
    labels = {"kueue.x-k8s.io/job-uid": uid}
    api.put("workloads", "jobset-w", labels=labels, status={"conditions": [quota]})
    until(lambda: job.status().reason == f"it waits in the queue team-a: {said}")
    api.pending["team-a"] = ["another", "and another", "jobset-w"]
    until(lambda: job.status().reason == f"3rd in queue team-a: {said}")
    api.resume(pods.name)
    pods = Played(api, job)
    pods.write(2)
    until(lambda: job.status().state == "running")
    pods.note(0, "Completed")
    reader.join(120)
    assert "".join(text) == "line 0\nline 1\nline 2\nline 0\nline 1\n"
    job.cancel()


def test_a_pod_that_lacks_a_secret(api: Api) -> None:
    """The cluster waits for ever for a Secret that somebody has deleted; its own words are said."""
    job = pr.submit(["train.py"], on=pr.targets.Kubernetes(start_timeout=2.0))
    name = f"pr-{job.id.lower()}"
    (pod,) = api.runs[name].pods()
    said = f'MountVolume.SetUp failed for volume "sent" : secret "{name}" not found'
    about = {"kind": "Pod", "name": pod["metadata"]["name"]}
    api.put("events", "e", type="Warning", involvedObject=about, message=said)
    status = job.wait(timeout=120)
    assert (status.state, status.exit_code, status.cause) == ("failed", 3, "environment")
    assert f"cannot start: {said}; mend it, and submit again" in status.reason
    assert api.answer("GET", client._GROUPS["jobsets"] + "/namespaces/default/jobsets", OWNER, {})
    assert {kind for kind, _, _ in api.objects} == {"events"}


def test_pods_that_cannot_be_made(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as for a service account that does not exist: the Job's own words are said."""
    monkeypatch.setattr("pyreactant.runs.places.kubernetes._SOON", -1.0)
    monkeypatch.setattr("tests.kubernetes.api.Run.pods", lambda _: [])
    job = pr.submit(["train.py"], on=pr.targets.Kubernetes(service_account="nobody"))
    assert (job.status().state, job.status().reason) == ("starting", "")
    said = 'Error creating: pods "x" is forbidden: error looking up service account default/nobody'
    about = {"kind": "Job", "name": f"pr-{job.id.lower()}-worker-0"}
    api.put("events", "e", type="Warning", involvedObject=about, message=said)
    until(lambda: job.status().reason == f"{about['name']} cannot start: {said}")
    assert job.status().state == "starting"
    job.cancel()


def test_nothing_for_a_minute(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that accepts connections and says nothing does not hold a status for ever."""
    job = pr.submit(["train.py"], on=pr.targets.Kubernetes())
    monkeypatch.setattr(client, "_ANSWER", 1.0)
    api.answers.clear()
    status = job.status()
    assert "cannot be reached" in status.reason
    api.answers.set()
    job.cancel()
