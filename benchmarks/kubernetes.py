"""`python -m benchmarks.kubernetes [--quick | --faults N]`: bounds and faults, by the stand-in.

The stand-in of the API runs in this process, and its pods are played, but for three faults, whose
pods are processes: what is measured is the time of pyreactant, not that of a cluster.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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


class _Reader(threading.Thread):
    """Follows the log of a job."""

    def __init__(self, job: pr.Job) -> None:
        super().__init__()
        self.job, self.text = job, ""
        self.start()

    def run(self) -> None:
        for text in self.job.logs(follow=True):
            self.text += text

    def has(self, lines: int) -> bool:
        return self.text == "".join(f"line {number}\n" for number in range(lines))

    def ends(self, lines: int) -> bool:
        """Whether it ends, with each line once."""
        self.join(120)
        return self.has(lines) and not self.is_alive()


def _followed(
    api: Api, job: pr.Job, name: str, harm: Callable[[Played], object], each: int
) -> bool:
    """A log that something happens to while it is followed, after some lines each, four times."""
    pods = Played(api, job)
    pods.write(each)
    reader = _Reader(job)
    for lines in range(each, 5 * each, each):
        until(lambda: reader.has(lines))  # noqa: B023
        harm(pods)
        pods.write(each)
    until(lambda: reader.has(5 * each))
    pods.note(0, "Completed")
    return reader.ends(5 * each) and job.status().state == "done"


def _cut(pods: Played) -> None:
    pods.api.cuts = 1


def _watched(api: Api, job: pr.Job, name: str, harm: Callable[[], object]) -> bool:
    """What the watches of a job are told is wrong, each time when it changes."""
    pods = None
    for state in ("running", "queued", "running", "queued", "running"):
        harm()
        if state == "queued":
            api.suspend(name)
        elif pods is not None:
            api.resume(name)
        if state == "running":
            pods = Played(api, job)
        until(lambda: job.status().state == state)  # noqa: B023
    harm()
    assert pods is not None
    pods.note(0, "Completed")
    return job.wait(timeout=120).state == "done"


def _silent(api: Api, job: pr.Job, name: str) -> bool:
    """The API answers nothing, also on what is followed, until this is said."""
    pods = Played(api, job)
    pods.write(20)
    reader = _Reader(job)
    until(lambda: job.status().state == "running" and reader.has(20))
    api.answers.clear()
    pods.write(25)
    until(lambda: "cannot be reached" in job.status().reason)
    still = job.status().state
    api.answers.set()
    until(lambda: not job.status().reason and reader.has(45))
    pods.note(0, "Completed")
    ended = job.wait(timeout=120).state
    return (still, ended) == ("running", "done") and reader.ends(45)


def _lacking(api: Api, job: pr.Job, name: str) -> bool:
    """The Secret is gone before the pod has it."""
    client.Cluster().delete("secrets", name)
    said = f'MountVolume.SetUp failed for volume "sent" : secret "{name}" not found'
    (pod,) = api.runs[name].pods()
    about = {"kind": "Pod", "name": pod["metadata"]["name"]}
    api.put("events", "e", type="Warning", involvedObject=about, message=said)
    status = job.wait(timeout=120)
    del api.objects["events", "default", "e"]
    return (status.state, status.exit_code) == ("failed", 3) and said in status.reason


PROGRAM = """
import os, signal, sys
import pyreactant as pr
pr.initialize(platform="cpu")
pr.barrier("all are here")
if sys.argv[1:] == ["vanish"] and os.environ["PYREACTANT_RESTART_COUNT"] == "0":
    print("line 0", flush=True)
    if os.environ["PYREACTANT_PROCESS_INDEX"] == "1":
        os.kill(os.getppid(), signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
    signal.pause()
print("the end", flush=True)
"""


def _late(api: Api, job: pr.Job, name: str) -> bool:
    """The run waits for what comes late, and is well."""
    status = job.wait(timeout=240)
    said = ["".join(job.logs(process)) for process in range(2)]
    return status.state == "done" and all(text.endswith("the end\n") for text in said)


def _vanished(api: Api, job: pr.Job, name: str) -> bool:
    """It is said while the others still wait; then all start again."""
    reader = _Reader(job)
    until(lambda: "does not answer" in job.status().reason)
    reason = job.status().reason
    status = job.wait(timeout=240)
    reader.join(120)
    whole = reader.text.count("line 0\n") == 1 and reader.text.endswith("the end\n")
    named = reason.startswith("the node node-1 of ")
    again = status.state == "done" and api.runs[name].state["attempt"] == 1
    return named and whole and again


def _cancelled(api: Api, job: pr.Job, name: str) -> bool:
    """Two shells cancel at once."""
    argv = [sys.executable, "-m", "pyreactant", "jobs", "cancel", job.id]
    shells = [subprocess.Popen(argv, stdout=subprocess.DEVNULL) for _ in range(2)]
    return [shell.wait(120) for shell in shells] == [0, 0] and job.status().state == "cancelled"


@dataclass
class _Fault:
    """What happens to a job.

    Attributes:
        happens: Lets it happen, and says whether the job has the right state, reason and log.
        target: Where the job is submitted.
        words: What is submitted.
        late: None, if the pods are played; else they are processes, with these options.
    """

    happens: Callable[[Api, pr.Job, str], bool]
    target: pr.targets.Kubernetes = field(default_factory=pr.targets.Kubernetes)
    words: tuple[str, ...] = ("train.py",)
    late: Sequence[str] | None = None


def _of_pods(happens: Callable[[Api, pr.Job, str], bool], *words: str, late: str = "") -> _Fault:
    target = pr.targets.Kubernetes(nodes=2, max_restarts=1)
    return _Fault(happens, target, ("train.py", *words), late.split())


def _faults(api: Api, late: float) -> dict[str, _Fault]:
    """All faults.

    Args:
        api: The stand-in.
        late: Seconds for what comes late.
    """
    return {
        **{f"the API answers {name}": _Fault(partial(_answered, answer=name)) for name in ANSWERS},
        "somebody deletes the JobSet": _Fault(_deleted),
        "the only pod is killed": _Fault(_killed),
        "Kueue suspends the job, and admits it again": _Fault(_suspended),
        "a followed log breaks off four times": _Fault(partial(_followed, harm=_cut, each=25)),
        "two shells cancel at once": _Fault(_cancelled),
        # 50 lines are a second: no line has the time of one that was rotated away.
        "a followed log is rotated four times": _Fault(
            partial(_followed, harm=Played.rotate, each=50)
        ),
        "the API answers 410": _Fault(partial(_watched, harm=api.forget)),
        "events repeat": _Fault(partial(_watched, harm=lambda: setattr(api, "repeats", 9))),
        "events are missing": _Fault(partial(_watched, harm=lambda: setattr(api, "missing", 2))),
        "the API answers nothing": _Fault(_silent),
        "a Secret is deleted": _Fault(_lacking, pr.targets.Kubernetes(start_timeout=1.0)),
        "names resolve late": _of_pods(_late, late=f"--names-after {late}"),
        "process 0's pod starts last": _of_pods(_late, late=f"--first-after {late}"),
        "a node disappears": _of_pods(_vanished, "vanish"),
    }


def faults(api: Api, times: int, only: str, *, scaled: bool) -> None:
    """Print how often each fault has the right state and reason, and leaves nothing behind."""
    if scaled:
        client._WATCH = 2
        client._ANSWER = 4.0
    Path("train.py").write_text(PROGRAM)
    for what, fault in _faults(api, 9.0 if scaled else 30.0).items():
        if only not in what:
            continue
        right, begin = 0, time.perf_counter()
        for _ in range(times):
            api.starts, api.late = fault.late is not None, fault.late or ()
            job = pr.submit([*fault.words], on=fault.target)
            told = fault.happens(api, job, f"pr-{job.id.lower()}")
            job.cancel()
            fault.target.discard(job.record)
            until(lambda: client.Cluster().get("jobsets", f"pr-{job.id.lower()}") is None)  # noqa: B023
            api.repeats = api.missing = api.cuts = 0
            right += told and not api.objects
        seconds = (time.perf_counter() - begin) / times
        print(f"{what}: {right} of {times} right, {seconds:.1f} s each", flush=True)


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
    parser.add_argument("--only", default="", help="of the faults those with this in their names")
    parser.add_argument("--real", action="store_true", help="times of faults that are not scaled")
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
                faults(api, asked.faults, asked.only, scaled=not asked.real)
                return
            parts: list[Any] = [lambda _: dry_runs()] * (not quick)
            parts += [submits, outputs, requests, *([] if quick else [memory]), lists]
            for part in parts:
                for name, value in part(api).items():
                    print(f"{name}: {value:.3g}", flush=True)


if __name__ == "__main__":
    main()
