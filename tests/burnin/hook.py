"""Faults in what a device computes: a hook in the runtime's `run`, which only tests install.

In this process `install` puts it in, and `fault` is what is wrong now. Processes that a test starts
have `environment(fault)`: Python imports `site/sitecustomize.py`, which installs it there.
"""

import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "TEST_FAULT_OF_A_DEVICE"
SITE = Path(__file__).with_name("site")


@dataclass(frozen=True)
class Fault:
    """What is wrong.

    Attributes:
        kind: "flip", "column", "nan", "slow", "hang", "kill", or "clock": 5 seconds ahead.
        process: Index of the process.
        device: Number of the device among those of the process; None for all.
        every: Which results are wrong: 1 for all, 3 for each third.
        dtype: Element type of the results that can be wrong.
        ndim: Number of their dimensions.
        after: Number of such results that are right first.
    """

    kind: str
    process: int = 0
    device: int | None = None
    every: int = 1
    dtype: str = "float32"
    ndim: int = 2
    after: int = 0


fault: Fault | None = None
sleep: Callable[[float], None] = time.sleep
_count = 0


def install() -> Callable[[], None]:
    """Put the hook into all programs that are compiled from now on; returns what takes it out."""
    from pyreactant.arrays.backend import Executable

    before = Executable.__init__

    def init(self: Any, run: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        before(self, lambda *values: _altered(run(*values)), *arguments, **named)

    Executable.__init__ = init  # type: ignore[method-assign]

    def remove() -> None:
        Executable.__init__ = before  # type: ignore[method-assign]

    return remove


def environment(wrong: Fault, path: str) -> dict[str, str]:
    """Variables of processes that have this fault; `path` is their PYTHONPATH."""
    return {
        VARIABLE: json.dumps(dataclasses.asdict(wrong)),
        "PYTHONPATH": f"{SITE}{os.pathsep}{path}",
    }


def set_fault(wrong: Fault | None) -> None:
    """Change what is wrong in this process."""
    global fault, _count
    fault, _count = wrong, 0


def _altered(results: Sequence[Any]) -> Sequence[Any]:
    here = int(os.environ.get("PYREACTANT_PROCESS_INDEX", "0"))
    if fault is None or fault.process != here:
        return results
    return [_of_one(result, fault) for result in results]


def _of_one(result: Any, wrong: Fault) -> Any:
    global _count
    import jax

    if result.dtype.name != wrong.dtype or result.ndim != wrong.ndim:
        return result
    mine = jax.local_devices()
    parts = [
        (shard.data, wrong.device in (None, mine.index(shard.device)))
        for shard in result.addressable_shards
    ]
    if not any(hit for _, hit in parts):
        return result
    _count += 1
    if _count <= wrong.after or (_count - wrong.after) % wrong.every:
        return result
    if wrong.kind == "slow":
        jax.block_until_ready(result)
        sleep(0.05)
        return result
    if wrong.kind == "hang":
        time.sleep(3600)
    if wrong.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    changed = [
        jax.device_put(_wrong(np.array(data), wrong.kind), data.device) if hit else data
        for data, hit in parts
    ]
    return jax.make_array_from_single_device_arrays(result.shape, result.sharding, changed)


def _wrong(data: np.ndarray, kind: str) -> np.ndarray:
    flat = data.reshape(-1)
    if kind == "flip":
        at = min(7, flat.size - 1)
        flat[at : at + 1].view(f"u{data.dtype.itemsize}")[...] ^= 1 << 4
    elif kind == "nan":
        flat[5] = np.nan
    else:
        data[..., 3] = 1
    return data


def install_from_environment() -> None:
    """Install the fault that a test names for this process."""
    given = Fault(**json.loads(os.environ[VARIABLE]))
    if given.kind == "clock":
        real = time.time
        time.time = lambda: real() + 5
        return
    set_fault(given)
    install()
