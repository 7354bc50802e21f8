"""The closed forms of communicated bytes against what XLA's compiled programs exchange."""

import pytest

import pyreactant as pr
from pyreactant.programs import CASES, Layout
from pyreactant.programs._traffic import fetched
from pyreactant.tpu._hlo import sent_bytes
from pyreactant.tpu._hlo_text import collectives
from tests.programs.common import GRID, LINE, compiled

ELSEWISE = ("fft", "fft2", "cumsum")
"""Programs for which XLA's partitioner brings all of the rows to each device."""


def exchanged(name: str, mesh: pr.Mesh, layout: Layout) -> int:
    f, _, _ = compiled(CASES[name], mesh, layout, CASES[name].dtypes[0])
    return sent_bytes(collectives(f.as_text("hlo"), mesh.size))


def counted(name: str, mesh: pr.Mesh, layout: Layout) -> int | None:
    case = CASES[name]
    return case.communicated(mesh, layout, case.default_size, case.dtypes[0])


@pytest.mark.only("jax")
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", [name for name in CASES if name not in ELSEWISE])
def test_it_is_what_xla_exchanges(name: str) -> None:
    for layout in CASES[name].layouts(LINE):
        expected = counted(name, LINE, layout)
        if expected is not None:
            assert exchanged(name, LINE, layout) == expected, layout


@pytest.mark.only("jax")
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", ["matmul", "gram", "softmax", "attention", "perceptron", "sort"])
def test_it_is_what_xla_exchanges_over_two_axes(name: str) -> None:
    for layout in CASES[name].layouts(GRID)[:5]:
        expected = counted(name, GRID, layout)
        if expected is not None:
            assert exchanged(name, GRID, layout) == expected, layout


@pytest.mark.only("jax")
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", ELSEWISE)
def test_xla_exchanges_no_less(name: str) -> None:
    found = [(counted(name, LINE, layout), exchanged(name, LINE, layout))
             for layout in CASES[name].layouts(LINE)]  # fmt: skip
    assert all(ours <= theirs for ours, theirs in found if ours is not None)
    assert any(ours for ours, _ in found)


def test_by_hand() -> None:
    spec = ("x", "y")
    # Each device fetches 3/4 of its 32 rows of x and 1/2 of its 16 columns of y.
    both = Layout((spec, spec), (spec,))
    assert counted("matmul", GRID, both) == (32 * 48 + 32 * 16) * 4
    assert counted("matmul", GRID, both) == fetched(CASES["matmul"], GRID, both, 64, "float32")
    # Four devices have a part of the sums of 32 rows: 2 (g-1)/g of 32 numbers.
    assert counted("row_sum", GRID, Layout((spec,), (("x",),))) == 2 * 3 * 32 * 4 // 4
    # A device in the middle of a row has two neighbours beside it and one above or below.
    assert counted("heat", GRID, Layout((spec,), (spec,))) == 4 * (2 * 32 + 1 * 16) * 4
    assert counted("fft", GRID, Layout((("x",),), (("y",),))) is None  # in two different ways
