"""Products of a check in float32: their bounds cover NumPy's rounding, and nothing else changes."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreactant.check.bounds import fused
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.rules import products
from pyreactant.check.bounds.rules.products import Float32Products
from pyreactant.check.bounds.tracked import Tracked, track
from pyreactant.check.inputs import ORDINARY_SET
from pyreactant.check.programs import find_case, perceptron

ROUNDING = Model.of("float32")


@pytest.fixture(autouse=True, scope="module")
def on_small_arrays() -> Iterator[None]:
    """Every product of matrices is formed in float32, by NumPy's formulas."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "LARGE", 0)
        patch.setattr(products, "LONG", 0)
        patch.setattr(fused, "available", lambda: False)
        yield


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, most) for most in (3, 9, 300, 9))),
    exponent=st.integers(-120, 50),
    cancels=st.booleans(),
    exact=st.booleans(),
    random=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_bound_covers_the_rounding_of_the_check(
    shape: tuple[int, ...], exponent: int, cancels: bool, exact: bool, random: bool, seed: int
) -> None:
    """What is added to the bound of a product in float64 covers what float32 changes."""
    batch, m, k, n = shape
    rng = np.random.default_rng(seed)
    x, y = (rng.uniform(-1, 1, size) for size in ((batch, m, k), (batch, k, n)))
    x *= 2.0**exponent
    if cancels and not random:
        x, y = np.repeat(x, 2, -1), np.repeat(y, 2, -2)
        x[..., 1::2] *= -1 + 1e-6
    if exact:
        x, y = x.astype(np.float32), y.astype(np.float32)
    model = Model.of("float32", random=random)
    factors = (track(x, model) if exact else Tracked(x, np.abs(x) * 1e-6, model)), track(y, model)
    right: Any = factors[0] @ factors[1]
    with Float32Products() as formed:
        quick: Any = factors[0] @ factors[1]
    assert formed.formed == 1
    assert quick.value.dtype == np.float64
    own = quick.bound - right.bound * (1 + 1e-6)
    assert (np.abs(quick.value - right.value) <= own).all()


def test_products_that_overflow_are_formed_in_float64() -> None:
    x = np.full((4, 4), 3e30, np.float32)
    right: Any = track(x, ROUNDING) @ track(x, ROUNDING)
    with Float32Products() as formed:
        quick: Any = track(x, ROUNDING) @ track(x, ROUNDING)
    assert not formed.formed
    np.testing.assert_array_equal(quick.value, right.value)
    np.testing.assert_array_equal(quick.bound, right.bound)


def test_other_operations_compute_in_float64() -> None:
    """The elements of an input are kept in float32, and their squares would be zero there."""
    x = np.array([[1e-30, 1, 3]], np.float32)
    operations: list[Any] = [np.square, lambda x: x.T + 1e-9, lambda x: x[:, :2] * x[:, 1:]]
    for operation in operations:
        one = operation(track(x, ROUNDING))
        with Float32Products():
            other = operation(track(x, ROUNDING))
        assert one.value.dtype == other.value.dtype == np.float64
        np.testing.assert_array_equal(one.value, other.value)
        np.testing.assert_array_equal(one.bound, other.bound)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("random", [True, False])
@pytest.mark.parametrize("name", ["perceptron_gradient", "sgd_step"])
def test_gradients_in_tiles_are_those_of_the_plain_oracle(
    name: str, random: bool, quick: bool
) -> None:
    """With more rows than the first stage takes at a time, and for parts of a result."""
    case, n, model = find_case(name), 320, Model.of("float32", random=random)
    sources = tuple(ORDINARY_SET.make(one, 0, i) for i, one in enumerate(case.inputs(n, "float32")))
    arrays = [s.read(tuple(slice(0, m) for m in s.shape)) for s in sources]
    oracle: Any = getattr(perceptron, f"{name}_oracle")
    right, program = oracle(*(one.astype(float) for one in arrays)), oracle(*arrays)
    assert case.outputs is not None
    for output, one in enumerate(case.outputs(n, "float32")):
        everything = tuple(slice(0, m) for m in one.shape)
        part = tuple(slice(m // 4, m // 2) for m in one.shape)
        with Float32Products() if quick else nullcontext() as formed:
            found: Any = case.expected(output, everything, sources, model)
            some: Any = case.expected(output, part, sources, model)
        assert formed is None or formed.formed
        for bounded, index in ((found, everything), (some, part)):
            assert (np.abs(bounded.value - right[output][index]) <= bounded.bound).all()
            assert (np.abs(program[output][index] - bounded.value) <= bounded.allowed).all()
        np.testing.assert_allclose(some.bound, found.bound[part], rtol=0.02)
        seen = np.median(found.bound) / np.sqrt(np.mean(found.value**2))
        assert 0 < seen < (1e-3 if random else np.inf)
