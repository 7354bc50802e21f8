"""Programs that people run, right and with faults, for the typical limit of rounding.

Each has a body in JAX, which takes the name of a fault or "", an oracle in plain NumPy, and inputs
of several kinds. `tried` runs one and returns the verdict on its result.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import pyreactant as pr
from pyreactant.arrays.source import ArraySource
from pyreactant.check.bounds.compare import compare
from pyreactant.check.bounds.expected import Expected
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.typical import SIGMAS, Typical
from pyreactant.check.bounds.verdict import Verdict
from pyreactant.check.programs import find_case

SHORT = jnp.bfloat16
DTYPES = ("float32", "bfloat16", "float16")
KINDS = ("normal", "uniform", "rows", "constant", "offset", "whole", "near", "few", "large")
"""Inputs: random; equal rows; one number; rows with an offset; whole numbers; all near 1; few
distinct numbers; eight times as large."""

EPSILON = 2.0**-17


def product(a: Any, b: Any, fault: str = "") -> Any:
    return in_short(a, b) if fault == "short sums" else jnp.matmul(a, b, precision="highest")


def in_short(a: Any, b: Any) -> Any:
    """A product that adds in bfloat16, or float16."""
    kind = a.dtype if a.dtype == jnp.float16 else SHORT

    def step(total: Any, pair: Any) -> Any:
        return total + pair[0][:, None] * pair[1][None, :], None

    start = jnp.zeros((a.shape[0], b.shape[1]), kind)
    return jax.lax.scan(step, start, (a.astype(kind).T, b.astype(kind)))[0].astype(a.dtype)


def row_sums(x: Any) -> Any:
    kind = x.dtype if x.dtype == jnp.float16 else SHORT
    start = jnp.zeros(x.shape[0], kind)
    total = jax.lax.scan(lambda s, c: (s + c, None), start, x.astype(kind).T)[0]
    return total.astype(x.dtype)


def ending(y: Any, fault: str) -> Any:
    if fault == "factor 1.01":
        return (y * jnp.asarray(1.01, jnp.float32)).astype(y.dtype)
    if fault == "lost shard":
        m = y.shape[0] // 8
        return y.at[m : 2 * m].set(0)
    return y


def attention(fault: str, q: Any, k: Any, v: Any) -> Any:
    n, d = q.shape
    scores = product(q, k.T, fault)
    scores = scores if fault == "no scale" else scores / jnp.sqrt(jnp.asarray(d, q.dtype))
    mask = jnp.tril(jnp.ones((n, n), bool), int(fault == "mask"))
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    return ending(product(weights, v, fault), fault)


def attention_oracle(q: Any, k: Any, v: Any) -> Any:
    n, d = q.shape
    scores = np.where(np.tril(np.ones((n, n), bool)), q @ k.T / np.sqrt(d), -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def gelu(fault: str, x: Any, w: Any, u: Any) -> Any:
    hidden = jax.nn.gelu(product(x, w, fault), approximate=fault != "erf")
    return ending(product(hidden, u, fault), fault)


def gelu_oracle(x: Any, w: Any, u: Any) -> Any:
    h = x @ w
    return (h * (0.5 * (1.0 + np.tanh(0.7978845608028654 * (h + 0.044715 * (h * h * h)))))) @ u


def swiglu(fault: str, x: Any, w: Any, g: Any, u: Any) -> Any:
    return ending(product(jax.nn.silu(product(x, w, fault)) * product(x, g, fault), u), fault)


def swiglu_oracle(x: Any, w: Any, g: Any, u: Any) -> Any:
    a = x @ w
    return (a / (1.0 + np.exp(-a)) * (x @ g)) @ u


def layer_norm(fault: str, x: Any, gain: Any, shift: Any) -> Any:
    c = x - jnp.mean(x, 1, keepdims=True)
    v = jnp.mean(c * c, 1, keepdims=True)
    if fault == "short sums":
        v = (row_sums(c * c) / x.shape[1])[:, None]
    if fault == "unbiased":
        v = v * (x.shape[1] / (x.shape[1] - 1))
    y = c * jax.lax.rsqrt(v + jnp.asarray(EPSILON, x.dtype))
    if fault == "epsilon":
        y = c / (jnp.sqrt(v) + EPSILON)
    return ending(y * gain + shift, fault)


def layer_norm_oracle(x: Any, gain: Any, shift: Any) -> Any:
    c = x - x.mean(axis=1, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=1, keepdims=True) + EPSILON) * gain + shift


def rotary(fault: str, x: Any) -> Any:
    n, d = x.shape
    turns = 10000.0 ** (-np.arange(d // 2) / (d // 2))
    angles = np.arange(n)[:, None] * turns + turns * (fault == "shift")
    c, s = jnp.asarray(np.cos(angles), x.dtype), jnp.asarray(np.sin(angles), x.dtype)
    a, b = x[:, : d // 2], x[:, d // 2 :]
    return ending(jnp.concatenate([a * c - b * s, a * s + b * c], 1), fault)


def rotary_oracle(x: Any) -> Any:
    n, d = x.shape
    angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(d // 2) / (d // 2))
    c, s = np.cos(angles), np.sin(angles)
    a, b = x[:, : d // 2], x[:, d // 2 :]
    return np.concatenate([a * c - b * s, a * s + b * c], axis=1)


def cross_entropy(fault: str, x: Any, w: Any, labels: Any) -> Any:
    logs = jax.nn.log_softmax(product(x, w, fault), axis=-1)
    labels = jnp.roll(labels, 1) if fault == "label" else labels
    return ending(-jnp.take_along_axis(logs, labels[:, None], 1)[:, 0], fault)


def cross_entropy_oracle(x: Any, w: Any, labels: Any) -> Any:
    z = x @ w
    s = z - z.max(axis=-1, keepdims=True)
    return np.log(np.exp(s).sum(axis=-1)) - np.take_along_axis(s, labels[:, None], 1)[:, 0]


def routed(fault: str, x: Any, w: Any, experts: Any) -> Any:
    z = product(x, w)
    p, chosen, y = jax.nn.softmax(z, -1), jnp.argmax(z, -1), jnp.zeros(x.shape, x.dtype)
    for e in range(experts.shape[0]):
        gate = jnp.ones_like(p[:, e]) if fault == "no gate" else p[:, e]
        own = product(x, experts[(e + (fault == "expert")) % experts.shape[0]], fault)
        y = jnp.where((chosen == e)[:, None], own * gate[:, None], y)
    return ending(y, fault)


def routed_oracle(x: Any, w: Any, experts: Any) -> Any:
    z = x @ w
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    p, chosen, y = e / e.sum(axis=-1, keepdims=True), np.argmax(z, axis=-1), np.zeros(x.shape)
    for j in range(experts.shape[0]):
        y = np.where((chosen == j)[:, None], (x @ experts[j]) * p[:, j][:, None], y)
    return y


def recurrent(fault: str, x: Any, w: Any, u: Any) -> Any:
    given = product(x, u)
    h = jnp.zeros_like(x)
    for _ in range(15 if fault == "steps" else 16):
        h = jnp.tanh(product(h, w, fault) + given)
    return ending(h, fault)


def recurrent_oracle(x: Any, w: Any, u: Any) -> Any:
    given = x @ u
    h = np.tanh(given)
    for _ in range(15):
        h = np.tanh(h @ w + given)
    return h


def adam(fault: str, p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * (g * g)
    mean, size = m / (1 - 0.9**3), v if fault == "bias" else v / (1 - 0.999**3)
    return ending(p - 0.01 * mean / (jnp.sqrt(size) + 1e-8), fault)


def adam_oracle(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * (g * g)
    mean, size = m / (1 - 0.9**3), v / (1 - 0.999**3)
    return p - 0.01 * mean / (np.sqrt(size) + 1e-8)


def row_sum(fault: str, x: Any) -> Any:
    return ending(row_sums(x) if fault == "short sums" else jnp.sum(x, 1), fault)


def row_sum_oracle(x: Any) -> Any:
    return x.sum(axis=1)


def dropout(fault: str, x: Any, w: Any, keep: Any) -> Any:
    y = product(x, w, fault)
    kept = jnp.where(keep, y if fault == "1/keep" else y / 0.9, 0)
    return ending(jnp.maximum(kept, 0), fault)


def dropout_oracle(x: Any, w: Any, keep: Any) -> Any:
    return np.maximum(np.where(keep, x @ w / 0.9, 0.0), 0.0)


def mixed(fault: str, x: Any, w: Any, u: Any) -> Any:
    """Products of bfloat16 with float32 sums; everything else in float32."""

    def both(a: Any, b: Any) -> Any:
        return jnp.matmul(a.astype(SHORT), b.astype(SHORT), preferred_element_type=jnp.float32)

    h = both(x, w)
    h = h.astype(SHORT).astype(jnp.float32) if fault == "short hidden" else h
    h = jax.nn.silu(h)
    short = fault == "short sums"
    y = in_short(h.astype(SHORT), u.astype(SHORT)).astype(jnp.float32) if short else both(h, u)
    if fault == "short norm":
        z = y.astype(SHORT)
        scale = jax.lax.rsqrt(jnp.mean(z * z, 1, keepdims=True))
        return (z * scale).astype(jnp.float32)
    return ending(y * jax.lax.rsqrt(jnp.mean(y * y, 1, keepdims=True)), fault)


def mixed_oracle(x: Any, w: Any, u: Any) -> Any:
    h = x.astype("bfloat16").astype("float32") @ w.astype("bfloat16").astype("float32")
    h = h / (1.0 + np.exp(-h))
    y = h.astype("bfloat16").astype("float32") @ u.astype("bfloat16").astype("float32")
    return y / np.sqrt((y * y).mean(axis=1, keepdims=True))


_ALWAYS = ("factor 1.01", "lost shard")
FAULTS: dict[Any, tuple[str, ...]] = {
    attention: ("short sums", "mask", "no scale"),
    gelu: ("short sums", "erf"),
    swiglu: ("short sums",),
    layer_norm: ("short sums", "epsilon", "unbiased"),
    rotary: ("shift",),
    cross_entropy: ("short sums", "label"),
    routed: ("short sums", "expert", "no gate"),
    recurrent: ("short sums", "steps"),
    adam: ("bias",),
    row_sum: ("short sums",),
    dropout: ("short sums", "1/keep"),
    mixed: ("short sums", "short hidden", "short norm"),
}
"""The faults of each program, beside two that all have."""

NAMES = tuple(function.__name__ for function in FAULTS)
FAULTS_OF = {function.__name__: (*faults, *_ALWAYS) for function, faults in FAULTS.items()}


def dtypes_of(name: str) -> tuple[str, ...]:
    return ("float32",) if name == "mixed" else DTYPES


def inputs(name: str, n: int, kind: str, seed: int) -> tuple[np.ndarray, ...]:
    """The inputs of a program, in float64 or integers."""
    random, d = np.random.default_rng(seed), min(n, 64)

    def some(*shape: int) -> np.ndarray:
        if kind == "uniform":
            return random.uniform(-1, 1, shape)
        return random.standard_normal(shape)

    def weights(a: int, b: int) -> np.ndarray:
        return some(a, b) / np.sqrt(a)

    x = {
        "rows": lambda: np.repeat(some(1, n), n, 0),
        "constant": lambda: np.full((n, n), 0.3),
        "offset": lambda: some(n, n) * 0.1 + random.uniform(3, 9, (n, 1)),
        "whole": lambda: random.integers(-3, 4, (n, n)).astype(float),
        "near": lambda: 1 + 1e-3 * some(n, n),
        "few": lambda: random.choice([-0.7, 0.1, 0.3], (n, n)),
        "large": lambda: 8 * some(n, n),
    }.get(kind, lambda: some(n, n))()
    alike = kind in ("rows", "constant", "whole", "few", "large")
    made: dict[str, Callable[[], tuple[np.ndarray, ...]]] = {
        "attention": lambda: (
            x[:, :d],
            x[:, -d:] if alike else some(n, d),
            np.full((n, d), 0.7) if kind == "constant" else some(n, d),
        ),
        "gelu": lambda: (x, weights(n, 2 * n), weights(2 * n, n)),
        "swiglu": lambda: (x, weights(n, 2 * n), weights(n, 2 * n), weights(2 * n, n)),
        "layer_norm": lambda: (x, 1 + 0.1 * some(n), 0.1 * some(n)),
        "cross_entropy": lambda: (x, 2 * weights(n, n), random.integers(0, n, n)),
        "routed": lambda: (x, weights(n, 8), np.stack([weights(n, n) for _ in range(8)])),
        "adam": lambda: (x, 0.1 * some(n, n), 0.1 * some(n, n), 0.1 * np.abs(some(n, n))),
        "dropout": lambda: (x, weights(n, n), random.random((n, n)) < 0.9),
        **{name: lambda: (x,) for name in ("rotary", "row_sum")},
    }
    return made.get(name, lambda: (x, weights(n, n), weights(n, n)))()


def program(name: str, arrays: tuple[np.ndarray, ...]) -> pr.Program:
    shapes = tuple(array.shape for array in arrays)
    return pr.Program(
        name,
        jax=f"{__name__}:{name}",
        oracle=f"{__name__}:{name}_oracle",
        inputs=shapes,
    )


@cache
def compiled(name: str, fault: str) -> Any:
    body = globals()[name]
    return jax.jit(lambda *arrays: body(fault, *arrays))


def held(array: np.ndarray, dtype: str) -> np.ndarray:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return array if array.dtype.kind in "bi" else array.astype(kind)


class Expectation:
    """What a program must return for some inputs, by its oracle."""

    def __init__(self, name: str, dtype: str, n: int, kind: str, seed: int) -> None:
        self.name = name
        self.arrays = tuple(held(array, dtype) for array in inputs(name, n, kind, seed))
        self.case, self.model = find_case(program(name, self.arrays)), Model.of(dtype)
        sources = tuple(map(ArraySource, self.arrays))
        derived: Any = self.case.expected(0, (), sources, self.model)
        assert self.case.runs is not None
        with np.errstate(all="ignore"):
            (result,) = self.case.runs(self.arrays, self.model)
        self.expected = Expected(
            derived.value,
            derived.bound,
            estimated=derived.estimated,
            typical=Typical.of(result, SIGMAS),
        )

    def result(self, fault: str = "") -> np.ndarray:
        return np.asarray(compiled(self.name, fault)(*map(jnp.asarray, self.arrays)))

    def verdict(self, fault: str = "") -> Verdict:
        return compare(self.result(fault), self.expected)
