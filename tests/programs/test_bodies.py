"""Each program's body on eight devices, compared with its oracle on every layout, and the
closed forms of communicated bytes, compared with the exchange in XLA's compiled programs.

Both are in one file because they share compiled programs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.dtypes import as_dtype
from pyreactant.check.bounds.tracked import Tracked
from pyreactant.check.programs import CASES, Layout
from pyreactant.check.programs.build import fetched
from pyreactant.fit.hlo.collective import sent_bytes
from pyreactant.fit.hlo.parse import collectives
from tests.programs.common import (
    CUBE,
    GRID,
    LINE,
    by_numpy,
    check_block,
    compiled,
    model_of,
    outputs_of,
    run,
    short_bits,
    whole,
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
        expected = case.expected(number, whole(got.shape), inputs, model_of(case, dtype))
        assert isinstance(expected, Tracked)
        error = np.abs(short_bits(got).astype(expected.value.dtype) - expected.value)
        assert np.max(error / expected.allowed) > 1
        unit = np.spacing(np.abs(got)) if got.dtype.kind == "f" else np.spacing(np.abs(got.real))
        moved = (got + unit).astype(expected.value.dtype)
        assert np.max(np.abs(moved - expected.value) / expected.allowed) <= 1


ELSEWISE = ("fft", "fft2", "cumsum")
"""Programs for which XLA's partitioner brings all of the rows to each device."""


def exchanged(name: str, mesh: pr.Mesh, layout: Layout) -> int:
    f, _, _ = compiled(CASES[name], mesh, layout, CASES[name].dtypes[0])
    return sent_bytes(collectives(f.as_text("hlo"), mesh.size))


def counted(name: str, mesh: pr.Mesh, layout: Layout) -> int | None:
    case = CASES[name]
    return case.communicated(mesh, layout, case.default_size, case.dtypes[0])


@pytest.mark.only("jax")
@pytest.mark.parametrize("name", [name for name in CASES if name not in ELSEWISE])
def test_it_is_what_xla_exchanges(name: str) -> None:
    for layout in CASES[name].layouts(LINE):
        expected = counted(name, LINE, layout)
        if expected is not None:
            assert exchanged(name, LINE, layout) == expected, layout


@pytest.mark.only("jax")
@pytest.mark.parametrize("name", ["matmul", "gram", "softmax", "attention", "perceptron", "sort"])
def test_it_is_what_xla_exchanges_over_two_axes(name: str) -> None:
    for layout in CASES[name].layouts(GRID)[:5]:
        expected = counted(name, GRID, layout)
        if expected is not None:
            assert exchanged(name, GRID, layout) == expected, layout


@pytest.mark.only("jax")
@pytest.mark.parametrize("name", ELSEWISE)
def test_xla_exchanges_no_less(name: str) -> None:
    found = [
        (counted(name, LINE, layout), exchanged(name, LINE, layout))
        for layout in CASES[name].layouts(LINE)
    ]
    assert all(ours <= theirs for ours, theirs in found if ours is not None)
    assert any(ours for ours, _ in found)


def test_by_hand() -> None:
    spec = ("x", "y")
    # Each device receives 3/4 of its 32 rows of x and 1/2 of its 16 columns of y.
    both = Layout((spec, spec), (spec,))
    assert counted("matmul", GRID, both) == (32 * 48 + 32 * 16) * 4
    assert counted("matmul", GRID, both) == fetched(CASES["matmul"], GRID, both, 64, "float32")
    # Four devices each have partial sums of 32 rows: 2 (g-1)/g of 32 numbers.
    assert counted("row_sum", GRID, Layout((spec,), (("x",),))) == 2 * 3 * 32 * 4 // 4
    # A device inside a row has two horizontal neighbours and one vertical neighbour.
    assert counted("heat", GRID, Layout((spec,), (spec,))) == 4 * (2 * 32 + 1 * 16) * 4
    assert counted("fft", GRID, Layout((("x",),), (("y",),))) is None  # in two different ways


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_signed_zeros_keep_their_order(dtype: str) -> None:
    case = CASES["sort"]
    numbers = np.random.default_rng(0).choice([0.0, -0.0, 1.0, -1.0], (8, 64))
    x = numbers.astype(as_dtype(dtype))
    sharding = pr.NamedSharding(GRID, ("x", "y"))
    got = pr.compile(case.program, pr.device_put(x, sharding))(pr.device_put(x, sharding)).gather()
    (wanted,) = by_numpy(case, x)
    assert np.asarray(got).tobytes() == np.ascontiguousarray(wanted).tobytes()
