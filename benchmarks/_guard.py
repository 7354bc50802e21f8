"""Benchmarks of the guard: what a call, an exchange and a compilation cost with it."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from pyreactant.arrays.runtimes.guard.guard import Guard
from pyreactant.arrays.runtimes.guard.operation import Calls, program_digest
from tests.harness import run_environments
from tests.unit.guards import MemoryStore, placed, together

from ._measure import Pair, interleave, keeping_bytecode, timed

_PROGRAM = str(Path(__file__).with_name("guard_exchange.py"))
_CALLS = 20_000
_WIDTH, _LAYERS, _HEADS = 256, 12, 8


def call(repetitions: int) -> Pair:
    """Time that the guard adds to a call of a compiled program with two arguments."""
    guard = Guard(MemoryStore(), 0, 1, fail=lambda error: None)
    calls = Calls(placed(1))
    numbers = [1, 2]

    def enter() -> None:
        guard.ran(calls.here(), tuple([number for number in numbers]), 1)  # noqa: C416

    def nothing() -> None:
        """What is called without a guard."""

    def each(function: Any) -> float:
        def run() -> None:
            for _ in range(_CALLS):
                function()

        return timed(run) / _CALLS

    ours, reference = interleave(lambda: each(enter), lambda: each(nothing), repetitions)
    guard.close()
    return Pair("guard: added to a call", ours, reference, 1e-6, difference=True)


def exchange() -> Pair:
    """Time until two processes have agreed about an operation, over JAX's coordination service."""
    running = [
        subprocess.Popen(
            [sys.executable, _PROGRAM],
            env=keeping_bytecode(settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for settings in run_environments(2, 1)
    ]
    outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError("a process of the exchange failed")
    seconds = json.loads(outputs[0])
    return Pair("guard: exchange of 2 processes", seconds, None, 3e-3)


def digest(repetitions: int) -> Pair:
    """Time of a program's digest over that of lowering it: a transformer's training step."""
    parameters = [_block_parameters() for _ in range(_LAYERS)]
    x = jnp.ones((4, 128, _WIDTH))
    ours, reference = [], []
    for _ in range(repetitions + 1):
        start = time.perf_counter()
        lowered = jax.jit(lambda p, x: _step(p, x)).lower(parameters, x)
        text = lowered.as_text()
        reference.append(time.perf_counter() - start)
        ours.append(timed(lambda text=text: program_digest(text)))  # type: ignore[misc]
    return Pair("guard: digest over lowering", ours[1:], reference[1:], 0.1)


def many(count: int, repetitions: int) -> Pair:
    """Time until `count` processes, which are threads, have agreed about an operation."""

    def run() -> None:
        found = together(count, lambda guard, _: guard.announce(placed(1)), tick=0)
        failed = [one for one in found if not isinstance(one, int)]
        if failed:
            raise RuntimeError(f"a process failed: {failed[0]}")

    seconds = [timed(run) for _ in range(repetitions + 1)][1:]
    return Pair(f"guard: exchange of {count} processes", seconds, None, 2.0)


def _block_parameters() -> dict[str, jax.Array]:
    square = {name: jnp.ones((_WIDTH, _WIDTH)) for name in "qkvo"}
    up, down = jnp.ones((_WIDTH, 4 * _WIDTH)), jnp.ones((4 * _WIDTH, _WIDTH))
    return {**square, "gain": jnp.ones(_WIDTH), "up": up, "down": down}


def _block(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
    batch, length, width = x.shape

    def heads(name: str) -> jax.Array:
        return (h @ p[name]).reshape(batch, length, _HEADS, -1).transpose(0, 2, 1, 3)

    centred = x - x.mean(-1, keepdims=True)
    h = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p["gain"]
    scores = heads("q") @ heads("k").transpose(0, 1, 3, 2)
    past = jnp.tril(jnp.ones((length, length), bool))
    mixed = jax.nn.softmax(jnp.where(past, scores, -1e9)) @ heads("v")
    x = x + mixed.transpose(0, 2, 1, 3).reshape(batch, length, width) @ p["o"]
    return x + jax.nn.gelu(x @ p["up"]) @ p["down"]


def _loss(parameters: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    for p in parameters:
        x = _block(x, p)
    return (x**2).mean()


def _step(parameters: list[dict[str, jax.Array]], x: jax.Array) -> Any:
    gradients = jax.grad(_loss)(parameters, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)
