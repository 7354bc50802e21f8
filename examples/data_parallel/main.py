"""Data parallel training with gradient accumulation: each process feeds its part of the batch."""

import jax
import jax.numpy as jnp
import numpy as np

import pyreactant as pr

PARTS, BATCH, FEATURES, HIDDEN, STEPS = 4, 64, 16, 32, 8


def init():
    """Weights of a network with one hidden layer, the same on every process."""
    rng = np.random.default_rng(0)
    weights = {"up": rng.normal(size=(FEATURES, HIDDEN)), "down": rng.normal(size=(HIDDEN, 1))}
    return {name: (w / np.sqrt(len(w))).astype(np.float32) for name, w in weights.items()}


def read(process, processes):
    """The examples of one process, in parts that are computed one after the other."""
    rng = np.random.default_rng(1 + process)
    x = rng.normal(size=(PARTS, BATCH // processes, FEATURES)).astype(np.float32)
    return {"x": x, "y": np.sin(3 * x[..., :1])}


def loss(params, part):
    """The mean squared error."""
    predicted = jnp.tanh(part["x"] @ params["up"]) @ params["down"]
    return jnp.mean((predicted - part["y"]) ** 2)


def step(params, momentum, batch):
    """One step of gradient descent with momentum; the gradients of the parts are added up."""

    def accumulate(total, part):
        return jax.tree.map(jnp.add, total, jax.value_and_grad(loss)(params, part)), None

    zeros = jax.tree.map(jnp.zeros_like, (jnp.float32(0), params))
    total, _ = jax.lax.scan(accumulate, zeros, batch)
    value, gradient = jax.tree.map(lambda t: t / PARTS, total)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    params = jax.tree.map(lambda p, m: p - 0.05 * m, params, momentum)
    return params, momentum, value


def start():
    """The compiled step and its arguments."""
    mesh = pr.Mesh((-1,), ("data",))
    copied, cut = pr.NamedSharding(mesh, ()), pr.NamedSharding(mesh, (None, "data"))
    params = pr.device_put(init(), copied)
    momentum = pr.device_put(jax.tree.map(np.zeros_like, init()), copied)
    batch = pr.from_process_local(read(pr.process_index(), pr.num_processes()), cut)
    compiled = pr.compile(step, params, momentum, batch, out_sharding=copied, donate=(0, 1))
    return compiled, params, momentum, batch


def main():
    """Train, and print the loss of each step."""
    step, params, momentum, batch = start()
    for number in range(STEPS):
        params, momentum, value = step(params, momentum, batch)
        if pr.process_index() == 0:
            print(f"step {number}: loss {float(value):.9g}")


if __name__ == "__main__":
    pr.initialize()
    main()
