"""A pipeline: each device computes one stage and hands its result to the next."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import pyreactant as pr

STAGES, WIDTH, PARTS, BATCH, STEPS, RATE = 8, 32, 16, 8, 8, 1.0


def init():
    """The weights of all stages, the same on every process."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=(STAGES, 2, WIDTH, WIDTH)) / 8).astype(np.float32)


def table():
    """The batch, in parts that pass the stages one after the other."""
    x = np.random.default_rng(1).normal(size=(PARTS, BATCH, WIDTH)).astype(np.float32)
    return x, np.roll(x, 1, axis=-1)


@jax.checkpoint
def stage(weights, x):
    """What one device computes; its inner values are computed again for the gradient."""
    up, down = weights
    return x + jnp.tanh(x @ up) @ down


def pipeline(weights, x, y):
    """The mean squared error; each device holds the weights of one stage."""
    here, last = jax.lax.axis_index("stage"), jax.lax.axis_size("stage") - 1

    def tick(arrived, part):
        out = stage(weights[0], jnp.where(here == 0, part, arrived))
        return jax.lax.ppermute(out, "stage", [(i, i + 1) for i in range(last)]), out

    empty = jax.lax.pcast(jnp.zeros_like(x[0]), "stage", to="varying")
    _, outs = jax.lax.scan(tick, empty, jnp.concatenate([x, x[:last]]))
    error = jnp.mean((outs[last:] - y) ** 2)  # what has passed all stages is on the last device
    return jax.lax.psum(jnp.where(here == last, error, 0), "stage")


def loss(weights, x, y):
    """The mean squared error."""
    specs = (P("stage"), P(), P())
    return jax.shard_map(pipeline, in_specs=specs, out_specs=P())(weights, x, y)


def step(weights, batch):
    """One step of gradient descent."""
    value, gradient = jax.value_and_grad(loss)(weights, *batch)
    return weights - RATE * gradient, value


def start():
    """The compiled step and its arguments."""
    mesh = pr.Mesh((STAGES,), ("stage",))
    stages, copied = pr.NamedSharding(mesh, ("stage",)), pr.NamedSharding(mesh, ())
    weights, batch = pr.device_put(init(), stages), pr.device_put(table(), copied)
    compiled = pr.compile(step, weights, batch, out_sharding=(stages, copied), donate=0)
    return compiled, weights, batch


def main():
    """Train, and print the loss of each step."""
    step, weights, batch = start()
    for number in range(STEPS):
        weights, value = step(weights, batch)
        if pr.process_index() == 0:
            print(f"step {number}: loss {float(value):.9g}")


if __name__ == "__main__":
    pr.initialize()
    main()
