"""A cluster with Kubernetes and JobSet, whose controller keeps the job.

`manifest` is a pure function of settings and record; `start` and `pod` are the programs of a pod.
"""

import importlib.metadata
import io
import secrets
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ....base.errors import InvalidArgumentError, RequirementError, argument
from ...queued.workers import without_owner
from ...record import Record, Status
from ..target import Target
from . import manifest, start
from .settings import PodSettings

_SECRET = 1 << 20
"""Bytes that one Secret can hold."""
_WORK = 900 << 10
"""Bytes that the packed code of a job may have, beside which the Secret has room for the rest."""


@dataclass(frozen=True, kw_only=True)
class Kubernetes(PodSettings, Target):
    """Pods of a cluster that has JobSet, one process on each; `Processes` has the rest.

    Attributes:
        image: Image of the pods. It needs Python 3.11 or later; pip installs at each start
            what it lacks.
        accelerator_type: Slice of Cloud TPU on GKE, such as "v6e-16"; None for GPU or CPU nodes.
        slices: Number of slices.
        nodes: Without slices: number of pods.
        gpus_per_node: GPUs of each pod.
        namespace: Namespace; None for that of kubectl's context.
        queue: Kueue's LocalQueue.
        priority: PriorityClass of the pods.
        service_account: Service account of the pods.
        node_selector: Labels that nodes must have, each as "KEY=VALUE".
        tolerations: Taints that pods tolerate, each as "KEY=VALUE:NoSchedule".
        volumes: Data for the pods, each as "CLAIM:/FOLDER" or "gs://BUCKET:/FOLDER".
        index_url: Index from which pip installs; None for that of the image.
        lifetime: Hours after which the cluster ends an attempt, its wait for nodes included.
        start_timeout: Seconds within which every pod must have started.
        no_network_policy: Let pods of other jobs reach the pods.
        max_restarts: Restarts after the loss of a process; those after a disruption, such as the
            preemption of a node, do not count. A failure of the program itself ends the job.
    """

    kind: ClassVar[str] = "kubernetes"
    known: ClassVar[Mapping[str, Sequence[str]]] = {**Target.known, "backend": ("jax",)}

    def check_settings(self) -> None:
        """As `Target.check_settings`."""
        super().check_settings()
        self.check_pods()

    def check_julia(self, name: str) -> None:
        """As `Target.check_julia`.

        Raises:
            RequirementError: Always: no image with Julia was tried.
        """
        raise RequirementError(
            "Julia programs do not run on kubernetes yet; submit them to local, slurm or tpu"
        )

    def check(self) -> None:
        """As `Target.check`.

        Raises:
            RequirementError: Always: the cluster's objects are made by kubectl.
        """
        self.check_settings()
        raise RequirementError(
            "pyreactant does not talk to a Kubernetes cluster yet; write the objects with "
            "--manifest job.yaml, and create them with: kubectl create -f job.yaml"
        )

    def plan(self, record: Record) -> str:
        """As `Target.plan`: the manifest, without what the Secrets hold."""
        keys = ", ".join(key for keys in manifest.KEYS.values() for key in keys)
        note = f"# The Secrets hold {keys}; --manifest FILE writes them, too."
        return f"{note}\n{manifest.text(manifest.objects(self, record))}"

    def plan_with_secrets(self, record: Record) -> str:
        """The whole manifest, with what the Secrets hold.

        Raises:
            InvalidArgumentError: The code is too large for a Secret.
        """
        name = manifest.name_of(record)
        sent = {name: _of_job(record), f"{name}-code": _of_package()}
        return manifest.text(manifest.objects(self, record, sent))

    def start(self, record: Record) -> None:
        """As `Target.start`; `check` has refused it."""
        self.check()

    def status(self, record: Record) -> Status:
        """As `Target.status`."""
        return record.status()

    def cancel(self, record: Record, timeout: float | None = None) -> Status:
        """As `Target.cancel`."""
        return record.status()


def _of_job(record: Record) -> dict[str, bytes]:
    """What the Secret of a job holds."""
    work = _packed(record.work, "work")
    if len(work) > _WORK:
        raise InvalidArgumentError(
            f"the code and the arguments must be at most {_WORK >> 10} KiB when they are packed, "
            f"for they travel in a Secret, and are {len(work) >> 10} KiB; keep data in a volume "
            f"({argument('volumes')}), and large files out of the repository"
        )
    own = record.work / "requirements.txt"
    lines = [*_requirements(), *(own.read_text().splitlines() if own.exists() else [])]
    return {
        "secret": secrets.token_hex(32).encode(),
        "requirements.txt": "".join(f"{line}\n" for line in lines).encode(),
        "work.tar.xz": work,
    }


def _of_package() -> dict[str, bytes]:
    """What the Secret with pyreactant holds."""
    package = Path(__file__).resolve().parents[3]
    packed = _packed(package, package.name)
    assert len(packed) < _SECRET - (64 << 10), "pyreactant itself fits in a Secret"
    return {
        "pyreactant.tar.xz": packed,
        "start.py": Path(start.__file__).read_bytes(),
    }


def _requirements() -> Iterator[str]:
    """What pyreactant itself needs."""
    for line in importlib.metadata.requires("pyreactant") or ():
        requirement, _, condition = line.partition(";")
        if "extra" not in condition:
            yield requirement.strip()


def _packed(folder: Path, name: str) -> bytes:
    """A folder as an archive."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as archive:
        archive.add(folder, name, filter=without_owner)
    return content.getvalue()
