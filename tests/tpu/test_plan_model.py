"""The planner's closed forms, compared with counts on index sets and textbook formulas."""

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import pyreactant as pr
from pyreactant.fit.layouts.layouts import aligned_entries, specs_of
from pyreactant.fit.layouts.model import (
    LOOPS,
    NONE,
    K,
    M,
    N,
    Product,
    Speeds,
    costs,
    divisible,
    every_layout,
    exchange,
    loops,
    memory_bytes,
)

Roles = list[tuple[int, int, int]]
"""For each axis the dimension of x, y and c that it cuts."""

NAMES = ("a", "b", "c")


@st.composite
def problems(draw: st.DrawFn) -> tuple[Product, tuple[int, ...], Roles]:
    sizes = tuple(draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=2)))
    sides = [math.prod(sizes) * draw(st.integers(1, 2)) for _ in range(3)]
    role = st.tuples(*[st.integers(0, 2)] * 3)
    return Product(*sides, 2), sizes, [draw(role) for _ in sizes]


def layout(roles: Roles) -> dict[str, np.ndarray]:
    return {name: np.array([[role[i]] for role in roles]) for i, name in enumerate("xyc")}


def cells(mesh: pr.Mesh, spec: Any, shape: tuple[int, int]) -> list[set[int]]:
    """The linear indices of each device's block."""
    numbers = np.arange(math.prod(shape)).reshape(shape)
    blocks = pr.NamedSharding(mesh, spec).devices_indices_map(shape).values()
    return [set(numbers[block].ravel().tolist()) for block in blocks]


def worked_on(mesh: pr.Mesh, roles: list[Any], name: str) -> tuple[tuple[str, ...], ...]:
    """The spec of the block that each device needs or computes: the axes that divide each loop."""
    axes = list(zip(mesh.axis_names, roles, strict=True))
    return tuple(
        tuple(
            axis
            for axis, role in sorted(axes, key=lambda pair: -aligned_entries(pair[1], loop))
            if role[3] == loop
        )
        for loop in LOOPS[name]
    )


def in_one_piece(roles: list[Any]) -> bool:
    """Whether the block that a device holds contains the block that it needs, or is part of it.

    For each loop, the axes that divide it and the axes that cut x, y or c along it are nested, and
    no dimension is cut by one axis while another divides its loop.
    """
    for loop in (M, K, N):
        divide = {a for a, role in enumerate(roles) if role[3] == loop}
        sets = []
        for i, name in enumerate("xyc"):
            if loop in LOOPS[name]:
                dimension = LOOPS[name].index(loop) + 1
                cut = {a for a, role in enumerate(roles) if role[i] == dimension}
                if cut - divide and divide - cut:
                    return False
                sets.append(cut & divide)
        if not (sets[0] <= sets[1] or sets[1] <= sets[0]):
            return False
    return True


@settings(max_examples=400, deadline=None)
@given(problems(), st.data())
def test_exchange_is_a_count_of_what_is_not_there(
    problem: tuple[Product, tuple[int, ...], Roles], data: st.DataObject
) -> None:
    """Count the elements that each device needs and does not hold."""
    product, sizes, cut = problem
    mesh = pr.Mesh(sizes, NAMES[: len(sizes)])
    # Partial sums cannot be counted as elements; the textbook cases below cover them.
    divided = tuple(data.draw(st.sampled_from([M, N, NONE])) for _ in sizes)
    roles = [(*role, loop) for role, loop in zip(cut, divided, strict=True)]
    shapes = ((product.m, product.k), (product.k, product.n), (product.m, product.n))
    counted = np.zeros(mesh.size, int)
    for name, shape, spec in zip("xyc", shapes, specs_of(mesh, roles), strict=True):
        held = cells(mesh, spec, shape)
        needed = cells(mesh, worked_on(mesh, roles, name), shape)
        if name == "c":  # computed on one device, needed on another
            held, needed = needed, held
        counted += [len(need - have) for have, need in zip(held, needed, strict=True)]
    formula = exchange(product, sizes, layout(cut), np.array(divided)[:, None])
    assert formula.min() >= 0
    if in_one_piece(roles):
        assert counted.tolist() == pytest.approx([formula.sum()] * mesh.size)
    else:  # it may be less on some devices, but not on all
        assert counted.max() >= formula.sum() * 0.999999


@given(problems())
def test_memory_is_that_of_the_blocks(problem: tuple[Product, tuple[int, ...], Roles]) -> None:
    product, sizes, roles = problem
    mesh = pr.Mesh(sizes, NAMES[: len(sizes)])
    shapes = ((product.m, product.k), (product.k, product.n), (product.m, product.n))
    blocks = 0.0
    for i, shape in enumerate(shapes):
        spec = specs_of(mesh, [(*role, 0) for role in roles])[i]
        blocks += math.prod(pr.NamedSharding(mesh, spec).cuts(2)) ** -1 * math.prod(shape)
    assert memory_bytes(product, sizes, layout(roles))[0] == pytest.approx(2 * blocks)


@given(problems(), st.integers(2, 5))
def test_twice_the_size_is_four_times_the_bytes(
    problem: tuple[Product, tuple[int, ...], Roles], factor: int
) -> None:
    product, sizes, cut = problem
    large = Product(product.m * factor, product.k * factor, product.n * factor, 2)
    divided = loops(layout(cut))
    small, big = (exchange(p, sizes, layout(cut), divided) for p in (product, large))
    assert big.tolist() == [[pytest.approx(factor**2 * v) for v in row] for row in small.tolist()]


@given(problems())
def test_all_work_is_done(problem: tuple[Product, tuple[int, ...], Roles]) -> None:
    """Axes that divide no loop repeat the work; all other axes share it."""
    product, sizes, cut = problem
    speeds = Speeds(1.0, math.inf, (math.inf,) * len(sizes))
    found = costs(product, sizes, layout(cut), speeds)
    sharing = [size for size, loop in zip(sizes, found.loops[:, 0], strict=True) if loop != NONE]
    work = 2 * product.m * product.k * product.n
    assert found.local[0] * math.prod(sharing) == pytest.approx(work)
    assert found.seconds[0] == found.local[0]


m, k, n = 64, 96, 32
TEXTBOOK = [
    # Rows of x and all of y: nothing is sent. The same for columns of y, and both on two axes.
    ((4,), [(1, 0, 1)], 0),
    ((4,), [(0, 2, 2)], 0),
    ((4, 8), [(1, 0, 1), (0, 2, 2)], 0),
    # One-dimensional: y is gathered, or x; or the product.
    ((4,), [(1, 1, 1)], k * n * 3 // 4),
    ((4,), [(1, 2, 1)], k * n * 3 // 4),
    ((4,), [(2, 2, 2)], m * k * 3 // 4),
    ((4,), [(1, 2, 2)], m * k * 3 // 4),
    ((4,), [(1, 0, 0)], m * n * 3 // 4),
    ((4,), [(1, 1, 0)], k * n * 3 // 4 + m * n * 3 // 4),
    # k is divided: all-reduce of the product, or reduce-scatter if each device keeps a part.
    ((4,), [(2, 1, 0)], 2 * m * n * 3 // 4),
    ((4,), [(2, 1, 1)], 2 * m * n * 3 // 4),
    ((4, 2), [(2, 1, 0), (2, 1, 0)], 2 * m * n * 7 // 8),
    # Megatron's column- then row-parallel layers (Shoeybi et al. 2019).
    ((8,), [(0, 2, 2)], 0),
    ((8,), [(2, 1, 0)], 2 * m * n * 7 // 8),
    # Columns to rows is an all-to-all, as between the parts of Ulysses (Jacobs et al. 2023).
    ((4,), [(2, 0, 1)], m * k // 4 * 3 // 4),
    # SUMMA on a grid (van de Geijn and Watts 1997): gather a row of x and a column of y.
    ((4, 8), [(1, 1, 1), (2, 2, 2)], m * k // 4 * 7 // 8 + k * n // 8 * 3 // 4),
    ((2, 2), [(1, 1, 1), (2, 2, 2)], m * k // 2 // 2 + k * n // 2 // 2),
    # 2.5D (Solomonik and Demmel 2011): layers that divide k, whose products are summed.
    ((2, 4), [(1, 0, 1), (2, 1, 0)], 2 * (m // 2) * n * 3 // 4),
    (
        (2, 2, 2),
        [(1, 1, 1), (2, 2, 2), (2, 1, 0)],
        (m * k // 4) // 2 + (k * n // 4) // 2 + 2 * (m * n // 4) // 2,
    ),
    # Full replication: nothing is sent, and every device computes the product.
    ((4,), [(0, 0, 0)], 0),
]


@pytest.mark.parametrize(("sizes", "roles", "elements"), TEXTBOOK)
def test_textbook_counts(sizes: tuple[int, ...], roles: Roles, elements: int) -> None:
    speeds = Speeds(1.0, 1.0, (1.0,) * len(sizes))
    found = costs(Product(m, k, n, 2), sizes, layout(roles), speeds)
    assert found.received.sum() == pytest.approx(2 * elements)


def test_indivisible_layouts_are_left_out() -> None:
    cut = every_layout(1)
    fits = divisible(Product(6, 8, 5, 2), (4,), cut)
    cuts_k = (cut["x"][0] != 1) & (cut["y"][0] != 2) & (cut["c"][0] == 0)
    assert fits.tolist() == cuts_k.tolist()


def test_a_slow_axis_carries_least() -> None:
    """A gather over two axes uses the first, slow axis before the data grows."""
    cut = layout([(1, 0, 2), (1, 0, 2)])
    received = exchange(Product(64, 64, 64, 2), (2, 8), cut, loops(cut))
    assert received[0, 0] == 64 * 64 / 16
    assert received.sum() == 64 * 64 * 15 / 16
