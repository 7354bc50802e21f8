"""`pyreactant doctor --kubernetes`: what a cluster lacks is a row, with a command."""

import os
import sys
from typing import Any

import pytest

from pyreactant.doctor.check import Check, Machine
from pyreactant.doctor.diagnosis import KUBERNETES, Row, run_check
from pyreactant.doctor.kubernetes import fits
from pyreactant.runs.places.kubernetes import Kubernetes, client
from tests import harness
from tests.harness import environment
from tests.kubernetes.api import Api

TPU = {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
    "cloud.google.com/gke-tpu-topology": "4x4",
}
ROWS = ["client", "cluster", "JobSet", "rights", "queues", "nodes"]


def node(labels: dict[str, str], ready: str = "True", **allocatable: str) -> Any:
    conditions = [{"type": "Ready", "status": ready}]
    status = {"conditions": conditions, "allocatable": allocatable}
    return {"metadata": {"labels": labels}, "status": status}


def rows() -> dict[str, Check]:
    (group,) = KUBERNETES.values()
    return {row.name: run_check(Machine(), None, "Kubernetes", row) for row in group}


def controller(api: Api, kind: str, version: str) -> None:
    image = {"image": f"registry.k8s.io/{kind}/{kind}:{version}"}
    spec = {"template": {"spec": {"containers": [image]}}}
    name = f"{kind}-controller-manager"
    api.put("deployments", name, namespace=f"{kind}-system", spec=spec)


def test_a_cluster_that_fits(api: Api) -> None:
    api.kueue = True
    controller(api, "jobset", "v0.10.1")
    controller(api, "kueue", "v0.14.2")
    api.put("localqueues", "team-a", status={"pendingWorkloads": 3})
    api.nodes = [node(TPU), node(TPU), node({}, **{"nvidia.com/gpu": "8"}), node({}, ready="False")]
    found = rows()
    assert list(found) == ROWS
    assert {row.status for row in found.values()} == {"pass"}, found
    assert "(context owner), namespace default: v1.32.0" in found["cluster"].found
    assert found["JobSet"].found == "v0.10.1; it takes what a job needs"
    assert found["queues"].found == "Kueue v0.14.2; queues: team-a (3 waiting)"
    assert found["nodes"].found == "1 with 8 GPUs, 2 with tpu-v6e-slice 4x4"
    assert not [key for key in api.objects if key[0] == "jobsets"], "nothing is left"


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        (
            Kubernetes(accelerator_type="v6e-16", slices=2),
            "warn",
            "4 ready nodes fit with cloud.google.com/gke-tpu-accelerator=tpu-v6e-slice, "
            "cloud.google.com/gke-tpu-topology=4x4, 4 google.com/tpu; the job needs 8",
        ),
        (
            Kubernetes(nodes=2, gpus_per_node=8),
            "warn",
            "1 ready nodes fit with 8 nvidia.com/gpu; the job needs 2",
        ),
        (
            Kubernetes(gpus_per_node=8, nodes=2, tolerations=("spot:NoSchedule",)),
            "pass",
            "2 ready nodes fit with 8 nvidia.com/gpu; the job needs 2",
        ),
        (Kubernetes(nodes=9), "pass", "5 ready nodes fit; the job needs 1"),
    ],
)
def test_nodes_for_a_job(api: Api, target: Kubernetes, status: str, said: str) -> None:
    """By labels, devices and taints, of nodes that are ready and take pods."""
    tainted = {"spec": {"taints": [{"key": "google.com/tpu", "effect": "NoSchedule"}]}}
    spot = {"spec": {"taints": [{"key": "spot", "effect": "NoSchedule"}]}}
    gpus = {"nvidia.com/gpu": "8"}
    api.nodes = [
        *[node(TPU, **{"google.com/tpu": "4"}) for _ in range(3)],
        {**node(TPU, **{"google.com/tpu": "4"}), **tainted},
        {**node(TPU, **{"google.com/tpu": "4"}), "spec": {"unschedulable": True}},
        node(TPU, "False", **{"google.com/tpu": "4"}),
        node({}, **gpus),
        {**node({}, **gpus), **spot},
        node({}),
    ]
    row = run_check(Machine(), None, "Kubernetes", Row("job", fits(target)))
    assert (row.status, row.found) == (status, said)


def test_a_job_without_the_cluster() -> None:
    argv = [sys.executable, "-m", "pyreactant", "doctor", "--topology", "v6e-16"]
    ran = harness.run(argv, env=environment())
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--topology is about the nodes of a cluster; pass --kubernetes, too" in ran.stderr


def test_a_user_who_may_only_look(api: Api) -> None:
    file = api.folder / "kubeconfig"
    file.write_text(file.read_text().replace("current-context: owner", "current-context: viewer"))
    client.cluster_at.cache_clear()
    rights = rows()["rights"]
    assert (rights.status, rights.required) == ("fail", True)
    assert rights.found.startswith("this user may not create jobsets, delete jobsets, create secre")
    assert rights.mend == "kubectl auth can-i --list"


def test_no_jobset_and_no_cluster(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.lacks_jobset = True
    found = rows()
    assert found["JobSet"].status == "fail"
    assert "has no JobSet; install JobSet 0.10 or later" in found["JobSet"].found
    assert found["queues"].found == "no Kueue, or this user may not read its queues"
    assert (found["nodes"].status, found["nodes"].found) == ("warn", "none is ready")
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    client.cluster_at.cache_clear()
    assert "there is no cluster: /no/such/file does not exist" in rows()["cluster"].found
    monkeypatch.setattr(Machine, "version", lambda self, name: None)
    found = rows()
    assert (found["client"].status, found["cluster"].status) == ("fail", "warn")
    assert found["client"].mend.endswith("pip install 'pyreactant[kubernetes]'")


def test_the_command(api: Api) -> None:
    settings = environment(KUBECONFIG=os.environ["KUBECONFIG"])
    argv = [sys.executable, "-m", "pyreactant", "doctor", "--kubernetes", "--gpus-per-node", "8"]
    ran = harness.run(argv, env=settings)
    assert ran.returncode == 0, ran
    assert "\nKubernetes\n" in ran.stdout
    assert "it takes what a job needs" in ran.stdout
    said = "0 ready nodes fit with 8 nvidia.com/gpu; the job needs 1"
    assert said in " ".join(ran.stdout.split())
