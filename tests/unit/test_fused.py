"""Loops compiled by numba give what the rules give, one pass for each operation."""

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyreactant.check.bounds import fused
from pyreactant.check.bounds.compare import Verdict, compare
from pyreactant.check.bounds.expected import Expected
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.sight import exact
from pyreactant.check.bounds.tracked import Tracked, track
from pyreactant.check.inputs import sources
from pyreactant.check.programs import CASES
from pyreactant.check.regions import whole_index
from tests.harness import require
from tests.programs.common import by_numpy, model_of, outputs_of

LOOPS = {name: one for name, one in vars(fused).items() if isinstance(one, fused.Loop)}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The loops run on arrays of 500 elements, not compiled; the names of those that ran."""
    names: set[str] = set()

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            names.add(name)
            with np.errstate(all="ignore"):
                return function(*args)

        return run

    monkeypatch.setattr(fused, "LARGE", 500)
    monkeypatch.setattr(fused, "available", lambda: True)
    for name, loop in LOOPS.items():
        monkeypatch.setattr(fused, name, noted(name, loop.function))
    return names


USES = {
    "layer_norm": {"row_sums"},
    "attention": {"product_bounds"},
    "row_sum": {"row_sums"},
    "full_sum": {"row_sums"},
    "batched_matmul": {"product_bounds"},
    "matmul": {"product_bounds"},
    "perceptron": {"product_bounds"},
    "perceptron_gradient": {"product_bounds"},
}


@pytest.mark.parametrize("random", [True, False])
@pytest.mark.parametrize("name", sorted(USES))
def test_both_paths_give_the_same_values_and_bounds(
    name: str, random: bool, used: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, size = CASES[name], 24 if name in ("attention", "batched_matmul") else 36
    for dtype in ("float32", "float64"):
        inputs = sources(case.inputs(size, dtype), 0)
        found = model_of(case, dtype)
        assert found is not None
        model = replace(found, random=random)
        for number, output in enumerate(outputs_of(case, size, dtype)):
            index = whole_index(output.shape)
            one: Any = case.expected(number, index, inputs, model)
            with monkeypatch.context() as patch:
                patch.setattr(fused, "available", lambda: False)
                inputs_again = sources(case.inputs(size, dtype), 0)
                other: Any = case.expected(number, index, inputs_again, model)
            np.testing.assert_allclose(one.value, other.value, rtol=1e-11, atol=1e-14)
            np.testing.assert_allclose(
                one.bound, other.bound, rtol=1e-6 if dtype == "float64" else 1e-9
            )
    assert used >= USES[name]


def verdicts(got: np.ndarray, right: Expected) -> tuple[Verdict, Verdict]:
    found = compare(got, right, (5, 7))
    large, fused.LARGE = fused.LARGE, 10**9
    try:
        return found, compare(got, right, (5, 7))
    finally:
        fused.LARGE = large


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_both_paths_give_the_same_verdict(dtype: str, used: set[str]) -> None:
    rng = np.random.default_rng(0)
    value: np.ndarray = rng.normal(size=(30, 40))
    if dtype == "complex64":
        value = value + 1j * rng.normal(size=(30, 40))
    value[3, 4] = 0
    bound = np.abs(rng.normal(size=(30, 40))) * 1e-6
    got = (value + bound * rng.uniform(-0.9, 0.9, bound.shape)).astype(dtype)
    for change in (None, np.nan, np.inf, 7.0):
        if change is not None:
            got[11, 13] = change
        for bounds in (bound, np.broadcast_to(1e-5, (30, 40))):
            one, other = verdicts(got, Expected(value, bounds))
            assert one.error_squares == pytest.approx(other.error_squares)
            assert one.value_squares == pytest.approx(other.value_squares)
            assert one.sight.tolerances == other.sight.tolerances
            summed: dict[str, Any] = {"error_squares": 0.0, "value_squares": 0.0, "sight": exact(0)}
            if dtype == "complex64":  # absolute values differ in the last bit of float64
                np.testing.assert_allclose(numbers(one), numbers(other), rtol=1e-9)
                summed |= dict.fromkeys(("error", "ratio", "allowed", "ulps"), 0.0) | {
                    "worst": None
                }
            assert replace(one, **summed) == replace(other, **summed)
            assert one.passed is (change is None)
    assert used == {"compared"}


def numbers(found: Verdict) -> tuple[float, ...]:
    return found.error, found.ratio, found.allowed, found.ulps


def test_a_number_in_place_of_a_certain_infinity_is_wrong(used: set[str]) -> None:
    """Its tolerance, one unit in the last place, is infinite."""
    value = np.ones((30, 40))
    value[20, 20] = np.inf
    right, bound = value.astype(np.float32), np.full((30, 40), 1e-5)
    assert compare(right, Expected(value, bound)).passed
    assert compare(np.full_like(right, 1.000001), Expected(value, bound)).wrong == 1
    assert used == {"compared"}


@pytest.mark.parametrize("loops", [True, False])
def test_a_single_element_without_a_bound_is_counted(
    loops: bool, used: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sensitivity is that of a sample of the tolerances, but these are counted in all."""
    monkeypatch.setattr(fused, "available", lambda: loops)
    value, bound = np.ones((80, 80)), np.full((80, 80), 1e-6)
    bound[41, 18] = np.inf  # not in the sample, which has every third
    found = compare(np.full((80, 80), 1, np.float32), Expected(value, bound))
    assert found.passed
    assert found.sight.unbounded == 1
    assert found.sight.median == pytest.approx(1e-6, rel=0.2)
    value[3, 4], bound[3, 5] = np.inf, np.inf  # certain, so exact; and one more
    got = value.astype(np.float32)
    assert compare(got, Expected(value, bound)).sight.unbounded == 2
    assert used == ({"compared"} if loops else set())


@pytest.mark.parametrize(
    "array",
    [
        np.full((30, 30), np.inf),
        np.full((30, 30), np.nan),
        np.full((30, 30), 3e38),
        np.zeros((30, 30)),
        np.full((30, 30), 1e-44),
        np.linspace(-3e4, 3e4, 900).reshape(30, 30),
    ],
)
@pytest.mark.parametrize("name", ["layer_norm", "row_sum"])
def test_odd_numbers_give_the_same_on_both_paths(
    array: np.ndarray, name: str, used: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    with np.errstate(all="ignore"):
        arrays = [array] if name == "row_sum" else [array, np.ones(30), np.ones(30)]
        parts = [track(one.astype(np.float32), Model.of("float32")) for one in arrays]
        (one,) = by_numpy(case, *parts)
        monkeypatch.setattr(fused, "available", lambda: False)
        (other,) = by_numpy(case, *parts)
    np.testing.assert_allclose(one.value, other.value, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(one.bound, other.bound, rtol=1e-9)


def test_compiled_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba compiles for the types that the check passes, and keeps the result."""
    require(importlib.util.find_spec("numba"), "numba")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 30))
    line = x.ravel()
    args: dict[str, tuple[Any, ...]] = {
        "compared": (
            line.astype(np.float32),
            line,
            line * line,
            1,
            2.0**-23,
            1e-38,
            np.int64(0x7FF << 52),
        ),
        "row_sums": (x,),
    }
    fresh = {name: fused.Loop(LOOPS[name].function) for name in args}
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(2) as pool:  # several threads compile, as they check tiles
        found = dict(zip(args, pool.map(lambda name: fresh[name](*args[name]), args), strict=True))
    for name, given in args.items():
        with np.errstate(all="ignore"):
            plain = LOOPS[name].function(*given)
        for one, other in zip(found[name], plain, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    assert [path.name for path in tmp_path.iterdir()] == ["pyreactant"]
    assert len(list((tmp_path / "pyreactant" / "numba").rglob("*.nbi"))) == 2


def test_without_numba_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    fused.available.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    try:
        assert not fused.large(np.zeros(fused.LARGE))
    finally:
        fused.available.cache_clear()
    assert not fused.large(np.zeros(fused.LARGE - 1))
    assert isinstance(track(np.ones(3), Model.of("float64")) + 1, Tracked)
