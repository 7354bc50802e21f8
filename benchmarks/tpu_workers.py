"""Workers of a slice that fail, hang or disappear: measure the time until the others end.

``python -m benchmarks.tpu_workers [--times N]`` runs `pyreactant run --on tpu` on two stand-in VMs
of tests/gcloud with real sshd and JAX processes. One VM, each in turn, breaks while both run. Times
start at the event, minus `--stall-timeout` for a hanging program, and end when the other VM runs
no program, and when the launcher has fetched the results, deleted the slices and ended.
"""

import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.gcloud.cloud import Cloud, cloud, hosts_of
from tests.gcloud.tpu_api import TpuApi
from tests.gcloud.workers import descendants
from tests.harness import until

STALL = 3.0
PROGRAM = """
import os, sys, time
import pyreactant as pr
pr.initialize()
print("process", pr.process_index(), "waits for its fault", flush=True)
while not os.path.exists(sys.argv[1] + str(pr.process_index())):
    time.sleep(0.01)
raise ValueError("the user's own mistake")
"""
Break = Callable[[Cloud, int], None]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    faults: dict[str, tuple[Break, float]] = {
        "the program raises": (_raise, 0.0),
        "the program is killed": (lambda made, i: _signal(made, i, signal.SIGKILL), 0.0),
        "the program hangs": (lambda made, i: _signal(made, i, signal.SIGSTOP), STALL),
        "the VM disappears and closes its connections": (_stop, 0.0),
        "the VM disappears without closing its connections": (_freeze, 0.0),
    }
    print("| what | times | named | others ended, median | worst | launcher ended, median |")
    print("|---|---|---|---|---|---|")
    with (
        tempfile.TemporaryDirectory() as folder,
        cloud(Path(folder), TpuApi(workers=hosts_of), 2) as made,
    ):
        for what, (act, less) in faults.items():
            found = [_one(made, act, turn) for turn in range(args.times)]
            others = [o - less for o, _, _ in found]
            ended = statistics.median(e - less for _, e, _ in found)
            print(
                f"| {what} | {len(found)} | {sum(named for *_, named in found)} | "
                f"{statistics.median(others):.1f} s | {max(others):.1f} s | {ended:.1f} s |",
                flush=True,
            )


def _one(made: Cloud, act: Break, turn: int) -> tuple[float, float, bool]:
    place = made.folder / f"turn-{time.monotonic_ns()}"
    place.mkdir()
    made.folder = place
    (place / "train.py").write_text(PROGRAM)
    process = made.start(
        *made.run_options(script=True),
        "--out",
        "out",
        "--stall-timeout",
        str(STALL),
        "--",
        "train.py",
        str(place / "now"),
    )
    broken = turn % 2
    log = place / "launcher.log"
    until(lambda: log.read_text().count("waits for its fault") == 1 and len(_all(made)) == 2, 60)
    time.sleep(0.5)
    began = time.monotonic()
    act(made, broken)
    while _programs(made, 1 - broken):
        time.sleep(0.01)
    others = time.monotonic() - began
    process.wait(120)
    ended = time.monotonic() - began
    output = log.read_text()
    assert made.workers is not None
    for pid in _all(made):
        os.kill(pid, signal.SIGKILL)
    for address in made.workers.addresses:
        if address in made.workers.processes:
            made.workers.stop(address)
        made.workers.start(address)
    return others, ended, f"process {broken}" in output or f"worker {broken}" in output


def _address(made: Cloud, index: int) -> str:
    (node,) = made.api.nodes.values()
    return str(node["networkEndpoints"][index]["ipAddress"])


def _all(made: Cloud) -> list[int]:
    return [*_programs(made, 0), *_programs(made, 1)]


def _programs(made: Cloud, index: int) -> list[int]:
    """Process ids of this benchmark's programs with this process index."""
    found = subprocess.run(
        ["pgrep", "-f", f"pyreactant.process.supervised train.py {made.folder}"],
        capture_output=True,
        text=True,
    )
    name = f"PYREACTANT_PROCESS_INDEX={index}".encode()
    return [int(pid) for pid in found.stdout.split() if name in _environment(pid)]


def _environment(pid: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # the process has just ended
        return []


def _raise(made: Cloud, index: int) -> None:
    (made.folder / f"now{index}").touch()


def _signal(made: Cloud, index: int, number: Any) -> None:
    (pid,) = _programs(made, index)
    os.kill(pid, number)


def _stop(made: Cloud, index: int) -> None:
    assert made.workers is not None
    made.workers.stop(_address(made, index))


def _freeze(made: Cloud, index: int) -> None:
    """Stop every process of the VM and keep its connections open."""
    assert made.workers is not None
    sshd = made.workers.processes[_address(made, index)].pid
    for pid in [sshd, *descendants(sshd), *_programs(made, index)]:
        os.kill(pid, signal.SIGSTOP)


if __name__ == "__main__":
    main()
