"""The same program without pyreactant: `main.py` in hand-written JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

SIZE, STEPS, RATE, ROUNDS = 64, 8, 0.125, 5


def hot(index):
    """A block of a cold plate with a hot square in its middle."""
    rows, columns = np.ogrid[index]
    return ((abs(rows - SIZE / 2) < 8) & (abs(columns - SIZE / 2) < 8)).astype(np.float32)


def with_halo(u, axis, dimension):
    """A block with one more row or column at both ends, from its neighbours; zero at the edge."""
    forward = [(i, i + 1) for i in range(jax.lax.axis_size(axis) - 1)]
    first = jax.lax.slice_in_dim(u, 0, 1, axis=dimension)
    last = jax.lax.slice_in_dim(u, u.shape[dimension] - 1, None, axis=dimension)
    before = jax.lax.ppermute(last, axis, forward)
    after = jax.lax.ppermute(first, axis, [(j, i) for i, j in forward])
    return jnp.concatenate([before, u, after], dimension)


def step(_, u):
    """One step of each device's block."""
    tall, wide = with_halo(u, "x", 0), with_halo(u, "y", 1)
    around = tall[:-2] + tall[2:] + wide[:, :-2] + wide[:, 2:]
    return u + RATE * (around - 4 * u)


@jax.shard_map(in_specs=P("x", "y"), out_specs=P("x", "y"))
def evolve(u):
    """Some steps of the heat equation on a plate with cold edges."""
    return jax.lax.fori_loop(0, STEPS, step, u)


def start():
    """The compiled program and its argument."""
    mesh = jax.make_mesh((2, jax.device_count() // 2), ("x", "y"), (AxisType.Auto,) * 2)
    jax.set_mesh(mesh)
    blocks = NamedSharding(mesh, P("x", "y"))
    u = jax.make_array_from_callback((SIZE, SIZE), blocks, hot)
    return jax.jit(evolve, donate_argnums=0), u


def main():
    """Let the plate cool, and print how much heat is left."""
    evolve, u = start()
    for _ in range(ROUNDS):
        u = evolve(u)
    plate = multihost_utils.process_allgather(u, tiled=True)
    if jax.process_index() == 0:
        print(f"heat {plate.sum():.9g}, largest {plate.max():.9g}, corner {plate[16, 16]:.9g}")


if __name__ == "__main__":
    jax.distributed.initialize()
    main()
