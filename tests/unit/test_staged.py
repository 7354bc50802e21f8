"""Oracles in two stages: the same values as the plain oracle, block by block."""

from typing import Any

import numpy as np
import pytest

from pyreactant._bounds.model import Model
from pyreactant._bounds.tracked import Tracked
from pyreactant._core.sharding import Index
from pyreactant.crosscheck._inputs import ORDINARY_SET
from pyreactant.programs import find_case, perceptron_gradient, sgd_step
from pyreactant.programs._case import Case


def whole(case: Case, n: int) -> list[tuple[slice, ...]]:
    assert case.outputs is not None
    return [tuple(slice(0, m) for m in one.shape) for one in case.outputs(n, "float32")]


@pytest.mark.parametrize("random", [True, False])
@pytest.mark.parametrize("module", [perceptron_gradient, sgd_step])
def test_blocks_are_those_of_the_plain_oracle(module: Any, random: bool) -> None:
    """Also with more rows than the first stage takes at a time, and for parts of a result."""
    case = find_case(module.__name__.rpartition(".")[2])
    n, model = 320, Model.of("float32", random=random)
    made = case.inputs(n, "float32")
    sources = tuple(ORDINARY_SET.make(one, 0, i) for i, one in enumerate(made))
    arrays = [s.read(tuple(slice(0, m) for m in s.shape)).astype(float) for s in sources]
    right = module.oracle(*arrays)

    def block(output: int, index: Index) -> Tracked:
        found = case.expected(output, index, sources, model)
        assert isinstance(found, Tracked)
        return found

    for output, everything in enumerate(whole(case, n)):
        found = block(output, everything)
        np.testing.assert_allclose(found.value, right[output], rtol=1e-9, atol=1e-12)
        seen = np.median(found.bound) / np.sqrt(np.mean(found.value**2))
        assert 0 < seen < (2e-2 if random else 1)  # without random signs the bound is wide
        part = tuple(slice(s.stop // 4, s.stop // 2) for s in everything)
        some = block(output, part)
        np.testing.assert_allclose(some.value, right[output][part], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(some.bound, found.bound[part], rtol=0.02)
