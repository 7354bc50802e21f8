"""faulty.py FAULT PROCESS WHEN: a program in which one process fails.

WHEN is "start" (before initialize), "cold" (before the first collective operation) or "warm" (after
some). It writes the time of the fault into the file that FAULT_EVENT names.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import pyreactant as pr


def _raise() -> None:
    raise ValueError("broken here")


FAULTS: dict[str, Callable[[], object]] = {
    "raise": _raise,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "exit0": lambda: sys.exit(0),
    "leave0": lambda: os._exit(0),
    "exit3": lambda: sys.exit(3),
    "never": lambda: time.sleep(1000),
}


def main() -> None:
    fault, process, when = sys.argv[1], sys.argv[2], sys.argv[3]

    def perhaps(now: str) -> None:
        if now == when and os.environ["PYREACTANT_PROCESS_INDEX"] == process:
            event = Path(os.environ["FAULT_EVENT"])
            event.with_suffix(".new").write_text(repr(time.time()))
            event.with_suffix(".new").rename(event)
            FAULTS[fault]()

    perhaps("start")
    pr.initialize(initialization_timeout=4)
    perhaps("cold")
    mesh = pr.Mesh((len(pr.devices()),), ("i",))
    x = pr.device_put(np.ones((8, 8), np.float32), pr.NamedSharding(mesh, ("i",)))
    for step in range(100_000):
        pr.matmul_sharded(x, x).gather()
        if step == 5:
            perhaps("warm")


if __name__ == "__main__":
    main()
