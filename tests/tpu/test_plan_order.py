"""Twenty layouts of one product: the bytes that compiled programs send, and the plan's order."""

import importlib.util
import itertools

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.matmul import Spec
from pyreactant.base.slices.topology import topology
from pyreactant.fit.compiler import ask
from pyreactant.fit.layouts.layouts import layout_of
from pyreactant.fit.layouts.machine import slice_machine
from pyreactant.fit.layouts.model import Product, loops
from pyreactant.fit.plan.candidate import Candidate, ranked
from pyreactant.fit.plan.evaluate import Pool, Trials
from tests.harness import require
from tests.tpu.recorded import Recorded

pytestmark = pytest.mark.slow

SIZE = 2048
ALL = SIZE * SIZE * 2
"""Bytes of each of the three matrices."""

MESHES = {"4x4": pr.Mesh((4, 4), ("x", "y")), "16": pr.Mesh((16,), ("x",))}
X, Y, XY, YX = "x", "y", ("x", "y"), ("y", "x")

# Mesh, specs of x, y and the product, and the bytes that a device sends, from textbook counts: an
# all-gather of a block of B over g devices sends (g - 1) / g B, an all-reduce twice that.
CASES: list[tuple[str, Spec, Spec, Spec, float]] = [
    ("4x4", (X, None), (None, Y), (X, Y), 0),
    ("4x4", (X, None), (X, Y), (X, Y), ALL / 4 * 3 / 4),  # y along x
    ("4x4", (X, Y), (None, Y), (X, Y), ALL / 4 * 3 / 4),  # x along y
    ("4x4", (X, None), (None, YX), (X, Y), ALL / 4 * 3 / 4),
    ("4x4", (XY, None), (None, Y), (X, Y), ALL / 4 * 3 / 4),
    ("4x4", (X, Y), (X, Y), (X, Y), 2 * ALL / 4 * 3 / 4),  # both: SUMMA
    ("4x4", (XY, None), (X, Y), (X, Y), 2 * ALL / 4 * 3 / 4),
    ("4x4", (XY, None), (None, YX), (X, Y), 2 * ALL / 4 * 3 / 4),
    ("4x4", (X, None), (None, Y), (X, None), ALL / 4 * 3 / 4),  # the product along y
    ("4x4", (X, None), (X, Y), (X, None), 2 * ALL / 4 * 3 / 4),
    ("4x4", (X, None), (None, Y), (None, None), ALL * 15 / 16),
    ("4x4", (X, Y), (Y, None), (X, None), 2 * ALL / 4 * 3 / 4),  # k: all-reduce
    ("4x4", (X, Y), (YX, None), (X, None), 3 * ALL / 4 * 3 / 4),  # and y along x
    ("4x4", (X, Y), (Y, None), (None, None), 2 * ALL / 4 * 3 / 4 + ALL * 3 / 4),
    ("16", (X, None), (None, None), (X, None), 0),
    ("16", (X, None), (X, None), (X, None), ALL * 15 / 16),
    ("16", (X, None), (None, None), (None, None), ALL * 15 / 16),
    ("16", (X, None), (X, None), (None, None), 2 * ALL * 15 / 16),
    ("16", (None, X), (X, None), (None, None), 2 * ALL * 15 / 16),
    ("16", (None, X), (None, None), (X, None), ALL / 16 * 15 / 16),  # all-to-all
]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> list[Candidate]:
    require(importlib.util.find_spec("libtpu"), "libtpu, which compiles for an absent TPU")
    machine = slice_machine(topology("v6e-16"), "bfloat16")
    product = Product(SIZE, SIZE, SIZE, 2)
    layouts = [layout_of(product, machine, MESHES[m], (x, y), c) for m, x, y, c, _ in CASES]
    shapes = ((SIZE, SIZE), (SIZE, SIZE))

    trials = Trials(machine, "matmul", shapes, "bfloat16", None, cache=True, timeout=120)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(ask, "compile_in_child", Recorded(ask.compile_in_child))
        pool: Pool[Candidate] = Pool()
        results = dict(pool.run([lambda one=one: trials.candidate(one) for one in layouts]))  # type: ignore[misc]
    return [results[i] for i in range(len(CASES))]


def test_there_are_twenty() -> None:
    assert len(CASES) == 20


def test_closed_forms_are_what_is_sent(tried: list[Candidate]) -> None:
    for case, one in zip(CASES, tried, strict=True):
        assert not one.trouble, case
        assert one.layout.received_bytes == pytest.approx(case[4]), case
        assert one.sent_bytes == pytest.approx(case[4], rel=0.02), case


def test_no_inversion_beyond_ties(tried: list[Candidate]) -> None:
    """Of two layouts that compute the same blocks, the one that sends less is not ranked later.

    The same blocks means the same mesh, loops divided by the same axes, and the same blocks of the
    product. For other layouts XLA's time for the blocks matters too: long thin blocks take longer.
    Counts within 5 % are a tie. Ranks need no ties, because the count decides between times that
    are equal to three digits.
    """
    rank = {id(one): place for place, one in enumerate(ranked(tried))}
    alike: dict[object, list[int]] = {}
    for number, (mesh, x, y, c, _) in enumerate(CASES):
        alike.setdefault((mesh, c, divided(MESHES[mesh], x, y, c)), []).append(number)
    pairs = [pair for group in alike.values() for pair in itertools.permutations(group, 2)]
    less = [(a, b) for a, b in pairs if CASES[a][4] < 0.95 * CASES[b][4]]
    assert len(less) >= 20
    for a, b in less:
        assert rank[id(tried[a])] < rank[id(tried[b])], (CASES[a], CASES[b])


def divided(mesh: pr.Mesh, x: Spec, y: Spec, c: Spec) -> tuple[int, ...]:
    def dimension(spec: Spec, axis: str) -> int:
        return next((d for d, e in enumerate(spec, 1) if e and axis in e), 0)

    cut = {
        name: np.array([[dimension(spec, axis)] for axis in mesh.axis_names])
        for name, spec in zip("xyc", (x, y, c), strict=True)
    }
    return tuple(loops(cut)[:, 0].tolist())
