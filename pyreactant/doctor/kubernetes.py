"""A cluster with Kubernetes, as jobs on it need it: `pyreactant doctor --kubernetes`."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..base.errors import InvalidArgumentError, RequirementError
from .check import CheckResult, Machine

if TYPE_CHECKING:
    from ..runs.places.kubernetes import Kubernetes
    from ..runs.places.kubernetes.client import Cluster
    from ..runs.places.kubernetes.states import Object

_RIGHTS = {
    "jobsets": "create get list watch delete",
    "secrets": "create get",
    "networkpolicies": "create",
    "jobs": "list",
    "pods": "list watch",
    "pods/log": "get",
    "events": "list watch",
}
"""What a user must be allowed in the namespace."""


_Question = Callable[["Cluster"], CheckResult]


def _asking(mend: str) -> Callable[[_Question], Callable[[Machine], CheckResult]]:
    """A check that asks the cluster of the current context.

    Args:
        mend: The command that shows more.
    """

    def made(question: _Question) -> Callable[[Machine], CheckResult]:
        def check(machine: Machine) -> CheckResult:
            from ..runs.places.kubernetes.client import cluster_at

            if machine.version("kubernetes") is None:
                return CheckResult("unknown", "not asked: its client is not installed")
            try:
                result = question(cluster_at(None, None))
            except (RequirementError, InvalidArgumentError) as error:
                return CheckResult("fail", str(error), mend)
            return result if result.status == "pass" else result._replace(mend=mend)

        return check

    return made


def client(machine: Machine) -> CheckResult:
    """The official client."""
    if (version := machine.version("kubernetes")) is None:
        return CheckResult("absent", "not installed", machine.pip("pyreactant[kubernetes]"))
    return CheckResult("pass", version)


@_asking("kubectl version")
def cluster(there: "Cluster") -> CheckResult:
    """The API of the current context."""
    version = (there.read("/version") or {}).get("gitVersion", "of unknown version")
    return CheckResult("pass", f"{there}, namespace {there.namespace}: {version}")


@_asking("kubectl get crd jobsets.jobset.x-k8s.io")
def jobset(there: "Cluster") -> CheckResult:
    """JobSet, asked with the rules of a job, of which nothing is kept."""
    from ..runs.places.kubernetes import Kubernetes, manifest
    from ..runs.record import draft

    body = manifest.objects(Kubernetes(), draft("doctor", "kubernetes", {}))[-1]
    there.create("jobsets", body, dry_run=True)
    version = _version(there, "jobset-system", "jobset-controller-manager")
    return CheckResult("pass", f"{version}; it takes what a job needs")


@_asking("kubectl auth can-i --list")
def rights(there: "Cluster") -> CheckResult:
    """What the user may do, as the cluster says it."""
    missing = [
        f"{verb} {kind}"
        for kind, verbs in _RIGHTS.items()
        for verb in verbs.split()
        if not there.allows(verb, kind)
    ]
    if missing:
        text = f"this user may not {', '.join(missing)} in namespace {there.namespace}"
        return CheckResult("fail", text)
    return CheckResult("pass", f"all that jobs need in namespace {there.namespace}")


@_asking("kubectl get localqueues")
def queues(there: "Cluster") -> CheckResult:
    """Kueue, and its queues in the namespace."""
    found = there.read(there.path("localqueues"))
    if found is None:
        return CheckResult("pass", "no Kueue, or this user may not read its queues")
    names = [
        f"{one['metadata']['name']} ({one.get('status', {}).get('pendingWorkloads', 0)} waiting)"
        for one in found.get("items") or ()
    ]
    version = _version(there, "kueue-system", "kueue-controller-manager")
    return CheckResult("pass", f"Kueue {version}; queues: {', '.join(names) or 'none here'}")


@_asking("kubectl get nodes")
def nodes(there: "Cluster") -> CheckResult:
    """Nodes that are ready, by their accelerators."""
    found = there.read("/api/v1/nodes")
    if found is None:
        return CheckResult("pass", "this user may not read them")
    kinds = Counter(_kind(node) for node in found.get("items") or () if _is_ready(node))
    if not kinds:
        return CheckResult("warn", "none is ready")
    text = ", ".join(f"{count} with {kind}" for kind, count in sorted(kinds.items()))
    return CheckResult("pass", text)


def fits(target: "Kubernetes") -> Callable[[Machine], CheckResult]:
    """A check of the nodes on which a job can run, by its labels, devices and tolerations."""
    from ..runs.places.kubernetes import manifest
    from ..runs.record import draft

    jobset = manifest.objects(target, draft("doctor", target.kind, target.settings()))[-1]
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    labels: dict[str, str] = pod.get("nodeSelector", {})
    devices: dict[str, str] = pod["containers"][0].get("resources", {}).get("limits", {})
    # A pod has a node for itself if it needs devices, whose taints GKE tolerates for it.
    needed = target.slices * target.pods if devices else 1
    tolerated = {*devices, *(one["key"] for one in pod.get("tolerations", ()))}
    words = [f"{k}={v}" for k, v in labels.items()] + [f"{v} {k}" for k, v in devices.items()]

    def is_fit(node: "Object") -> bool:
        own, there = node["metadata"].get("labels", {}), node.get("status", {})
        spec, amounts = node.get("spec", {}), there.get("allocatable", {})
        return (
            _is_ready(node)
            and not spec.get("unschedulable")
            and labels.items() <= own.items()
            and all(int(amounts.get(name, 0)) >= int(count) for name, count in devices.items())
            and all(
                taint["key"] in tolerated or taint["effect"] == "PreferNoSchedule"
                for taint in spec.get("taints") or ()
            )
        )

    @_asking("kubectl get nodes --show-labels")
    def check(there: "Cluster") -> CheckResult:
        found = there.read("/api/v1/nodes")
        if found is None:
            return CheckResult("pass", "this user may not read nodes")
        count = sum(map(is_fit, found.get("items") or ()))
        with_ = f" with {', '.join(words)}" if words else ""
        text = f"{count} ready nodes fit{with_}; the job needs {needed}"
        return CheckResult("pass" if count >= needed else "warn", text)

    return check


def _is_ready(node: "Object") -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _kind(node: "Object") -> str:
    labels = node["metadata"].get("labels", {})
    if tpu := labels.get("cloud.google.com/gke-tpu-accelerator"):
        return f"{tpu} {labels.get('cloud.google.com/gke-tpu-topology', '')}".strip()
    if gpus := node.get("status", {}).get("allocatable", {}).get("nvidia.com/gpu"):
        return f"{gpus} GPUs"
    return "CPU"


def _version(there: "Cluster", namespace: str, name: str) -> str:
    """The tag of a controller's image, if the user may read it."""
    found = there.read(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    containers = found["spec"]["template"]["spec"]["containers"] if found else ()
    tags = [one["image"].rpartition(":")[2] for one in containers if "@" not in one["image"]]
    return tags[0] if tags else "of unknown version"
