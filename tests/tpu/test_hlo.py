"""Collectives of optimised HLO: goldens from libtpu, and replica groups compared with NumPy."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyreactant as pr
from pyreactant.fit.hlo.collective import Collective, axes_of, name_axes, parse_groups, sent_bytes
from pyreactant.fit.hlo.parse import collectives, shape_bytes

GOLDEN = Path(__file__).parent / "hlo"
MIB = 2**20


def golden(
    name: str, shape: tuple[int, ...], slice_axes: tuple[str, ...] = (), partitions: int = 16
) -> tuple[Collective, ...]:
    names = tuple("xy" if len(shape) == 2 else "abc")
    grid = np.indices(shape).reshape(len(shape), -1).T[:partitions]
    found = collectives((GOLDEN / f"{name}.hlo").read_text(), partitions)
    return name_axes(found, grid, names, slice_axes)


def brief(found: tuple[Collective, ...]) -> list[tuple[object, ...]]:
    return [(c.op, c.bytes / MIB, c.times, "+".join(c.axes), c.channel) for c in found]


def test_starts_count_once_and_in_order() -> None:
    found = golden("matmul", (4, 4))
    assert brief(found) == [
        ("collective-permute", 32, 1, "x", 3),
        ("all-gather", 128, 1, "y", 1),
        ("collective-permute", 32, 1, "x", 4),
        ("collective-permute", 32, 1, "x", 5),
    ]
    gather = found[1]
    assert gather.shape == "bf16[4096,16384]"
    assert gather.groups == tuple(tuple(range(4 * i, 4 * i + 4)) for i in range(4))
    assert found[0].pairs[:4] == ((0, 4), (4, 8), (8, 12), (12, 0))
    assert sent_bytes(found) == 96 * MIB + 96 * MIB


def test_between_slices() -> None:
    found = golden("matmul_two_slices", (4, 8), slice_axes=("x",))
    assert brief(found) == [
        ("send", 16, 1, "x", 2),
        ("recv", 32, 1, "x", 1),
        ("all-gather", 128, 1, "y", 1),
        ("all-gather", 64, 1, "x", 3),
    ]
    assert [c.across_slices for c in found] == [True, True, False, False]
    assert found[0].note == "ALL_GATHER"
    assert (
        sent_bytes(c for c in found if c.across_slices) == 16 * MIB
    )  # not counted again as received


def test_three_axes() -> None:
    assert brief(golden("matmul_three_axes", (2, 4, 2))) == [
        ("all-gather", 0.5, 1, "b", 5),
        ("all-reduce", 0.5, 1, "a+c", 6),
    ]


def test_all_to_all() -> None:
    assert brief(golden("all_to_all", (4, 4))) == [("all-to-all", 0.5, 1, "x", 1)]


def test_all_axes() -> None:
    (found,) = golden("sum", (2, 4, 2))
    assert (found.op, found.shape, found.bytes, found.axes) == (
        "all-reduce",
        "f32[]",
        4,
        ("a", "b", "c"),
    )


def test_loop_of_known_length() -> None:
    assert brief(golden("scan", (4, 4))) == [
        ("all-gather", 0.5, 5, "y", 1),
        ("all-gather", 0.5, 5, "x", 3),
    ]


def test_loop_that_looks_at_values() -> None:
    found = golden("while", (4, 4))
    assert {c.times for c in found} == {None}
    assert [c.op for c in found] == ["all-reduce", "all-gather", "all-gather"]


def test_windowed_loops() -> None:
    """XLA's own loops, which take two of eight steps per iteration."""
    found = golden("gradient", (4, 4))
    assert {c.op for c in found} == {"collective-permute"}
    assert [c.times for c in found] == [1, 4, 4, 4, 4, 4, 4, 4, 4, 1]
    assert {c.axes for c in found} == {("x", "y")}


def test_reduce_scatter_by_halves() -> None:
    assert brief(golden("scatter", (4, 4)))[0] == ("all-reduce", 32.5, 1, "y", 2)


def test_asynchronous_forms() -> None:
    """Examples written in XLA's HLO text; libtpu's scheduler may choose these forms too."""
    text = """HloModule made
%wrapped (p: bf16[8,4]) -> bf16[2,4] {
  %p = bf16[8,4]{1,0} parameter(0)
  ROOT %rs = bf16[2,4]{1,0} reduce-scatter(%p), channel_id=7, replica_groups=[4,4]<=[16], \
dimensions={0}, to_apply=%add
}
ENTRY %main (a: bf16[8,4]) -> bf16[2,4] {
  %a = bf16[8,4]{1,0} parameter(0)
  %g = (bf16[8,4]{1,0}, bf16[32,4]{1,0:T(8,128)(2,1)}) all-gather-start(%a), channel_id=1, \
replica_groups={{0,1,2,3},{4,5,6,7},{8,9,10,11},{12,13,14,15}}, dimensions={0}
  %gd = bf16[32,4]{1,0} all-gather-done(%g)
  %r = (bf16[8,4]{1,0}, f32[16]{0}) all-reduce-start(%a, %b), channel_id=2, replica_groups={}
  %rd = (bf16[8,4]{1,0}, f32[16]{0}) all-reduce-done(%r)
  %s = ((bf16[8,4]{1,0}), bf16[2,4]{1,0}, u32[]{:S(2)}) async-start(%a), calls=%wrapped
  %su = ((bf16[8,4]{1,0}), bf16[2,4]{1,0}, u32[]{:S(2)}) async-update(%s), calls=%wrapped
  ROOT %sd = bf16[2,4]{1,0} async-done(%su), calls=%wrapped
}
"""
    found = collectives(text, 16)
    assert [(c.op, c.bytes, c.channel, c.group_size) for c in found] == [
        ("all-gather", 32 * 4 * 2, 1, 4),
        ("all-reduce", 8 * 4 * 2 + 16 * 4, 2, 16),
        ("reduce-scatter", 2 * 4 * 2, 7, 4),
    ]
    assert [c.wire_bytes for c in found] == [192, 2 * 128 * 15 // 16, 48]


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("bf16[4096,16384]{1,0:T(8,128)(2,1)S(1)}", 4096 * 16384 * 2),
        ("(f32[], pred[7]{0}, token[])", 11),
        ("c128[2,3]{1,0}", 96),
        ("f8e4m3fn[5]{0}", 5),
        ("u4[8]{0}", 4),
        ("s32[<=8,2]{1,0}", 64),
    ],
)
def test_shape_bytes(shape: str, size: int) -> None:
    assert shape_bytes(shape) == size


@st.composite
def iotas(draw: st.DrawFn) -> tuple[str, np.ndarray]:
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(sizes))))
    total = math.prod(sizes)
    groups = draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
    expected = np.arange(total).reshape(sizes).transpose(order).reshape(groups, -1)
    transposed = f"T({','.join(map(str, order))})" if order != list(range(len(sizes))) else ""
    text = f"[{groups},{total // groups}]<=[{','.join(map(str, sizes))}]{transposed}"
    return text, expected


@given(iotas())
def test_iota_groups(case: tuple[str, np.ndarray]) -> None:
    text, expected = case
    assert parse_groups(f"{text}, use_global_device_ids=true", 16) == tuple(
        map(tuple, expected.tolist())
    )


@given(iotas())
def test_lists_and_iotas_mean_the_same(case: tuple[str, np.ndarray]) -> None:
    text, expected = case
    lists = ",".join("{" + ",".join(map(str, group)) + "}" for group in expected.tolist())
    assert parse_groups("{" + lists + "}", 16) == parse_groups(text, 16)


@given(sizes=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4), data=st.data())
def test_mesh_groups(sizes: list[int], data: st.DataObject) -> None:
    """Groups by mesh axes, with device ids in any order, compared with a loop over the mesh."""
    names = [f"axis_{i}" for i in range(len(sizes))]
    total = math.prod(sizes)
    grouped = data.draw(
        st.permutations(names).flatmap(
            lambda order: st.integers(1, len(names)).map(lambda n: order[:n])
        )
    )
    ids = data.draw(st.permutations(range(total)))
    grid = np.array(ids).reshape(sizes)
    expected = set()
    for place in itertools.product(*(range(n) for n in sizes)):
        index = tuple(slice(None) if n in grouped else i for n, i in zip(names, place, strict=True))
        expected.add(frozenset(np.atleast_1d(grid[index]).ravel().tolist()))
    axes = ",".join(f"'{name}'={size}" for name, size in zip(names, sizes, strict=True))
    text = f"mesh[{axes}], device_ids=({','.join(map(str, ids))}) " + "{'" + "','".join(grouped)
    found = parse_groups(text + "'}, use_global_device_ids=true", 16)
    assert {frozenset(group) for group in found} == expected


def test_mesh_groups_of_a_part_of_an_axis() -> None:
    assert parse_groups("mesh['x'=4,'y'=2] {'x':(2)2}", 8) == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert parse_groups("mesh['x'=4,'y'=2] {'x':(1)2}", 8) == ((0, 4), (1, 5), (2, 6), (3, 7))
    # Names without quotes and device ids as an iota are the other forms in XLA's source.
    assert parse_groups("mesh[x=4,y=2] {y}", 8) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert parse_groups("mesh[x=2,y=2], device_ids=([2,2]T(1,0)) {y}", 4) == ((0, 2), (1, 3))


def test_unknown_form_is_an_error() -> None:
    with pytest.raises(
        pr.RequirementError, match="in a form that this version of pyreactant does not know"
    ):
        parse_groups("rows{0:4}", 8)


@given(st.data())
def test_axes_are_named(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3))
    names = tuple("abc"[: len(sizes)])
    chosen = data.draw(st.sets(st.sampled_from(names), min_size=1))
    coordinates = np.indices(sizes).reshape(len(sizes), -1).T
    kept = [i for i, name in enumerate(names) if name not in chosen]
    groups: dict[tuple[int, ...], list[int]] = {}
    for partition, row in enumerate(coordinates):
        groups.setdefault(tuple(row[kept]), []).append(partition)
    found = axes_of(tuple(map(tuple, groups.values())), coordinates, names)
    assert found == (tuple(n for n in names if n in chosen), True)


def test_half_an_axis_is_not_whole() -> None:
    coordinates = np.indices((4, 2)).reshape(2, -1).T
    assert axes_of(((0, 2), (1, 3), (4, 6), (5, 7)), coordinates, ("x", "y")) == (("x",), False)
