"""The same model in hand-written JAX, which finds the gradient itself; `main.py` uses it too."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

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


def loss(params, x, y):
    """The mean squared error."""
    return jnp.mean((jnp.tanh(x @ params["up"] + params["bias"]) @ params["down"] - y) ** 2)


def gradients(up, bias, down, x, y):
    """The mean squared error, and its gradient by each weight."""
    params = {"up": up, "bias": bias, "down": down}
    value, found = jax.value_and_grad(loss)(params, x, y)
    return value, found["up"], found["bias"], found["down"]


def step(params, x, y, *, rate):
    """One step of gradient descent: the new weights, and the loss before the step."""
    value, gradient = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - rate * g, params, gradient), value


def start():
    """The compiled step and its arguments."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",), (AxisType.Auto,))
    rows, copied = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    params = jax.device_put(init(), copied)
    local = read(jax.process_index(), jax.process_count())
    x, y = jax.tree.map(lambda a: jax.make_array_from_process_local_data(rows, a), local)
    partial = functools.partial(step, rate=RATE)
    return jax.jit(partial, out_shardings=copied, donate_argnums=0), params, x, y


def main():
    """Train, and print the loss of each step."""
    compiled, params, x, y = start()
    for number in range(STEPS):
        params, value = compiled(params, x, y)
        if jax.process_index() == 0:
            print(f"step {number}: loss {value:.9g}")


if __name__ == "__main__":
    jax.distributed.initialize()
    main()
