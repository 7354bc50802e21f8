"""`python -m benchmarks.jobs [--quick]`: start, value, list, killed submissions and faults of jobs.

Local and a Slurm test cluster, against starting by hand and copying a file; killed submissions and
faults also on a Ray cluster and on TPU VMs with the stand-in API, each where its tools are. The
exit code is 1 if a killed submission leaves something, or a fault has the wrong cause.
"""

import argparse
import contextlib
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gcloud.cloud import cloud, hosts_of
from tests.gcloud.tpu_api import TpuApi
from tests.harness import REPOSITORY, environment
from tests.ray.cluster import cluster as ray_cluster
from tests.slurm.cluster import Cluster, missing, started

TARGETS = {
    "local": "pr.targets.Local(processes=2, stall_timeout=10)",
    "slurm": "pr.targets.Slurm(nodes=2, stall_timeout=10)",
    "ray": "pr.targets.Ray(hosts=2, num_cpus=0.5, platform='cpu', stall_timeout=10)",
}
ONLY_ENDS = ("ray", "tpu")
"""Places where only killed submissions and faults are measured."""

AT_ONCE = {"local": 2, "slurm": 1, "ray": 4, "tpu": 1}
"""Jobs with a fault that run at the same time."""

BY_HAND = {
    "local": ["run", "--processes", "2"],
    "slurm": ["run"],
}
PROGRAM = """
import os, pathlib, signal, sys, time

def begin(path):
    if os.environ["PYREACTANT_PROCESS_INDEX"] == "0":
        pathlib.Path(path).write_text(repr(time.time()))

def large():
    import numpy as np
    return np.random.default_rng(0).bytes(8) and np.ones(100 << 20, np.uint8)

def fault(kind):
    if os.environ["PYREACTANT_PROCESS_INDEX"] == "1":
        if kind == "raise":
            raise ValueError("broken here")
        if kind == "memory":
            raise MemoryError("no memory here")
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "hang": signal.SIGSTOP}[kind])
    time.sleep(300)

if __name__ == "__main__":
    begin(sys.argv[1])
"""
START = """
import sys, time
import pyreactant as pr
target = eval(sys.argv[1])
began = time.time()
pr.submit("program.py:begin", ["{at}"], on=target).result()
print(float(open("{at}").read()) - began)
"""
VALUE = """
import sys, time, shutil
from pathlib import Path
import numpy as np
import pyreactant as pr
from pyreactant.runs import values as _values
job = pr.submit("program.py:large", on=eval(sys.argv[1]))
job.wait()
here = Path.cwd()
began = time.perf_counter()
value = job.result()
value.max()  # large arrays are mapped: their bytes come with their use
read = time.perf_counter() - began
began = time.perf_counter()
encoder = _values.Encoder("the value")
_values.write(here / "written", encoder.encode(value), encoder.arrays)
written = time.perf_counter() - began
began = time.perf_counter()
shutil.copyfile(here / "written" / "0.npy", here / "copied")
copied = time.perf_counter() - began
print(written, read, copied)
"""
FAULT = """
import sys
from concurrent.futures import ThreadPoolExecutor
import pyreactant as pr
target, kind, times, at_once = eval(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def one(_):
    try:
        pr.submit("program.py:fault", [kind], on=target).result(timeout=600)
    except pr.PyReactantError as error:
        found = [getattr(error, name, None) for name in ("kind", "process", "host")]
        return "|".join(map(str, [*found[:2], bool(found[2]), error]))
    return "nothing was raised"

with ThreadPoolExecutor(at_once) as pool:
    for found in pool.map(one, range(times)):
        print(found.replace("\\n", " "))
"""
KINDS = {"raise": "ValueError", "kill": "lost", "memory": "out of memory", "hang": "timeout"}


class Place:
    """Where jobs are submitted: this machine, or the login node of the cluster."""

    def __init__(self, name: str, folder: Path, stack: contextlib.ExitStack) -> None:
        self.name, self.folder = name, folder
        folder.mkdir()
        (folder / "program.py").write_text(PROGRAM)
        self.cluster: Cluster | None = None
        self.target = TARGETS.get(name, "")
        settings = environment()
        if name == "slurm":
            (folder / "cluster").mkdir()
            self.cluster = stack.enter_context(started(folder / "cluster"))
        elif name == "ray":
            settings = stack.enter_context(ray_cluster(hosts=0, head_cpus=8)).settings
        elif name == "tpu":
            made = stack.enter_context(cloud(folder / "cloud", TpuApi(workers=hosts_of), 2))
            settings, self.target = made.settings, made.target(stall_timeout=10.0)
        self.settings = {**settings, "XDG_STATE_HOME": str(folder / "state")}

    def run(self, *argv: str, limit: float = 3600) -> str:
        """The output of a command; fails with what it says."""
        if self.cluster is not None:
            ran = self.cluster.run(argv, env=self.settings, cwd=self.folder, timeout=limit)
        else:
            ran = subprocess.run(
                argv,
                env=self.settings,
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        assert ran.returncode == 0, (argv, ran.stdout, ran.stderr)
        return ran.stdout

    def python(self, code: str, *words: str) -> str:
        return self.run(sys.executable, "-c", code, self.target, *words)


def start(place: Place) -> tuple[float, float]:
    """Seconds until the function begins: as a job, and by hand."""
    at = place.folder / "begun"
    ours = float(place.python(START.replace("{at}", str(at))))
    command = [
        sys.executable,
        "-m",
        "pyreactant",
        *BY_HAND[place.name],
        "--",
        "program.py",
        str(at),
    ]
    if place.name == "slurm":
        command = ["srun", "--nodes=2", "--ntasks=2", *command]
    began = time.time()
    place.run(*command)
    return ours, float(at.read_text()) - began


def value(place: Place) -> tuple[float, float]:
    """Seconds to write and read a value of 100 MiB, each byte, and to copy its file."""
    written, read, copied = map(float, place.python(VALUE).split())
    for name in ("written", "copied"):
        path = place.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return written + read, copied


def listing(folder: Path, count: int) -> list[float]:
    """Seconds of `pyreactant jobs list` with so many jobs."""
    code = (
        "from pyreactant.runs import record as r\n"
        f"for i in range({count}):\n"
        "    one = r.create('train.py:main', 'local', {'processes': 2})\n"
        "    one.write_status(r.Status('done', '', 0))\n"
        "    r.release(one)\n"
    )
    settings = environment(XDG_STATE_HOME=str(folder / "many"))
    subprocess.run([sys.executable, "-c", code], env=settings, check=True)
    found = []
    for _ in range(7):
        began = time.perf_counter()
        argv = [sys.executable, "-m", "pyreactant", "jobs", "list"]
        ran = subprocess.run(argv, env=settings, capture_output=True, check=True)
        found.append(time.perf_counter() - began)
        assert len(ran.stdout.splitlines()) == count
    return found


def killed(place: Place, points: int) -> bool:
    """Kill the submitting process at so many points; whether nothing was left."""
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", place.folder)
    parts = " ".join(f"{i / max(1, points - 1):.3f}" for i in range(points))
    try:
        argv = ["-m", "tests.jobs.laws", "killed", place.target, parts]
        print(f"{place.name}: killed at", place.run(sys.executable, *argv).split()[0], "events")
    except AssertionError as error:
        print(f"{place.name}: a killed submission left something: {error}")
        return False
    return True


def faults(place: Place, times: int, kinds: Sequence[str]) -> bool:
    """Inject each fault; whether every cause was right."""
    (place.folder / "program.py").write_text(PROGRAM)
    right = True
    for kind in kinds:
        expected = KINDS[kind]
        printed = place.python(FAULT, kind, str(times), str(AT_ONCE[place.name])).splitlines()
        wrong = [line for line in printed if not line.startswith(f"{expected}|1|True|")]
        count = len(printed) - len(wrong)
        print(
            f"{place.name}: {kind}: {count} of {times} named right", *wrong, sep="\n  ", flush=True
        )
        right &= count == times
    return right


def lacks(name: str) -> str | None:
    """What a place needs and this machine does not have; None if nothing."""
    needed: dict[str, dict[str, object]] = {
        "ray": {"ray": importlib.util.find_spec("ray")},
        "tpu": {
            "google-cloud-tpu": importlib.util.find_spec("google.cloud.tpu_v2"),
            "gcloud": shutil.which("gcloud"),
            "sshd": shutil.which("sshd") or Path("/usr/sbin/sshd").exists(),
        },
    }
    if name == "slurm":
        return missing()
    return ", ".join(k for k, found in needed.get(name, {}).items() if not found) or None


def measured(place: Place, only: Sequence[str], rounds: int) -> None:
    for name, measure in (("start", start), ("value", value)):
        if name in only:
            pairs = [measure(place) for _ in range(rounds)]
            print(f"{place.name}: {name}: {_text(pairs)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="each once")
    parser.add_argument("--only", default="start,value,list,killed,faults")
    parser.add_argument("--on", default="local,slurm,ray,tpu")
    parser.add_argument("--times", type=int, help="times of each fault")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of faults")
    parser.add_argument("--points", type=int, default=20)
    asked = parser.parse_args()
    if unknown := set(asked.kinds.split(",")) - set(KINDS):
        parser.error(f"--kinds must be of {', '.join(KINDS)}, got {', '.join(sorted(unknown))}")
    base = Path(tempfile.mkdtemp(prefix="pyreactant-jobs-"))
    right = False
    try:
        measured_right = [_measure(name, base, asked) for name in asked.on.split(",")]
        right = all(measured_right)
        if "list" in asked.only.split(","):
            seconds = listing(base, 1000)
            print(f"list of 1000: {statistics.median(seconds):.3f} s, {json.dumps(seconds)}")
    finally:
        if right:
            shutil.rmtree(base)
        else:
            print(f"the records of the jobs are kept in {base}")
    return 0 if right else 1


def _measure(name: str, base: Path, asked: argparse.Namespace) -> bool:
    """Measure what was asked for at one place; whether all was right."""
    only, right = asked.only.split(","), True
    possible = {"killed", "faults"} if name in ONLY_ENDS else {"killed", "faults", "start", "value"}
    if not possible & set(only):
        return True
    if lack := lacks(name):
        print(f"{name}: not measured: {lack}")
        return True
    with contextlib.ExitStack() as stack:
        place = Place(name, base / name, stack)
        if name not in ONLY_ENDS:
            measured(place, only, 1 if asked.quick else 7)
        if "killed" in only:
            right &= killed(place, 2 if asked.quick else asked.points)
        if "faults" in only:
            times = asked.times or (1 if asked.quick else 20)
            right &= faults(place, times, asked.kinds.split(","))
    return right


def _text(pairs: list[tuple[float, float]]) -> str:
    columns: list[Any] = list(zip(*pairs, strict=True))
    shown = [f"{statistics.median(c):.3f} s ({min(c):.3f} to {max(c):.3f})" for c in columns]
    return f"ours {shown[0]}, by hand {shown[1]}, n={len(pairs)}"


if __name__ == "__main__":
    sys.exit(main())
