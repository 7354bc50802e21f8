"""A stand-in for the API of a cluster with JobSet, on loopback with TLS; its pods are processes.

It answers what pyreactant and kubectl ask: objects are created, read, listed by labels and deleted
with what they own; a pod has a log. JobSets are checked by their own schema, strictly, and `pods`
runs them. docs/verified.md says what differs from a cluster.
"""

import contextlib
import datetime
import hashlib
import ipaddress
import json
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.harness import REPOSITORY, environment, free_port
from tests.kubernetes.pods import labels, places, pods
from tests.kubernetes.schema import CRD, problems

Object = dict[str, Any]

GROUPS = {
    "secrets": ("", "v1", "Secret"),
    "pods": ("", "v1", "Pod"),
    "jobs": ("batch", "v1", "Job"),
    "networkpolicies": ("networking.k8s.io", "v1", "NetworkPolicy"),
    "jobsets": ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    "events": ("", "v1", "Event"),
    "workloads": ("kueue.x-k8s.io", "v1beta1", "Workload"),
    "localqueues": ("kueue.x-k8s.io", "v1beta1", "LocalQueue"),
    "deployments": ("apps", "v1", "Deployment"),
}
NAMESPACES = ("default", "team")
OWNER, VIEWER = "token-of-the-owner", "token-of-a-viewer"
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)/namespaces/(?P<namespace>[^/]+)/"
    r"(?P<kind>[a-z]+)(?:/(?P<name>[^/]+)(?P<log>/log)?)?"
)
_PENDING = re.compile(
    r"/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/default/localqueues/(.+)/pendingworkloads"
)


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, reason: str, message: str, **details: str) -> None:
        super().__init__(message)
        self.code = code
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": code,
        }


class Run:
    """The pods of one JobSet, which `pods` runs once their Secrets are there."""

    def __init__(
        self, jobset: Object, folder: Path, waiting: Object, late: Sequence[str] = ()
    ) -> None:
        self.jobset, self.folder, self.waiting, self.late = jobset, folder, waiting, late
        self.process: subprocess.Popen[bytes] | None = None
        self.generation = 0
        self.begun = time.time()
        self._shown: tuple[object, list[Object]] | None = None

    @property
    def wanted(self) -> set[str]:
        """The Secrets that the pods need."""
        volumes = self.jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
            "volumes"
        ]
        sources = [s for v in volumes for s in v.get("projected", {}).get("sources", ())]
        return {source["secret"]["name"] for source in sources}

    def start(self, secrets: list[Object]) -> None:
        """Start the pods."""
        self.folder.mkdir(exist_ok=True)
        manifest = self.folder.with_suffix(".yaml")
        manifest.write_text(yaml.safe_dump_all([*secrets, self.jobset]))
        inside = 'ip link set lo up && exec "$@"'
        command = [sys.executable, "-m", "tests.kubernetes.pods", str(manifest), str(self.folder)]
        command += self.late
        with self.folder.with_suffix(".log").open("wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--net", "--mount", "sh", "-c", inside, "cluster", *command],
                cwd=REPOSITORY,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self) -> None:
        """Ask the pods to end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def suspend(self) -> None:
        """End the pods, as JobSet does when Kueue suspends a job."""
        self.end()
        if self.process is not None:
            self.process.wait(60)
            (self.folder / "state.json").unlink()
        self.process = None
        self.generation += 1
        shutil.rmtree(self.folder / "sent", ignore_errors=True)

    @property
    def is_over(self) -> bool:
        """Whether no pod runs."""
        return self.process is None or self.process.poll() is not None

    @property
    def state(self) -> Object:
        """What `pods` has noted last."""
        with contextlib.suppress(FileNotFoundError):
            return dict(json.loads((self.folder / "state.json").read_text()))
        return {"attempt": 0, "counted": 0, "pods": {}, "failed": {}, "action": ""}

    def pods(self) -> list[Object]:
        """Its pods, as the API shows them."""
        file = self.folder / "state.json"
        noted = file.stat().st_mtime_ns if file.exists() else 0
        held = self.jobset["spec"].get("suspend")
        if self._shown is None or self._shown[0] != (noted, self.generation, held):
            self._shown = (noted, self.generation, held), self._pods()
        return self._shown[1]

    def _pods(self) -> list[Object]:
        state, found = self.state, []
        if self.jobset["spec"].get("suspend"):
            return []
        attempt, namespace = state["attempt"], self.jobset["metadata"]["namespace"]
        for process, (name, _) in enumerate(pods(self.jobset, attempt)):
            jobs, replica, place = places(self.jobset)[process]
            known = state["pods"].get(name, {})
            if known.get("removed"):
                continue
            suffix = hashlib.sha256(f"{name}{attempt}{self.generation}".encode()).hexdigest()[:5]
            index = str(place)
            metadata = {
                "name": f"{name}-{suffix}",
                "namespace": namespace,
                "creationTimestamp": self.jobset["metadata"]["creationTimestamp"],
                "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}-{suffix}")),
                "labels": {
                    **jobs["template"]["spec"]["template"]["metadata"]["labels"],
                    **labels(self.jobset, jobs, replica, attempt),
                    "batch.kubernetes.io/job-name": name.rpartition("-")[0],
                    "batch.kubernetes.io/job-completion-index": index,
                },
                "annotations": {"batch.kubernetes.io/job-completion-index": index},
            }
            pod = jobs["template"]["spec"]["template"]["spec"]
            status = self._pod_status(process, attempt, known, pod["containers"][0]["name"])
            spec = {**pod, "nodeName": f"node-{process}"}
            found.append(_object("pods", {"metadata": metadata, "spec": spec, "status": status}))
        return found

    def _pod_status(self, process: int, attempt: int, known: Object, container: str) -> Object:
        own = {"name": container, "image": "python:3.12", "imageID": "", "restartCount": 0}
        scheduled = {"type": "PodScheduled", "status": "True"}
        if not known:
            waiting = {"waiting": self.waiting}
            status = {"phase": "Pending", "container": {**own, "ready": False, "state": waiting}}
        elif (code := known["code"]) is None:
            running = {"running": {"startedAt": _time(self.begun)}}
            status = {"phase": "Running", "container": {**own, "ready": True, "state": running}}
        else:
            end = {
                "exitCode": code,
                "reason": "Error" if code else "Completed",
                "message": (self.folder / f"{process}.{attempt}.json").read_text(),
                "finishedAt": known["at"],
            }
            state = {"terminated": end}
            phase = "Failed" if code else "Succeeded"
            status = {"phase": phase, "container": {**own, "ready": False, "state": state}}
        only = status.pop("container")
        ready = {"type": "Ready", "status": "False"}
        conditions = [scheduled, *([ready] if known.get("silent") else [])]
        return {**status, "conditions": conditions, "containerStatuses": [only]}

    def jobs(self) -> list[Object]:
        """Its Jobs, as the API shows them."""
        state, name = self.state, self.jobset["metadata"]["name"]
        found = []
        for jobs, replica, index in places(self.jobset):
            if index:
                continue
            job = f"{name}-{jobs['name']}-{replica}"
            failure = state["failed"].get(job)
            conditions = [{"type": "Failed", "status": "True", **failure}] if failure else []
            metadata = {
                "name": job,
                "uid": job,
                "labels": labels(self.jobset, jobs, replica, state["attempt"]),
            }
            found.append(
                _object("jobs", {"metadata": metadata, "status": {"conditions": conditions}})
            )
        return found

    def status(self) -> Object:
        """The JobSet's status."""
        state = self.state
        status: Object = {
            "restarts": state["attempt"],
            "restartsCountTowardsMax": state["counted"],
            "replicatedJobsStatus": [
                {"name": jobs["name"], **self._counts(state, jobs)}
                for jobs in self.jobset["spec"]["replicatedJobs"]
            ],
        }
        ends = {
            "Completed": ("Completed", "AllJobsCompleted", "jobset completed successfully"),
            "FailJobSet": ("Failed", "FailJobSetFailurePolicyAction", "jobset failed"),
        }
        if end := ends.get(state["action"]):
            kind, reason, message = end
            status["terminalState"] = kind
            status["conditions"] = [
                {
                    "type": kind,
                    "status": "True",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": _time((self.folder / "state.json").stat().st_mtime),
                }
            ]
        return status

    def _counts(self, state: Object, jobs: Object) -> dict[str, int]:
        """How many Jobs of a replicated job stand how."""
        each = jobs["template"]["spec"]["completions"]
        counts = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        for replica in range(jobs["replicas"]):
            name = f"{self.jobset['metadata']['name']}-{jobs['name']}-{replica}"
            own = [
                pod
                for pod_name, pod in state["pods"].items()
                if pod_name.rpartition("-")[0] == name
            ]
            codes = [pod["code"] for pod in own]
            if name in state["failed"]:
                counts["failed"] += 1
            elif len(codes) == each and all(code == 0 for code in codes):
                counts["succeeded"] += 1
            else:
                counts["active"] += 1
                there = [pod for pod in own if not pod.get("silent")]
                counts["ready"] += len(there) == each
        return counts

    def mark(self, name: str) -> object:
        """What changes when a pod's log or state does."""
        files = [self.folder / "state.json"]
        with contextlib.suppress(ValueError):  # it is no pod
            process = self._process(name)
            files += (self.folder / f"{process}.{attempt}.stamped" for attempt in range(5))
        return self.generation, [
            (f.stat().st_mtime_ns, f.stat().st_size) for f in files if f.exists()
        ]

    def _process(self, name: str) -> int:
        """The number of a pod in `places`, by its name with a suffix."""
        return [one for one, _ in pods(self.jobset)].index(name.rpartition("-")[0])

    def log(self, name: str, query: dict[str, list[str]], *, all_of_it: bool = False) -> bytes:
        """The log of a pod, as the kubelet gives it; all of it also what was rotated away."""
        pod = next((one for one in self.pods() if one["metadata"]["name"] == name), None)
        if pod is None:  # it was removed in this moment
            raise Refused(404, "NotFound", f'pods "{name}" not found', name=name, kind="pods")
        (container,) = pod["status"]["containerStatuses"]
        if "waiting" in container["state"]:
            said = f'container "main" in pod "{name}" is waiting to start: ContainerCreating'
            raise Refused(400, "BadRequest", said)
        file = self.folder / f"{self._process(name)}.{self.state['attempt']}.stamped"
        since = query.get("sinceTime", [""])[0].encode()
        files = [*([file.with_suffix(".rotated")] if all_of_it else []), file]
        data = b"".join(one.read_bytes() for one in files if one.exists())
        lines = [line for line in data.splitlines(keepends=True) if line[:19] >= since[:19]]
        if query.get("timestamps") != ["true"]:
            lines = [line.partition(b" ")[2] for line in lines]
        return b"".join(lines)


def _object(kind: str, body: Object) -> Object:
    group, version, name = GROUPS[kind]
    return {"apiVersion": f"{group}/{version}" if group else version, "kind": name, **body}


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _now() -> str:
    return _time(time.time())


class Api:
    """The objects of a cluster.

    Attributes:
        lacks_jobset: Whether JobSet is not installed.
        kueue: Whether Kueue is.
        nodes: What the user can read of nodes.
        pending: What waits in each queue, by the part of Kueue that says it.
        starts: Whether pods start; else they wait, as `waiting` says.
        waiting: Why pods wait that have not started.
        late: What comes late, as options of `pods`.
        faults: Answers that come in place of the next ones: status, headers and content.
        answers: Whether it answers now; else all wait, and what it has begun to answer stops.
        cuts: How many of the next answers that are streams break off in their first line.
        repeats: How many versions too early each watch begins.
        missing: How many of the next events no watch tells.
        seen: Method and path of every request.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.runs: dict[str, Run] = {}
        self.lacks_jobset = self.kueue = False
        self.nodes: list[Object] = []
        self.pending: dict[str, list[str]] = {}
        self.starts = True
        self.waiting = {"reason": "ContainerCreating"}
        self.late: Sequence[str] = ()
        self.faults: list[tuple[int, dict[str, str], bytes]] = []
        self.answers = threading.Event()
        self.answers.set()
        self.cuts = self.repeats = self.missing = self._oldest = 0
        self.ended = threading.Event()
        self._version = 1
        self._changes: list[tuple[int, str, str, str, Object]] = []
        self._known: dict[tuple[str, str, str], Object] = {}
        self.seen: list[tuple[str, str]] = []
        self._lock = threading.RLock()

    def answer(self, method: str, path: str, token: str, body: Object) -> tuple[int, Any]:
        """Status and content: an object, or the bytes of a log."""
        with self._lock:
            self._collect()
            split = urlsplit(path)
            if token not in (OWNER, VIEWER):
                raise Refused(401, "Unauthorized", "Unauthorized")
            if split.path.endswith("/selfsubjectaccessreviews"):
                verb = body["spec"]["resourceAttributes"]["verb"]
                allowed = token == OWNER or verb not in ("create", "delete")
                return 201, {**body, "status": {"allowed": allowed}}
            if queue := _PENDING.fullmatch(split.path):
                if (waiting := self.pending.get(queue[1])) is None:
                    return 503, b"service unavailable"
                items = [
                    {"metadata": {"name": name}, "positionInLocalQueue": place}
                    for place, name in enumerate(waiting)
                ]
                return 200, {"kind": "PendingWorkloadsSummary", "items": items}
            if split.path == "/api/v1/nodes":
                return 200, {"kind": "NodeList", "apiVersion": "v1", "items": self.nodes}
            if (found := _PATH.fullmatch(split.path)) is None:
                return 200, _discovery(split.path)
            kind, namespace, name = found["kind"], found["namespace"], found["name"]
            kueue = GROUPS[kind][0] == "kueue.x-k8s.io" and not self.kueue
            if kueue or (self.lacks_jobset and kind == "jobsets"):
                return 404, b"404 page not found\n"
            assert GROUPS[kind][:2] == (found["group"] or "", found["version"]), path
            verb = {"POST": "create", "DELETE": "delete"}.get(method, "get" if name else "list")
            if token == VIEWER and verb in ("create", "delete"):
                group = GROUPS[kind][0]
                raise Refused(
                    403,
                    "Forbidden",
                    f'{kind}{"." + group if group else ""} is forbidden: User "viewer" cannot '
                    f'{verb} resource "{kind}" in API group "{group}" in the namespace '
                    f'"{namespace}"',
                )
            query = parse_qs(split.query)
            if verb == "create":
                return 201, self._create(kind, namespace, body, query)
            if verb == "list":
                self._note_changes()
                if "watch" in query:
                    self._check_version(int(query["resourceVersion"][0]))
                    return 200, self._watch(kind, namespace, query)
                mine = [o for (k, n, _), o in self._known.items() if (k, n) == (kind, namespace)]
                metadata = {"resourceVersion": str(self._version)}
                items = [o for o in mine if _has(o, query)]
                name = GROUPS[kind][2]
                return 200, {
                    **_object(kind, {"metadata": metadata, "items": items}),
                    "kind": f"{name}List",
                }
            if found["log"]:
                owner = self._one("pods", namespace, name)["metadata"]["labels"]
                run = self.runs[owner["jobset.sigs.k8s.io/jobset-name"]]
                data = run.log(name, query)
                return 200, self._follow(run, name, query) if "follow" in query else data
            there = self._one(kind, namespace, name)
            if verb == "delete":
                self._delete(kind, namespace, name)
            return 200, there

    def _note_changes(self) -> None:
        """Give a version to every object that is new, or another one."""
        there = {
            (kind, namespace, one["metadata"]["name"]): one
            for kind in GROUPS
            for namespace in NAMESPACES
            for one in self._all(kind, namespace)
        }
        for key in self._known.keys() - there.keys():
            self._change("DELETED", key, self._known.pop(key))
        for key, one in there.items():
            before = self._known.get(key)
            version = before and before["metadata"]["resourceVersion"]
            metadata = {**one["metadata"], "resourceVersion": version}
            if before != {**one, "metadata": metadata}:
                self._known[key] = self._change("MODIFIED" if before else "ADDED", key, one)

    def _change(self, kind: str, key: tuple[str, str, str], one: Object) -> Object:
        self._version += 1
        metadata = {**one["metadata"], "resourceVersion": str(self._version)}
        made = {**one, "metadata": metadata}
        self._changes.append((self._version, kind, *key[:2], made))
        return made

    def forget(self) -> None:
        """Know no more what has changed before now."""
        with self._lock:
            self._note_changes()
            self._version += 1
            self._oldest = self._version

    def _check_version(self, version: int) -> None:
        if version < self._oldest:
            raise Refused(410, "Expired", f"too old resource version: {version} ({self._oldest})")

    def _watch(self, kind: str, namespace: str, query: dict[str, list[str]]) -> Iterator[bytes]:
        version, early = int(query["resourceVersion"][0]), self.repeats
        deadline = time.monotonic() + float(query["timeoutSeconds"][0])
        while time.monotonic() < deadline and not self.ended.wait(0.05):
            with self._lock:
                self._collect()
                self._note_changes()
                if version < self._oldest:
                    break
                new = [c for c in self._changes if c[0] > version - early]
                told = [c for c in new if c[2:4] == (kind, namespace) and _has(c[4], query)]
                lost = min(self.missing, len(told))
                self.missing -= lost
                version, early = self._version, 0
            events = [{"type": what, "object": one} for _, what, _, _, one in told[lost:]]
            if lost:  # so that the next watch does not tell them either
                metadata = {"resourceVersion": str(version)}
                events.append({"type": "BOOKMARK", "object": {"metadata": metadata}})
            for event in events:
                yield json.dumps(event).encode() + b"\n"
        try:
            self._check_version(version)
        except Refused as refused:
            yield json.dumps({"type": "ERROR", "object": refused.body}).encode() + b"\n"

    def _follow(self, run: Run, name: str, query: dict[str, list[str]]) -> Iterator[bytes]:
        sent, ended, before = None, False, None
        while not ended and not self.ended.wait(0.05):
            if (mark := run.mark(name)) == before:
                continue
            before = mark
            try:
                with self._lock:
                    pod = self._one("pods", run.jobset["metadata"]["namespace"], name)
                    (container,) = pod["status"]["containerStatuses"]
                    ended = "terminated" in container["state"]
                    data = run.log(name, query, all_of_it=True)
                    if sent is None:
                        sent = len(data) - len(run.log(name, query))
            except Refused:  # the pod was removed
                return
            if len(data) > sent:
                yield data[sent:]
                sent = len(data)

    def suspend(self, name: str) -> None:
        """Suspend a JobSet, as Kueue does."""
        with self._lock:
            self._set_suspended(name, True)
            self.runs[name].suspend()

    def resume(self, name: str) -> None:
        """Let a JobSet run."""
        with self._lock:
            self._set_suspended(name, False)
            self._start("default")

    def _set_suspended(self, name: str, value: bool) -> None:
        before = self.objects["jobsets", "default", name]
        now = {**before, "spec": {**before["spec"], "suspend": value}}
        self.objects["jobsets", "default", name] = self.runs[name].jobset = now

    def put(self, kind: str, name: str, namespace: str = "default", **body: Any) -> None:
        """An object that somebody else makes, such as Kueue."""
        metadata = {"name": name, "uid": name, "labels": body.pop("labels", {})}
        with self._lock:
            one = _object(kind, {"metadata": metadata, **body})
            self.objects[kind, namespace, name] = one

    def _all(self, kind: str, namespace: str) -> list[Object]:
        if kind in ("pods", "jobs"):
            runs = [r for r in self.runs.values() if r.jobset["metadata"]["namespace"] == namespace]
            return [o for run in runs for o in (run.pods() if kind == "pods" else run.jobs())]
        there = [o for (k, n, _), o in self.objects.items() if (k, n) == (kind, namespace)]
        if kind == "jobsets":
            return [{**o, "status": self.runs[o["metadata"]["name"]].status()} for o in there]
        return there

    def _one(self, kind: str, namespace: str, name: str) -> Object:
        for one in self._all(kind, namespace):
            if one["metadata"]["name"] == name:
                return one
        raise Refused(404, "NotFound", f'{kind} "{name}" not found', name=name, kind=kind)

    def _create(
        self, kind: str, namespace: str, body: Object, query: dict[str, list[str]]
    ) -> Object:
        if namespace not in NAMESPACES:
            said = f'namespaces "{namespace}" not found'
            raise Refused(404, "NotFound", said, name=namespace, kind="namespaces")
        name = body["metadata"]["name"]
        if (kind, namespace, name) in self.objects:
            raise Refused(409, "AlreadyExists", f'{kind} "{name}" already exists', name=name)
        assert (body["apiVersion"], body["kind"]) == tuple(_object(kind, {}).values())
        assert len(json.dumps(body)) < 3 << 20, "the API takes no larger request"
        if kind == "secrets":
            assert sum(map(len, body["data"].values())) * 3 // 4 <= 1 << 20
        if kind == "jobsets" and CRD.exists() and (wrong := problems(body)):
            strict = query.get("fieldValidation") == ["Strict"]
            said = f'JobSet in version "v1alpha2" cannot be handled: strict decoding: {wrong[0]}'
            raise Refused(400 if strict else 422, "BadRequest" if strict else "Invalid", said)
        if "dryRun" in query:
            return body
        metadata = {
            **body["metadata"],
            "namespace": namespace,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": _now(),
        }
        made = self.objects[kind, namespace, name] = {**body, "metadata": metadata}
        if kind == "jobsets":
            self.runs[name] = Run(made, self.folder / name, self.waiting, self.late)
        self._start(namespace)
        return made

    def _start(self, namespace: str) -> None:
        """Start the pods whose Secrets are there."""
        for run in self.runs.values():
            secrets = [self.objects.get(("secrets", namespace, name)) for name in run.wanted]
            held = run.jobset["spec"].get("suspend")
            if self.starts and not held and run.process is None and all(secrets):
                run.start([secret for secret in secrets if secret])

    def _delete(self, kind: str, namespace: str, name: str) -> None:
        one = self.objects[kind, namespace, name]
        if kind == "jobsets":
            one["metadata"].setdefault("deletionTimestamp", _now())
            self.runs[name].end()
            self._collect()
        else:
            del self.objects[kind, namespace, name]

    def _collect(self) -> None:
        """Remove what is deleted, once its pods are gone, and what it owns."""
        for key, one in [*self.objects.items()]:
            name = one["metadata"]["name"]
            if one["metadata"].get("deletionTimestamp") and self.runs[name].is_over:
                del self.objects[key], self.runs[name]
        uids = {one["metadata"]["uid"] for one in self.objects.values()}
        for key, one in [*self.objects.items()]:
            owners = one["metadata"].get("ownerReferences", ())
            if owners and not uids & {owner["uid"] for owner in owners}:
                del self.objects[key]

    def close(self) -> None:
        """End all pods, and all answers."""
        self.ended.set()
        self.answers.set()
        for run in self.runs.values():
            run.end()
        for run in self.runs.values():
            if run.process is not None:
                run.process.wait(60)


def _has(one: Object, query: dict[str, list[str]]) -> bool:
    own = one["metadata"].get("labels", {})
    for part in filter(None, query.get("labelSelector", [""])[0].split(",")):
        key, given, value = part.partition("=")
        if key not in own or (given and own[key] != value):
            return False
    for part in filter(None, query.get("fieldSelector", [""])[0].split(",")):
        path, _, value = part.partition("=")
        found: Any = one
        for key in path.split("."):
            found = found.get(key, {})
        if found != value:
            return False
    return True


def _discovery(path: str) -> Object:
    """What kubectl asks first."""
    if path == "/version":
        return {"major": "1", "minor": "32", "gitVersion": "v1.32.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        versions = [(g, v) for g, v, _ in GROUPS.values() if g]
        groups = [
            {
                "name": group,
                "versions": [{"groupVersion": f"{group}/{version}", "version": version}],
                "preferredVersion": {"groupVersion": f"{group}/{version}", "version": version},
            }
            for group, version in versions
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    group = path.removeprefix("/apis/").removeprefix("/api/")
    resources = [
        {
            "name": kind,
            "singularName": name.lower(),
            "namespaced": True,
            "kind": name,
            "verbs": ["create", "delete", "get", "list", "watch"],
        }
        for kind, (own, version, name) in GROUPS.items()
        if group == (f"{own}/{version}" if own else version)
    ]
    if not resources:
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    kind = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group}
    return {**kind, "resources": resources}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: Api

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        self.api.seen.append((self.command, self.path))
        self.api.answers.wait()
        headers: dict[str, str] = {}
        if self.api.faults:
            code, headers, data = self.api.faults.pop(0)
        else:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            body = json.loads(content) if content else {}
            try:
                code, answer = self.api.answer(self.command, self.path, token, body)
            except Refused as refused:
                code, answer = refused.code, refused.body
            if isinstance(answer, Iterator):
                self._stream(answer)
                return
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            kind = "text/plain" if isinstance(answer, bytes) else "application/json"
            headers = {"Content-Type": kind}
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        with contextlib.suppress(OSError):  # whoever asked is gone
            self.end_headers()
            self.wfile.write(data)

    def _stream(self, parts: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):  # whoever asked is gone
            for part in parts:
                self.api.answers.wait()
                if self.api.cuts:
                    self.api.cuts -= 1
                    half = part[: len(part) // 2]
                    self.wfile.write(b"%x\r\n" % len(part) + half)
                    self.close_connection = True
                    return
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Api]:
    """The API, whose kubeconfig is ``FOLDER/kubeconfig``."""
    folder.mkdir(parents=True, exist_ok=True)
    _certify(folder)
    api = Api(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "api.crt", folder / "api.key")
    port = free_port()
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"api": api}))
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(port, folder / "api.crt")))
    (folder / "kubeconfig").chmod(0o600)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        api.close()


def kubeconfig(port: int, certificate: Path) -> Object:
    """A kubeconfig with a context for each user."""
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(certificate)}
    users = {"owner": OWNER, "viewer": VIEWER, "stranger": "of another cluster"}
    contexts = {name: {"cluster": "here", "user": name} for name in users}
    contexts["team"] = {"cluster": "here", "user": "owner", "namespace": "team"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "owner",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}} for name, token in users.items()],
        "contexts": [{"name": name, "context": entry} for name, entry in contexts.items()],
    }


def _certify(folder: Path) -> None:
    """Write a certificate for this machine, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "api")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "api.crt").write_bytes(certificate.public_bytes(encoding))
    (folder / "api.key").write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
