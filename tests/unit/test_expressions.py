"""Ordinary NumPy expressions have a derived bound, which float32 and 80-bit numbers keep."""

import inspect
from typing import Any

import numpy as np
import pytest

from pyreactant.arrays.dtypes import as_dtype, is_float
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.tracked import FUNCTIONS, Tracked, UnknownOperationError, track
from tests.unit.expressions import FAMILIES, STATEMENTS, WITHOUT_RULE, arrays, expressions

MODEL = Model.of("float32")


def tracked(values: dict[str, Any], model: Model) -> dict[str, Any]:
    return {
        name: track(array, model).copy() if is_float(array.dtype) else array
        for name, array in values.items()
    }


def evaluate(text: str, values: dict[str, Any]) -> Any:
    with np.errstate(all="ignore"):
        return eval(text, {"np": np}, values)


def beyond(got: Any, expected: Any) -> bool:
    assert isinstance(expected, Tracked), type(expected)
    got = np.asarray(got)
    assert got.shape == expected.shape, (got.shape, expected.shape)
    assert (got.dtype.kind == "c") == (expected.value.dtype.kind == "c")
    assert not np.isnan(expected.bound).any()
    wide = np.clongdouble if got.dtype.kind == "c" else np.longdouble
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(wide) - expected.value)
        last = 2 * expected.model.roundoff * np.abs(expected.value)
        return not np.all((error <= expected.bound + last) | (got == expected.value))


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_results_are_within_the_bound(family: str) -> None:
    for seed in range(4):
        values = arrays(seed)
        for text in expressions(family):
            expected = evaluate(text, tracked(values, MODEL))
            assert not beyond(evaluate(text, values), expected), text
            # The bound is of use, too.
            size = np.median(np.abs(expected.value)) + 1e-3
            assert np.median(expected.bound) < 1e-2 * size, text


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "transforms"])
def test_extended_precision_is_within_the_bound_of_float64(family: str) -> None:
    """The oracle's own error is part of the bound."""
    values, model = arrays(9, np.longdouble), Model.of("float64")
    for text in expressions(family):
        if "linalg" in text or "float16" in text or "quantile" in text:
            continue  # computed in float64 at most
        narrow = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in values.items()}
        expected = evaluate(text, tracked(narrow, model))
        assert not beyond(evaluate(text, values), expected), text


@pytest.mark.parametrize("statements", STATEMENTS)
def test_changes_in_place(statements: Any) -> None:
    for seed in range(10):
        values = arrays(seed)
        expected = statements(*(tracked(values, MODEL)[name] for name in "xy"))
        assert not beyond(statements(values["x"], values["y"]), expected)


def test_integers_are_exact_while_a_float_holds_them() -> None:
    """A program may compute them as floats, which round from 2^24 on."""
    whole: Any = Tracked(np.arange(1000), 0.0, MODEL)
    for exact in (whole * 7 + 3, whole // 8, whole % 5, np.fmod(whole, 5), whole - whole // 2):
        assert exact.value.dtype.kind == "i"
        assert not exact.bound.any()
    cubes = whole**3
    assert not cubes.bound[:256].any()
    assert np.all(cubes.bound[257:] >= np.spacing(cubes.value[257:].astype(np.float32)) / 2)


def test_how_many_are_tracked() -> None:
    every = [text for family in FAMILIES for text in expressions(family)]
    assert len(every) == len(set(every)) >= 215
    values = tracked(arrays(0), MODEL)
    for text in WITHOUT_RULE.replace("\n", ";").split(";"):
        if text.strip():
            name = text.strip().split("(")[0].removeprefix("np.")
            with pytest.raises(UnknownOperationError, match=name.rpartition(".")[2]):
                evaluate(text.strip(), values)


def test_rules_have_the_parameters_of_numpy_in_the_same_order() -> None:
    """An argument by position is then the right one."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    for function, rule in FUNCTIONS.items():
        theirs = [
            p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds
        ]
        ours = inspect.signature(rule).parameters.values()
        if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in ours):
            continue
        mine = [p.name for p in ours if p.kind in kinds and p.name != "f"]
        if len(mine) > 1:
            assert mine == theirs[: len(mine)], function


@pytest.mark.parametrize("text", ["x @ v", "v @ x.T", "np.einsum('ij,j->i', x, v)"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_by_a_vector_are_rounded_on_gpus(text: str, dtype: str) -> None:
    """XLA rounds them on an H200, and so gets the bits that this gets."""
    worse = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, v = (rng.uniform(-1, 1, shape).astype(as_dtype(dtype)) for shape in ((64, 64), 64))
        got = (x * v).astype(np.float32).sum(1).astype(x.dtype)
        on = {
            platform: evaluate(text, tracked({"x": x, "v": v}, model))
            for platform in ("cpu", "gpu")
            for model in [Model.of(dtype, platform=platform, random=True)]
        }
        assert not beyond(got, on["gpu"])
        worse += beyond(got, on["cpu"])
    assert worse or dtype == "float16"  # there the bound of underflow is larger


@pytest.mark.parametrize("text", ["x @ y", "np.einsum('ij,jk->ik', x, y)", "(x * y).sum(1)"])
def test_other_products_are_not(text: str) -> None:
    cpu, gpu = (
        evaluate(text, tracked(arrays(0), Model.of("bfloat16", platform=platform))).bound
        for platform in ("cpu", "gpu")
    )
    np.testing.assert_array_equal(cpu, gpu)
