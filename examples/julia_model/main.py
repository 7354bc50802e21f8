"""A model that is written in Julia, trained from Python; it needs no JAX."""

from pathlib import Path

import numpy as np

import pyreactant as pr

FEATURES, HIDDEN, BATCH, STEPS, RATE = 8, 32, 64, 8, 0.2


def init():
    """The weights, the same on every process."""
    rng = np.random.default_rng(0)
    up, down = rng.normal(size=(FEATURES, HIDDEN)) / 3, rng.normal(size=(HIDDEN, 1)) / 6
    weights = {"up": up, "bias": np.zeros(HIDDEN), "down": down}
    return {name: w.astype(np.float32) for name, w in weights.items()}


def read(process, processes):
    """The examples of one process."""
    rng = np.random.default_rng(1 + process)
    x = rng.normal(size=(BATCH // processes, FEATURES)).astype(np.float32)
    return x, np.sin(2 * x[:, :1])


def numpy_gradients(up, bias, down, x, y):
    """`Model.gradients` in NumPy, for the cross-check."""
    hidden = np.tanh(x @ up + bias)
    difference = hidden @ down - y
    slope = 2 * difference / len(y)
    back = (slope @ down.T) * (1 - hidden**2)
    return (difference**2).sum() / len(y), x.T @ back, back.sum(axis=0), hidden.T @ slope


HERE = Path(__file__).parent
gradients = pr.Program(
    "gradients",
    jax=f"{HERE}/plain_jax.py:gradients",
    julia="Model.gradients",
    oracle=numpy_gradients,
    julia_project=f"{HERE}/Model",
    inputs=((FEATURES, "n"), ("n",), ("n", 1), ("4n", FEATURES), ("4n", 1)),
)
step = pr.Program("step", f"{HERE}/plain_jax.py:step", "Model.step", julia_project=f"{HERE}/Model")


def start():
    """The compiled step and its arguments."""
    mesh = pr.Mesh((-1,), ("data",))
    rows, copied = pr.NamedSharding(mesh, ("data",)), pr.NamedSharding(mesh, ())
    params = pr.device_put(init(), copied)
    x, y = pr.from_process_local(read(pr.process_index(), pr.num_processes()), rows)
    given = {"out_sharding": copied, "donate": 0, "static": {"rate": RATE}}
    return pr.compile(step, params, x, y, **given), params, x, y


def main():
    """Train, and print the loss of each step."""
    compiled, params, x, y = start()
    for number in range(STEPS):
        params, value = compiled(params, x, y)
        if pr.process_index() == 0:
            print(f"step {number}: loss {float(value):.9g}")


if __name__ == "__main__":
    pr.initialize()
    main()
