"""The heat equation: each device holds a block of the plate and exchanges its edges."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import pyreactant as pr

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


def numpy_evolve(u):
    """The same in NumPy, for the cross-check."""
    for _ in range(STEPS):
        p = np.pad(u, 1)
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        u = u + RATE * (around - 4 * u)
    return u


@pr.program(oracle=numpy_evolve, inputs=(("n", "n"),))
@jax.shard_map(in_specs=P("x", "y"), out_specs=P("x", "y"))
def evolve(u):
    """Some steps of the heat equation on a plate with cold edges."""
    return jax.lax.fori_loop(0, STEPS, step, u)


def start():
    """The compiled program and its argument."""
    blocks = pr.NamedSharding(pr.Mesh((2, -1), ("x", "y")), ("x", "y"))
    u = pr.from_callback((SIZE, SIZE), np.float32, blocks, hot)
    return pr.compile(evolve, u, donate=0), u


def main():
    """Let the plate cool, and print how much heat is left."""
    evolve, u = start()
    for _ in range(ROUNDS):
        u = evolve(u)
    plate = u.gather()
    if pr.process_index() == 0:
        print(f"heat {plate.sum():.9g}, largest {plate.max():.9g}, corner {plate[16, 16]:.9g}")


if __name__ == "__main__":
    pr.initialize()
    main()
