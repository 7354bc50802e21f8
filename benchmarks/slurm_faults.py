"""`python -m benchmarks.slurm_faults [--times N]`: inject faults under srun on a test cluster.

Each of two nodes runs a supervisor and a program. As in `benchmarks.faults`, the exit code is 1 if
a report names the wrong cause or a process remains.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.launch.runs import FAULTY, left_behind
from tests.launch.test_faults import CAUSES
from tests.slurm.cluster import Cluster, started
from tests.slurm.test_main import settings

STALL, START = 5.0, 3.0
ABSENT = "absent"  # the task sleeps and never joins the roll-call
CASES = [
    *itertools.product(("raise", "kill", "stop", "exit0", "leave0"), ("cold", "warm"), (0, 1)),
    (ABSENT, "start", 0),
    (ABSENT, "start", 1),
]
SRUN = ("srun", "--nodes=2", "--ntasks=2", "--kill-on-bad-exit=1", "--wait=5")


def inject(
    cluster: Cluster, folder: Path, fault: str, when: str, process: int
) -> tuple[bool, int, float]:
    """Break one run; return whether the cause is right, leftovers, and seconds until srun ends."""
    argv = [sys.executable, "-m", "pyreactant", "run", "--out", "run"]
    argv += ["--stall-timeout", str(STALL), "--start-timeout", str(START)]
    argv += ["--", FAULTY, fault, str(process), when]
    if fault == ABSENT:
        sleeps = f'[ "$SLURM_PROCID" = {process} ] && sleep 100; exec "$@"'
        argv = ["bash", "-c", sleeps, "task", *argv]
    event, began = folder / "event", time.time()
    cluster.run([*SRUN, *argv], env=settings(FAULT_EVENT=str(event)), cwd=folder, timeout=90)
    ended = time.time()
    paths = [folder / "run" / name for name in ("report.json", "report-process-1.json")]
    report = json.loads(next(p for p in paths if p.exists()).read_text())
    cause = CAUSES["never" if fault == ABSENT else fault][0]
    right = report["cause"] == cause and f"process {process}" in report["summary"]
    if not right:
        print(f"missed: {folder}: {report['cause']}: {report['summary']}")
    began = float(event.read_text()) if event.exists() else began
    waits = {"stop": STALL, ABSENT: START}.get(fault, 0.0)
    return right, len(left_behind(folder)), ended - began - waits


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args().times
    found: dict[tuple[str, str, int], list[tuple[bool, int, float]]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as base, started(Path(base)) as cluster:
        for number, case in itertools.product(range(times), CASES):
            folder = Path(base, f"{number}-{case[0]}-{case[1]}-{case[2]}")
            folder.mkdir()
            found[case].append(inject(cluster, folder, *case))
    print("| fault | when | process | injections | misses | left | median | worst |")
    print("|---|---|---|---|---|---|---|---|")
    for (fault, when, process), runs in found.items():
        rights, left, seconds = zip(*runs, strict=True)
        print(
            f"| {fault} | {when} | {process} | {len(runs)} | {rights.count(False)} | {sum(left)} "
            f"| {statistics.median(seconds):.2f} s | {max(seconds):.2f} s |"
        )
    return int(any(not right or left for runs in found.values() for right, left, _ in runs))


if __name__ == "__main__":
    sys.exit(main())
