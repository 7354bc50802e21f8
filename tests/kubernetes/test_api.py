"""What the API of a cluster may say, and what becomes of a job then; kubectl on the stand-in."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import pyreactant as pr
from pyreactant.runs import store
from pyreactant.runs.places.kubernetes import client
from pyreactant.runs.places.kubernetes.client import Cluster, NoAnswerError
from tests import harness
from tests.harness import environment, free_port
from tests.kubernetes.api import OWNER, Api, running
from tests.kubernetes.schema import CRD

Kubernetes = pr.targets.Kubernetes


def edited(api: Api, **cluster: Any) -> None:
    """Change the cluster of the kubeconfig."""
    file = api.folder / "kubeconfig"
    config = yaml.safe_load(file.read_text())
    config["clusters"][0]["cluster"].update(cluster)
    file.write_text(yaml.safe_dump(config))


def refusal(error: type[Exception], target: Any) -> str:
    """The message of a submission that fails; the record has the same, and the cluster nothing."""
    with pytest.raises(error) as caught:
        pr.submit(["train.py"], on=target)
    for _, record, status in store.rows():
        assert record is not None
        assert (status.state, status.reason) == ("failed", f"not started: {caught.value}")
    return str(caught.value)


def test_no_client(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    said = refusal(pr.RequirementError, Kubernetes())
    assert said.endswith("install it with: python -m pip install 'pyreactant[kubernetes]'")


def test_no_kubeconfig(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    said = refusal(pr.RequirementError, Kubernetes())
    assert said.startswith("there is no cluster: /no/such/file does not exist; get it from")
    assert not store.names(), "it is refused before there is a record"


@pytest.mark.parametrize("text", ["", "{", "contexts: []\n", "a: [1]\ncurrent-context: x\n"])
def test_a_damaged_kubeconfig(api: Api, text: str) -> None:
    (api.folder / "kubeconfig").write_text(text)
    said = refusal(pr.RequirementError, Kubernetes())
    assert f"the kubeconfig {api.folder / 'kubeconfig'} cannot be used (" in said
    assert said.endswith("; see: kubectl config view")


def test_no_such_context(api: Api) -> None:
    said = refusal(pr.InvalidArgumentError, Kubernetes(context="prod"))
    assert said == (
        "context must be one of the kubeconfig's, owner, viewer, stranger, team, got 'prod'"
    )


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"insecure-skip-tls-verify": True}, "says not to verify the certificate of the cluster"),
        ({"server": "http://cluster.example:8080"}, "has no https, so that others could read"),
    ],
)
def test_a_connection_that_others_could_read(api: Api, cluster: Any, said: str) -> None:
    edited(api, **cluster)
    assert said in refusal(pr.RequirementError, Kubernetes())
    assert api.seen == [], "nothing was sent"


def test_a_certificate_of_another(api: Api, tmp_path: Path) -> None:
    with running(tmp_path / "other") as other:
        edited(api, **{"certificate-authority": str(other.folder / "api.crt")})
        said = refusal(pr.RequirementError, Kubernetes())
    assert "is not trusted (" in said
    assert "certificate verify failed" in said
    assert api.seen == [], "nothing was sent"


def test_nobody_listens(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyreactant.runs.places.kubernetes._PATIENCE", 0.1)
    edited(api, server=f"https://127.0.0.1:{free_port()}")
    said = refusal(NoAnswerError, Kubernetes())
    assert "(context owner) cannot be reached (Connection refused)" in said


@pytest.mark.parametrize(
    ("target", "error", "said"),
    [
        (Kubernetes(context="stranger"), pr.RequirementError, "does not accept the login"),
        (
            Kubernetes(context="viewer"),
            pr.RequirementError,
            "does not allow to create jobsets/pr-",
        ),
        (
            Kubernetes(namespace="nowhere"),
            pr.InvalidArgumentError,
            "has no namespace nowhere; name another by namespace",
        ),
    ],
)
def test_refused(api: Api, target: Any, error: type[Exception], said: str) -> None:
    assert said in refusal(error, target)
    assert api.objects == {}


@pytest.mark.parametrize("login", [{}, {"exec": {"command": "false"}}])
def test_no_login(api: Api, login: dict[str, Any]) -> None:
    """The user of the context has none, or its command fails."""
    file = api.folder / "kubeconfig"
    config = yaml.safe_load(file.read_text())
    version = {"apiVersion": "client.authentication.k8s.io/v1beta1"}
    config["users"][0]["user"] = {key: {**version, **value} for key, value in login.items()}
    file.write_text(yaml.safe_dump(config))
    said = refusal(pr.RequirementError, Kubernetes())
    assert "needs a login, and the kubeconfig gives none, or its command has failed; log" in said
    assert api.objects == {}


def test_no_jobset(api: Api) -> None:
    api.lacks_jobset = True
    said = refusal(pr.RequirementError, Kubernetes())
    assert "has no JobSet; install JobSet 0.10 or later: kubectl apply --server-side -f" in said


def test_an_old_jobset_refuses_the_rules(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a strict check it would drop them, and restart what must not be restarted."""
    if not CRD.exists():
        pytest.skip(f"JobSet's CustomResourceDefinition is not there: {CRD}")
    found = "Additional properties are not allowed ('onJobFailureMessagePatterns' was unexpected)"
    monkeypatch.setattr("tests.kubernetes.api.problems", lambda _: [found])
    said = refusal(pr.InvalidArgumentError, Kubernetes())
    assert "refused to create jobsets/pr-" in said
    assert found in said
    assert "JobSet 0.10" in said


def test_a_namespace_that_is_being_deleted(api: Api) -> None:
    causes = [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]
    body = {"message": "because it is being terminated", "details": {"causes": causes}}
    api.faults = [(403, {}, json.dumps(body).encode())]
    said = refusal(pr.InvalidArgumentError, Kubernetes())
    assert "the namespace default of the cluster at https://127.0.0.1" in said
    assert said.endswith("is being deleted; name another by namespace")
    assert api.objects == {}


def test_a_right_that_the_user_lacks(api: Api) -> None:
    policy = {"kind": "NetworkPolicy", "metadata": {"name": "x", "labels": {}}}
    api.faults = [(403, {}, b'{"message": "is forbidden"}')]
    said = "is forbidden; ask whoever has the cluster, or leave it out by no_network_policy"
    with pytest.raises(pr.RequirementError, match=said):
        Cluster().create("networkpolicies", policy)


def test_a_cluster_that_changes_the_manifest(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A webhook's change is said, its additions are not; the job is submitted."""
    create = Api._create

    def changed(self: Api, kind: str, namespace: str, body: Any, query: Any) -> Any:
        if kind == "jobsets":
            body["spec"]["suspend"] = True
            job = body["spec"]["replicatedJobs"][0]["template"]["spec"]
            job["template"]["spec"]["containers"][0]["image"] = "mirror/python:3.12"
        return create(self, kind, namespace, body, query)

    monkeypatch.setattr(Api, "_create", changed)
    job = pr.submit(["train.py"], on=Kubernetes())
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "changed" in line]
    assert said == (
        f"pyreactant: the cluster changed the JobSet pr-{job.id}: "
        "spec.replicatedJobs[0].template.spec.template.spec.containers[0].image "
        'from "python:3.12" to "mirror/python:3.12"'
    )
    job.cancel()


@pytest.mark.parametrize(
    ("sent", "there", "said"),
    [
        ({"a": 1, "b": {}, "c": []}, {"a": 1, "d": 2}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b from 1 to 2"]),
        ({"a": {"b": 1}}, {}, ['a from {"b": 1} to null']),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ["a[1].b from 2 to 3"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a from [1] to [1, 2]"]),
    ],
)
def test_changes(sent: Any, there: Any, said: list[str]) -> None:
    assert [*client.changes(sent, there)] == said


def test_a_passing_trouble(api: Api) -> None:
    api.faults = [(503, {}, b"busy"), (429, {"Retry-After": "1"}, b"")]
    job = pr.submit(["train.py"], on=Kubernetes())
    assert {kind for kind, _, _ in api.objects} == {"jobsets", "secrets", "networkpolicies"}
    troubles: list[tuple[int, dict[str, str], bytes]] = [
        (500, {}, b'{"message": "etcd is away"}'),
        (200, {}, b"<html>Log in</html>"),
    ]
    for answer in troubles:
        client.cluster_at.cache_clear()
        api.faults = [answer]
        status = job.status()
        assert status.state in ("requested", "starting")
        assert ("etcd is away" if answer[0] == 500 else "<html>Log in") in status.reason
    client.cluster_at.cache_clear()
    assert (job.status().state, job.status().reason) == ("starting", "")
    assert job.cancel().state == "cancelled"
    assert api.objects == {}


def test_an_answer_that_was_lost(api: Api) -> None:
    """The object is there when it is asked for again: it is ours."""
    there = Cluster()
    labels = {"pyreactant/job": "1"}
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a", "labels": labels},
        "data": {},
    }
    made = there.create("secrets", body)
    assert there.create("secrets", body)["metadata"]["uid"] == made["metadata"]["uid"]
    other = {**body, "metadata": {"name": "a", "labels": {"pyreactant/job": "2"}}}
    with pytest.raises(pr.InvalidArgumentError, match='secrets "a" already exists'):
        there.create("secrets", other)


def test_no_secret_is_told(api: Api, tmp_path: Path) -> None:
    """The login is nowhere; the run's secret is only in its Secret, not even in the record."""
    job = pr.submit(["train.py"], on=Kubernetes(context="team"))
    (secret,) = [o for (k, _, n), o in api.objects.items() if k == "secrets" and "code" not in n]
    assert secret["metadata"]["namespace"] == "team"
    assert secret["metadata"]["ownerReferences"][0]["kind"] == "JobSet"
    for file in (tmp_path / "state").rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert OWNER.encode() not in content, file
        assert secret["data"]["secret"].encode() not in content, file
    order = [path.split("?")[0].rpartition("/")[2] for verb, path in api.seen if verb == "POST"]
    assert order == ["jobsets", "networkpolicies", "secrets", "secrets"]
    job.cancel()


def test_an_image_that_cannot_run(api: Api) -> None:
    api.waiting = {"reason": "ErrImagePull", "message": "nothing:1 not found"}
    job = pr.submit(["train.py"], on=Kubernetes(start_timeout=3.0))
    assert "cannot run python:3.12: ErrImagePull: nothing:1 not found" in job.status().reason
    with pytest.raises(pr.RemoteError, match="ErrImagePull: nothing:1 not found; name another"):
        job.result(timeout=60)
    assert (job.status().state, job.status().exit_code) == ("failed", 3)
    assert api.answer("GET", _path("jobsets"), OWNER, {})[1]["items"] == []
    assert api.objects == {}


def _path(kind: str) -> str:
    return f"{client._GROUPS[kind]}/namespaces/default/{kind}"


def test_a_jobset_that_somebody_deletes(api: Api) -> None:
    job = pr.submit(["train.py"], on=Kubernetes())
    api.objects.clear()
    api.runs.clear()
    status = job.wait(timeout=60)
    assert (status.state, status.exit_code) == ("lost", 6)
    assert status.reason == "its JobSet was deleted from the cluster"
    assert job.cancel() == status


def test_a_job_of_another_context(api: Api) -> None:
    """Its own context is asked, whatever the current one is now."""
    job = pr.submit(["train.py"], on=Kubernetes(context="team"))
    file = api.folder / "kubeconfig"
    file.write_text(file.read_text().replace("current-context: owner", "current-context: viewer"))
    client.cluster_at.cache_clear()
    assert job.status().state == "starting"
    assert job.cancel().state == "cancelled"


def test_a_cleaned_job_leaves_nothing(api: Api) -> None:
    job = pr.submit(["train.py"], on=Kubernetes())
    job.record.write_status(pr.runs.record.Status("done", "", 0))
    store.remove(job.folder)
    assert api.answer("GET", _path("jobsets"), OWNER, {})[1]["items"] == []
    assert api.objects == {}


def test_code_that_does_not_fit(api: Api, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(1 << 20))
    with pytest.raises(pr.InvalidArgumentError, match="at most 900 KiB when they are packed"):
        pr.submit(["train.py"], on=Kubernetes(), copies=["large"])
    assert api.objects == {}


def test_kubectl_understands_the_stand_in(api: Api, tmp_path: Path) -> None:
    """The API's other client sees what the first has made, and deletes it."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl")
    job = pr.submit(["train.py"], on=Kubernetes())

    def kubectl(*words: str) -> str:
        settings = environment(KUBECONFIG=os.environ["KUBECONFIG"], HOME=str(tmp_path))
        ran = harness.run(["kubectl", *words], env=settings)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    name = f"pr-{job.id.lower()}"
    assert kubectl("get", "jobsets", "-o", "name") == f"jobset.jobset.x-k8s.io/{name}\n"
    jobset = json.loads(kubectl("get", "jobset", name, "-o", "json"))
    assert jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] == 1
    (pod,) = kubectl("get", "pods", "-l", f"pyreactant/job={job.id}", "-o", "name").split()
    assert pod.startswith(f"pod/{name}-worker-0-0-")
    kubectl("delete", "jobset", name, "--wait=false")
    assert kubectl("get", "secrets", "-o", "name") == ""
    assert job.wait(timeout=60).state == "lost"
