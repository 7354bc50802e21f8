"""How a job stands, by objects as a cluster has them."""

import json
from typing import Any

import pytest

from pyreactant.runs.places.kubernetes.states import queue_reason, status_of, warnings
from pyreactant.runs.record import Status

Object = dict[str, Any]


JOBS = {"replicas": 1, "template": {"spec": {"completions": 4}}}


def jobset(*conditions: str, ready: int = 0, queue: str = "", suspend: bool = False) -> Object:
    count = {"name": "worker", "ready": ready, "succeeded": 0, "failed": 0, "active": 1}
    return {
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {}},
        "spec": {"suspend": suspend, "replicatedJobs": [JOBS]},
        "status": {
            "replicatedJobsStatus": [{**count, "suspended": 0}],
            "conditions": [
                {"type": kind, "status": "True", "message": "the jobset's own"}
                for kind in conditions
            ],
        },
    }


def pod(
    index: int, attempt: int = 0, scheduled: str = "", more: Object | None = None, **state: Object
) -> Object:
    condition = {"type": "PodScheduled", "status": "False" if scheduled else "True"}
    return {
        "spec": {"nodeName": f"node-{index}"},
        "metadata": {
            "name": f"pod-{index}",
            "labels": {
                "jobset.sigs.k8s.io/job-index": "0",
                "jobset.sigs.k8s.io/restart-attempt": str(attempt),
            },
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        },
        "status": {
            "conditions": [{**condition, "message": scheduled}, *([more] if more else [])],
            "containerStatuses": [{"name": "main", "image": "nothing:1", "state": state}],
        },
    }


def ended(index: int, code: int, at: str = "", attempt: int = 0, **more: Any) -> Object:
    end = {"exitCode": code, "reason": "Error", "finishedAt": at, **more}
    return pod(index, attempt, terminated=end)


def runs(index: int, more: Object | None = None) -> Object:
    return pod(index, more=more, running={})


def deleted(one: Object) -> Object:
    one["metadata"]["deletionTimestamp"] = "2026-11-28T10:00:00Z"
    return one


DRAINED = {"type": "DisruptionTarget", "status": "True", "message": "Eviction API: evicting"}
SILENT = {"type": "Ready", "status": "False"}
RAISED = json.dumps({"exit_code": 1, "cause": "user", "summary": "process 1 raised ValueError"})
DONE = json.dumps({"exit_code": 0, "cause": "done", "summary": "all is well"})
NO_NODE = "0/3 nodes are available: 3 Insufficient google.com/tpu"
NO_IMAGE = {"reason": "ErrImagePull", "message": "nothing:1: not found"}
LATE = {
    "status": {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}
}


def of_pathways(one: Object, name: str, container: Object | None = None) -> Object:
    """A pod of a JobSet of Pathways, perhaps with a container that starts before the program's."""
    one["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = name
    if container is not None:
        own = {"name": "pathways-rm", "image": "server:latest", "state": {"waiting": container}}
        one["status"]["initContainerStatuses"] = [own]
    return one


CRASHES = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}
CASES: list[tuple[str, Object, list[Object], list[Object], Status]] = [
    ("no pod yet", jobset(), [], [], Status("starting")),
    ("all run", jobset(ready=1), [], [], Status("running")),
    ("held", jobset(suspend=True), [], [], Status("queued", "suspended")),
    (
        "in a queue",
        jobset(suspend=True, queue="team-a"),
        [],
        [],
        Status("queued", "it waits in the queue team-a"),
    ),
    ("no node", jobset(), [pod(0, scheduled=NO_NODE)], [], Status("queued", NO_NODE)),
    (
        "no image",
        jobset(),
        [pod(0, waiting={"reason": "ContainerCreating"}), pod(1, waiting=NO_IMAGE)],
        [],
        Status("starting", "pod-1 cannot run nothing:1: ErrImagePull: nothing:1: not found"),
    ),
    (
        "a node is drained",
        jobset(),
        [*map(runs, range(3)), runs(3, more=DRAINED)],
        [],
        Status("running", "pod-3 is taken away from its node node-3: Eviction API: evicting"),
    ),
    (
        "a node is silent",
        jobset(),
        [*map(runs, range(3)), runs(3, more=SILENT)],
        [],
        Status("running", "the node node-3 of pod-3 does not answer"),
    ),
    (
        "a pod goes while others have not begun",
        jobset(),
        [deleted(runs(0)), pod(1, waiting={"reason": "ContainerCreating"})],
        [],
        Status("starting", "pod-0 is being deleted"),
    ),
    (
        "JobSet gives up on a node that is silent",
        jobset("Failed"),
        [runs(0, more=SILENT)],
        [],
        Status("failed", "lost: the node node-0 of pod-0 does not answer", 6, cause="lost"),
    ),
    (
        "a container of Pathways crashes",
        jobset(),
        [of_pathways(pod(0, waiting={"reason": "PodInitializing"}), "pathways-head", CRASHES)],
        [],
        Status("starting", "pathways-rm of pod-0 ends again and again: back-off 5m0s"),
    ),
    (
        "the image of Pathways cannot be pulled",
        jobset(),
        [of_pathways(pod(0, waiting={"reason": "PodInitializing"}), "pathways-head", NO_IMAGE)],
        [],
        Status("starting", "pod-0 cannot run server:latest: ErrImagePull: nothing:1: not found"),
    ),
    (
        "the manager of Pathways crashes, and its pod is not ready",
        jobset(),
        [of_pathways(runs(0, more=SILENT), "pathways-head", CRASHES), *map(runs, range(1, 4))],
        [],
        Status("running", "pathways-rm of pod-0 ends again and again: back-off 5m0s"),
    ),
    (
        "a worker of Pathways crashes, and the run goes on",
        jobset(),
        [*map(runs, range(3)), of_pathways(pod(3, waiting=CRASHES), "pathways-worker")],
        [],
        Status("running", "main of pod-3 ends again and again: back-off 5m0s"),
    ),
    (
        "a worker of Pathways has failed, too, and is no process",
        jobset("Failed"),
        [
            of_pathways(ended(0, 3, "2"), "pathways-head"),
            of_pathways(ended(0, 139, "1"), "pathways-worker"),
        ],
        [],
        Status("failed", "pod-0 ended with exit code 3", 3),
    ),
    ("done", jobset("Completed"), [], [], Status("done", "", 0)),
    (
        "raised",
        jobset("Failed"),
        [ended(1, 1, "1"), ended(0, 1, "2", message=RAISED)],
        [],
        Status("failed", "user: process 1 raised ValueError", 1, cause="user"),
    ),
    (
        "the end of an earlier attempt is none",
        jobset("Failed"),
        [ended(0, 1, message=RAISED), ended(0, 3, attempt=1)],
        [],
        Status("failed", "pod-0 ended with exit code 3", 3),
    ),
    (
        "process 0 is well, and its value is not",
        jobset("Failed"),
        [ended(0, 2, message=json.dumps({"exit_code": 2, "summary": "too large"})), ended(1, 0)],
        [],
        Status("failed", "pod-0 ended with exit code 2: too large", 2),
    ),
    (
        "no memory, and process 0's pod is gone",
        jobset("Failed"),
        [ended(2, 6, "2"), ended(1, 137, "1", reason="OOMKilled")],
        [],
        Status(
            "failed",
            "out of memory: pod-1 needed more memory than it may have",
            6,
            cause="out of memory",
        ),
    ),
    (
        "a code that is none of ours",
        jobset("Failed"),
        [ended(0, 139, message=DONE)],
        [],
        Status("failed", "lost: pod-0 ended with exit code 139: all is well", 6, cause="lost"),
    ),
    (
        "no pod is left",
        jobset("Failed"),
        [],
        [],
        Status("failed", "lost: JobSet ended the job: the jobset's own", 6, cause="lost"),
    ),
    (
        "too late",
        jobset("Failed"),
        [ended(0, 1, message=RAISED)],
        [LATE],
        Status("failed", "timeout: the job reached its --deadline", 7, cause="timeout"),
    ),
]


@pytest.mark.parametrize(
    ("one", "pods", "jobs", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_status(one: Object, pods: list[Object], jobs: list[Object], expected: Status) -> None:
    assert status_of(one, pods, jobs, each=4) == expected


def event(name: str, at: str, message: str) -> Object:
    return {"involvedObject": {"name": name}, "lastTimestamp": at, "message": message}


def test_the_last_warning_of_a_pod_is_said() -> None:
    events = [
        event("pod-0", "2026-11-28T10:00:00Z", "older"),
        event("pod-0", "2026-11-28T10:00:09Z", 'secret "pr-1" not found'),
        event("of another job", "2026-11-28T10:00:10Z", "Back-off"),
    ]
    said = 'pod-0 cannot start: secret "pr-1" not found'
    assert next(warnings(["pod-0", "pod-1"], events)) == said
    assert [*warnings(["pod-1"], events)] == []


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([], ""),
        ([("QuotaReserved", "True", "reserved"), ("Admitted", "True", "admitted")], ""),
        ([("QuotaReserved", "False", "16 more needed")], "16 more needed"),
        ([("Evicted", "True", "Preempted for another")], "Preempted for another"),
    ],
)
def test_why_kueue_lets_it_wait(conditions: list[tuple[str, str, str]], said: str) -> None:
    found = [dict(zip(("type", "status", "message"), one, strict=True)) for one in conditions]
    assert queue_reason([{"status": {"conditions": found}}]) == said
