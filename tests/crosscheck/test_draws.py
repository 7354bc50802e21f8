"""Runs without a fault pass; `python -m benchmarks.crosscheck --draws 1000` tries many more."""

import itertools

import pytest

import pyreactant as pr
from pyreactant.check.programs import find_case

from .draws import Draw, draws


@pytest.mark.slow
@pytest.mark.usefixtures("backend")
def test_random_healthy_draws_pass() -> None:
    for draw in itertools.islice(draws(seed=5, devices=8), 40):
        for name, found in draw.run_all():
            assert found.passed, f"{draw}, {name} inputs\n{found.text}"


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", ["row_sum", "full_sum"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_numbers_are_summed_in_float32(name: str, dtype: str) -> None:
    """A body that adds in the short type rounds after each addition, which one device shows."""
    one, case = pr.Mesh((1,), ("x",), [0]), find_case(name)
    found = Draw(case, 256, dtype, one, case.layouts(one, 256)[0], 2007064338).run()
    assert found.passed, found.text


def test_draws_are_the_same_for_the_same_seed() -> None:
    one, two = (list(map(str, itertools.islice(draws(9, 8), 20))) for _ in range(2))
    assert one == two
    assert one != list(map(str, itertools.islice(draws(10, 8), 20)))
