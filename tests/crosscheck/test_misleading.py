"""Faults that resemble another one: they have their own name or none."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.check.records.verdict import Kind

from .faults import Scene, instead
from .trials import diagnosis_of

pytestmark = pytest.mark.usefixtures("backend")


def weights(x: Any, of: Any, mask: int = 0, scaled: bool = True) -> Any:
    """The weights of causal attention."""
    s = x @ x.T / (x.shape[1] ** 0.5 if scaled else 1.0)
    s = of.where(of.tril(of.ones(s.shape), mask) > 0, s, -1e30)
    e = of.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(x: Any, of: Any, mask: int = 0, scaled: bool = True) -> Any:
    return weights(x, of, mask, scaled) @ x


def dropout(x: Any, of: Any, keep: float = 0.8) -> Any:
    return x * (of.arange(x.shape[1]) % 5 != 0) / keep


def root_mean_square(x: Any, of: Any, under: float = 1e-6, beside: float = 0.0) -> Any:
    return x / (of.sqrt((x * x).mean(axis=1, keepdims=True) + under) + beside)


def ridge(x: Any, of: Any, more: float = 1.0) -> Any:
    return x @ of.linalg.inv(x.T @ x + more * of.eye(x.shape[1]))


def quantised(x: Any, of: Any, zero_point: float = 0.0) -> Any:
    return (x + zero_point) @ (x * x)


def waves(x: Any, of: Any, middle: float = 1.0, height: float = 0.0) -> Any:
    """Each row has a factor of its own."""
    return x * (middle + height * of.sin(of.arange(len(x))))[:, None]


FAULTS: list[tuple[Callable[..., Any], dict[str, Any], Kind]] = [
    (weights, {"mask": 1}, Kind.MASK),
    (weights, {"mask": -1}, Kind.MASK),
    (weights, {"scaled": False}, Kind.FACTOR),
    (attention, {"mask": 1}, Kind.MASK),
    (attention, {"mask": -1}, Kind.MASK),
    (attention, {"scaled": False}, Kind.FACTOR),
    (dropout, {"keep": 1.0}, Kind.FACTOR),
    (root_mean_square, {"under": 1e-5}, Kind.EPSILON),
    (root_mean_square, {"under": 1e-2}, Kind.EPSILON),
    (root_mean_square, {"under": 0.0, "beside": 1e-2}, Kind.EPSILON),
    (ridge, {"more": 1.001}, Kind.UNKNOWN),
    (quantised, {"zero_point": 0.002}, Kind.UNKNOWN),
    (waves, {"middle": 1 - 1 / 32, "height": 0.05}, Kind.UNKNOWN),
    (waves, {"middle": 3.0, "height": 0.5}, Kind.FACTOR),
]


@pytest.mark.parametrize(("function", "changed", "kind"), FAULTS)
def test_no_name_misleads(function: Any, changed: dict[str, Any], kind: Kind) -> None:
    def body(x: Any) -> Any:
        import jax.numpy as jnp

        return function(x, jnp)

    oracle = partial(function, of=np)
    program = pr.Program(function.__name__, jax=body, oracle=oracle, inputs=(("n", "n"),))
    scene = Scene.of(program, 32)
    assert diagnosis_of(scene.run).passed
    found = diagnosis_of(scene.with_blocks(instead(partial(oracle, **changed))(scene)))
    assert found.kind == kind, found.text
