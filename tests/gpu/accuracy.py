"""The expressions of tests/unit/expressions.py, computed by JAX on this process's first device.

`python -m tests.gpu.accuracy FAMILY PRECISION` prints JSON: how many expressions JAX computes, and
the largest error of each relative to its derived bound, for those that come to half of it.
"""

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pyreactant as pr
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.tracked import Tracked, track
from tests.unit.expressions import arrays, expressions

SEEDS = range(4)


def share_of_bound(got: Any, expected: Tracked) -> float:
    """The largest error relative to what is allowed; 0 if all elements are exact."""
    got = np.asarray(got)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    if got.shape != expected.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(wide) - expected.value)
        last = 2 * expected.model.roundoff * np.abs(expected.value)
        share = np.where(got == expected.value, 0, error / (expected.bound + last))
    return float(np.nan_to_num(share, nan=0 if not share.size else np.inf).max(initial=0))


def shares(family: str, precision: str) -> dict[str, float]:
    """The share of each expression that JAX can compute."""
    device = pr.devices()[0]
    model = Model.of("float32", platform=device.platform, kind=device.kind, precision=precision)
    found: dict[str, float] = {}
    for text in expressions(family):
        code = compile(text, "<expression>", "eval")

        @jax.jit
        def computed(values: dict[str, Any], code: Any = code) -> Any:
            return eval(code, {"np": jnp}, values)

        for seed in SEEDS:
            values = arrays(seed)
            tracked = {
                name: track(array, model).copy() if array.dtype.kind == "f" else array
                for name, array in values.items()
            }
            with np.errstate(all="ignore"):
                expected: Any = eval(code, {"np": np}, tracked)
            try:
                with jax.default_matmul_precision(precision):
                    got = computed(values)
            except (AttributeError, NotImplementedError, TypeError, IndexError, ValueError):
                break  # jax.numpy does not have it, or not under jit
            if isinstance(expected, Tracked):
                found[text] = max(found.get(text, 0.0), share_of_bound(got, expected))
    return found


if __name__ == "__main__":
    pr.initialize()
    found = shares(*sys.argv[1:])
    near = {text: share for text, share in found.items() if share >= 0.5}
    print(json.dumps({"computed": len(found), "near": near}))
