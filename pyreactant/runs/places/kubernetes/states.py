"""How a job stands by what the cluster says of it: pure functions of its objects.

Sources: JobSet v1alpha2 (conditions, labels), Kubernetes' Pod v1 and Job v1.
"""

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from ....base.errors import ExitCode
from ...record import Status
from ...supervisor.cause import EXIT_CODES

Object = dict[str, Any]

_LABEL = "jobset.sigs.k8s.io/"
_WORKERS_OF_PATHWAYS = "pathways-worker"
"""The replicated job whose pods have the chips, and no process of ours."""
_INDEX = "batch.kubernetes.io/job-completion-index"
_UNUSABLE = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
"""Why a container waits for what may never come."""


def attempt_of(pod: Object) -> int:
    """How often JobSet had started the job again when it made this pod."""
    return int(pod["metadata"]["labels"].get(f"{_LABEL}restart-attempt", 0))


def process_of(pod: Object, pods: int) -> int | None:
    """The index of a pod's process; None for one of Pathways' own.

    Args:
        pod: The pod.
        pods: Number of pods of a slice.
    """
    metadata = pod["metadata"]
    if metadata["labels"].get(f"{_LABEL}replicatedjob-name") == _WORKERS_OF_PATHWAYS:
        return None
    own = metadata.get("annotations", {}).get(_INDEX) or metadata["labels"][_INDEX]
    return int(metadata["labels"][f"{_LABEL}job-index"]) * pods + int(own)


def end_of(pod: Object) -> Object | None:
    """How a pod's container ended; None if it has not."""
    for container in pod.get("status", {}).get("containerStatuses", ()):
        if end := container.get("state", {}).get("terminated"):
            return dict(end)
    return None


def has_started(pod: Object) -> bool:
    """Whether a pod's container has a log; one that starts again has, too."""
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return any("waiting" not in c.get("state", {"waiting": 1}) or _crashes(c) for c in statuses)


def _crashes(container: Object) -> bool:
    """Whether a container ends again and again; in its pod only Pathways' own start again."""
    return bool(container.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff")


def _containers(pod: Object) -> list[Object]:
    """The states of a pod's containers, those first that start before its own."""
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def pods_of(jobset: Object) -> int:
    """How many pods a JobSet has."""
    jobs = jobset["spec"]["replicatedJobs"]
    return sum(job["replicas"] * job["template"]["spec"]["completions"] for job in jobs)


def status_of(jobset: Object, pods: Iterable[Object], jobs: Iterable[Object], each: int) -> Status:
    """How a job stands.

    Args:
        jobset: Its JobSet.
        pods: Its pods.
        jobs: Its Jobs.
        each: Number of pods of a slice.
    """
    if _condition(jobset, "Completed"):
        return Status("done", "", ExitCode.DONE)
    last = _last_attempt(pods)
    if (failed := _condition(jobset, "Failed")) is not None:
        return _failed(failed, last, jobs, each)
    if jobset["spec"].get("suspend"):
        queue = jobset["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name")
        return Status("queued", f"it waits in the queue {queue}" if queue else "suspended")
    counts = jobset.get("status", {}).get("replicatedJobsStatus", ())
    wanted = sum(job["replicas"] for job in jobset["spec"]["replicatedJobs"])
    if counts and sum(c["ready"] + c["succeeded"] + c["failed"] for c in counts) >= wanted:
        return Status("running")
    for pod in last:
        if (waits := _condition(pod, "PodScheduled", "False")) is not None:
            return Status("queued", str(waits.get("message") or waits["reason"]))
    why = next(disrupted(last), "") or next((why for _, why in unusable(last)), "")
    started = len(last) >= pods_of(jobset) and all(map(has_started, last))
    return Status("running" if started else "starting", why)


def disrupted(pods: Iterable[Object]) -> Iterator[str]:
    """Which pods the cluster takes away, has lost sight of, or starts again and again, and why.

    Our pods have no probe, so that one whose container runs is ready as long as its node answers.
    """
    for pod in pods:
        name, node = pod["metadata"]["name"], pod.get("spec", {}).get("nodeName", "")
        states = [c.get("state", {}) for c in pod.get("status", {}).get("containerStatuses", ())]
        if (condition := _condition(pod, "DisruptionTarget")) is not None:
            said = condition.get("message") or condition.get("reason", "")
            yield f"{name} is taken away from its node {node}: {said}"
        elif crashing := [*filter(_crashes, _containers(pod))]:  # it makes the pod not ready
            said = crashing[0]["state"]["waiting"].get("message", "")
            yield f"{crashing[0]['name']} of {name} ends again and again: {said}"
        elif any("running" in state for state in states) and _condition(pod, "Ready", "False"):
            yield f"the node {node} of {name} does not answer"
        elif pod["metadata"].get("deletionTimestamp"):
            yield f"{name} is being deleted"


def unusable(pods: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """The containers that wait for what may never come, such as an image: the name of each, why."""
    for pod in pods:
        for container in _containers(pod):
            waiting = container.get("state", {}).get("waiting", {})
            if waiting.get("reason") in _UNUSABLE:
                said = f": {waiting['message']}" if waiting.get("message") else ""
                what = f"{pod['metadata']['name']} cannot run {container['image']}"
                yield container["name"], f"{what}: {waiting['reason']}{said}"


def warnings(names: Container[str], events: Iterable[Object]) -> Iterator[str]:
    """What the cluster has said last of what cannot start, such as of a Secret that a pod lacks.

    Args:
        names: Of pods, of Jobs, or of a JobSet.
        events: Those that are warnings.
    """
    for event in sorted(events, key=lambda one: str(one.get("lastTimestamp") or ""), reverse=True):
        if (name := event["involvedObject"]["name"]) in names:
            yield f"{name} cannot start: {event.get('message') or event.get('reason', '')}"


def queue_reason(workloads: Iterable[Object]) -> str:
    """Why Kueue does not start a job: what is missing, or what ended it; "" if it does not say."""
    for workload in workloads:
        for kind, value in (("QuotaReserved", "False"), ("Evicted", "True")):
            for condition in workload.get("status", {}).get("conditions", ()):
                if (condition["type"], condition["status"]) == (kind, value):
                    return str(condition.get("message") or condition.get("reason", ""))
    return ""


def _last_attempt(pods: Iterable[Object]) -> Sequence[Object]:
    there = [*pods]
    last = max(map(attempt_of, there), default=0)
    return [pod for pod in there if attempt_of(pod) == last]


def ordinal(number: int) -> str:
    """A number as a place in a row, such as "3rd"."""
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _condition(one: Object, kind: str, value: str = "True") -> Object | None:
    for condition in one.get("status", {}).get("conditions", ()):
        if condition["type"] == kind and condition["status"] == value:
            return dict(condition)
    return None


def _failed(condition: Object, pods: Iterable[Object], jobs: Iterable[Object], each: int) -> Status:
    """How a job ended that JobSet does not start again."""
    for job in jobs:
        if (_condition(job, "Failed") or {}).get("reason") == "DeadlineExceeded":
            return _status("timeout", "the job reached its --deadline")
    ends = [(process_of(pod, each), pod, end) for pod in pods if (end := end_of(pod))]
    ends = [entry for entry in ends if entry[0] is not None]
    for process, _, end in ends:
        if process == 0 and (said := _message(end)):
            return _status(str(said["cause"]), str(said["summary"]), int(said["exit_code"]))
    bad = [(pod, end) for _, pod, end in ends if end["exitCode"]]
    if not bad:
        why = f"JobSet ended the job: {condition.get('message', '')}"
        return _status("lost", next(disrupted(pods), why))
    pod, end = min(bad, key=lambda entry: str(entry[1].get("finishedAt", "")))
    code, name = int(end["exitCode"]), pod["metadata"]["name"]
    if end.get("reason") == "OOMKilled":
        return _status("out of memory", f"{name} needed more memory than it may have")
    words = _summary(end)
    why = f"{name} ended with exit code {code}" + (f": {words}" if words else "")
    if code in [*ExitCode]:
        return Status("failed", why, code)
    return _status("lost", why)


def _status(cause: str, why: str, code: int | None = None) -> Status:
    state = "preempted" if cause == "preempted" else "failed"
    code = EXIT_CODES[cause] if code is None else code
    return Status(state, f"{cause}: {why}", code, cause=cause)


def _message(end: Object) -> Object | None:
    """What `pod` left of a run that failed: its cause, summary and exit code."""
    said = _read(end)
    bad = said.get("cause") in EXIT_CODES and said["cause"] != "done" and said.get("exit_code")
    return said if bad and "summary" in said else None


def _summary(end: Object) -> str:
    """What `pod` left, or else the container's own last words."""
    said = _read(end)
    text = str(said.get("summary", "") if said else end.get("message", ""))
    return re.sub(r"\s+", " ", text).strip()[:500]


def _read(end: Object) -> Object:
    try:
        said = json.loads(end.get("message") or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
