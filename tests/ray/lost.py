"""A job on two hosts whose Ray worker of process 1 is killed; prints what the caller learns."""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

import pyreactant as pr


def wait() -> None:
    """Runs until it is killed."""
    pr.initialize()
    print("waiting", flush=True)
    time.sleep(300)


def ray_worker(job: str, process: int) -> int:
    """The Ray worker that runs the supervisor of a process: the parent of its shell."""
    marks = {f"PYREACTANT_JOB={job}".encode(), f"PYREACTANT_PROCESS_INDEX={process}".encode()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if not marks <= set((entry / "environ").read_bytes().split(b"\0")):
                continue
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if b"ray::" in Path(f"/proc/{parent}/cmdline").read_bytes():
                return parent
        except OSError:
            continue
    raise AssertionError("no Ray worker runs the process")


if __name__ == "__main__":
    on = pr.targets.Ray(hosts=2, num_cpus=0.5, platform="cpu", devices_per_process=1)
    job = pr.submit(wait, on=on)
    while "waiting" not in "".join(job.logs()):
        assert not job.status().ended, job.status()
        time.sleep(0.2)
    pid = ray_worker(job.id, 1)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(pr.RemoteError) as caught:
        job.result(timeout=120)
    error = caught.value
    print("after", time.monotonic() - began, "s:", error, file=sys.stderr)
    assert (error.kind, error.process, error.exit_code) == ("lost", 1, 6), vars(error)
    where = re.escape(f"process 1 on {error.host}") + r" \(127\.0\.1\.\d+\) was lost"
    assert re.search(where, str(error)), error
    assert f"its Ray worker (pid {pid}) ended" in str(error), error
    assert "waiting" in (job.record.run / "process-1.log").read_text()
    report = json.loads((job.record.run / "report.json").read_text())
    assert (report["cause"], report["exit_code"]) == ("lost", 6), report
    assert len(report["processes"]) == 2, report
    assert report["started"], report
    assert report["folder"] == str(job.record.run), report
    text = (job.record.run / "report.txt").read_text()
    assert re.match(f"lost: {where}", text), text
    print("lost was named")
    queued = pr.submit(wait, on=pr.targets.Ray(num_gpus=1, platform="cpu"))
    while queued.status().state != "queued" or not queued.status().reason:
        time.sleep(0.2)
    print("reason:", queued.status().reason)
    print("cancelled:", queued.cancel().state, queued.cancel().exit_code)
