"""Benchmarks of training steps, against hand-written JAX: time, calls with trees, and memory."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import pyreactant as pr

from ._measure import Pair, interleave, timed

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LEAVES = 200
SIZES: Mapping[str, Mapping[str, float]] = {
    "data_parallel": {"BATCH": 512, "FEATURES": 256, "HIDDEN": 1024},
    "fsdp": {"WIDTH": 256, "LENGTH": 64},
    "heat": {"SIZE": 2048},
    "julia_model": {"BATCH": 4096, "FEATURES": 64, "HIDDEN": 512},
    "pipeline": {"WIDTH": 256, "BATCH": 32, "RATE": 1e-3},
    "tensor_parallel": {"WIDTH": 256, "HIDDEN": 1024, "BATCH": 512},
}
"""In place of the sizes of the examples; a step takes 10 to 100 ms on two cores."""


def steps(names: Iterable[str], calls: int, repetitions: int) -> list[Pair]:
    """Time a step of each example; each repetition makes `calls` steps and waits after each."""
    return [_step(name, calls, repetitions) for name in names]


def _step(name: str, calls: int, repetitions: int) -> Pair:
    # A thread for each, because jax.set_mesh holds for the rest of a thread.
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        loops = [
            threads.submit(_Loop, EXAMPLES / name / file).result()
            for threads, file in ((first, "main.py"), (second, "plain_jax.py"))
        ]
        ours, reference = interleave(
            lambda: first.submit(loops[0], calls).result(),
            lambda: second.submit(loops[1], calls).result(),
            repetitions,
        )
    return Pair(f"step of examples/{name}", ours, reference, 1.05)


class _Loop:
    """The training loop of an example.

    Args:
        path: The program. Its `start` returns a step and the step's arguments; the results of a
            step are its first arguments again, and then a loss (the heat equation has none).
    """

    def __init__(self, path: Path) -> None:
        spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        vars(module).update(SIZES[path.parent.name])
        self._step, *self._args = module.start()

    def __call__(self, calls: int) -> float:
        """Seconds of one step."""
        return timed(lambda: self._run(calls)) / calls

    def _run(self, calls: int) -> None:
        for _ in range(calls):
            results = self._step(*self._args)
            several = results if isinstance(results, tuple) else (results, results)
            self._args[: len(several) - 1] = several[:-1]
            several[-1].block_until_ready()


def tree(calls: int, repetitions: int) -> Pair:
    """Time a call with a dictionary of 200 arrays that returns one, until its results are ready."""
    given = {f"layer {i}": np.full(8, i, np.float32) for i in range(LEAVES)}
    cut = pr.NamedSharding(pr.Mesh((len(pr.devices()),), ("x",)), ("x",))
    x, y = pr.device_put(given, cut), jax.device_put(given, cut.to_jax())
    compiled, jitted = pr.compile(_add_one, x), jax.jit(_add_one)

    def many(once: Callable[[], Mapping[str, Any]]) -> float:
        def run() -> None:
            for _ in range(calls):
                for leaf in once().values():
                    leaf.block_until_ready()

        return timed(run) / calls

    ours, reference = interleave(
        partial(many, lambda: compiled(x)), partial(many, lambda: jitted(y)), repetitions
    )
    return Pair(f"call with a tree of {LEAVES} arrays", ours, reference, 1.5)


def _add_one(given: Any) -> Any:
    return jax.tree.map(lambda a: a + 1, given)


STEP = """
import resource, sys
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_num_cpu_devices", 8)
from jax.sharding import AxisType, NamedSharding, PartitionSpec
import pyreactant as pr

LAYERS, SIZE = int(sys.argv[2]), 4096  # 64 MiB each

def init():
    return [jnp.full((SIZE, SIZE), 1e-3, jnp.float32) for _ in range(LAYERS)]

def loss(params, x):
    for layer in params:
        x = jnp.tanh(x @ layer)
    return jnp.mean(x**2)

def step(params, x):
    value, gradient = jax.value_and_grad(loss)(params, x)
    return [p - 0.1 * g for p, g in zip(params, gradient)], value

x = np.ones((8, SIZE), np.float32)
if sys.argv[1] == "ours":
    pr.initialize(platform="cpu", num_cpu_devices=8)
    mesh = pr.Mesh((8,), ("x",))
    rows, copied = pr.NamedSharding(mesh, ("x",)), pr.NamedSharding(mesh, ())
    params, x = pr.compile(init, out_sharding=rows)(), pr.device_put(x, copied)
    run = pr.compile(step, params, x, out_sharding=(rows, copied), donate=0)
    analysis = run.memory_analysis()
else:
    mesh = jax.make_mesh((8,), ("x",), (AxisType.Auto,))
    rows, copied = (NamedSharding(mesh, PartitionSpec(*s)) for s in (("x",), ()))
    params, x = jax.jit(init, out_shardings=rows)(), jax.device_put(x, copied)
    run = jax.jit(step, out_shardings=(rows, copied), donate_argnums=0).lower(params, x).compile()
    analysis = run.memory_analysis()
for _ in range(2):
    params, value = run(params, x)
    value.block_until_ready()
sizes = [getattr(analysis, f"{k}_size_in_bytes") for k in ("argument", "output", "temp", "alias")]
print(sum(sizes[:3]) - sizes[3], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def memory(mebibytes: int, repetitions: int) -> list[Pair]:
    """The memory of a training step with donation and so many weights, in child processes."""
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "reference": []}

    def run(which: str) -> float:
        argv = [sys.executable, "-c", STEP, which, str(mebibytes // 64)]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        analysed, resident = map(float, done.stdout.split()[-2:])
        found[which].append((analysed, resident))
        return resident

    ours, reference = interleave(partial(run, "ours"), partial(run, "reference"), repetitions)
    analysed, by_hand = ([each[0] for each in found[which][-repetitions:]] for which in found)
    name = f"training step with donation, {mebibytes} MiB of weights"
    return [
        Pair(f"{name}: memory_analysis of a device", analysed, by_hand, 1.05, unit="B"),
        Pair(f"{name}: largest resident size", ours, reference, 1.05, unit="B"),
    ]
