"""A function that runs on every process of a target, and gives its value back."""

import jax
import numpy as np

import pyreactant as pr


@pr.remote(on=pr.targets.Local(processes=2, devices_per_process=4, platform="cpu"))
def train(lr, x):
    """Place x on all devices; what is returned is gathered by all processes."""
    pr.initialize()
    print(f"devices on all hosts: {jax.device_count()}")
    print(f"this is process {jax.process_index()} of {jax.process_count()}")
    rows = pr.NamedSharding(pr.Mesh((-1,), ("data",)), ("data",))
    return {"lr": lr, "x": pr.device_put(x, rows)}


if __name__ == "__main__":
    value = train(0.1, np.arange(8.0))
    print(value["lr"], value["x"].sum())
