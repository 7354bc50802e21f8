"""faulty.py FAULT PROCESS WHEN: a program in which one process fails.

PROCESS is "both" for two faults: FAULT is then "kill+raise", the first in process 0. WHEN is
"start" (before initialize), "cold" (before the first collective operation) or "warm" (after some).
It writes the time of the fault into the file that FAULT_EVENT names.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import pyreactant as pr


def _raise() -> None:
    raise ValueError("broken here")


def _from_outside(number: int) -> None:
    """Get a signal from another process, as from a user's kill."""
    subprocess.run(["kill", f"-{number}", str(os.getpid())], check=True)
    time.sleep(1000)


FAULTS: dict[str, Callable[[], object]] = {
    "raise": _raise,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "exit0": lambda: sys.exit(0),
    "leave0": lambda: os._exit(0),
    "exit3": lambda: sys.exit(3),
    "segv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "abort": ctypes.CDLL(None).abort,  # as C++ aborts: Python's global lock is free
    "abort-unguarded": ctypes.CDLL(None).abort,
    "term": lambda: _from_outside(signal.SIGTERM),
    "none": lambda: None,  # for a fault outside of the program
    "never": lambda: time.sleep(1000),
}


def main() -> None:
    fault, process, when = sys.argv[1], sys.argv[2], sys.argv[3]

    def perhaps(now: str) -> None:
        index = os.environ["PYREACTANT_PROCESS_INDEX"]
        if now == when and process in (index, "both"):
            event = Path(os.environ["FAULT_EVENT"])
            new = event.with_suffix(f".{index}")
            new.write_text(repr(time.time()))
            new.rename(event)
            FAULTS[fault.split("+")[int(index)] if process == "both" else fault]()

    perhaps("start")
    patience = os.environ.get("FAULT_RENDEZVOUS", "4" if when == "start" else "60")
    pr.initialize(initialization_timeout=float(patience))
    perhaps("cold")
    mesh = pr.Mesh((len(pr.devices()),), ("i",))
    x = pr.device_put(np.ones((8, 8), np.float32), pr.NamedSharding(mesh, ("i",)))
    for step in range(100_000):
        pr.matmul_sharded(x, x).gather()
        if step == 5:
            perhaps("warm")


if __name__ == "__main__":
    main()
