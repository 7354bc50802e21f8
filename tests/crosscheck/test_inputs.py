"""Faults that only harder inputs show, and right programs that stay right."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.check.execute import run_again, run_case
from pyreactant.check.inputs import input_sets
from pyreactant.check.programs import find_case
from pyreactant.check.programs.case import Case
from pyreactant.check.records.verdict import Diagnosis
from pyreactant.check.request import choose_layout
from tests.crosscheck.user_programs import (
    next_one,
    next_two,
    rotary,
    rotary_without_rule,
    short_rotary,
    wave,
)

from .trials import diagnosis_of

pytestmark = pytest.mark.usefixtures("backend")


def found(case: Case, dtype: str = "float32", size: int = 16) -> dict[str, Diagnosis]:
    """The diagnosis of each set of inputs of a program on two devices, by name."""
    mesh = pr.Mesh((1, 2), ("x", "y"), [0, 1])
    run = run_case(case, size=size, dtype=dtype, mesh=mesh, calls=1)
    results = {"ordinary": diagnosis_of(run)}
    for data in input_sets(case, size, dtype):
        run = run_again(run, data)
        results[data.name] = diagnosis_of(run)
    return results


def broken(name: str, body: Callable[..., Any]) -> Case:
    """A built-in case with another JAX body."""
    case = find_case(name)
    return replace(case, program=replace(case.program, jax=body))


def zero(x: Any) -> Any:
    return 0 * x.sum()


def nudged_product(x: Any, y: Any) -> Any:
    return (x @ y) * np.float32(1 + 2.0**-20)


def one_pass_layer_norm(x: Any, gain: Any, shift: Any) -> Any:
    import jax.numpy as jnp

    mean = x.mean(axis=1, keepdims=True)
    variance = (x * x).mean(axis=1, keepdims=True) - mean * mean
    return (x - mean) / jnp.sqrt(variance + 2.0**-10) * gain + shift


def softmax_without_maximum(x: Any) -> Any:
    import jax.numpy as jnp

    e = jnp.exp(x)
    return e / e.sum(axis=1, keepdims=True)


def sum_without_nan(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.where(jnp.isnan(x), 0, x).sum(axis=1)


def sum_in_float(x: Any) -> Any:
    return x.astype("float32").sum(axis=1).astype(x.dtype)


def transpose_in_halves(x: Any) -> Any:
    high = x.astype("float32")
    low = (x - high.astype(x.dtype)).astype("float32")
    return (high.astype(x.dtype) + low.astype(x.dtype)).T


def flushed(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.where(jnp.abs(x) < 1e-30, 0, x).T


FAULTS: list[tuple[str, str, Callable[..., Any], set[str]]] = [
    ("full_sum", "bfloat16", zero, {"exact"}),
    ("matmul", "float32", nudged_product, {"exact"}),
    ("layer_norm", "float32", one_pass_layer_norm, {"wide"}),
    ("softmax", "float32", softmax_without_maximum, {"wide"}),
    ("row_sum", "float32", sum_without_nan, {"special"}),
    ("row_sum", "int32", sum_in_float, {"wide"}),
    ("transpose", "float64", transpose_in_halves, {"wide"}),
    ("transpose", "float32", flushed, {"special"}),
]


@pytest.mark.parametrize(
    ("name", "dtype", "body", "shown_by"), FAULTS, ids=[body.__name__ for _, _, body, _ in FAULTS]
)
def test_faults_that_ordinary_inputs_may_hide(
    name: str, dtype: str, body: Callable[..., Any], shown_by: set[str]
) -> None:
    right = found(find_case(name), dtype)
    assert all(one.passed for one in right.values()), right
    results = found(broken(name, body), dtype)
    wrong = {one for one, diagnosis in results.items() if not diagnosis.passed}
    assert shown_by <= wrong
    if body is not zero:  # whose random sum shows it too, if its bound is small enough
        assert "ordinary" not in wrong, results["ordinary"].text


@pytest.mark.parametrize(
    "program", [rotary, rotary_without_rule, wave], ids=["rule", "no-rule", "linspace"]
)
def test_constants_that_a_program_computes_itself(program: pr.Program) -> None:
    """The angles of a rotary embedding are rounded at every step, here up to 64 times the unit."""
    for size, dtype in ((64, "float32"), (24, "float32"), (16, "float64")):
        results = found(find_case(program), dtype, size)
        assert all(one.passed for one in results.values()), results


def test_short_constants_are_still_wrong() -> None:
    assert not found(find_case(short_rotary), size=64)["ordinary"].passed


def test_a_mask_of_computed_indices_is_exact() -> None:
    """Whole numbers are not rounded: a mask that is one off is wrong, not unchecked."""
    assert all(one.passed for one in found(find_case(next_one), size=16).values())
    assert not found(find_case(next_two), size=16)["ordinary"].passed


def test_a_user_s_wide_inputs_stay_below_one_in_size() -> None:
    case = find_case(rotary)
    (wide,) = input_sets(case, 16, "float32")
    what = case.inputs(16, "float32")[0]
    x = wide.make(what, 0, 0).read(tuple(slice(0, n) for n in what.shape))
    assert 0.5 < np.abs(x).max() <= 1
    assert not input_sets(case, 16, "int32")


def test_a_result_that_is_stale_on_further_inputs() -> None:
    """The call before had other inputs, which the explanation computes again."""
    case = find_case("row_sum")
    run = run_case(case, size=16, mesh=pr.Mesh((1,), ("x",), [0]), calls=1)
    before = run.arrays["output 0"]
    again = run_again(run, input_sets(case, 16, "float32")[0])
    stale = replace(again, arrays={**again.arrays, "output 0": before})
    diagnosis = diagnosis_of(stale)
    assert not diagnosis.passed
    assert "stale" in diagnosis.text
    assert diagnosis_of(again).passed


MOVES, SUMS = pr.Domain(moves=True), pr.Domain(sums=True)
PRODUCT = pr.Domain(sums=True, degree=2, special={0: ("nan",)})
SQUARE, TWO = (("n", "n"),), (("n", 13), (13, 7))


def rolled(x: Any, numpy: Any = np) -> Any:
    return numpy.roll(x, 3, axis=-1)


def product(x: Any, y: Any) -> Any:
    return x @ y


def quarter(x: Any, numpy: Any = np) -> Any:
    p = numpy.pad(x, 1)
    return 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] - 3 * p[1:-1, 2:])


def mean_of_lists(x: np.ndarray) -> np.ndarray:
    """A mean that has no rule."""
    return np.array([sum(row) / len(row) for row in x.tolist()])


def in_jax(function: Callable[..., Any]) -> Callable[..., Any]:
    def body(*args: Any) -> Any:
        import jax.numpy as jnp

        return function(*args, numpy=jnp)

    return body


def of_user(body: Any, oracle: Any, inputs: Any, domain: pr.Domain | None) -> Case:
    return find_case(pr.Program("mine", jax=body, oracle=oracle, inputs=inputs, domain=domain))


SPECIAL_TOO = pr.Domain(moves=True, special=("nan", "inf", "zero", "denormal"))

RIGHT: list[tuple[Any, Any, Any, pr.Domain, str, str]] = [
    (in_jax(rolled), rolled, (("n", 5),), MOVES, "float32 bfloat16", "wide special exact"),
    (in_jax(rolled), rolled, (("n",),), SPECIAL_TOO, "float16 complex64", "wide special exact"),
    (in_jax(rolled), rolled, SQUARE, MOVES, "int32", "wide exact"),
    (lambda x: x[3, 4], lambda x: x[3, 4], SQUARE, MOVES, "float64", "wide special exact"),
    (lambda x: x.max(), lambda x: x.max(), SQUARE, MOVES, "float32", "wide exact"),
    (product, product, TWO, PRODUCT, "bfloat16 float16 complex128", "wide special exact"),
    (product, product, TWO, PRODUCT, "int32", "wide"),
    (in_jax(quarter), quarter, SQUARE, SUMS, "float32 bfloat16", "wide exact"),
    (lambda x: x.sum(), lambda x: x.sum(), SQUARE, SUMS, "bfloat16 float64", "wide exact"),
    (lambda x: x.mean(1), mean_of_lists, SQUARE, SUMS, "float32", "wide exact"),
]


@pytest.mark.parametrize(("body", "oracle", "inputs", "domain", "dtypes", "sets"), RIGHT)
def test_right_programs_are_right_on_what_they_state(
    body: Any, oracle: Any, inputs: Any, domain: pr.Domain, dtypes: str, sets: str
) -> None:
    for dtype in dtypes.split():
        results = found(of_user(body, oracle, inputs, domain), dtype)
        assert [*results] == ["ordinary", *sets.split()]
        assert all(one.passed for one in results.values()), (dtype, results)


def without_nan(x: Any) -> Any:
    import jax.numpy as jnp

    return rolled(jnp.where(jnp.isnan(x), 0, x), jnp)


def one_bit_off(x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    flipped = jax.lax.bitcast_convert_type(bits ^ np.uint32(1), x.dtype)
    return rolled(x.at[3, 4].set(flipped[3, 4]), jnp)


def product_without_one(x: Any, y: Any) -> Any:
    return x.at[1, 2].set(0) @ y


def sum_without_last(x: Any) -> Any:
    return x.at[-1, -1].set(0).sum()


@pytest.mark.parametrize(
    ("body", "oracle", "inputs", "domain", "dtype", "shown_by"),
    [
        (without_nan, rolled, SQUARE, MOVES, "float32", {"special"}),
        (one_bit_off, rolled, SQUARE, MOVES, "float32", {"ordinary", "wide", "special", "exact"}),
        (product_without_one, product, (("n", 64), (64, 7)), PRODUCT, "bfloat16", {"exact"}),
        (sum_without_last, lambda x: x.sum(), SQUARE, SUMS, "bfloat16", {"exact"}),
    ],
)
def test_faults_that_only_a_statement_shows(
    body: Any, oracle: Any, inputs: Any, domain: pr.Domain, dtype: str, shown_by: set[str]
) -> None:
    results = found(of_user(body, oracle, inputs, domain), dtype)
    assert {name for name, one in results.items() if not one.passed} == shown_by
    silent = found(of_user(body, oracle, inputs, None), dtype)
    assert all(one.passed for one in silent.values()), silent


def test_a_vector_is_sharded_where_the_first_axis_has_one_device() -> None:
    """The default mesh of two devices is 1 by 2, on which its first layout shards nothing."""
    case = find_case(
        pr.Program("same", jax="numpy:positive", oracle="numpy:positive", inputs=[["n"]])
    )
    layout = choose_layout(case, pr.Mesh((1, 2), ("x", "y")), 64, None)
    assert layout.in_specs == ((("x", "y"),),)
