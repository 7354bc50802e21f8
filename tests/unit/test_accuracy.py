"""Accuracies of elementary functions by platform: the limits that XLA's own tests state."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.tracked import track

TPU_LIMITS: list[tuple[str, Callable[..., Any], float, dict[str, float]]] = [
    # A function, its absolute limit, and its relative one in eps = 2u, by device kind.
    ("exp", np.exp, 0, {"TPU v4": 75, "TPU v5 lite": 75, "TPU v6 lite": 33, "TPU7x": 33}),
    ("expm1", np.expm1, 1e-5, {"TPU v3": 100, "TPU v5p": 100, "TPU v5": 100}),
    ("expm1", np.expm1, 0, {"TPU v6 lite": 33}),
    ("log", np.log, 2e-4, {"TPU v4": 1, "TPU v5p": 1, "an unknown kind": 1}),
    ("log", np.log, 0, {"TPU v6 lite": 20}),
    ("log1p", np.log1p, 2e-4, {"TPU v4": 1, "TPU v6e": 1, "TPU7x": 1}),
    ("tanh", np.tanh, 5e-4, {"TPU v2": 0, "TPU v5 lite": 0, "": 0}),
    ("tanh", np.tanh, 0, {"TPU v6 lite": 20}),
    ("divide", lambda x: 3 / x, 0, {"TPU v4": 136, "TPU v5": 34, "TPU v6e": 2, "": 136}),
    ("sqrt", np.sqrt, 0, {"TPU v4": 2, "TPU7x": 2}),
    ("sin", np.sin, 0, {"TPU v4": 2, "TPU7x": 2}),
]


@pytest.mark.parametrize(("name", "function", "absolute", "kinds"), TPU_LIMITS)
def test_accuracies_of_tpus(
    name: str, function: Callable[..., Any], absolute: float, kinds: dict[str, float]
) -> None:
    x = np.linspace(0.01, 3, 50, dtype=np.float32)
    for kind, eps in kinds.items():
        expected = function(track(x, Model.of("float32", platform="tpu", kind=kind)))
        limit = absolute + eps * 2.0**-23 * np.abs(expected.value)
        assert np.all(expected.bound >= limit), (name, kind)
        assert np.all(expected.bound <= 1.01 * limit + 1e-37), (name, kind)
