"""Faults of one operation of a program: each has a right name, or none."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.check.check import check_all
from pyreactant.check.records.verdict import Kind

from .faults import Scene, every, instead
from .trials import diagnosis_of

pytestmark = pytest.mark.usefixtures("backend")


def softmax(x: Any, of: Any, axis: int = -1, over: Any = None) -> Any:
    e = of.exp(x - x.max(axis=axis, keepdims=True))
    total = e if over is None else e[:, over]
    return e / total.sum(axis=axis, keepdims=True)


def normalised(x: Any, of: Any, less: int = 0, over: Any = None, under: float = 1e-5) -> Any:
    part = x if over is None else x[:, over]
    apart = x - part.mean(axis=1, keepdims=True)
    own = apart if over is None else apart[:, over]
    square = (own * own).sum(axis=1, keepdims=True) / (own.shape[1] - less)
    return apart / of.sqrt(square + under)


def windowed(x: Any, of: Any, width: int = 4, ahead: int = 0, strict: bool = False) -> Any:
    rows, columns = of.arange(x.shape[0])[:, None], of.arange(x.shape[0])[None, :]
    near = (rows - columns < width) if strict else (rows - columns <= width)
    seen = near & (columns <= rows + ahead)
    return of.where(seen, x @ x.T, 0.0) @ x


def mlp(x: Any, of: Any, lost: Any = None, twice: bool = False, turned: bool = False) -> Any:
    h = of.tanh(x @ (x.T if turned else x) / x.shape[1])
    hidden = h if lost is None else h * (of.arange(h.shape[1]) // (h.shape[1] // 4) != lost)
    return of.tanh(hidden @ x) * (2 if twice else 1)


def moments(x: Any, of: Any, beside: bool = False, epsilon: float = 1e-3) -> Any:
    """A step of Adam."""
    v = 0.001 * x * x
    return 0.1 * x / (of.sqrt(v) + epsilon if beside else of.sqrt(v + epsilon))


def halved(x: Any, of: Any, by: float = 0.5) -> Any:
    return of.tanh(x * by) + x


def padded(x: Any, of: Any, length: int = 20, back: int = 0) -> Any:
    seen = of.arange(x.shape[1]) < length - back
    return of.tanh((x * seen).sum(axis=1, keepdims=True)) + x


def rolled(x: Any, of: Any, by: int = 2) -> Any:
    return of.tanh(x) * of.roll(x, by, axis=1)


def entropy(x: Any, of: Any, count: int = 0) -> Any:
    p = softmax(x, of)
    losses = -(p * of.log(p)).sum(axis=1)
    return x * (losses.sum() / (len(x) - count))


FAULTS: list[tuple[Callable[..., Any], dict[str, Any], set[Kind]]] = [
    (softmax, {"axis": 0}, {Kind.DIMENSION}),
    (softmax, {"over": slice(0, 8)}, {Kind.MISSING_REDUCTION}),
    (softmax, {"over": slice(8, None)}, {Kind.PARTS}),
    (normalised, {"less": 1}, {Kind.VARIANCE}),
    (normalised, {"over": slice(16, 24)}, {Kind.MISSING_REDUCTION}),
    (normalised, {"under": 1e-3}, {Kind.EPSILON}),
    (windowed, {"ahead": 1}, {Kind.MASK}),
    (windowed, {"ahead": -1}, {Kind.MASK}),
    (windowed, {"strict": True}, {Kind.MASK}),
    (mlp, {"lost": 2}, {Kind.PARTS}),
    (mlp, {"turned": True}, {Kind.TRANSPOSED}),
    (mlp, {"twice": True}, {Kind.FACTOR, Kind.MISSING_REDUCTION}),
    (moments, {"beside": True}, {Kind.EPSILON}),
    (moments, {"epsilon": 1e-5}, {Kind.EPSILON}),
    (halved, {"by": 1.0}, {Kind.FACTOR}),
    (halved, {"by": 2.0}, {Kind.FACTOR}),
    (padded, {"back": 1}, {Kind.MASK}),
    (padded, {"length": 32}, {Kind.MASK}),
    (rolled, {"by": 3}, {Kind.SHIFTED}),
    (rolled, {"by": -2}, {Kind.SHIFTED}),
    (entropy, {"count": 1}, {Kind.VARIANCE, Kind.FACTOR}),
]


def branched(x: Any, of: Any, scale: float = 0.5, more: float = 3.0) -> Any:
    """What follows an altered operation may take another branch, with other operations."""
    h = x * scale
    if float(abs(h).max()) > 0.6:
        h = h * h * 0.25
    return of.tanh(h * more) * x


@pytest.mark.parametrize(
    ("changed", "factor"),
    [
        ({"scale": 1.0}, "without its multiplication by 0.5"),
        ({"more": 1.0}, "without its multiplication by 3"),
    ],
)
def test_an_oracle_may_branch_on_values(changed: dict[str, float], factor: str) -> None:
    def body(x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.tanh(x * 1.5) * x

    oracle = partial(branched, of=np)
    program = pr.Program("branched", jax=body, oracle=oracle, inputs=(("n", "n"),))
    scene = Scene.of(program, 32)
    found = diagnosis_of(scene.with_blocks(instead(partial(branched, of=np, **changed))(scene)))
    assert found.kind == Kind.FACTOR, found.text
    line = branched.__code__.co_firstlineno + (2 if "scale" in changed else 5)
    assert f"{factor} (tests/crosscheck/test_operations.py, line {line})" in found.text


@pytest.mark.parametrize(("function", "changed", "kinds"), FAULTS)
def test_the_operation_is_named(function: Any, changed: dict[str, Any], kinds: set[Kind]) -> None:
    def body(x: Any) -> Any:
        import jax.numpy as jnp

        return function(x, jnp)

    def oracle(x: Any) -> Any:
        return function(x, np)

    program = pr.Program(function.__name__, jax=body, oracle=oracle, inputs=(("n", "n"),))
    scene = Scene.of(program, 32)
    found = diagnosis_of(scene.with_blocks(instead(partial(function, of=np, **changed))(scene)))
    assert found.kind in kinds, found.text


@pytest.mark.parametrize("dtype", ["int32", "int8", "bool"])
def test_rounded_results_of_integers_have_a_bound(dtype: str) -> None:
    def body(x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.tanh(x @ x), x @ x

    def oracle(x: Any) -> Any:
        return np.tanh(x @ x), x @ x

    program = pr.Program("tanh", jax=body, oracle=oracle, inputs=(("n", "n"),))
    scene = Scene.of(program, 32, dtype=dtype)
    assert diagnosis_of(scene.run).passed
    assert scene.run.model(1) is None, "whole numbers are compared as they are"
    assert not scene.run.exact, "two runtimes may round differently"
    found = diagnosis_of(scene.with_blocks(every(lambda block: block * 1.001)(scene)))
    assert not found.passed


def test_the_map_has_the_elements_that_are_counted() -> None:
    """Of a result far beyond its bound, elements beyond the typical limit alone are not wrong."""

    def body(x: Any) -> Any:
        import jax.numpy as jnp

        return softmax(x, jnp)

    def oracle(x: Any) -> Any:
        return softmax(x, np)

    program = pr.Program("softmax", jax=body, oracle=oracle, inputs=(("n", "n"),))
    scene = Scene.of(program, 32, typical=8.0)
    factors = 1 + 2e-6 * (np.arange(32) % 8)
    blocks = instead(lambda x: softmax(x, np) * factors)(scene)
    wrong = [verdict for verdict in check_all(scene.with_blocks(blocks)) if not verdict.passed]
    assert any(0 < verdict.values.wrong < verdict.values.elements for verdict in wrong)
    for verdict in wrong:
        if verdict.values.places is not None:
            assert int(np.sum(verdict.values.places)) == verdict.values.wrong
