"""Error bounds of oracles: never below the real float32 error, for any order of summation."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as arrays

from pyreactant.arrays.dtypes import as_dtype
from pyreactant.check.bounds.estimate import estimate
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.tracked import Tracked, UnknownOperationError, as_tracked, track

MODEL = Model.of("float32")
RANDOM = Model.of("float32", random=True)


def numbers(shape: Any, low: float = -100.0, high: float = 100.0) -> Any:
    return arrays.arrays(
        np.float32, shape, elements=st.floats(low, high, width=32, allow_subnormal=False)
    )


def within(got: Any, expected: Any) -> bool:
    error = np.abs(np.asarray(got, expected.value.dtype) - expected.value)
    return bool(np.all(error <= expected.bound))


def in_any_order(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sum the last dimension in float32, along a random tree."""
    parts = [x[..., i] for i in rng.permutation(x.shape[-1])]
    while len(parts) > 1:
        # From left to right, pairs of neighbours, or random pairs.
        i = 0 if rng.random() < 0.5 else int(rng.integers(len(parts) - 1))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts[0]


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / (abs(y) + 1),
    "reciprocal": lambda x, y: np.reciprocal(abs(x) + 0.5) + y,
    "square": lambda x, y: np.square(x) - y**3,
    "exp": lambda x, y: np.exp(x * 0.125) - np.exp(y * 0.125),
    "expm1": lambda x, y: np.expm1(x * 0.01) * y,
    "log": lambda x, y: np.log(abs(x) + 0.1) + np.log1p(abs(y)),
    "tanh": lambda x, y: np.tanh(x) * np.tanh(y * 0.1),
    "trigonometric": lambda x, y: np.sin(x) + np.cos(y) - np.arctan(x),
    "sqrt": lambda x, y: np.sqrt(abs(x * y)),
    "hypot": lambda x, y: np.hypot(x, y),
    "extremes": lambda x, y: np.maximum(x, y) * np.minimum(x, 0.3),
    "constants": lambda x, y: 0.1 * x + y / 3,
    "relu": lambda x, y: np.where(x > y, x, 0.1 * y),
    "truth": lambda x, y: (x * 0.1 >= y * 0.1) * x,
    "sigmoid": lambda x, y: 1 / (1 + np.exp(-x * 0.1)) + y**0.5**0,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@settings(max_examples=30)
@given(numbers(7), numbers(7))
def test_elementwise_operations_in_float32_are_within_the_bound(
    name: str, x: np.ndarray, y: np.ndarray
) -> None:
    function = ELEMENTWISE[name]
    expected = function(track(x, MODEL), track(y, MODEL))
    assert within(function(x, y), expected)
    assert expected.bound.min() >= 0


@settings(max_examples=100)
@given(st.data(), st.integers(1, 60), st.integers(0, 2**32))
def test_sums_in_any_order_of_any_numbers(data: Any, n: int, seed: int) -> None:
    x = data.draw(numbers((3, n)))
    expected = track(x, MODEL).sum(axis=1)
    assert within(in_any_order(x, np.random.default_rng(seed)), expected)


@settings(max_examples=100)
@given(st.integers(1, 300), st.integers(0, 2**32), st.floats(-2, 2))
def test_sums_in_any_order_of_random_numbers(n: int, seed: int, mean: float) -> None:
    """Numbers with a nonzero mean too, so that partial sums drift."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (20, n)).astype(np.float32) + np.float32(mean)
    expected = track(x, RANDOM).sum(axis=1)
    assert within(in_any_order(x, rng), expected)
    assert np.all(expected.bound <= track(x, MODEL).sum(axis=1).bound)


def test_a_product_with_a_small_constant_has_a_bound() -> None:
    """Its square is 0 in float32, and so was the bound."""
    x, y = np.array([[3]], np.float32), np.array([[1.968152e-30]], np.float32)
    assert within(x * y, np.dot(track(x, MODEL), y))


@settings(max_examples=40)
@given(st.data(), st.integers(1, 40), st.integers(0, 2**32), st.booleans())
def test_products_in_any_order(data: Any, k: int, seed: int, random: bool) -> None:
    rng = np.random.default_rng(seed)
    if random:
        x, y = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((4, k), (k, 3)))
    else:
        x, y = data.draw(numbers((4, k))), data.draw(numbers((k, 3)))
    got = in_any_order(x[:, None, :] * y.T[None], rng)
    model = RANDOM if random else MODEL
    for expected in (
        track(x, model) @ track(y, model),
        np.einsum("mk,kn->mn", track(x, model), track(y, model)),
        np.dot(track(x, model), y),
    ):
        assert within(got, expected)
    assert within(in_any_order(x * y[:, 0], rng), track(x, model) @ track(y, model)[:, 0])


@settings(max_examples=40)
@given(st.integers(2, 64), st.integers(0, 2**32))
def test_chains_of_operations(n: int, seed: int) -> None:
    """Input errors propagate through two layers, a softmax, a norm and a cumulative sum."""
    rng = np.random.default_rng(seed)
    x, w, v = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((5, n), (n, 6), (6, 4)))

    def chain(x: Any, w: Any, v: Any) -> Any:
        y = np.tanh(x @ w) @ v
        e = np.exp(y - y.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        z = (p - p.mean(axis=1, keepdims=True)) / np.sqrt(p.var(axis=1, keepdims=True) + 0.01)
        return np.concatenate([z, np.cumsum(z, axis=1), np.std(z, axis=1, keepdims=True)], axis=1)

    for model in (MODEL, RANDOM):
        expected = chain(*(track(a, model) for a in (x, w, v)))
        assert within(chain(x, w, v), expected)
        assert np.median(expected.bound) < 1e-2


@settings(max_examples=30)
@given(st.integers(1, 130), st.integers(0, 2**32))
def test_fourier_transforms(n: int, seed: int) -> None:
    """Transforms of any length, primes included; NumPy's transform computes in float32."""
    rng = np.random.default_rng(seed)
    x = (rng.uniform(-1, 1, (3, n)) + 1j * rng.uniform(-1, 1, (3, n))).astype(np.complex64)
    model = Model.of("complex64")
    for transform in (np.fft.fft, np.fft.ifft, np.fft.fft2, np.fft.ifft2):
        got = transform(x)
        assert got.dtype == np.complex64
        assert within(got, transform(track(x, model)))
    cube = np.stack([x, 2 * x, x[::-1]])
    for axis in (0, 1, -1):
        assert within(np.fft.fft(cube, axis=axis), np.fft.fft(track(cube, model), axis=axis))


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(0, 2**32))
def test_complex_numbers(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (
        (rng.uniform(-1, 1, (3, n)) + 1j * rng.uniform(-1, 1, (3, n))).astype(np.complex64)
        for _ in range(2)
    )

    def chain(x: Any, y: Any) -> Any:
        z = x * y.conj() + x / (y + 3)
        return np.abs(z) ** 2 + z.real * z.imag - (x @ y.T).real.sum()

    model = Model.of("complex64")
    assert within(chain(x, y), chain(track(x, model), track(y, model)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_sums_are_rounded_on_each_device(dtype: str) -> None:
    """Sums stay in float32, but each device's part is rounded before the parts are added."""
    kind = as_dtype(dtype)
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (50, 8, 16)).astype(kind)
    got = np.zeros(50, kind)
    for part in range(8):
        got = got + x[:, part].astype(np.float32).sum(axis=1).astype(kind)
    for random in (False, True):
        one, eight = (
            track(x.reshape(50, 128), Model.of(dtype, partials=n, random=random)).sum(axis=1)
            for n in (1, 8)
        )
        assert within(got.astype(np.float64), eight)
        assert np.all(eight.bound > 4 * one.bound)


def test_platforms_and_precisions() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (64, 64)).astype(np.float32)
    bits = (x.view(np.uint32) + 0x1000) & np.uint32(0xFFFFE000)  # as in TF32
    short = bits.view(np.float32)
    got = short.astype(np.float64) @ short.astype(np.float64)

    def product(**how: Any) -> Tracked:
        one = track(x, Model.of("float32", **how))
        return one @ one

    assert within(got, product(platform="gpu", precision="high"))
    assert within(got, product(platform="tpu", precision="default"))
    for how in ({"platform": "gpu"}, {"platform": "cpu", "precision": "default"}):
        assert not within(got, product(**how))
    assert product(platform="tpu").bound.max() > product().bound.max()


def test_float64_counts_the_oracle_s_own_rounding() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (10, 1000))
    expected = track(x, Model.of("float64")).sum(axis=1)
    backwards = x[:, ::-1].cumsum(axis=1)[:, -1]
    assert (backwards != expected.value).any()
    assert within(backwards, expected)


def test_what_moves_elements_moves_their_bounds() -> None:
    x = track(np.arange(12, dtype=np.float32).reshape(3, 4), MODEL)
    x = Tracked(x.value, x.value + 100, MODEL)
    moves: list[Callable[..., Any]] = [
        lambda a: a.T,
        lambda a: a.reshape(2, 6),
        lambda a: a[1:, ::-1],
        lambda a: np.flip(a, 0),
        lambda a: np.roll(a, 1, axis=0),
        lambda a: np.swapaxes(a, 0, 1),
        lambda a: a.transpose(1, 0),
        lambda a: np.broadcast_to(a[0], (2, 4)),
        lambda a: np.stack([a, a]),
        lambda a: np.tril(a),
        lambda a: np.take(a, [2, 0], axis=0),
        lambda a: np.pad(a, 1),
        lambda a: np.ravel(a),
        lambda a: np.where([True, False, True, False], a, 0 * a),
    ]
    for move in moves:
        moved = move(x)
        np.testing.assert_array_equal(moved.value, move(x.value))
        inside = moved.value > 0
        np.testing.assert_allclose(moved.bound[inside], moved.value[inside] + 100, rtol=1e-6)


def test_comparisons_say_where_errors_leave_them_open() -> None:
    x = Tracked(np.array([-1.0, -0.1, 0.0, 0.1, 1.0]), np.full(5, 0.2), MODEL)
    truth = x > 0
    np.testing.assert_array_equal(truth.value, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(truth.bound, [0, 1, 1, 1, 0])
    chosen = np.where(truth, 5.0, 3.0)
    np.testing.assert_array_equal(chosen.value, [3, 3, 3, 5, 5])
    np.testing.assert_array_equal(chosen.bound >= 2, [False, True, True, True, False])
    exact = track(np.zeros(2, np.float32), MODEL) >= 0
    assert not exact.bound.any()


def test_a_divisor_that_may_be_zero_has_no_bound() -> None:
    y = Tracked(np.array([0.1, 1.0]), np.array([0.2, 0.2]), MODEL)
    quotient = 1 / y
    assert np.isinf(quotient.bound[0])
    assert 0.25 <= quotient.bound[1] < 0.26
    assert np.isinf(np.log(y).bound[0])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: np.linalg.norm(x, 2), "numpy.linalg.norm with ord=2"),
        (lambda x: np.linalg.inv(x), "numpy.linalg.inv"),
        (lambda x: np.asarray(x), "became a plain NumPy array"),
        (lambda x: np.sum(x, where=True), "numpy.sum with where"),
        (lambda x: np.i0(x), "numpy.i0"),
        (lambda x: np.add(x, x, where=x.value > 0), "numpy.add with where"),
        (lambda x: np.add.reduceat(x, [0]), "numpy.add.reduceat"),
        (lambda x: (x * 1j) ** 0.3, "only for whole powers up to 64"),
        (lambda x: x.tolist(), "numpy.ndarray.tolist"),
        (lambda x: float(x[0, 0]), "became a Python number"),
        (lambda x: x[np.argmax(x * 0.1, axis=1)], "index that rounding errors may change"),
        (lambda x: np.add(x, x, out=np.ones((2, 2))), "numpy.add with out"),
        (lambda x: np.sort(1j * x * 0.1), "an order of complex numbers"),
        (lambda x: 1j * x < 1, "less of complex numbers"),
        (lambda x: np.sum(x, 0, None, x[0]), "numpy.sum with out, given by position"),
        (lambda x: np.ones((2, 2)).__setitem__(0, x[0]), "became a plain NumPy array"),
        (lambda x: x.__setitem__(0, 1.0), "shared; change a copy"),
        (lambda x: x.copy().__setitem__(0, 1j), "complex64 numbers stored in float32"),
        (lambda x: np.pad(x, 1, mode="mean"), "numpy.pad with mode='mean'"),
        (lambda x: np.quantile(x, 0.5, method="lower"), "quantiles by 'lower'"),
        (lambda x: np.nonzero(x), "numpy.nonzero"),
        (lambda x: np.where(x), "numpy.where with one argument"),
        (lambda x: np.gradient(x, edge_order=2), "only for one distance"),
        (lambda x: x.astype("datetime64[s]"), "conversion to datetime64"),
        (lambda x: np.sqrt(x * 1j), "sqrt of complex"),
        (lambda x: np.einsum(x, [0, 1], [0]), "only for text"),
        (lambda x: x if x.sum() > 0 else -x, "decides a branch"),
        (lambda x: x + "text", "must be numbers or arrays, got str"),
    ],
)
def test_operations_without_a_bound_are_named(function: Any, message: str) -> None:
    with pytest.raises(UnknownOperationError, match=message):
        function(track(np.ones((2, 2), np.float32), MODEL))


def test_constants_are_rounded_as_the_runtime_rounds_them() -> None:
    assert as_tracked(0.5, MODEL).bound == 0
    assert as_tracked(7, MODEL).bound == 0
    assert as_tracked(0.1, MODEL).bound == abs(float(np.float32(0.1)) - 0.1)


def test_estimates_hold_and_are_useful() -> None:
    """Estimates cover operations without a rule: sorting, solving, norms and odd powers."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (40, 40)).astype(np.float32) + 6 * np.eye(40, dtype=np.float32)
    for oracle in (
        lambda x: np.linalg.inv(x),
        lambda x: np.linalg.solve(x, np.ones(40, x.dtype)),
        lambda x: np.cbrt(x) @ np.cbrt(x),
        lambda x: (x.prod(axis=1), np.median(x)),
    ):
        results = estimate(oracle, (x.astype(np.float64),), MODEL)
        got = oracle(x)
        for one, expected in zip(got if isinstance(got, tuple) else (got,), results, strict=True):
            assert within(one, expected)
            short = np.asarray(one).astype(as_dtype("bfloat16")).astype(np.float64)
            if short.size > 1:
                assert np.max(np.abs(short - expected.value) / expected.bound) > 1


def attention(x: Any, fill: float) -> Any:
    """Causal attention of rows with themselves, for arrays with and without bounds."""
    n = x.shape[0]
    scores = np.where(np.tril(np.ones((n, n), bool)), x @ x.T / np.float32(2), fill)
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (e / e.sum(axis=1, keepdims=True)) @ x


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("fill", [-np.inf, -1e30])
def test_masked_elements_leave_the_others_their_bounds(fill: float, dtype: str) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (16, 8)).astype(np.float32)
    model = Model.of(dtype)
    expected = attention(track(x, model), fill)
    assert np.max(expected.bound) < 2000 * model.roundoff
    if dtype == "float32":
        assert within(attention(x, np.float32(fill)), expected)


def test_a_bound_that_cannot_be_computed_is_infinite() -> None:
    x = track(np.array([[-np.inf, -np.inf], [np.inf, 1], [200, 100]], np.float32), MODEL)
    rounded = 0.1 * track(np.array([[1, 3], [1, 3], [1, 3]], np.float32), MODEL)
    y, e = rounded, np.exp(x)
    results: list[Any] = [
        (x - x.max(axis=1, keepdims=True))[0],  # a fully masked row
        np.exp(x - x.max(axis=1, keepdims=True))[0],
        (e / e.sum(axis=1, keepdims=True))[1:, 0],  # overflows, in both
        (x - rounded * np.inf)[1, :1],
        1 / (rounded - rounded),
        (x * (rounded - rounded))[1, :1],
        np.sum(0 * y + 3e38),  # the sum of three overflows
    ]
    for uncertain in results:
        assert np.all(np.isinf(uncertain.bound)), uncertain


@pytest.mark.parametrize("n", [2, 128])  # by the rules, and by a loop if numba is installed
def test_a_product_whose_partial_sums_may_overflow_has_no_bound(n: int) -> None:
    """On CPU `x @ y` is NaN or infinite; it is 0 only if each product is taken back at once."""
    x = track(np.full((n, n), 3e19, np.float32), MODEL)
    y = x * np.where(np.arange(n) % 2, -1, 1)[:, None]
    for product in (x @ y, np.einsum("ij,jk->ik", x, y)):
        assert not product.value.any()
        assert np.isinf(product.bound).all()
    assert np.isfinite((x @ (y / n / 4)).bound).all()


def test_an_infinity_is_certain_if_the_operands_allow_no_other_value() -> None:
    x = track(np.array([-np.inf, np.inf, np.inf, np.inf], np.float32), MODEL)
    y = 0.1 * track(np.array([1, 2, 3, 4], np.float32), MODEL)
    results: list[Any] = [
        x + y,
        x - y,
        x * y,
        x / y,
        y - x,
        np.exp(x)[1:],
        np.exp(1e4 * y),
        np.log(track(np.zeros(2), MODEL)),
        np.sqrt(x[1:]),
        x[1:] + x[1:],
        np.max(x),
        np.sort(x, kind="stable")[1:],
        np.minimum(x, y)[:1],
        np.sum(x[1:]),
        np.cumsum(x[1:]),
        x[1:] @ np.ones(3),
    ]
    for certain in results:
        assert np.all(np.isinf(certain.value)), certain
        assert not np.any(certain.bound), certain


@settings(max_examples=50)
@given(numbers(9), st.integers(0, 2**32), st.floats(0, 50))
def test_extremes_of_uncertain_numbers(x: np.ndarray, seed: int, width: float) -> None:
    """The bounds of unequal width are covered, and are at most the largest."""
    rng = np.random.default_rng(seed)
    bound = rng.uniform(0, width, 9) * (rng.random(9) < 0.5)
    exact = Tracked(x.astype(np.float64), bound, MODEL)
    moved = exact.value + bound * rng.uniform(-1, 1, 9)
    functions: list[Any] = [np.max, np.min, np.sort, lambda a: np.maximum(a, a[::-1])]
    for function in functions:
        found = function(exact)
        assert np.all(np.abs(function(moved) - found.value) <= found.bound)
        assert np.all(found.bound <= bound.max())
