"""The arguments of a program in a cross-check: ranges, trees, and what is no form of these."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.inputs import as_arguments
from pyreactant.check.inputs import source
from pyreactant.check.programs import find_case
from pyreactant.check.request import CheckRequest, program_of

TREE = ({"w": ("n", "n"), "v": {"b": (8,)}}, pr.Integers(-2, 5), pr.Uniform(0, 1, shape=()))


def program(inputs: Any, **options: Any) -> pr.Program:
    return pr.Program("p", jax="jax.numpy:add", inputs=inputs, **options)


def two(labels: np.ndarray, p: np.ndarray) -> Any:
    return p + labels


def test_a_program_with_trees_travels_as_json_and_can_be_a_key() -> None:
    made = program(TREE)
    assert hash(made) == hash(program(list(TREE)))
    assert program_of(json.loads(json.dumps(asdict(made)))) == made
    request = CheckRequest((made,))
    assert CheckRequest.from_dict(json.loads(json.dumps(request.to_dict()))).programs == (made,)
    assert program((("n", 4),)).inputs == (("n", 4),)


def test_arrays_become_the_arguments() -> None:
    arrays = find_case(program(TREE)).inputs(16, "bfloat16")
    assert [(a.name, a.shape, a.dtype) for a in arrays] == [
        ("argument 0['w']", (16, 16), "bfloat16"),
        ("argument 0['v']['b']", (8,), "bfloat16"),
        ("argument 1", (16,), "int32"),
        ("argument 2", (), "bfloat16"),
    ]
    assert as_arguments(program(TREE).inputs, [1, 2, 3, 4]) == ({"w": 1, "v": {"b": 2}}, 3, 4)
    assert as_arguments((), [1, 2]) == (1, 2)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "complex64"])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.1, 0.3), (-5, 1e4)])
def test_numbers_of_a_range_are_within_it(dtype: str, low: float, high: float) -> None:
    (what,) = find_case(program((pr.Uniform(low, high, shape=(64, 64)),))).inputs(1, dtype)
    block = source(what, 0, 0).read((slice(0, 64), slice(0, 64)))
    numbers = block.astype(np.float64)
    assert numbers.min() >= low
    assert numbers.max() < high
    assert numbers.mean() == pytest.approx((low + high) / 2, abs=0.05 * (high - low))
    np.testing.assert_array_equal(
        source(what, 0, 0).read((slice(3, 5), slice(7, 64))), block[3:5, 7:]
    )


def test_whole_numbers_of_a_range() -> None:
    (what,) = find_case(program((pr.Integers(-2, 5, shape=(64, 64)),))).inputs(1, "float32")
    numbers = source(what, 0, 0).read((slice(0, 64), slice(0, 64)))
    assert numbers.dtype == np.int32
    assert set(numbers.flat) == set(range(-2, 5))


def test_names_are_those_of_the_function() -> None:
    inputs = {"labels": pr.Integers(0, 10), "p": pr.Uniform(0, 1)}
    assert [a.shape for a in find_case(program(inputs, oracle=two)).inputs(8, "float32")] == [
        (8,)
    ] * 2
    turned = dict(reversed(inputs.items()))
    with pytest.raises(pr.InvalidArgumentError, match="in their order, labels, p, got p, labels"):
        find_case(program(turned, oracle=two))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pr.Integers(3, 3), "two whole numbers with low < high, got 3 and 3"),
        (lambda: pr.Integers(0.0, 3), "got 0.0 and 3"),
        (lambda: pr.Integers(0, 2**40), "within int32"),
        (lambda: pr.Integers(0, 2, shape=("m",)), r"Integers: shape= must .*got \('m',\)"),
        (lambda: pr.Uniform(1, 0), "low < high, got 1.0 and 0.0"),
        (lambda: pr.Uniform(0, float("inf")), "high must be a finite number, got inf"),
        (lambda: pr.Uniform("0", 1), "low must be a finite number, got '0'"),
        (lambda: program({}), "inputs= must be one shape per argument"),
        (lambda: program({1: ("n",)}), "inputs= must be one shape per argument"),
        (lambda: program(({"w": 3},)), "pyreactant.Integers, pyreactant.Uniform, or a dict"),
        (
            lambda: find_case(
                program((pr.Uniform(0, 1),), oracle=two, domain=pr.Domain(sums=True))
            ),
            "states of argument 0; give its shape",
        ),
    ],
)
def test_what_is_no_input(make: Any, message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        make()


def test_a_decorated_function_keeps_its_name_and_docstring() -> None:
    @pr.program(name="other")
    def step(x: Any) -> Any:
        """Make a step."""
        return x

    assert (step.__name__, step.__doc__) == ("step", "Make a step.")
    named = pr.Program("named", jax="jax.numpy:add")
    assert named.__name__ == "named"
    assert named.__doc__ == pr.Program.__doc__
    assert repr(pr.Program) == "<class 'pyreactant.arrays.program.Program'>"
