"""`python -m benchmarks.kubernetes [--quick]`: the bounds of jobs on Kubernetes, by the stand-in.

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
from pathlib import Path
from typing import Any

import yaml

import pyreactant as pr
from pyreactant.runs import record as _record
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
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("train.py").write_text("")
        cluster = Path(folder, "cluster")
        os.environ["XDG_STATE_HOME"] = str(Path(folder, "state"))
        os.environ["KUBECONFIG"] = str(cluster / "kubeconfig")
        with running(cluster) as api:
            api.starts = False
            parts: list[Any] = [lambda _: dry_runs()] * (not quick)
            parts += [submits, outputs, requests, *([] if quick else [memory]), lists]
            for part in parts:
                for name, value in part(api).items():
                    print(f"{name}: {value:.3g}", flush=True)


if __name__ == "__main__":
    main()
