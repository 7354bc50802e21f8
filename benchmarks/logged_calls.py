"""A supervised program that prints the seconds of `pyreactant.log` calls, as JSON."""

import json
import sys
import time

import jax
import jax.numpy as jnp

import pyreactant as pr

CALLS = 200

multiply = jax.jit(lambda x: (x @ x).sum())
matrix = jnp.ones((64, 64))
found: dict[str, list[float]] = {"numbers": [], "array": []}
step = 0
for _ in range(int(sys.argv[1])):
    for kind, seconds in found.items():
        loss = multiply(matrix) if kind == "array" else 0.5
        begin = time.perf_counter()
        for _ in range(CALLS):
            step += 1
            pr.log(step, loss=loss, rate=0.1, norm=2.5, reduce={"loss": "mean"})
        seconds.append((time.perf_counter() - begin) / CALLS)
        time.sleep(0.3)  # longer than the period in which they are sent
print(json.dumps(found))
