"""Kithara's recipe for several hosts on Ray, with pyreactant; run on the machine of the driver.

Differences from the document: the slice is named and not computed from a constant of chips per
host, nobody calls ``jax.distributed.initialize()`` nor ``ray.get`` over a list, the workload is a
reduction over the slice, and its devices are CPUs.
"""

import os
from typing import Any

import pyreactant as pr

SLICE = pr.targets.Ray(topology="v6e-16", platform="cpu", devices_per_process=1)


@pr.remote(on=SLICE)  # type: ignore[untyped-decorator]
def main(scale: float) -> dict[str, Any]:
    """Runs on every host of the slice."""
    import jax.numpy as jnp

    worker = os.environ["TPU_WORKER_ID"]
    pr.initialize()
    print(f"process {pr.process_index()} on TPU worker {worker}", flush=True)
    assert int(worker) == pr.process_index(), "processes are not in the order of the slice"
    mesh = pr.Mesh((-1,), ("x",))
    x = pr.device_put(jnp.arange(16.0), pr.NamedSharding(mesh, ("x",)))
    total = pr.program(lambda x: x.sum() * scale)
    return {"hosts": pr.num_processes(), "devices": len(pr.devices()), "sum": total(x).gather()}


if __name__ == "__main__":
    print("result", main(2.0))
