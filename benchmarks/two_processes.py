"""Program for the benchmark of `pyreactant run`: start JAX, compute one product, end."""

import numpy as np

import pyreactant as pr

pr.initialize()
mesh = pr.Mesh((len(pr.devices()),), ("i",))
x = pr.device_put(np.ones((8, 8), np.float32), pr.NamedSharding(mesh, ("i",)))
pr.matmul_sharded(x, x).block_until_ready()
