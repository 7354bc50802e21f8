"""The objects of a job on Kubernetes, a pure function of its record and settings; no cluster.

JobSet's controller keeps the job: it starts all pods again if one fails, by the rules of
`_restarts`. docs/kubernetes.md says what each field is for.

Sources: JobSet v1alpha2 (kubernetes-sigs/jobset at 08dfbdfd: ``pkg/controllers/failure_policy.go``,
``pkg/webhooks/jobset_webhook.go``), Kubernetes' ``pkg/controller/job/pod_failure_policy.go``, and
for GKE's labels cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus.
"""

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....base.errors import ExitCode, InvalidArgumentError
from ....base.settings import (
    COUNT,
    JOB,
    JOB_HOST,
    JOB_INDEX,
    JOB_REPLICAS,
    JOB_RESTARTS,
)
from ....base.slices.generations import gke_label, shape_text
from ....process.group.coordinator import SECRET
from ...record import Record
from . import pathways
from .settings import PodSettings
from .start import END, HERE, SENT

Sent = Mapping[str, Mapping[str, bytes]]
"""The content of each Secret, by its name and the keys of `KEYS`."""

JOBSET = "jobset.sigs.k8s.io"
"""What the labels of JobSet begin with."""
LABEL = "pyreactant/job"
"""The label that has the job's id."""
NOTED = "pyreactant/record"
"""The annotation with what another shell needs to take a job over."""
TOLD = ("program", "kind", "copies", "requirements", "env")
"""What `NOTED` has of the rest of a record."""
WORKERS = "worker"
"""The one replicated job of a JobSet: its pods are ``NAME-worker-SLICE-POD``."""
GRACE = 20.0
"""Seconds that programs have to end by themselves."""
KEYS = {
    "": ("secret", "requirements.txt", "work.tar.bz2"),
    "-code": ("pyreactant.tar.bz2", "start.py"),
}
"""The keys of each Secret, by the end of its name."""

_EXCLUSIVE = f"alpha.{JOBSET}/exclusive-topology"
_NOTED = 250 << 10
"""Bytes that `NOTED` may have; all annotations of an object may have 256 KiB."""
_WEEK = 7 * 24 * 3600
_DISRUPTED, _FAILED, _LOST = range(3)
"""Indices of the rules of a Job by which its pods fail; its message names the index."""
ON_FAILURE = (ExitCode.FAILED, ExitCode.USAGE, ExitCode.MISSING, ExitCode.MISMATCH)
"""Exit codes of a run that is not started again."""
_ON_LOSS = (ExitCode.RENDEZVOUS, ExitCode.LOST, ExitCode.TIMEOUT)


def name_of(record: Record) -> str:
    """The name of the JobSet, its service and its Secrets.

    The label of process 0's address, ``NAME-worker-0-0.NAME``, may have 63 characters; with an id
    of a record it has 58. With Pathways it is ``NAME-pathways-head-0-0.NAME``, and has 63.
    """
    return f"{'p' if record.settings.get('pathways') else 'pr'}-{record.id.lower()}"


def folder_of(target: PodSettings, record: Record) -> str:
    """The folder of Cloud Storage that is the job's own; "" for none."""
    return "" if target.store is None else f"{target.store.rstrip('/')}/{record.id}"


def objects(target: PodSettings, record: Record, sent: Sent | None = None) -> list[dict[str, Any]]:
    """The Secrets, the network policy and the JobSet of a job, in the order to create them.

    Args:
        target: The settings.
        record: The job.
        sent: What the Secrets hold; None leaves their content out.
    """
    name = name_of(record)
    secrets = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": _metadata(target, record, name + end),
            "immutable": True,
            **({} if sent is None else {"data": _data(sent[name + end])}),
        }
        for end in KEYS
    ]
    jobset = _jobset(target, record)
    if target.pathways:
        variables = record.spec.get("env", ())
        jobset = pathways.jobset(target, folder_of(target, record), variables, jobset)
    return [
        *secrets,
        *([] if target.no_network_policy else [_network_policy(target, record)]),
        jobset,
    ]


def text(documents: Sequence[Mapping[str, Any]]) -> str:
    """Objects as YAML, which ``kubectl create -f`` reads."""
    return "---\n".join("".join(f"{line}\n" for line in _yaml(one)) for one in documents)


def _jobset(target: PodSettings, record: Record) -> dict[str, Any]:
    slices = target.slices
    pods = target.pods
    metadata = _metadata(target, record, name_of(record))
    if target.queue:
        metadata["labels"]["kueue.x-k8s.io/queue-name"] = target.queue
    metadata["annotations"] = {NOTED: noted(record)}
    if slices > 1 and not target.pathways:  # else the pods of one slice may lie in several
        metadata["annotations"][_EXCLUSIVE] = "cloud.google.com/gke-nodepool"
    lifetime = {}
    if target.lifetime is not None:
        lifetime["activeDeadlineSeconds"] = math.ceil(target.lifetime * 3600)
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "coordinator": {"replicatedJob": WORKERS, "jobIndex": 0, "podIndex": 0},
            "failurePolicy": {"maxRestarts": target.max_restarts, "rules": _restarts()},
            "ttlSecondsAfterFinished": _WEEK,
            "replicatedJobs": [
                {
                    "name": WORKERS,
                    "replicas": slices,
                    "template": {
                        "spec": {
                            "completionMode": "Indexed",
                            "completions": pods,
                            "parallelism": pods,
                            "backoffLimit": 0,
                            **lifetime,
                            "podFailurePolicy": {"rules": _ends()},
                            "template": _pod(target, record),
                        }
                    },
                }
            ],
        },
    }


def noted(record: Record) -> str:
    """What is told of a record: neither folders of this machine nor secrets.

    Raises:
        InvalidArgumentError: It is too long.
    """
    spec = {key: record.spec[key] for key in TOLD if key in record.spec}
    told = {"what": record.what, "settings": record.settings, "created": record.created}
    text = json.dumps({**told, "spec": spec})
    if len(text) > _NOTED:
        raise InvalidArgumentError(
            f"the words of the program must have at most {_NOTED >> 10} KiB with the names of "
            f"what it needs, for an annotation of the JobSet has them, and have {len(text) >> 10} "
            "KiB; put what is long into a file of the code"
        )
    return text


def _ends() -> list[dict[str, Any]]:
    """The rules by which a pod fails its Job; the first that matches counts."""
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    return [
        {"action": "FailJob", "onPodConditions": disrupted},
        *(
            {
                "action": "FailJob",
                "onExitCodes": {
                    "containerName": "main",
                    "operator": "In",
                    "values": [int(code) for code in codes],
                },
            }
            for codes in (ON_FAILURE, _ON_LOSS)
        ),
    ]


def _restarts() -> list[dict[str, Any]]:
    """What becomes of the JobSet; the first rule that any failed Job matches counts.

    A failure without a rule, such as a process that was killed for its memory (137), restarts it.
    """
    by_pod = (
        ("programFailed", "FailJobSet", _FAILED),
        ("disrupted", "RestartJobSetAndIgnoreMaxRestarts", _DISRUPTED),
        ("lost", "RestartJobSet", _LOST),
    )
    return [
        {
            "name": "lifetimeOver",
            "action": "FailJobSet",
            "onJobFailureReasons": ["DeadlineExceeded"],
        },
        *(
            {
                "name": name,
                "action": action,
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": [f"matching FailJob rule at index {index}$"],
            }
            for name, action, index in by_pod
        ),
    ]


def _pod(target: PodSettings, record: Record) -> dict[str, Any]:
    slices = target.topology
    selector = dict(entry.split("=", 1) for entry in target.node_selector)
    limits = {}
    volumes = [*_volumes(target, record)]
    if slices is not None:
        label = gke_label(slices.generation)
        assert label is not None
        selector = {
            "cloud.google.com/gke-tpu-accelerator": label,
            "cloud.google.com/gke-tpu-topology": shape_text(slices.shape),
            **selector,
        }
        limits["google.com/tpu"] = str(slices.chips_per_host)
    if target.gpus_per_node:
        limits["nvidia.com/gpu"] = str(target.gpus_per_node)
    fuse = any("csi" in volume for volume, _ in volumes)
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": int(GRACE) + 20,
        **({"serviceAccountName": target.service_account} if target.service_account else {}),
        **({"priorityClassName": target.priority} if target.priority else {}),
        **({"nodeSelector": selector} if selector else {}),
        **({"tolerations": _tolerations(target)} if target.tolerations else {}),
        "containers": [
            {
                "name": "main",
                "image": target.image,
                "command": [*_command(target, record)],
                "env": [*_environment(target, record)],
                **({"resources": {"limits": limits}} if limits else {}),
                "terminationMessagePath": END,
                "volumeMounts": [mount for _, mount in volumes],
            }
        ],
        "volumes": [volume for volume, _ in volumes],
    }
    labels = {LABEL: record.id}
    fused = {"annotations": {"gke-gcsfuse/volumes": "true"}} if fuse else {}
    return {"metadata": {"labels": labels, **fused}, "spec": spec}


def _command(target: PodSettings, record: Record) -> Iterator[str]:
    """The pod's program, what the supervisors are told, and where large things are."""
    yield from ("python3", f"{SENT}/start.py", json.dumps(target.supervision()))
    if target.store:
        yield folder_of(target, record)


def _environment(target: PodSettings, record: Record) -> Iterator[dict[str, Any]]:
    labels = {
        JOB_INDEX: "job-index",
        JOB_REPLICAS: "replicatedjob-replicas",
        JOB_HOST: "coordinator",
        JOB_RESTARTS: "restart-attempt",
    }
    for variable, label in labels.items():
        path = f"metadata.labels['{JOBSET}/{label}']"
        yield {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    yield {"name": COUNT, "value": "1" if target.pathways else str(target.slices * target.pods)}
    yield {"name": JOB, "value": record.id}
    key = {"name": name_of(record), "key": "secret"}
    yield {"name": SECRET, "valueFrom": {"secretKeyRef": key}}
    if target.index_url:
        yield {"name": "PIP_INDEX_URL", "value": target.index_url}


def _volumes(
    target: PodSettings, record: Record
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each volume, and where the pod has it."""
    name = name_of(record)
    sources = [
        {
            "secret": {
                "name": name + end,
                "items": [{"key": key, "path": key} for key in keys if key != "secret"],
            }
        }
        for end, keys in KEYS.items()
    ]
    yield (
        {"name": "sent", "projected": {"sources": sources}},
        {"name": "sent", "mountPath": SENT, "readOnly": True},
    )
    yield {"name": "here", "emptyDir": {}}, {"name": "here", "mountPath": HERE}
    if target.gpus_per_node:  # NCCL needs more than the 64 MiB that a container has
        shared = {"name": "shm", "emptyDir": {"medium": "Memory"}}
        yield shared, {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 - NCCL's
    for number, entry in enumerate(target.volumes):
        source, _, path = entry.rpartition(":")
        own = f"data-{number}"
        if source.startswith("gs://"):
            bucket = {"bucketName": source.removeprefix("gs://")}
            driver = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": bucket}
            yield {"name": own, "csi": driver}, {"name": own, "mountPath": path}
        else:
            claim = {"claimName": source}
            yield {"name": own, "persistentVolumeClaim": claim}, {"name": own, "mountPath": path}


def _tolerations(target: PodSettings) -> list[dict[str, str]]:
    tolerations = []
    for entry in target.tolerations:
        taint, _, effect = entry.partition(":")
        key, given, value = taint.partition("=")
        matching = {"operator": "Equal", "value": value} if given else {"operator": "Exists"}
        tolerations.append({"key": key, **matching, **({"effect": effect} if effect else {})})
    return tolerations


def _network_policy(target: PodSettings, record: Record) -> dict[str, Any]:
    """Only the pods of the job reach its pods."""
    own = {"matchLabels": {f"{JOBSET}/jobset-name": name_of(record)}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(target, record, name_of(record)),
        "spec": {
            "podSelector": own,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": own}]}],
        },
    }


def _metadata(target: PodSettings, record: Record, name: str) -> dict[str, Any]:
    where = {"namespace": target.namespace} if target.namespace else {}
    return {"name": name, **where, "labels": {LABEL: record.id}}


def _data(content: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in content.items()}


_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_RARE = re.compile(r"[^ -~]")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
"""What YAML 1.1 does not read as text."""


def _yaml(value: Any) -> Iterator[str]:
    """The lines of an object or a list that is not empty."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if part and isinstance(part, Mapping | list):
                yield f"{_scalar(key)}:"
                indent = "" if isinstance(part, list) else "  "
                yield from (f"{indent}{line}" for line in _yaml(part))
            else:
                yield f"{_scalar(key)}: {_scalar(part)}"
    else:
        for part in value:
            lines = _yaml(part) if part and isinstance(part, Mapping) else iter([_scalar(part)])
            yield f"- {next(lines)}"
            yield from (f"  {line}" for line in lines)


def _scalar(value: Any) -> str:
    """A text, number, or what is empty; JSON's texts are YAML's texts in quotes, in most cases."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    shown = json.dumps(value, ensure_ascii=False)
    return _RARE.sub(lambda rare: f"\\U{ord(rare[0]):08x}", shown)  # YAML joins no two halves
