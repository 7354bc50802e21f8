"""Hand-written JAX reference for `pyreactant matmul --size N`.

It uses seeded random operands of the same kind, the same layout, a warm-up and five timed calls,
and the same check: each block against a float64 product within the same tolerance.
"""

import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

n = int(sys.argv[1])
jax.config.update("jax_num_cpu_devices", 8)
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
sharding = NamedSharding(mesh, PartitionSpec("x", "y"))
random = np.random.default_rng(0)
x, y = (random.uniform(-1, 1, (n, n)).astype(np.float32) for _ in range(2))
a = jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])
b = jax.make_array_from_callback(y.shape, sharding, lambda index: y[index])
product = jax.jit(jnp.matmul, out_shardings=sharding).lower(a, b).compile()
c = product(a, b).block_until_ready()
seconds = []
for _ in range(5):
    start = time.perf_counter()
    product(a, b).block_until_ready()
    seconds.append(time.perf_counter() - start)
worst = 0.0
for shard in c.addressable_shards:
    rows, columns = shard.index
    left, right = x[rows].astype(np.float64), y[:, columns].astype(np.float64)
    scale = np.sqrt(np.outer(np.square(left).sum(axis=1), np.square(right).sum(axis=0)))
    error = np.abs(np.asarray(shard.data).astype(np.float64) - left @ right)
    worst = max(worst, float((error / (32 * 2.0**-24 * scale)).max()))
median = statistics.median(seconds)
print(mesh, sharding)
print(f"error over tolerance {worst:.3g}, {median:.3g} s, {2 * n**3 / median / 1e9:.3g} GFLOP/s")
sys.exit(0 if worst <= 1 else 5)
