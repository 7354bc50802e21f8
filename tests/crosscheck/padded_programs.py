"""Programs most of whose result is padding, a mask or a copy: right ones and wrong ones."""

from collections.abc import Callable
from typing import Any

import numpy as np

import pyreactant as pr

SQUARES = (("n", "n"), ("n", "n"))


def net(x: Any, w: Any, layers: int, of: Any) -> Any:
    for _ in range(layers):
        x = of.tanh(x @ w)
    return x


def padded(fault: Callable[[Any], Any]) -> pr.Program:
    """16 layers; the last five eighths of the rows are set to 0."""

    def oracle(x: np.ndarray, w: np.ndarray) -> Any:
        rows = np.arange(len(x))[:, None]
        return np.where(rows < len(x) * 3 // 8, net(x, w, 16, np), 0.0)

    def body(x: Any, w: Any) -> Any:
        import jax.numpy as jnp

        rows = jnp.arange(len(x))[:, None]
        return jnp.where(rows < len(x) * 3 // 8, fault(net(x, w, 16, jnp)), 0.0)

    return pr.Program("padded", jax=body, oracle=oracle, inputs=SQUARES)


def quarter(factor: float) -> pr.Program:
    """12 layers on the first quarter of the rows; the others are those of the input."""

    def oracle(x: np.ndarray, w: np.ndarray) -> Any:
        first = len(x) // 4
        return np.concatenate([net(x[:first], w, 12, np), x[first:]])

    def body(x: Any, w: Any) -> Any:
        import jax.numpy as jnp

        first = len(x) // 4
        return jnp.concatenate([factor * net(x[:first], w, 12, jnp), x[first:]])

    return pr.Program("quarter", jax=body, oracle=oracle, inputs=SQUARES)


def rolled(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.roll(x, 1, 1)


WRONG = {
    "rolled": lambda: padded(rolled),
    "scaled": lambda: padded(lambda x: x * 0.9),
    "lost": lambda: quarter(0.0),
    "halved": lambda: quarter(0.5),
}
"""Wrong programs in float32 that only their bound lets pass."""


def _masked(of: Any, x: Any) -> Any:
    below = of.tril(of.ones(x.shape, bool))
    return of.where(below, of.tanh(x @ x.T / 8), -1e9)


def _attention(of: Any, x: Any, y: Any) -> Any:
    below = of.tril(of.ones(x.shape, bool))
    scores = of.where(below, x @ y.T / 8, -np.inf)
    weights = of.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def _rows(of: Any, x: Any, y: Any) -> Any:
    return of.where(of.arange(len(x))[:, None] < len(x) * 3 // 8, of.exp(x @ y / 8), 0.0)


def _times(of: Any, x: Any, y: Any) -> Any:
    return of.exp(x @ y / 8) * (of.arange(len(x))[:, None] < len(x) // 8)


def _of(name: str, count: int, function: Callable[..., Any]) -> pr.Program:
    def body(*arrays: Any) -> Any:
        import jax.numpy as jnp

        return function(jnp, *arrays)

    def oracle(*arrays: np.ndarray) -> Any:
        return function(np, *arrays)

    return pr.Program(name, jax=body, oracle=oracle, inputs=(("n", "n"),) * count)


RIGHT = (
    _of("masked", 1, _masked),
    _of("attention_weights", 2, _attention),
    _of("padded_rows", 2, _rows),
    _of("times_mask", 2, _times),
)
"""Right programs with constant elements in most of their results."""
