"""Runs with random roundings: what each operation does, and the limit that follows from them."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant import InvalidArgumentError
from pyreactant.check.bounds.compare import compare, wrong_elements
from pyreactant.check.bounds.expected import Expected
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.runs import COUNT, Rounding, Runs, as_runs
from pyreactant.check.bounds.tracked import UnknownOperationError
from pyreactant.check.bounds.typical import SIGMAS, Typical
from pyreactant.check.bounds.verdict import Verdict, join, plain
from pyreactant.check.request import CheckRequest

RANDOM = np.random.default_rng(5)
X, Y = RANDOM.standard_normal((2, 16, 16)).astype(np.float32).astype(np.float64)


def runs(function: Callable[..., Any], *arrays: np.ndarray, dtype: str = "float32") -> Runs:
    rounding = Rounding(Model.of(dtype))
    parts = [rounding.input(array) for array in arrays]
    with np.errstate(all="ignore"):
        return as_runs(function(*parts), rounding.model, rounding)


EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "softmax": lambda x, y: (
        np.exp(x - x.max(axis=1, keepdims=True)) / np.exp(x).sum(axis=1)[:, None]
    ),
    "variance": lambda x, y: np.var(x, axis=0) + x.std(axis=1) - y.mean(),
    "product": lambda x, y: x @ y + x.T @ y.T,
    "by a vector": lambda x, y: x @ y[0],
    "einsum": lambda x, y: np.einsum("ij,kj->ik", x, y) + np.einsum("ij->j", x),
    "powers": lambda x, y: x**3 + np.abs(y) ** 0.5 + np.abs(y) ** 1.7 + 2.0**x + x**-1,
    "functions": lambda x, y: np.tanh(x) + np.log1p(np.abs(y)) * np.sin(x) + np.logaddexp(x, y),
    "branches": lambda x, y: np.where(x > y, x, 0.5 * y) + np.clip(x, -1, 1) + np.maximum(x, 0),
    "cumulative": lambda x, y: np.cumsum(x, axis=1) * 0.5,
    "moves": lambda x, y: np.concatenate([x[1:], y[:1]]).T + np.roll(x, 1, 0)[::-1],
    "picked": lambda x, y: np.take_along_axis(x * 1.1, np.argmax(y * 1.1, axis=1)[:, None], 1),
    "index": lambda x, y: x[np.array([0, 2]), 1:] + y[[3, 4], :-1],
    "norm": lambda x, y: np.linalg.norm(x, axis=1) + np.ptp(y, axis=0),
    "stored": lambda x, y: _stored(x, y),
}


def _stored(x: Any, y: Any) -> Any:
    z = np.zeros_like(x)
    z[1:] = x[1:] * y[1:]
    z[:1] += y[:1]
    z[x > 1.0] = 3.0
    return z


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_run_0_is_numpys_result_and_the_others_are_near(name: str) -> None:
    function = EXPRESSIONS[name]
    right = np.asarray(function(X, Y))
    for dtype, unit in (("float32", 2.0**-24), ("bfloat16", 2.0**-8)):
        result = runs(function, X, Y, dtype=dtype)
        assert result.runs.shape == (COUNT + 1, *right.shape)
        np.testing.assert_allclose(result.runs[0], right, rtol=1e-12, atol=1e-12)
        apart = np.abs(result.runs[1:] - right)
        assert 0 < np.median(apart) < 50 * unit * np.abs(right).max()


def test_exact_numbers_stay_exact() -> None:
    whole = np.arange(16.0).reshape(4, 4)
    for exact in (
        runs(lambda x: x * x + 1, whole),
        runs(lambda x: np.where(x > 3, x, -np.inf), whole),
        runs(lambda x: x.astype("bfloat16").astype("float32"), X),
    ):
        assert exact.exact
    rounded = runs(lambda x: x.astype("bfloat16"), X).runs[0]
    apart = np.abs(rounded - X)
    assert 0 < apart.max() <= 2.0**-8 * np.abs(X).max()


def test_a_conversion_is_one_rounding_and_what_follows_has_its_own_type() -> None:
    mixed = runs(lambda x, y: (x * y).astype("bfloat16").astype("float32") * 3.0, X, Y)
    once = np.abs(mixed.runs[1:] - mixed.runs[0]).max() / np.abs(X * Y).max()
    assert 2.0**-12 < once < 3 * 2.0**-8
    assert mixed.dtype == np.float32
    longer = runs(lambda x, y: x.astype("float64") * y, X, Y, dtype="bfloat16")
    assert np.abs(longer.runs[1:] - longer.runs[0]).max() > 2.0**-10  # the program may not convert


def test_equal_values_err_alike_in_half_of_the_runs() -> None:
    rows = np.repeat(X[:1], 16, axis=0)
    functions: list[Callable[[Any], Any]] = [lambda x: x * 0.1, lambda x: x.sum(axis=1)]
    for function in functions:
        result = runs(function, rows).runs
        alike, apart = result[COUNT // 2 + 1 :], result[1 : COUNT // 2 + 1]
        assert (alike == alike[:, :1]).all()
        assert not (apart == apart[:, :1]).all()


def test_numbers_that_repeat_round_alike_in_a_sum() -> None:
    constant, random = np.full((4, 512), 0.3), np.random.default_rng(0).random((4, 512))
    sums = [runs(lambda x: x.sum(axis=1), x).runs for x in (constant, random)]
    spread = [np.std(of_all[1:] / of_all[0] - 1) for of_all in sums]
    assert spread[0] > 5 * spread[1]


@pytest.mark.parametrize("seed", range(6))
def test_sums_of_few_values_err_in_common(seed: int) -> None:
    """All elements of a product of few distinct numbers may be off by about one factor."""
    random = np.random.default_rng(seed)
    x = random.choice(random.standard_normal(3).astype(np.float32), (64, 256))
    typical = Typical.of(runs(lambda x: x @ x.T, x.astype(np.float64)), SIGMAS)
    right = np.zeros((64, 64), np.float32)
    for column in x.T:
        right += column[:, None] * column
    assert typical.largest(right) < SIGMAS
    assert max(typical.of_block(right)) <= 1
    assert typical.of_block(right * np.float32(1 + 2**-13))[0] > 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: np.floor(x), "numpy.floor"),
        (lambda x: np.fft.fft(x), "numpy.fft"),
        (lambda x: x if x[0, 0] > 0 else -x, "branch"),
        (lambda x: np.zeros(3) + float(x[0, 0]), "plain NumPy array, number or branch"),
        (lambda x: x * 1j, "complex"),
        (lambda x: x * 1e38 * 1e38, "exceeds the largest float32"),
        (lambda x: x.nonzero(), "numpy.ndarray.nonzero"),
        (lambda x: np.argmax(np.ones(40) + 1e-9 * (x[0, 0] * 1.1)), "more elements may be"),
    ],
)
def test_what_has_no_rule_is_named(function: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(UnknownOperationError, match=words.replace(".", r"\.")):
        runs(function, X)


def test_an_argument_takes_no_rounded_numbers() -> None:
    def changes(x: Any) -> Any:
        x[0] = x[1] * 0.1
        return x

    with pytest.raises(UnknownOperationError, match="change a copy"):
        runs(changes, X)
    assert runs(lambda x: changes(x.copy()), X).shape == X.shape


def judged(factor: float = 1.0, dtype: str = "float32", noise: float = 1.0) -> Verdict:
    """The verdict on a product whose errors are those of a right one times `noise`."""
    result = runs(lambda x, y: x @ y * 1.1, X, Y, dtype=dtype)
    typical, value = Typical.of(result, SIGMAS), X @ Y * 1.1
    error = typical.sigma * np.random.default_rng(1).standard_normal(value.shape)
    got = ((value + noise * error) * factor).astype(np.float32)
    return compare(got, Expected(value, np.full(value.shape, 0.5), typical=typical))


def test_verdicts_within_the_derived_bound() -> None:
    right = judged()
    assert right.passed
    assert right.typical is not None
    assert 0.5 < right.typical.sigmas < SIGMAS
    assert right.sight.sensitivity < 1e-4 < right.typical.derived.sensitivity
    for name, wrong in {
        "sigmas": judged(noise=30.0),
        "factor": judged(factor=1 + 2.0**-17),
        "rms": judged(noise=6.0),
    }.items():
        assert not wrong.passed
        assert wrong.ratio > 1
        assert wrong.typical is not None
        assert wrong.typical.only
        assert getattr(wrong.typical, name) > (SIGMAS if name == "sigmas" else 1)
        assert Verdict.from_dict(json.loads(json.dumps(plain(wrong)))).typical == wrong.typical
    both = join([right, judged(noise=30.0)])
    assert both.typical is not None
    assert both.typical.only
    assert not both.passed
    beyond = join([judged(noise=30.0), judged(factor=2.0)])
    assert beyond.typical is not None
    assert not beyond.typical.only  # one part is beyond the derived bound


def test_beyond_the_derived_bound_a_result_is_wrong_as_without_a_limit() -> None:
    result = runs(lambda x, y: x @ y * 1.1, X, Y)
    value = X @ Y * 1.1
    got = (value + 1.0).astype(np.float32)
    plain_one = compare(got, Expected(value, np.full(value.shape, 0.5)))
    limited = Expected(value, np.full(value.shape, 0.5), typical=Typical.of(result, SIGMAS))
    found = compare(got, limited)
    assert (found.wrong, found.ratio, found.worst) == (
        plain_one.wrong,
        plain_one.ratio,
        plain_one.worst,
    )
    assert found.typical is not None
    assert not found.typical.only
    assert wrong_elements(got, limited).all()


def test_a_flushed_number_is_not_off() -> None:
    result = runs(lambda x: x * 1e-20 * 1e-20, np.linspace(0.5, 1, 32))
    typical = Typical.of(result, SIGMAS)
    assert typical.largest(np.zeros(32, np.float32)) == 0
    assert typical.largest(np.full(32, 1e-30, np.float32)) > SIGMAS


def test_an_undecided_branch_is_right_either_way() -> None:
    x = X.copy()
    x[3, 3] = 1.0
    y = np.where(np.arange(256).reshape(16, 16) == 51, 1.0 / 3, 0.2).astype(np.float64)

    def chosen(x: Any, y: Any) -> Any:
        return np.where(x * y * 3.0 > 1.0, 5.0, 1.0) * x

    result = runs(chosen, x, y)
    assert result.rounding.undecided == 1
    typical, value = Typical.of(result, SIGMAS), chosen(x, y)
    assert np.argwhere(typical.branch).tolist() == [[3, 3]]
    for branch in (1.0, 5.0, 3.0):
        got = value.astype(np.float32)
        got[3, 3] = branch
        verdict = compare(got, Expected(value, np.full(value.shape, 9.0), typical=typical))
        assert verdict.passed == (branch != 3.0)
        assert verdict.typical is not None
        assert verdict.typical.undecided == 1


def test_no_limit_without_numbers_or_with_nan_in_some_runs() -> None:
    with pytest.raises(UnknownOperationError, match="whole numbers or booleans"):
        Typical.of(runs(lambda x: x > 0, X), SIGMAS)
    with pytest.raises(UnknownOperationError, match="some runs"):
        Typical.of(runs(lambda x: np.log(x * 1.1 - x * 1.1 + (x * 3.0 - x * 3.0)), X), SIGMAS)


def test_the_option_and_the_statement() -> None:
    for wrong in (3.0, -1.0, float("nan")):
        with pytest.raises(InvalidArgumentError, match="standard deviations of rounding, got"):
            CheckRequest(("matmul",), typical=wrong)
    request = CheckRequest(("matmul",), typical=0)
    assert CheckRequest.from_dict(request.to_dict()).typical == 0
    with pytest.raises(InvalidArgumentError, match="sums_in= must be 'float32' or 'result'"):
        pr.Domain(sums_in="bfloat16")
    assert Model.of("bfloat16", sums_in="result").sum_roundoff > 2.0**-9
    cast = Model.of("float32", sums_in="result").cast(np.dtype("float16"))
    assert cast.sum_roundoff == Model.of("float16", sums_in="result").sum_roundoff > 2.0**-12
