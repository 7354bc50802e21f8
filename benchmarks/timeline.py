"""Makes the timeline of a run of many processes, from the profile of one, and measures that.

`benchmarks/_profile.py` starts it: ``python benchmarks/timeline.py PROCESSES COLLECTIVES FOLDER``.
The profile is a real one of 5 steps on two CPU devices, with so many collective operations in each;
each process has a copy of its files. Another process of Python makes the timeline, as a supervisor
does, so that its memory is not that of JAX.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pyreactant.process.events import Profiled
from pyreactant.process.supervised.profiling import Planned, Steps
from pyreactant.runs.supervisor.collectives import waits_of
from pyreactant.runs.supervisor.timeline import TIMELINE, make_timeline

STEPS = 5


def record(folder: Path, collectives: int) -> Profiled:
    """Record the profile of one process."""
    import jax
    import jax.numpy as jnp

    def layer(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        return jax.lax.pmean(x @ x * 1e-3, "x"), None

    step = jax.pmap(lambda x: jax.lax.scan(layer, x, length=collectives)[0], "x")
    x = step(jnp.ones((2, 64, 64))).block_until_ready()
    told: list[Profiled] = []
    plan = Planned(Steps(0, STEPS), folder / "profile", told.append)
    for number in range(STEPS + 1):
        plan.step(number)
        x = step(x).block_until_ready()
    return told[-1]


def rows(told: Profiled, processes: int) -> list[dict[str, Any]]:
    """The processes as in the report of a run, each with a copy of the files."""
    file = Path(told.file)
    name = file.name.removesuffix(".xplane.pb")
    found = []
    for index in range(processes):
        for each in file.parent.glob(f"{name}.*"):
            shutil.copy(each, each.with_name(each.name.replace(name, f"copy-process-{index}")))
        profile = {
            "file": str(file.with_name(f"copy-process-{index}.xplane.pb")),
            "note": "",
            "began_ns": told.began_ns + 1_000_000 * index,
            "clock_offset_ns": 0,
            "clock_error_ns": 1000,
        }
        found.append({"index": index, "host": f"host{index}", "profile": profile})
    return found


def make(folder: Path) -> None:
    """Make the timeline; print the seconds, the memory of this process, and what was made."""
    data = json.loads((folder / "rows.json").read_text())
    begin = time.perf_counter()
    traces, _ = make_timeline(folder, data)
    waits, _ = waits_of(traces)
    seconds = time.perf_counter() - begin
    found = {
        "seconds": seconds,
        "memory": peak(),
        "traces": len(traces),
        "bytes": (folder / "profile" / TIMELINE).stat().st_size,
        "calls": sum(row["times"] for row in waits["rows"]),
    }
    print(json.dumps(found))


def peak() -> int:
    """The largest resident size of this process; getrusage would count that of JAX before exec."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def main(processes: str, collectives: str, folder: str) -> None:
    told = record(Path(folder), int(collectives))
    (Path(folder) / "rows.json").write_text(json.dumps(rows(told, int(processes))))
    subprocess.run([sys.executable, __file__, folder], check=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        make(Path(sys.argv[1]))
    else:
        main(*sys.argv[1:])
