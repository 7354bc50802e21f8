"""A program that did not ask for it changes no argument, whatever its body does with them."""

from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pyreactant as pr
from tests import harness
from tests.backend.bodies import moved
from tests.backend.common import XY, body, numbers

NUMBER = st.integers(0, 2)
STEPS = st.lists(st.tuples(st.integers(0, 3), NUMBER, NUMBER), max_size=4).map(tuple)
SWAP, ROTATE, WRITE, COPY = ((1, 0, 1),), ((1, 0, 1), (1, 1, 2)), ((0, 0, 1),), ((2, 0, 1),)


@settings(max_examples=30 if harness.backend == "jax" else 10, deadline=None)
@example(SWAP, (0, 1, 2))
@example(ROTATE, (0, 1, 2))
@example(WRITE, (0, 1, 2))
@example(COPY, (0, 1, 2))
@example(SWAP, (0, 0, 2))
@example(((3, 0, 1), (0, 0, 2)), (0, 1, 1))
@example(((3, 0, 0),), (0, 1, 2))  # and with the next: programs that differ in an argument only
@example(((3, 0, 1),), (0, 1, 2))
@given(STEPS, st.tuples(NUMBER, NUMBER, NUMBER))
def test_arguments_stay(
    backend: str, steps: tuple[tuple[int, int, int], ...], given: tuple[int, int, int]
) -> None:
    """Three arguments, of which several may be one array: refused, or right and without a trace."""
    xs = [numbers((8, 8)) + 100 * i for i in range(3)]
    arrays = [pr.device_put(x, XY) for x in xs]
    refusal = ""
    results: Any = ()
    try:
        f = pr.compile(body("moved"), *(arrays[i] for i in given), static={"steps": steps})
        results = f(*(arrays[i] for i in given))
    except pr.InvalidArgumentError as error:
        refusal = str(error)
    if refusal:
        assert backend == "reactant"
        assert "writes to its argument" in refusal
    else:
        wanted = moved(*(xs[i] for i in given), steps=steps)
        for found, expected in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(found.gather(), expected)
    for array, x in zip(arrays, xs, strict=True):
        assert array.gather().tobytes() == x.tobytes()
