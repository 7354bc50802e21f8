"""A user's program, which the laws submit; it is copied, so it imports nothing of the tests."""

import os
import signal
import sys
import time
from typing import Any

import pyreactant as pr

INDEX = int(os.environ.get("PYREACTANT_PROCESS_INDEX", "-1"))


def back(*args: Any, **named: Any) -> dict[str, Any]:
    """What it was given, and what it finds."""
    print(f"process {INDEX} is here", flush=True)
    pr.log(3, loss=0.5)
    return {
        "args": args,
        "named": named,
        "process": INDEX,
        "count": os.environ["PYREACTANT_NUM_PROCESSES"],
        "module": __name__,
        "variables": [os.environ.get("LAW_SECRET"), os.environ.get("LAW_OTHER")],
    }


def fails(text: str) -> None:
    """Process 1 raises while the others wait."""
    if INDEX == 1:
        raise ValueError(text)
    time.sleep(300)


def dies() -> None:
    """Process 1 is killed while the others wait."""
    if INDEX == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(300)


def lacks_memory() -> None:
    """Process 1 does not get the memory that it asks for."""
    if INDEX == 1:
        raise MemoryError("no memory here")
    time.sleep(300)


def hangs() -> None:
    """Process 1 is stopped while the others wait."""
    if INDEX == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(300)


def waits() -> None:
    """It does not end by itself."""
    print("waiting", flush=True)
    time.sleep(300)


def large(size: int) -> Any:
    """A value of so many bytes that no compression makes smaller."""
    import numpy as np

    return np.frombuffer(os.urandom(size), np.uint8)


def leaves(code: Any = 0) -> None:
    """It ends the program in place of returning."""
    sys.exit(code)


async def later() -> int:
    """Calling it runs nothing."""
    return 1


def odd() -> Any:
    """A value that cannot travel."""
    return {"x": object()}


def sharded() -> Any:
    """Arrays that lie on all processes."""
    import jax
    import numpy as np

    mesh = pr.make_mesh((len(pr.devices()),), ("x",))
    whole = np.arange(8, dtype=np.float32)
    ours = pr.device_put(whole, pr.NamedSharding(mesh, ("x",)))
    return {"ours": ours, "jax": ours.value, "local": jax.numpy.ones(2, jax.numpy.bfloat16)}


if __name__ == "__main__":
    print("arguments", sys.argv[1:], flush=True)
    sys.exit(int(sys.argv[1]))
