"""Healthy runtimes never fail; `python -m benchmarks.crosscheck --draws 1000` does many more."""

import itertools

import pytest

from .draws import draws


@pytest.mark.usefixtures("backend")
def test_random_healthy_draws_pass() -> None:
    for draw in itertools.islice(draws(seed=5, devices=8), 40):
        found = draw.run()
        assert found.passed, f"{draw}\n{found.text}"


def test_draws_are_the_same_for_the_same_seed() -> None:
    one, two = (list(map(str, itertools.islice(draws(9, 8), 20))) for _ in range(2))
    assert one == two
    assert one != list(map(str, itertools.islice(draws(10, 8), 20)))
