"""`python -m benchmarks.kubernetes [--quick | --faults N]`: bounds and faults, by the stand-in.

The stand-in of the API runs in this process, and its pods are played: what is measured is the time
of pyreactant, not that of a cluster.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

import pyreactant as pr
from pyreactant.runs import record as _record
from pyreactant.runs.places.kubernetes import client
from tests.harness import environment
from tests.kubernetes.api import Api, Run, running
from tests.kubernetes.played import Played, until

REPEATS = 7
PODS, LOGS, JOBS = 64, 256, 200


def command(*words: str) -> float:
    """Median seconds of a command that ends well."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        argv = [sys.executable, "-m", "pyreactant", *words]
        subprocess.run(argv, check=True, capture_output=True, env=environment(**os.environ))
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def dry_runs() -> dict[str, float]:
    """Seconds of `--dry-run` over those of `--help`."""
    words = ["run", "--on", "kubernetes", "--dry-run"]
    base = command("run", "--help")
    one, most = (command(*words, "--nodes", str(n), "--", "train.py") for n in (1, 4096))
    return {"dry run, 1 pod": one - base, "dry run, 4096 pods": most - base}


def submits(api: Api) -> dict[str, float]:
    """Seconds until the JobSet exists."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        job = pr.submit(["train.py"], on=pr.targets.Kubernetes())
        times.append(time.perf_counter() - begin)
        job.cancel()
    return {"submit": statistics.median(times)}


def outputs(api: Api) -> dict[str, float]:
    """Seconds from a line in a pod to the caller; from the end of a pod to "failed"."""
    job = pr.submit(["train.py"], on=pr.targets.Kubernetes())
    pods = Played(api, job)
    pods.write(1)
    came: list[float] = []

    def read() -> None:
        came.extend(time.perf_counter() for text in job.logs(follow=True) if text)

    reader = threading.Thread(target=read)
    reader.start()
    until(lambda: came)
    delays = []
    for _ in range(3 * REPEATS):
        time.sleep(0.7)
        before, begin = len(came), time.perf_counter()
        pods.write(1)
        until(lambda: len(came) > before)  # noqa: B023
        delays.append(came[before] - begin)
    begin = time.perf_counter()
    pods.note(1, "FailJobSet")
    state = job.wait(timeout=60).state
    ended = time.perf_counter() - begin
    assert state == "failed", state
    reader.join()
    return {"output": statistics.median(delays), "output, longest": max(delays), "failed": ended}


def requests(api: Api, seconds: float = 10.0) -> dict[str, float]:
    """Requests for a job of many pods that is waited for, and one of whose logs is followed."""
    job = pr.submit(["train.py"], on=pr.targets.Kubernetes(nodes=PODS))
    pods = Played(api, job, PODS)
    pods.write(1)
    begin = len(api.seen)
    reader = threading.Thread(target=lambda: [*job.logs(follow=True)], daemon=True)
    reader.start()
    waiter = threading.Thread(target=job.wait, daemon=True)
    waiter.start()
    time.sleep(seconds)
    count = len(api.seen) - begin
    pods.note(0, "Completed")
    waiter.join()
    reader.join()
    return {f"requests in {seconds:g} s, {PODS} pods": count}


def lists(api: Api) -> dict[str, float]:
    """Seconds of `jobs list` with many jobs in three contexts, and where one does not answer."""
    file = api.folder / "kubeconfig"
    config = yaml.safe_load(file.read_text())
    silent = {"server": "https://192.0.2.1:9", "certificate-authority": str(api.folder / "api.crt")}
    config["clusters"].append({"name": "silent", "cluster": silent})
    config["contexts"].append({"name": "silent", "context": {"cluster": "silent", "user": "owner"}})
    file.write_text(yaml.safe_dump(config))
    pr.submit(["train.py"], on=pr.targets.Kubernetes())
    *_, one = [o for (kind, _, _), o in api.objects.items() if kind == "jobsets"]
    ids = []
    for _ in range(JOBS - 1):
        record = _record.create("train.py", "kubernetes", {})
        _record.release(record)
        ids.append(record)
    found: dict[str, float] = {}
    for name, third in (("three contexts", "viewer"), ("one is silent", "silent")):
        for number, record in enumerate(ids):
            context = ("owner", "team", third)[number % 3]
            where = "team" if context == "team" else "default"
            record.write_handle({"context": context, "namespace": where, "started": True})
            key = f"pr-{record.id.lower()}"
            own = {"name": key, "uid": key, "namespace": where}
            labels = {**one["metadata"]["labels"], "pyreactant/job": record.id}
            body = {**one, "metadata": {**one["metadata"], **own, "labels": labels}}
            api.objects["jobsets", where, key] = body
            api.runs[key] = Run(body, api.folder / key, api.waiting)
        begin = time.perf_counter()
        argv = [sys.executable, "-m", "pyreactant", "jobs", "list", "--json"]
        ran = subprocess.run(argv, check=True, capture_output=True, env=environment(**os.environ))
        found[f"jobs list, {JOBS} jobs, {name}"] = time.perf_counter() - begin
        said = sum("cannot be reached" in row["reason"] for row in json.loads(ran.stdout))
        assert said == (JOBS // 3 if third == "silent" else 0), said
    return found


ANSWERS: dict[str, tuple[tuple[int, dict[str, str], bytes], str]] = {
    "401": ((401, {}, b'{"message": "Unauthorized"}'), "does not accept the login"),
    "403": ((403, {}, b'{"message": "forbidden"}'), "does not allow to list jobsets"),
    "429": ((429, {"Retry-After": "1"}, b"slow down"), "has a passing trouble (429"),
    "500": ((500, {}, b'{"message": "etcd is away"}'), "etcd is away"),
    "HTML": ((200, {}, b"<html>Log in</html>"), "gave no answer of the API"),
    "half a line": ((200, {}, b'{"kind": "JobSetLi'), "gave no answer of the API"),
}
"""What comes in place of an answer, and what is said of it."""


def _answered(api: Api, job: pr.Job, name: str, answer: str) -> bool:
    """Whether a wrong answer is the reason, and is forgotten with the next."""
    given, said = ANSWERS[answer]
    client.cluster_at.cache_clear()
    api.faults = [given]
    try:
        reason = job.status().reason
    except pr.RequirementError as error:
        reason = str(error)
    client.cluster_at.cache_clear()
    status = job.status()
    return said in reason and (status.state, status.reason) == ("starting", "")


def _deleted(api: Api, job: pr.Job, name: str) -> bool:
    client.Cluster().delete("jobsets", name)
    status = job.wait(timeout=60)
    return (status.state, status.reason) == ("lost", "its JobSet was deleted from the cluster")


def _killed(api: Api, job: pr.Job, name: str) -> bool:
    Played(api, job).note(137, "FailJobSet")
    status = job.wait(timeout=60)
    return status.state == "failed" and "-worker-0-0-" in status.reason and "137" in status.reason


def _suspended(api: Api, job: pr.Job, name: str) -> bool:
    pods = Played(api, job)
    until(lambda: job.status().state == "running")
    api.suspend(name)
    until(lambda: job.status().state == "queued")
    api.resume(name)
    pods = Played(api, job)
    until(lambda: job.status().state == "running")
    pods.note(0, "Completed")
    return job.wait(timeout=60).state == "done"


def _broken(api: Api, job: pr.Job, name: str) -> bool:
    """A log whose stream breaks off within a line, four times."""
    pods = Played(api, job)
    text: list[str] = []
    pods.write(20)
    reader = threading.Thread(target=lambda: text.extend(job.logs(follow=True)))
    reader.start()
    for count in (20, 45, 70, 95):
        until(lambda: "".join(text).count("\n") == count)  # noqa: B023
        api.cuts = 1
        pods.write(25)
    until(lambda: "".join(text).count("\n") == 120)
    pods.note(0, "Completed")
    reader.join(60)
    return "".join(text) == "".join(f"line {number}\n" for number in range(120))


def _cancelled(api: Api, job: pr.Job, name: str) -> bool:
    """Two shells cancel at once."""
    argv = [sys.executable, "-m", "pyreactant", "jobs", "cancel", job.id]
    shells = [subprocess.Popen(argv, stdout=subprocess.DEVNULL) for _ in range(2)]
    return [shell.wait(120) for shell in shells] == [0, 0] and job.status().state == "cancelled"


FAULTS: dict[str, Callable[[Api, pr.Job, str], bool]] = {
    **{f"the API answers {name}": partial(_answered, answer=name) for name in ANSWERS},
    "somebody deletes the JobSet": _deleted,
    "the only pod is killed": _killed,
    "Kueue suspends the job, and admits it again": _suspended,
    "a followed log breaks off four times": _broken,
    "two shells cancel at once": _cancelled,
}


def faults(api: Api, times: int) -> None:
    """Print how often each fault has the right state and reason, and leaves nothing behind."""
    for what, happens in FAULTS.items():
        right = 0
        for _ in range(times):
            job = pr.submit(["train.py"], on=pr.targets.Kubernetes())
            told = happens(api, job, f"pr-{job.id.lower()}")
            job.cancel()
            pr.targets.Kubernetes().discard(job.record)
            client.Cluster().get("jobsets", f"pr-{job.id.lower()}")  # the stand-in collects then
            right += told and not api.objects
        print(f"{what}: {right} of {times} right", flush=True)


_FOLLOW = """
import resource, sys, time
import pyreactant as pr
job = pr.Job.find(sys.argv[1])
target, record = job.target, job.record
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(3):
    for process in range(int(sys.argv[2])):
        target.logs(record, process)
    time.sleep(1)
print(before >> 10, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def memory(api: Api) -> dict[str, float]:
    """MiB of a process that follows many logs."""
    job = pr.submit(["train.py"], on=pr.targets.Kubernetes(nodes=LOGS))
    pods = Played(api, job, LOGS)
    for process in range(LOGS):
        pods.write(500, process)
    argv = [sys.executable, "-c", _FOLLOW, job.id, str(LOGS)]
    ran = subprocess.run(
        argv, check=True, capture_output=True, text=True, env=environment(**os.environ)
    )
    job.cancel()
    before, most = map(float, ran.stdout.split())
    return {f"MiB with {LOGS} logs": most, "MiB with none": before}


def main() -> None:
    """Measure, and print one line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without commands' start and memory")
    parser.add_argument("--faults", type=int, metavar="N", help="only each fault, N times")
    asked = parser.parse_args()
    quick = asked.quick
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("train.py").write_text("")
        cluster = Path(folder, "cluster")
        os.environ["XDG_STATE_HOME"] = str(Path(folder, "state"))
        os.environ["KUBECONFIG"] = str(cluster / "kubeconfig")
        with running(cluster) as api:
            api.starts = False
            if asked.faults:
                faults(api, asked.faults)
                return
            parts: list[Any] = [lambda _: dry_runs()] * (not quick)
            parts += [submits, outputs, requests, *([] if quick else [memory]), lists]
            for part in parts:
                for name, value in part(api).items():
                    print(f"{name}: {value:.3g}", flush=True)


if __name__ == "__main__":
    main()
