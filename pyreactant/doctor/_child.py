"""The main of the process that starts a runtime and reports its devices.

A runtime that hangs, aborts, prints or takes the accelerator does so here, not in the doctor.
"""

import time
from typing import Any

from .._system.child import Request, Stop, serve


def _answer(request: Request, _: Stop) -> dict[str, Any]:
    backend = request["backend"]
    start = time.perf_counter()
    try:
        import pyreactant as pr

        pr.initialize(backend, num_processes=1)
        devices = pr.devices()
        return {
            "platform": devices[0].platform,
            "kinds": sorted({device.kind for device in devices}),
            "devices": len(devices),
            "xla_runtime": _xla_runtime(backend),
            "seconds": time.perf_counter() - start,
        }
    except Exception as error:  # whatever a runtime raises is the answer
        return {"error": f"{error}", "kind": type(error).__name__}


def _xla_runtime(backend: str) -> str | None:
    """The XLA runtime that Reactant was compiled with; JAX has no choice."""
    if backend != "reactant":
        return None
    from .._runtimes.reactant.julia import call
    from .._runtimes.reactant.julia import start as julia

    return str(call(julia().runtime))


if __name__ == "__main__":
    serve(_answer)
