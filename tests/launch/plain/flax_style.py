"""As flax's examples are: a train state as a tree, data of this process, process 0 reports."""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def train(steps: int) -> dict[str, Any]:
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
    by_batch = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    state: dict[str, Any] = {"step": 0, "params": {"w": jnp.ones(3), "b": jnp.zeros(())}}

    @jax.jit
    def step(state: dict[str, Any], x: jax.Array) -> tuple[dict[str, Any], jax.Array]:
        def loss(p: dict[str, jax.Array]) -> jax.Array:
            return jnp.mean((x @ p["w"] + p["b"]) ** 2)

        value, grads = jax.value_and_grad(loss)(state["params"])
        params = jax.tree.map(lambda p, g: p - 0.01 * g, state["params"], grads)
        return {"step": state["step"] + 1, "params": params}, value

    for _ in range(steps):
        local = np.ones((2, 3), np.float32)
        state, value = step(state, jax.make_array_from_process_local_data(by_batch, local))
    return {"step": int(state["step"]), "loss": float(value)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2)
    steps = parser.parse_args().steps
    jax.distributed.initialize()
    result = train(steps)
    if jax.process_index() == 0:
        print(f"flax {jax.process_count()} processes {result['step']} steps {result['loss']:.3f}")
