"""As MaxText starts: initialize with a timeout only, a mesh over all devices, one jitted step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils, multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.distributed.initialize(initialization_timeout=300)
mesh = Mesh(mesh_utils.create_device_mesh((jax.device_count(), 1)), ("data", "fsdp"))
sharded = NamedSharding(mesh, PartitionSpec("data"))
replicated = NamedSharding(mesh, PartitionSpec())


@functools.partial(jax.jit, out_shardings=(replicated, replicated), donate_argnums=0)
def train_step(weights: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(w: jax.Array) -> jax.Array:
        return jnp.mean((batch @ w - 1.0) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * gradient, value


weights = jax.device_put(jnp.zeros(4), replicated)
local = np.full((2, 4), jax.process_index() + 1.0, np.float32)
batch = multihost_utils.host_local_array_to_global_array(local, mesh, PartitionSpec("data"))
for _ in range(2):
    weights, loss = train_step(weights, batch)
multihost_utils.sync_global_devices("end")
print(f"maxtext {jax.process_index()}/{jax.process_count()} devices {jax.device_count()}")
print(f"loss {float(loss):.4f}")
