"""The process that starts a runtime and says what it has: one line of JSON on standard output.

Whatever a runtime does to its process (hang, abort, take the accelerator, print) it does here.
When standard input closes, the doctor is gone, and so is this.
"""

import contextlib
import json
import os
import sys
import threading
import time
from typing import Any


def main(backend: str) -> None:
    """Start the runtime, answer and end.

    Args:
        backend: "jax" or "reactant".
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_the_doctor, daemon=True).start()
    answer = _answer(backend)
    with contextlib.suppress(BrokenPipeError):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # the accelerator is free as soon as the process is gone


def _end_with_the_doctor() -> None:
    sys.stdin.read()
    os._exit(1)


def _answer(backend: str) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        import pyreactant as pr

        pr.initialize(backend, num_processes=1)
        found = pr.devices()
        return {
            "platform": found[0].platform,
            "kinds": sorted({device.kind for device in found}),
            "devices": len(found),
            "xla_runtime": _xla_runtime(backend),
            "seconds": time.perf_counter() - start,
        }
    except Exception as error:  # all that a runtime raises is what is asked for here
        return {"error": f"{error}", "kind": type(error).__name__}


def _xla_runtime(backend: str) -> str | None:
    """What Reactant was compiled with; JAX has no choice."""
    if backend != "reactant":
        return None
    from .._runtimes.reactant.julia import call
    from .._runtimes.reactant.julia import start as julia

    return str(call(julia().runtime))


if __name__ == "__main__":
    main(sys.argv[1])
