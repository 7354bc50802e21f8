"""Programs of `jax.jit` on two processes; ``python -m tests.multiprocess.jits NAME``."""

import sys
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import pyreactant as pr


def placed() -> Any:
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    rows = NamedSharding(mesh, PartitionSpec("x"))
    return jax.make_array_from_callback((8,), rows, lambda index: np.arange(8.0)[index])


def constant(odd: bool) -> None:
    """Another constant on process 1: both compute, and one of them wrong numbers."""
    factor = 3.0 if odd else 2.0
    print("sum", float(jax.jit(lambda x: (x * factor).sum())(placed())))


def collectives(odd: bool) -> None:
    """Programs whose collectives do not fit together, so that both processes wait."""
    x = placed()

    def shift(block: Any) -> Any:
        there = [(0, 3), (3, 0)] if odd else [(0, 1), (1, 0)]
        return jax.lax.ppermute(block, "x", there)

    spec = PartitionSpec("x")
    y = jax.jit(jax.shard_map(shift, mesh=x.sharding.mesh, in_specs=spec, out_specs=spec))(x)
    whole = jax.jit(lambda y: y.sum())
    for _ in range(1000 if odd else 1):
        print("sum", float(whole(y)))


def one_more(odd: bool) -> None:
    """Process 0 goes on to a program that process 1 never comes to."""
    x = placed()
    print("sum", float(jax.jit(lambda x: x.sum())(x)))
    if not odd:
        print("sum", float(jax.jit(lambda x: (x * x).sum())(x)))


def thread(odd: bool) -> None:
    """The same, in a thread of a name that only process 0 starts."""
    x = placed()

    def evaluate() -> None:
        print("sum", float(jax.jit(lambda x: (x * x).sum())(x)))

    if not odd:
        other = threading.Thread(target=evaluate, name="evaluate")
        other.start()
        other.join()


def same(odd: bool) -> None:
    """What differs between the processes needs no other process, or is compiled again only."""
    x, total = placed(), jax.jit(lambda x: x.sum())
    mean = total(x) / 8
    if not odd:
        print("mean", float(mean * 2), float(jax.jit(lambda x: x + 1)(jnp.ones(4)).sum()))
        total.clear_cache()
    else:
        time.sleep(0.5)
    print("sum", float(total(x)))

    def told(x: Any) -> Any:
        jax.debug.print("{}", x.sum())
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((8,), "float32"), x)

    jax.block_until_ready(jax.jit(told)(x))
    print("sum", float(pr.compile(lambda x: x.sum(), pr.from_jax(x))(pr.from_jax(x))))


if __name__ == "__main__":
    pr.initialize("jax")
    globals()[sys.argv[1]](pr.process_index() == 1)
    pr.shutdown()
    print("done")
