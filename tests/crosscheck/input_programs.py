"""Programs whose arguments are trees and ranges, and oracles that are of no use."""

import os
import sys
import time
from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.base.settings import INDEX

HERE = "tests.crosscheck.input_programs"


def _logits(params: Any, x: Any, of: Any) -> Any:
    logits = of.tanh(x @ params["w"]) @ params["out"]["v"] + params["out"]["b"]
    return logits - logits.max(axis=1, keepdims=True)


def numpy_loss(params: Any, x: np.ndarray, labels: np.ndarray) -> Any:
    logits = _logits(params, x, np)
    losses = np.log(np.exp(logits).sum(axis=1, keepdims=True)) - logits
    return losses[np.arange(len(x)), labels]


@pr.program(
    oracle=numpy_loss,
    inputs=(
        {"w": ("n", "n"), "out": {"v": ("n", 8), "b": (8,)}},
        ("n", "n"),
        pr.Integers(0, 8),
    ),
)
def loss(params: Any, x: Any, labels: Any) -> Any:
    """Cross entropy of a perceptron."""
    import jax.numpy as jnp

    logits = _logits(params, x, jnp)
    losses = jnp.log(jnp.exp(logits).sum(axis=1, keepdims=True)) - logits
    return losses[jnp.arange(len(x)), labels]


def numpy_entropy(p: np.ndarray) -> Any:
    return -p * np.log(p) - (1 - p) * np.log(1 - p)


@pr.program(oracle=numpy_entropy, inputs={"p": pr.Uniform(0.01, 1, shape=("n", "n"))})
def entropy(p: Any) -> Any:
    import jax.numpy as jnp

    return -p * jnp.log(p) - (1 - p) * jnp.log(1 - p)


def double(x: Any) -> Any:
    return 2 * x


def random(x: np.ndarray) -> Any:
    return 2 * x + np.random.default_rng().random()


def reads_a_file(x: np.ndarray) -> Any:
    return x * np.load("no-such-file.npy")


def changes_its_argument(x: np.ndarray) -> Any:
    x *= 2
    return x


def has_no_numbers(x: np.ndarray) -> Any:
    return x * np.nan


def exits(x: np.ndarray) -> Any:
    sys.exit(3)


def raises(x: np.ndarray) -> Any:
    raise KeyError("gone")


def prints(x: np.ndarray) -> Any:
    print("the oracle speaks")
    return 2 * x


def adds_in_any_order(x: np.ndarray) -> Any:
    """The same sum with other roundings, as threads make it."""
    return 2 * x[:, np.random.default_rng().permutation(x.shape[1])].sum(axis=1)


def endless_in_runs(x: np.ndarray) -> Any:
    while INDEX in os.environ:
        time.sleep(1)
    return 2 * x


def _doubled(oracle: str) -> pr.Program:
    return pr.Program(oracle, jax=f"{HERE}:double", oracle=f"{HERE}:{oracle}", inputs=(("n", "n"),))


of_random, of_a_file, of_a_changed, of_no_numbers, of_exits, of_raises, of_prints = map(
    _doubled,
    (
        "random",
        "reads_a_file",
        "changes_its_argument",
        "has_no_numbers",
        "exits",
        "raises",
        "prints",
    ),
)

of_endless_in_runs = _doubled("endless_in_runs")
