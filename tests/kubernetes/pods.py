"""A stand-in for a cluster with JobSet: the pods of a manifest are processes of this machine.

``python -m tests.kubernetes.pods MANIFEST FOLDER`` runs one JobSet until its end. Each pod has a
file system of its own below /run, without containers that start before its own, and all know each
other's names: with ``--names-after SECONDS`` only then, and for a moment after a third of it. With
``--first-after SECONDS`` the pod of process 0 starts so much later than the others. With
``--storage SOCKET`` they reach the stand-in for Cloud Storage, and the metadata server, that
`relay` has behind that socket. A pod that is stopped is one whose node is silent. FOLDER gets
PROCESS.ATTEMPT.log; the same with times (.stamped); state.json, how all stands, for `api`; and
end.json: how each attempt ended, and what was decided. SIGTERM ends all. docs/verified.md says what
differs from a cluster.
"""

import argparse
import base64
import contextlib
import dataclasses
import datetime
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.harness import REPOSITORY, environment, require
from tests.kubernetes.controller import Failure, Pod, job_failure, restarts

_LIMIT = 240.0
_MOMENT = 1.5
"""Seconds for which names resolve that will not resolve thereafter."""
_LOCALHOST = "127.0.0.1 localhost metadata.google.internal\n"
_STORAGE = 8090
"""The port at which pods reach Cloud Storage."""


def jobset_of(documents: list[Any]) -> dict[str, Any]:
    """The JobSet of a manifest."""
    (jobset,) = (one for one in documents if one["kind"] == "JobSet")
    return dict(jobset)


class Place(NamedTuple):
    """Where a pod is in its JobSet; `pods` has them in this order, process 0's first."""

    jobs: Mapping[str, Any]
    replica: int
    pod: int


def places(jobset: Mapping[str, Any]) -> list[Place]:
    """The places of all pods."""
    return [
        Place(jobs, replica, index)
        for jobs in jobset["spec"]["replicatedJobs"]
        for replica in range(jobs["replicas"])
        for index in range(jobs["template"]["spec"]["completions"])
    ]


def labels(
    jobset: Mapping[str, Any], jobs: Mapping[str, Any], replica: int, attempt: int
) -> dict[str, str]:
    """The labels that JobSet gives to the pods of a replica (labelAndAnnotateObject)."""
    spec, name = jobset["spec"], jobset["metadata"]["name"]
    subdomain = spec.get("network", {}).get("subdomain", name)
    found = {
        "jobset-name": name,
        "job-index": str(replica),
        "job-global-index": str(replica),
        "replicatedjob-name": jobs["name"],
        "replicatedjob-replicas": str(jobs["replicas"]),
        "restart-attempt": str(attempt),
    }
    if where := spec.get("coordinator"):
        indices = f"{where.get('jobIndex', 0)}-{where.get('podIndex', 0)}"
        pod = f"{name}-{where['replicatedJob']}-{indices}"
        found["coordinator"] = f"{pod}.{subdomain}"
    return {f"jobset.sigs.k8s.io/{key}": value for key, value in found.items()}


def pods(jobset: Mapping[str, Any], attempt: int = 0) -> Iterator[tuple[str, dict[str, str]]]:
    """The name of each pod, and its environment but for Secrets, which are given as "name/key"."""
    name = jobset["metadata"]["name"]
    for jobs, replica, index in places(jobset):
        own = labels(jobset, jobs, replica, attempt)
        (container,) = jobs["template"]["spec"]["template"]["spec"]["containers"]
        environ = {"JOB_COMPLETION_INDEX": str(index), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        for entry in container["env"]:
            source = entry.get("valueFrom", {})
            if "fieldRef" in source:
                path = source["fieldRef"]["fieldPath"]
                assert path.startswith(("metadata.labels['", "metadata.annotations['")), path
                environ[entry["name"]] = own[path.split("'")[1]]
            elif "secretKeyRef" in source:
                key = source["secretKeyRef"]
                environ[entry["name"]] = f"{key['name']}/{key['key']}"
            else:
                environ[entry["name"]] = entry["value"]
        yield f"{name}-{jobs['name']}-{replica}-{index}", environ


class _Cluster:
    """One JobSet and its Secrets."""

    def __init__(
        self, documents: list[Any], folder: Path, names_after: float, first_after: float
    ) -> None:
        self.names_after, self.first_after = names_after, first_after
        self.jobset, self.folder = jobset_of(documents), folder
        self.secrets = {
            f"{one['metadata']['name']}/{key}": base64.b64decode(value)
            for one in documents
            if one["kind"] == "Secret"
            for key, value in one["data"].items()
        }
        first = self.jobset["spec"]["replicatedJobs"][0]
        self.job = first["template"]["spec"]
        self.sent = folder / "sent"
        self.sent.mkdir()
        for volume in self.job["template"]["spec"]["volumes"]:
            for source in volume.get("projected", {}).get("sources", ()):
                for item in source["secret"]["items"]:
                    content = self.secrets[f"{source['secret']['name']}/{item['key']}"]
                    (self.sent / item["path"]).write_bytes(content)
        self.hosts: dict[str, str] = {}
        for number, (name, _) in enumerate(pods(self.jobset), 1):
            address = f"10.78.0.{number}"
            subprocess.run(["ip", "addr", "add", f"{address}/32", "dev", "lo"], check=True)
            self.hosts[name] = f"{address} {name}.{self.name} {name}\n"
        self.begun, self.resolves = time.monotonic(), True
        self.ending = False
        self.counted = 0
        self.pods: dict[str, dict[str, Any]] = {}

    @property
    def name(self) -> str:
        return str(self.jobset["metadata"]["name"])

    def note(self, attempt: int, failed: Mapping[str, Failure], action: str = "") -> None:
        """Say how all stands."""
        state = {
            "attempt": attempt,
            "counted": self.counted,
            "pods": self.pods,
            "failed": {job: dataclasses.asdict(failure) for job, failure in failed.items()},
            "action": action,
        }
        partial = self.folder / "state.partial"
        partial.write_text(json.dumps(state))
        partial.rename(self.folder / "state.json")

    def _let_resolve(self) -> None:
        """Let each pod know its own name, and the others' when it is time for them."""
        since = time.monotonic() - self.begun
        comes = since >= self.names_after or 0 < since - self.names_after / 3 < _MOMENT
        if comes != self.resolves or not self.pods:
            self.resolves = comes
            for name, own in self.hosts.items():
                lines = self.hosts.values() if comes else [own]
                (self.folder / f"hosts.{name}").write_text("".join([_LOCALHOST, *lines]))

    def attempt(self, number: int) -> list[Pod]:
        """Run all pods once; in the order of their ends."""
        running: dict[str, subprocess.Popen[bytes]] = {}
        self.pods = {}
        self._let_resolve()
        first, *others = enumerate(pods(self.jobset, number))
        for process, (name, environ) in (*others, first):
            if process == 0 and not number:
                self._wait()
            for variable, value in environ.items():
                if value in self.secrets:
                    environ[variable] = self.secrets[value].decode()
            # The pods have no PYTHONPATH: all of pyreactant's code is what was sent.
            settings = {k: v for k, v in environment(**environ).items() if k != "PYTHONPATH"}
            settings.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles it anew
            settings["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{_STORAGE}"
            settings["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            end = self.folder / f"{process}.{number}.json"
            words = [str(self.folder / f"hosts.{name}"), str(self.sent), str(end)]
            argv = ["unshare", "--mount", "--uts", "sh", "-euc", _POD, name, *words]
            jobs = places(self.jobset)[process].jobs
            (container,) = jobs["template"]["spec"]["template"]["spec"]["containers"]
            running[name] = subprocess.Popen(
                [*argv, *container.get("command", _SERVER)],
                env=settings,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            file = self.folder / f"{process}.{number}.log"
            threading.Thread(target=_stamp, args=(running[name].stdout, file)).start()
            self.pods[name] = {"code": None, "removed": False, "at": ""}
        self.note(number, {})
        deadline = time.monotonic() + _LIMIT
        ended: list[Pod] = []
        told = False
        try:
            while running:
                self._let_resolve()
                assert time.monotonic() < deadline, f"{running.keys()} did not end"
                for name, process_ in [*running.items()]:
                    if (code := process_.poll()) is not None:
                        del running[name]
                        ended.append(Pod(name, code if code >= 0 else 128 - code))
                        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                        self.pods[name].update(code=ended[-1].code, at=at)
                        self._end_others(ended[-1], running)
                        self.note(number, {})
                    elif _is_stopped(process_) and not self.pods[name].get("silent"):
                        self.pods[name]["silent"] = True
                        self.note(number, {})
                if not any(map(self._counts, running)):
                    for name in running:  # the others have no end, and JobSet deletes them
                        self.pods[name]["removed"] = True
                    break
                if self.ending and not told:
                    told = True
                    for process_ in running.values():
                        process_.terminate()
                time.sleep(0.05)
        finally:
            for process_ in running.values():
                process_.kill()
                process_.wait()
        return ended

    def _counts(self, name: str) -> bool:
        """Whether the JobSet waits for the end of a pod (successPolicy)."""
        names = self.jobset["spec"].get("successPolicy", {}).get("targetReplicatedJobs", [""])
        return any(name.startswith(f"{self.name}-{jobs}") for jobs in names)

    def _wait(self) -> None:
        """Wait until the pod of process 0 may start."""
        until = time.monotonic() + self.first_after
        self.note(0, {})
        while time.monotonic() < until and not self.ending:
            self._let_resolve()
            time.sleep(0.05)

    def _end_others(self, pod: Pod, running: Mapping[str, "subprocess.Popen[bytes]"]) -> None:
        """A Job that has failed deletes its other pods (deleteActivePods), and so their logs."""
        if job_failure(self.job, [pod]) is None:
            return
        job = pod.name.rpartition("-")[0]
        for name, process in running.items():
            if name.rpartition("-")[0] == job:
                process.kill() if self.pods[name].get("silent") else process.terminate()
                self.pods[name]["removed"] = True

    def run(self) -> dict[str, Any]:
        """Run the JobSet until its end."""
        policy = self.jobset["spec"].get("failurePolicy")
        chosen = ""
        attempts: list[dict[str, Any]] = []
        while chosen not in ("FailJobSet", "Completed"):
            ended = self.attempt(len(attempts))
            if self.ending:
                break
            failed = {}
            for pod in ended:
                job = pod.name.rpartition("-")[0]
                its = [one for one in ended if one.name.rpartition("-")[0] == job]
                if (failure := job_failure(self.job, its)) is not None:
                    failed[job] = failure
            chosen = restarts(policy, failed, self.counted) if failed else "Completed"
            self.counted += chosen == "RestartJobSet"
            self.note(len(attempts), failed, chosen)
            attempts.append({"codes": {pod.name: pod.code for pod in ended}, "action": chosen})
        return {"attempts": attempts}


def _is_stopped(process: "subprocess.Popen[bytes]") -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _stamp(output: Any, file: Path) -> None:
    """Write the lines of a pod, and the same with the time of each, as a container runtime does."""
    with output, file.open("wb") as plain, file.with_suffix(".stamped").open("wb") as stamped:
        for line in output:
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
            plain.write(line)
            stamped.write(f"{now} ".encode() + line)
            plain.flush()
            stamped.flush()


def relay(listener: socket.socket, to: Callable[[], socket.socket]) -> None:
    """Connect whoever comes with something else, until the listener is closed."""
    with contextlib.suppress(OSError):
        while True:
            ends = [listener.accept()[0], to()]
            for one, other in (ends, ends[::-1]):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def unix(path: str) -> socket.socket:
    """A connection to a socket of the file system, which other networks reach, too."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection


_SERVER = ["sleep", "infinity"]
"""The program of an image that is a server, such as Pathways', of which nothing runs here."""
_POD = """
hosts=$1 sent=$2 end=$3
shift 3
hostname "$0"
mount --bind "$hosts" /etc/hosts
mount -t tmpfs tmpfs /run
mkdir -p /run/pyreactant/sent /run/pyreactant/here
: > "$end"
: > /run/pyreactant/end.json
mount --bind "$sent" /run/pyreactant/sent
mount --bind "$end" /run/pyreactant/end.json
exec "$@"
"""
"""What a container runtime does; /var/run is a link to /run."""


def run_manifest(manifest: Path, folder: Path) -> dict[str, Any]:
    """Run the JobSet of a manifest in a network of its own, and say how it ended."""
    require(os.geteuid() == 0, "root, for the pods' file systems")
    folder.mkdir()
    inside = 'ip link set lo up && exec "$@"'
    command = [sys.executable, "-m", "tests.kubernetes.pods", str(manifest), str(folder)]
    ran = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", inside, "cluster", *command],
        cwd=REPOSITORY,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    logs = [f"--- {p.name}\n{p.read_text()}" for p in sorted(folder.glob("*.log"))]
    assert ran.returncode == 0, (ran.stderr, *logs)
    return dict(json.loads((folder / "end.json").read_text()))


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(description=__doc__)
    _parser.add_argument("manifest", type=Path)
    _parser.add_argument("folder", type=Path)
    _parser.add_argument("--names-after", type=float, default=0.0)
    _parser.add_argument("--first-after", type=float, default=0.0)
    _parser.add_argument("--storage")
    _asked = _parser.parse_args()
    for _port in (80, _STORAGE) if _asked.storage else ():
        _listener = socket.create_server(("127.0.0.1", _port))
        _to = functools.partial(unix, _asked.storage)
        threading.Thread(target=relay, args=(_listener, _to), daemon=True).start()
    _documents = [*yaml.safe_load_all(_asked.manifest.read_text())]
    _cluster = _Cluster(_documents, _asked.folder, _asked.names_after, _asked.first_after)
    signal.signal(signal.SIGTERM, lambda *_: setattr(_cluster, "ending", True))
    _end = _cluster.run()
    (_asked.folder / "end.json").write_text(json.dumps(_end))
