"""A cluster with Kubernetes and JobSet, whose controller keeps the job.

`manifest` and `states` are pure functions, of settings and record and of the cluster's objects;
`client` asks the cluster; `start` and `pod` are the programs of a pod, and `brought` has what they
wrote.
"""

import calendar
import contextlib
import dataclasses
import functools
import importlib.metadata
import io
import os
import secrets
import tarfile
import tempfile
import threading
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from ....base.errors import (
    ExitCode,
    FileError,
    InvalidArgumentError,
    PyReactantError,
    RequirementError,
    argument,
)
from ....base.files import pack
from ....base.say import say
from ....base.storage import Folder, digest_of, login_of_user
from ...record import CANCELLED, Record, Status, draft, written
from ..target import Target, pause, with_reason
from . import manifest, start
from .brought import bring_log, follow_log, unpack_end
from .client import Cluster, NoAnswerError, changes, cluster_at
from .settings import FORMS, PodSettings
from .states import (
    Object,
    attempt_of,
    has_started,
    ordinal,
    pods_of,
    process_of,
    queue_reason,
    status_of,
    unusable,
    warnings,
)
from .watch import watch_of

_SECRET = 1 << 20
"""Bytes that one Secret can hold."""
_WORK = 900 << 10
"""Bytes that the packed code of a job may have, with the requirements, which are not packed."""
_STORED = 800 << 10
"""Bytes from which on it is stored; what has less fits in the Secret, however it is packed."""
_PATIENCE, _END = 60.0, 120.0
"""Seconds for a request that changes something, and until a job is gone."""
_LATE = 10.0
"""Seconds for what a context says of many jobs; its login may take some of them."""
_POSITIONS = 10.0
"""Seconds for which positions in a queue count."""
_SOON = 5.0
"""Seconds in which a cluster makes all pods, where nothing hinders it."""
_NOT_STARTED = "the submitting process ended before the cluster had the job"


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
        pathways: Whether one process has the devices of all slices, through Pathways, which
            keeps its own files in `store`.
        context: Context of the kubeconfig; None for the current one when the job is submitted.
        namespace: Namespace; None for that of the context.
        queue: Kueue's LocalQueue.
        priority: PriorityClass of the pods.
        service_account: Service account of the pods.
        node_selector: Labels that nodes must have, each as "KEY=VALUE".
        tolerations: Taints that pods tolerate, each as "KEY=VALUE:NoSchedule".
        store: Folder of Cloud Storage, such as "gs://mine/jobs", for code and values that are too
            large for a Secret and a log. You and the pods' account must be allowed to read, write,
            list and delete there.
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
    least: ClassVar[Mapping[str, int]] = {
        **Target.least,
        **dict.fromkeys(("slices", "nodes", "gpus_per_node"), 1),
    }
    forms: ClassVar[Mapping[str, tuple[str, str]]] = FORMS

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
        """As `Target.check`; the cluster is not asked yet."""
        self.check_settings()
        if self.pathways:  # its generator may be absent, or know no such slices
            self.plan(draft("", self.kind, self.settings()))
        self._cluster()

    def plan(self, record: Record) -> str:
        """As `Target.plan`: the manifest, without what the Secrets hold."""
        keys = ", ".join(key for keys in manifest.KEYS.values() for key in keys)
        note = f"# The Secrets hold {keys}; --manifest FILE writes them, too.\n"
        if self.store:
            where = manifest.folder_of(self, record)
            note += f"# Code of more than {_STORED >> 10} KiB, when packed, goes to {where}.\n"
        return note + manifest.text(manifest.objects(self, record))

    @contextlib.contextmanager
    def objects(self, record: Record) -> Iterator[list[Object]]:
        """The objects of a job; code that is too large is stored, and goes if the block fails.

        Raises:
            InvalidArgumentError: The code is too large for a Secret, and there is no `store`.
            PyReactantError: It cannot be stored.
        """
        name, stored = manifest.name_of(record), self._stored(record)
        with tempfile.TemporaryFile(dir=record.folder) as code:
            with written(record.folder):
                own = _of_job(record, None if stored is None else code)
            large = stored if _stored_code(record).exists() else None
            if large is not None:
                large.check()  # before it, there is nothing to delete
            try:
                if large is not None:
                    large.put(code)
                sent = {name: own, f"{name}-code": _of_package()}
                yield manifest.objects(self, record, sent)
            except BaseException:
                if large is not None:
                    with contextlib.suppress(PyReactantError):
                        large.delete()
                raise

    def _stored(self, record: Record) -> Folder | None:
        """The folder of Cloud Storage that is the job's own."""
        return Folder(manifest.folder_of(self, record), login_of_user) if self.store else None

    def _forget(self, record: Record) -> None:
        """Delete what is stored."""
        if (stored := self._stored(record)) is not None:
            try:
                stored.delete()
            except (RequirementError, InvalidArgumentError) as error:
                say(
                    f"what the job {record.id} has stored could not be deleted: {error}; later "
                    f"delete it with: gcloud storage rm --recursive {stored}"
                )

    def start(self, record: Record) -> None:
        """As `Target.start`: the names of all objects follow from the record's id."""
        cluster, name = self._cluster(), manifest.name_of(record)
        record.write_handle({"context": cluster.context, "namespace": cluster.namespace})
        with self.objects(record) as (*parts, jobset):
            try:
                made = cluster.create("jobsets", jobset, patience=_PATIENCE)
                for change in changes(jobset, made):
                    say(f"the cluster changed the JobSet {name}: {change}")
                own = made["metadata"]
                owner = {"apiVersion": made["apiVersion"], "kind": made["kind"]}
                owner |= {"name": own["name"], "uid": own["uid"]}
                for part in reversed(parts):  # the pods wait for the Secrets, which come last
                    part["metadata"]["ownerReferences"] = [owner]
                    cluster.create(_KINDS[part["kind"]], part, patience=_PATIENCE)
            except BaseException:
                with contextlib.suppress(PyReactantError):
                    cluster.delete("jobsets", name)
                raise
        record.write_handle({**record.handle(), "started": True})
        (record.work / "env.json").unlink(missing_ok=True)  # the cluster has it now

    def status(self, record: Record) -> Status:
        """As `Target.status`."""
        status, handle = record.status(), record.handle()
        if status.ended or (not handle.get("started") and record.is_kept()):
            return status
        if not handle:
            return record.write_gone(_NOT_STARTED)
        try:
            return self._ask(record, handle)
        except NoAnswerError as error:
            return dataclasses.replace(status, reason=str(error))

    @classmethod
    def statuses(cls, jobs: Sequence[tuple[Target, Record]]) -> dict[str, Status | FileError]:
        """As `Target.statuses`: a question for each namespace, and all namespaces side by side."""
        if len(jobs) == 1:
            return super().statuses(jobs)
        found: dict[str, Status | FileError] = {}
        where: dict[tuple[str, str], list[tuple[Target, Record]]] = {}
        alone = []
        for target, record in jobs:
            with contextlib.suppress(FileError):  # its own answer says it
                if (handle := record.handle()) and not record.status().ended:
                    at = handle["context"], handle["namespace"]
                    where.setdefault(at, []).append((target, record))
                    continue
            alone.append((target, record))
        threads = [
            threading.Thread(target=cls._ask_together, args=(*at, own, found), daemon=True)
            for at, own in where.items()
        ]
        for thread in threads:
            thread.start()
        found |= super().statuses(alone)
        deadline = time.monotonic() + _LATE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        answered = dict(found)  # a late thread changes no more
        for (context, _), own in where.items():
            said = f"the context {context} has not answered within {_LATE:g} s; see why with: "
            late = NoAnswerError(f"{said}kubectl --context {context} version")
            for _, record in own:
                answered.setdefault(record.id, with_reason(record, late))
        return answered

    @classmethod
    def _ask_together(
        cls,
        context: str,
        namespace: str,
        jobs: Sequence[tuple[Target, Record]],
        found: dict[str, Status | FileError],
    ) -> None:
        try:
            cluster = cluster_at(context or None, namespace)
        except PyReactantError as error:
            found |= {record.id: with_reason(record, error) for _, record in jobs}
            return
        if len(jobs) > 1:
            cluster.many_since = time.monotonic()
        try:
            found |= super().statuses(jobs)
        finally:
            cluster.many_since = None

    def _ask(self, record: Record, handle: Mapping[str, Any]) -> Status:
        cluster, name = _cluster_of(handle), manifest.name_of(record)
        jobset = _jobset(cluster, name)
        if jobset is None:
            started = handle.get("started")
            why = "its JobSet was deleted from the cluster" if started else _NOT_STARTED
            return record.write_gone(why)
        if not handle.get("started") and record.host == os.uname().nodename:
            cluster.delete("jobsets", name)
            return record.write_gone(_NOT_STARTED)
        if jobset["metadata"].get("deletionTimestamp"):
            return record.status()
        pods: list[Object] = []
        jobs: list[Object] = []
        status = status_of(jobset, pods, jobs, self.pods)
        if status.state == "queued" and self.queue:
            status = dataclasses.replace(status, reason=_waiting(cluster, jobset, self.queue))
        elif status.state == "failed":  # what was said before the end does not count
            pods, jobs = _ended(cluster, "pods", record), _ended(cluster, "jobs", record)
            status = status_of(jobset, pods, jobs, self.pods)
        elif status.state == "starting":  # the pods say why
            pods = _seen(cluster, "pods", manifest.LABEL, record.id)
            status = status_of(jobset, pods, jobs, self.pods)
            if len(pods) < pods_of(jobset) and _age(jobset) > _SOON:
                parts = jobset["spec"]["replicatedJobs"]
                jobs_ = (f"{part['name']}-{n}" for part in parts for n in range(part["replicas"]))
                own = {name, *(f"{name}-{job}" for job in jobs_)}
                status = dataclasses.replace(status, reason=status.reason or _said(cluster, own))
            if why := self._never(cluster, pods):
                cluster.delete("jobsets", name)
                why = f"environment: {why}"
                status = Status("failed", why, ExitCode.MISSING, cause="environment")
        return record.write_status(status)

    def _never(self, cluster: Cluster, pods: Sequence[Object]) -> str:
        """Why a pod cannot run that has waited for longer than `start_timeout`; "" if none has."""
        late = [pod for pod in pods if _waits(pod) > self.start_timeout]
        for container, why in unusable(late):
            mend = (
                f"name another image by {argument('image')}" if container == "main" else "mend it"
            )
            return f"{why}; {mend}, and submit again"
        waiting = [pod["metadata"]["name"] for pod in late if not has_started(pod)]
        if waiting and (why := _said(cluster, waiting)):  # such as one that lacks a Secret
            return f"{why}; mend it, and submit again"
        return ""

    def logs(self, record: Record, process: int) -> Path:
        """As `Target.logs`."""
        handle = record.handle()
        if handle.get("started") and not handle.get("fetched"):
            with contextlib.suppress(NoAnswerError):  # what came before is there
                cluster = _cluster_of(handle)
                if record.status().ended:
                    pods = cluster.listed("pods", _labels(record))[0]
                else:
                    pods = watch_of(cluster, "pods", _labels(record)).objects()
                own = [pod for pod in pods if process_of(pod, self.pods) == process]
                if own:
                    bring = bring_log if record.status().ended else follow_log
                    return bring(cluster, record, process, max(own, key=attempt_of))
        return record.log(process)

    def fetch(self, record: Record) -> None:
        """As `Target.fetch`; logs of pods that the cluster has removed are not there."""
        handle, status = record.handle(), record.status()
        if not handle.get("started") or handle.get("fetched") or not status.ended:
            return
        try:
            self._bring(record, self._stored(record))
        except NoAnswerError:
            if status.state in ("lost", "cancelled"):
                return
            raise
        record.write_handle({**handle, "fetched": True})

    def _bring(self, record: Record, stored: Folder | None = None) -> None:
        """Bring all logs that there are, and what process 0 has sent, or stored."""
        cluster = _cluster_of(record.handle())
        pods = [
            (process, pod)
            for pod in cluster.listed("pods", _labels(record))[0]
            if (process := process_of(pod, self.pods)) is not None
        ]
        for process, pod in sorted(pods, key=lambda pair: -pair[0]):  # its end may not come
            bring_log(cluster, record, process, pod)
            if process == 0:
                unpack_end(record, attempt_of(pod), stored)

    def discard(self, record: Record) -> None:
        """As `Target.discard`: the cluster deletes the job's objects, which it keeps for a week."""
        handle = record.handle()
        if handle:
            try:
                _cluster_of(handle).delete("jobsets", manifest.name_of(record))
            except (RequirementError, InvalidArgumentError) as error:
                say(
                    f"the JobSet of the job {record.id} could not be deleted, and the cluster "
                    f"keeps it for a week: {error}"
                )
            self._forget(record)

    def cancel(self, record: Record, timeout: float | None = None) -> Status:
        """As `Target.cancel`: deletes the JobSet, and with it all that is the job's."""
        status = self.status(record)
        if status.ended and status.state != "lost":
            return status
        if not status.ended:
            record.ask_to_cancel()
        limit = _END if timeout is None else timeout
        deadline = time.monotonic() + limit
        while record.is_kept():  # it is being submitted
            pause(record, deadline, limit)
        if handle := record.handle():
            cluster, name = _cluster_of(handle), manifest.name_of(record)
            patience = min(_PATIENCE, limit)
            cluster.delete("jobsets", name, patience=patience)
            while cluster.get("jobsets", name, patience=patience) is not None:
                if handle.get("started"):
                    with contextlib.suppress(NoAnswerError):
                        self._bring(record)  # the logs end with the pods
                pause(record, deadline, limit)
            for end in manifest.KEYS:
                while cluster.get("secrets", name + end, patience=patience) is not None:
                    pause(record, deadline, limit)
            self._forget(record)
        if status.ended:
            return status
        return record.write_status(CANCELLED)

    def _cluster(self) -> Cluster:
        return cluster_at(self.context, self.namespace)


_KINDS = {"Secret": "secrets", "NetworkPolicy": "networkpolicies"}
"""The names of objects in addresses of the API."""


def _cluster_of(handle: Mapping[str, Any]) -> Cluster:
    """The cluster that has a job, whatever the current context is."""
    return cluster_at(handle["context"] or None, handle["namespace"])


def _labels(record: Record) -> str:
    """What selects the pods and Jobs of a job."""
    return f"{manifest.JOBSET}/jobset-name={manifest.name_of(record)}"


_asked: dict[tuple[Cluster, str], set[str]] = {}
"""The values of labels by which this process has asked for objects of a kind."""


def _seen(cluster: Cluster, kind: str, label: str, value: str) -> list[Object]:
    """The objects whose label has a value; one question serves all if several are asked for."""
    values = _asked.setdefault((cluster, kind), set())
    values.add(value)
    if len(values) == 1 and cluster.many_since is None:
        return watch_of(cluster, kind, f"{label}={value}").objects()
    there = watch_of(cluster, kind, label).objects()
    return [one for one in there if one["metadata"]["labels"][label] == value]


def _ended(cluster: Cluster, kind: str, record: Record) -> list[Object]:
    """The pods or the Jobs of a job that has failed, read after its JobSet."""
    if cluster.many_since is None:
        return cluster.listed(kind, _labels(record))[0]
    if kind == "pods":
        return _seen(cluster, kind, manifest.LABEL, record.id)
    return _seen(cluster, kind, f"{manifest.JOBSET}/jobset-name", manifest.name_of(record))


def _said(cluster: Cluster, names: Container[str]) -> str:
    """Why something cannot start, such as a Job's pods; "" if the user may not read it."""
    try:
        return next(warnings(names, watch_of(cluster, "events", "type=Warning").objects()), "")
    except NoAnswerError:
        raise
    except RequirementError:
        return ""


def _age(one: Object, at: str | None = None) -> float:
    """Seconds since a time of an object, by default since it was made."""
    at = at or one["metadata"]["creationTimestamp"]
    return time.time() - calendar.timegm(time.strptime(at, "%Y-%m-%dT%H:%M:%SZ"))


def _waits(pod: Object) -> float:
    """Seconds since a pod has a node; 0 if it has none."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "True":
            return _age(pod, condition.get("lastTransitionTime"))
    return 0.0


def _waiting(cluster: Cluster, jobset: Object, queue: str) -> str:
    """Why a job waits in a queue of Kueue, as far as the user may read it."""
    uid, workloads = jobset["metadata"]["uid"], []
    try:
        workloads = _seen(cluster, "workloads", "kueue.x-k8s.io/job-uid", uid)
    except NoAnswerError:
        raise
    except RequirementError:  # there is no Kueue, or the user may not read its objects
        pass
    place = f"it waits in the queue {queue}"
    for pending in _pending(cluster, queue, int(time.monotonic() / _POSITIONS)):
        if any(pending["metadata"]["name"] == one["metadata"]["name"] for one in workloads):
            place = f"{ordinal(pending['positionInLocalQueue'] + 1)} in queue {queue}"
    why = queue_reason(workloads)
    return f"{place}: {why}" if why else place


@functools.lru_cache(maxsize=64)
def _pending(cluster: Cluster, queue: str, _: int) -> Sequence[Object]:
    """What waits in a queue, asked once in a period; nothing if the user may not read it.

    Source: Kueue's PendingWorkloadsSummary, whose positions begin with 0.
    """
    with contextlib.suppress(RequirementError):  # the part of Kueue that answers may be absent
        found = cluster.read(
            f"/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/{cluster.namespace}"
            f"/localqueues/{queue}/pendingworkloads"
        )
        return (found or {}).get("items") or ()
    return ()


def _jobset(cluster: Cluster, name: str) -> Object | None:
    """A JobSet, by a watch that serves all jobs; None if the cluster has no more of it."""
    for jobset in watch_of(cluster, "jobsets", manifest.LABEL).objects():
        if jobset["metadata"]["name"] == name:
            return jobset
    return cluster.get("jobsets", name)  # it may be newer than the list


def _stored_code(record: Record) -> Path:
    """The file that names what is stored of `work`."""
    return record.work / start.STORED


def _of_job(record: Record, code: BinaryIO | None) -> dict[str, bytes]:
    """What the Secret of a job holds; `code` gets the code and the arguments if they are large.

    The user's variables, which may be secrets, always are in the Secret.
    """
    parts = {f"work/{path.name}": path for path in record.work.iterdir()}
    if code is not None:
        large = {name: parts[name] for name in ("work/code", "work/arguments")}
        with tarfile.open(fileobj=code, mode="w:gz") as archive:
            pack(large, archive)
        if code.tell() > _STORED:
            _stored_code(record).write_text(digest_of(code))
            parts = {name: parts[name] for name in parts.keys() - large.keys()}
            parts[f"work/{start.STORED}"] = _stored_code(record)
    own = record.work / "requirements.txt"
    needed = "".join(f"{line}\n" for line in _requirements(record)).encode()
    needed += own.read_bytes() if own.exists() else b""
    work = _packed(parts)
    if (size := len(work) + len(needed)) > _WORK:
        if code is not None:
            raise InvalidArgumentError(
                f"what {argument('env')} and {argument('requirements')} name travels in a Secret, "
                f"which must have at most {_WORK >> 10} KiB when it is packed, and has "
                f"{size >> 10} KiB; put what is large into a file of the code"
            )
        raise InvalidArgumentError(
            f"the code and the arguments must be at most {_WORK >> 10} KiB when they are packed, "
            f"for they travel in a Secret, and are {size >> 10} KiB; name a bucket for them "
            f"by {argument('store')}, or keep data in a volume ({argument('volumes')}), and large "
            "files out of the repository"
        )
    return {
        "secret": secrets.token_hex(32).encode(),
        "requirements.txt": needed,
        "work.tar.bz2": work,
    }


@functools.cache
def _of_package() -> dict[str, bytes]:
    """What the Secret with pyreactant holds."""
    package = Path(__file__).resolve().parents[3]
    whole = _packed({package.name: package})
    assert len(whole) < _SECRET - (64 << 10), "pyreactant itself fits in a Secret"
    return {
        "pyreactant.tar.bz2": whole,
        "start.py": Path(start.__file__).read_bytes(),
    }


def _requirements(record: Record) -> Iterator[str]:
    """What pyreactant itself needs there."""
    for line in importlib.metadata.requires("pyreactant") or ():
        requirement, _, condition = line.partition(";")
        extra = condition.partition("extra ==")[2].strip(" '\"")
        if not extra or (extra == "pathways" and record.settings.get(extra)):
            yield requirement.strip()


def _packed(files: Mapping[str, Path]) -> bytes:
    """An archive for a Secret."""
    with tarfile.open(fileobj=(content := io.BytesIO()), mode="w:bz2") as archive:
        pack(files, archive)
    return content.getvalue()
