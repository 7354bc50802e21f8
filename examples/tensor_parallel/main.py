"""Tensor parallel training: the weights of each layer are sharded over devices, as in Megatron."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import pyreactant as pr

LAYERS, WIDTH, HIDDEN, BATCH, STEPS, RATE = 2, 32, 128, 64, 8, 0.5


def init():
    """Weights of layers with a residual connection, the same on every process."""
    rng = np.random.default_rng(0)

    def layer():
        shapes = {"up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
        return {
            k: rng.normal(size=s).astype(np.float32) * np.float32(0.1) for k, s in shapes.items()
        }

    return [layer() for _ in range(LAYERS)]


def table():
    """All examples; a program would map a file of them into memory."""
    x = np.random.default_rng(1).normal(size=(BATCH, WIDTH)).astype(np.float32)
    return {"x": x, "y": np.sort(x, axis=1)}


def loss(params, batch):
    """The mean squared error; each device computes its part of the hidden values."""
    x = batch["x"]
    for layer in params:
        hidden = jax.lax.with_sharding_constraint(jax.nn.gelu(x @ layer["up"]), P("data", "model"))
        x = x + jax.lax.with_sharding_constraint(hidden @ layer["down"], P("data"))
    return jnp.mean((x - batch["y"]) ** 2)


def step(params, batch):
    """One step of gradient descent."""
    value, gradient = jax.value_and_grad(loss)(params, batch)
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradient), value


def start():
    """The compiled step and its arguments."""
    mesh = pr.Mesh((-1, 4), ("data", "model"))
    up, down = pr.NamedSharding(mesh, (None, "model")), pr.NamedSharding(mesh, ("model", None))
    rows = pr.NamedSharding(mesh, ("data", None))
    shardings = [{"up": up, "down": down}] * LAYERS
    params = pr.device_put(init(), shardings)
    examples = table()
    batch = {
        name: pr.from_callback(a.shape, a.dtype, rows, a.__getitem__)
        for name, a in examples.items()
    }
    compiled = pr.compile(step, params, batch, out_sharding=(shardings, None), donate=0)
    return compiled, params, batch


def main():
    """Train, and print the loss of each step."""
    step, params, batch = start()
    for number in range(STEPS):
        params, value = step(params, batch)
        if pr.process_index() == 0:
            print(f"step {number}: loss {float(value):.9g}")


if __name__ == "__main__":
    pr.initialize()
    main()
