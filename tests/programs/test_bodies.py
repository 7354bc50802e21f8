"""Each program's body on eight devices against its oracle, on every layout it takes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.crosscheck._tracked import Tracked
from pyreactant.programs import CASES, Layout
from tests.programs.common import (
    CUBE,
    GRID,
    LINE,
    check_block,
    model_of,
    outputs_of,
    run,
    short_bits,
    whole,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("backend")


def ratio_of(name: str, mesh: pr.Mesh, layout: Layout, dtype: str) -> float:
    case = CASES[name]
    results, inputs = run(case, mesh, layout, dtype)
    outputs = outputs_of(case, case.default_size, dtype)
    assert [(r.shape, r.dtype.name) for r in results] == [(o.shape, o.dtype) for o in outputs]
    worst = 0.0
    for number, result in enumerate(results):
        expected: dict[str, Any] = {}
        for shard in result.addressable_shards:
            block = expected.setdefault(
                str(shard.index), case.expected(number, shard.index, inputs, model_of(case, dtype))
            )
            worst = max(worst, check_block(shard.data, block))
    return worst


@pytest.mark.parametrize("mesh", [GRID, LINE, CUBE], ids=["grid", "line", "cube"])
@pytest.mark.parametrize("name", CASES)
def test_every_layout(
    name: str, mesh: pr.Mesh, record_property: Callable[[str, object], None]
) -> None:
    case = CASES[name]
    layouts = case.layouts(mesh)
    assert len(layouts) >= 2
    ratios = [ratio_of(name, mesh, layout, case.dtypes[0]) for layout in layouts]
    record_property("error over bound", max(ratios))
    assert max(ratios) <= 1


@pytest.mark.parametrize("name", CASES)
def test_every_dtype(name: str, record_property: Callable[[str, object], None]) -> None:
    case = CASES[name]
    for dtype in case.dtypes[1:]:
        ratio = ratio_of(name, GRID, case.layouts(GRID)[0], dtype)
        record_property(f"error over bound, {dtype}", ratio)
        assert ratio <= 1, dtype


@pytest.mark.parametrize("name", CASES)
def test_lower_precision_exceeds_the_bound_and_one_unit_does_not(name: str) -> None:
    case = CASES[name]
    dtype = case.dtypes[0]
    if case.is_exact(dtype):
        return
    results, inputs = run(case, GRID, case.layouts(GRID)[0], dtype)
    for number, result in enumerate(results):
        got = np.asarray(result)
        expected = case.expected(number, whole(got.shape), inputs, model_of(case, dtype))
        assert isinstance(expected, Tracked)
        error = np.abs(short_bits(got).astype(expected.value.dtype) - expected.value)
        assert np.max(error / expected.allowed) > 1
        unit = np.spacing(np.abs(got)) if got.dtype.kind == "f" else np.spacing(np.abs(got.real))
        moved = (got + unit).astype(expected.value.dtype)
        assert np.max(np.abs(moved - expected.value) / expected.allowed) <= 1
