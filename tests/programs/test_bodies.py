"""Each program's body on eight devices, compared with its oracle on every layout."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.dtypes import as_dtype
from pyreactant.check.bounds.tracked import Tracked
from pyreactant.check.programs import CASES, Layout
from pyreactant.check.regions import whole_index
from tests.programs.common import (
    CUBE,
    GRID,
    LINE,
    by_numpy,
    check_block,
    model_of,
    outputs_of,
    run,
    short_bits,
)

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
    # All layouts with one axis; with two and three axes, a sample for each program.
    number = list(CASES).index(name) % 3
    if mesh is GRID:
        layouts = layouts[:5] + layouts[5 + number :: 3]
    if mesh is CUBE:
        layouts = layouts[number::3]
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
        expected = case.expected(number, whole_index(got.shape), inputs, model_of(case, dtype))
        assert isinstance(expected, Tracked)
        error = np.abs(short_bits(got).astype(expected.value.dtype) - expected.value)
        assert np.max(error / expected.allowed) > 1
        unit = np.spacing(np.abs(got)) if got.dtype.kind == "f" else np.spacing(np.abs(got.real))
        moved = (got + unit).astype(expected.value.dtype)
        assert np.max(np.abs(moved - expected.value) / expected.allowed) <= 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_signed_zeros_keep_their_order(dtype: str) -> None:
    case = CASES["sort"]
    numbers = np.random.default_rng(0).choice([0.0, -0.0, 1.0, -1.0], (8, 64))
    x = numbers.astype(as_dtype(dtype))
    sharding = pr.NamedSharding(GRID, ("x", "y"))
    got = pr.compile(case.program, pr.device_put(x, sharding))(pr.device_put(x, sharding)).gather()
    (wanted,) = by_numpy(case, x)
    assert np.asarray(got).tobytes() == np.ascontiguousarray(wanted).tobytes()
