"""Benchmarks inside one process, against hand-written JAX on the same devices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import pyreactant as pr
from pyreactant.arrays.matmul import compile_matmul
from pyreactant.arrays.source import ArraySource, RandomSource
from pyreactant.arrays.text import bytes_text
from pyreactant.check.product.check import model_of, tolerance_of
from pyreactant.check.product.freivalds import freivalds
from pyreactant.check.product.on_devices import check_on_devices
from pyreactant.check.product.operands import misplaced

from ._measure import Pair, interleave, timed

SPEC = ("x", "y")


def _shape() -> tuple[int, int]:
    count = len(pr.devices())
    return (2, count // 2) if count > 1 else (1, 1)


def _ours() -> pr.NamedSharding:
    return pr.NamedSharding(pr.Mesh(_shape(), SPEC), SPEC)


def _theirs() -> NamedSharding:
    mesh = Mesh(np.array(jax.devices()).reshape(_shape()), SPEC)
    return NamedSharding(mesh, PartitionSpec(*SPEC))


def call(n: int, calls: int, repetitions: int) -> Pair:
    """Time a compiled product until its result is ready; each repetition makes `calls` calls."""
    x = np.random.default_rng(0).random((n, n), np.float32)
    a = pr.device_put(x, _ours())
    product = compile_matmul(a, a, None, None)
    b = jax.make_array_from_callback(x.shape, _theirs(), lambda index: x[index])
    by_hand = jax.jit(jnp.matmul, out_shardings=_theirs())

    def many(once: Any) -> float:
        def run() -> None:
            for _ in range(calls):
                once().block_until_ready()

        return timed(run) / calls

    ours, reference = interleave(
        partial(many, lambda: product(a, a)), partial(many, lambda: by_hand(b, b)), repetitions
    )
    if n == 8:
        return Pair("compiled matmul call, 8^2, added", ours, reference, 20e-6, difference=True)
    return Pair(f"compiled matmul call, {n}^2 float32", ours, reference, 1.02)


def matmul_call(repetitions: int) -> Pair:
    """Time what `matmul_sharded` of placed operands takes beyond its compiled program."""
    a = pr.device_put(np.ones((8, 8), np.float32), _ours())
    product = compile_matmul(a, a, None, None)

    def each(once: Callable[[], Any]) -> float:
        return timed(lambda: [once() for _ in range(100)]) / 100

    ours, reference = interleave(
        lambda: each(lambda: pr.matmul_sharded(a, a)),
        lambda: each(lambda: product(a, a)),
        repetitions,
    )
    name = "matmul_sharded, 8^2, over its compiled program"
    return Pair(name, ours, reference, 20e-6, difference=True)


def put(n: int, repetitions: int) -> Pair:
    """Time the placement of an n by n matrix over all devices."""
    x = np.ones((n, n), np.float32)
    sharding, by_hand = _ours(), _theirs()
    ours, reference = interleave(
        lambda: timed(lambda: pr.device_put(x, sharding).block_until_ready()),
        lambda: timed(
            lambda: jax.make_array_from_callback(
                x.shape, by_hand, lambda index: x[index]
            ).block_until_ready()
        ),
        repetitions,
    )
    count = len(pr.devices())
    name = f"device_put of {bytes_text(x.nbytes)} over {count} device{'s' if count > 1 else ''}"
    return Pair(name, ours, reference, 1.05)


def put_small(repetitions: int) -> Pair:
    """Time what the placement of 4 KiB takes beyond JAX's own."""
    x = np.ones((32, 32), np.float32)
    sharding, by_hand = _ours(), _theirs()

    def each(put: Callable[[], Any]) -> float:
        return timed(lambda: [put() for _ in range(50)]) / 50

    ours, reference = interleave(
        lambda: each(lambda: pr.device_put(x, sharding)),
        lambda: each(
            lambda: jax.make_array_from_callback(x.shape, by_hand, lambda index: x[index])
        ),
        repetitions,
    )
    name = f"device_put of 4 KiB over {len(pr.devices())} devices, over by hand"
    return Pair(name, ours, reference, 0.5e-3, difference=True)


def device_check(n: int, dtype: str, bound: float, repetitions: int) -> list[Pair]:
    """Time the check of a product on its devices at n^2, and its operands' digests."""
    sources = tuple(RandomSource((n, n), dtype, 0, stream) for stream in (0, 1))
    a, b = (pr.from_callback(s.shape, s.dtype, _ours(), s.read) for s in sources)
    product = compile_matmul(a, b, None, "highest")
    c = product(a, b).block_until_ready()
    model = model_of(c, (_ours(), _ours()), "highest", random=True)
    parts: list[tuple[str, Callable[[], object], float]] = [
        ("check", lambda: check_on_devices((a, b), c, model), bound),
        ("digests of the operands", lambda: misplaced(sources, (a, b)), 0.20),
    ]
    pairs = []
    for name, run, limit in parts:
        ours, reference = interleave(
            partial(timed, run),
            lambda: timed(lambda: product(a, b).block_until_ready()),
            repetitions,
        )
        pairs.append(Pair(f"{name} on the devices, {dtype}, {n}^2", ours, reference, limit))
    return pairs


def check(n: int, repetitions: int) -> list[Pair]:
    """Time Freivalds' check at n^2 relative to the product itself."""
    everything = (slice(0, n), slice(0, n))
    sources = [RandomSource((n, n), "float32", 0, stream) for stream in (0, 1)]
    x, y = (source.read(everything) for source in sources)
    a, b = (pr.device_put(z, _ours()) for z in (x, y))
    product = compile_matmul(a, b, None, None)
    c = product(a, b).block_until_ready()
    shardings = (_ours(), _ours())
    tolerance = tolerance_of(c, n, shardings, None, random=True)
    pairs = []
    cases: list[tuple[str, list[Any]]] = [
        ("in memory", [ArraySource(x), ArraySource(y)]),
        ("made again from the seed", list(sources)),
    ]
    for name, given in cases:
        left, right = given
        run = partial(freivalds, left, right, c, shardings, tolerance)
        ours, reference = interleave(
            partial(timed, run),
            lambda: timed(lambda: product(a, b).block_until_ready()),
            repetitions,
        )
        pairs.append(Pair(f"Freivalds' check at {n}^2, operands {name}", ours, reference, 0.10))
    return pairs
