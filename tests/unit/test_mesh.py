"""Meshes and shardings, compared with JAX's own map for random meshes, device orders and specs."""

import copy
import json
import math
import pickle
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import pyreactant as pr
from pyreactant.arrays.runtimes.mesh import check_mesh
from tests.backend.nothing import running_nothing

NAMES = ("x", "y", "z")


@st.composite
def meshes(draw: st.DrawFn) -> pr.Mesh:
    shape = draw(
        st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3).filter(
            lambda s: math.prod(s) <= 8
        )
    )
    ids = None
    if draw(st.booleans()):
        ids = draw(st.permutations(range(8)))[: math.prod(shape)]
    return pr.Mesh(shape, draw(st.permutations(NAMES))[: len(shape)], ids)


@st.composite
def shardings(draw: st.DrawFn) -> pr.NamedSharding:
    mesh = draw(meshes())
    entries: list[Any] = [[] for _ in range(draw(st.integers(0, 4)))]
    for axis in draw(st.permutations(mesh.axis_names)):
        where = draw(st.integers(-1, len(entries) - 1))
        if where >= 0:
            entries[where].append(axis)
    return pr.NamedSharding(mesh, [tuple(e) or None for e in entries])


@st.composite
def placements(draw: st.DrawFn) -> tuple[pr.NamedSharding, tuple[int, ...]]:
    sharding = draw(shardings())
    ndim = len(sharding.spec) + draw(st.integers(0, 1))
    shape = tuple(cut * draw(st.integers(0, 3)) for cut in sharding.cuts(ndim))
    return sharding, shape


@settings(max_examples=200)
@given(placements())
def test_oracle_equals_jax(backend: str, placement: tuple[pr.NamedSharding, Any]) -> None:
    import jax

    sharding, shape = placement
    mesh = sharding.mesh
    devices = np.array(jax.devices(), dtype=object)[list(mesh.device_ids)].reshape(mesh.shape)
    reference = jax.sharding.NamedSharding(
        jax.sharding.Mesh(devices, mesh.axis_names), jax.sharding.PartitionSpec(*sharding.spec)
    )
    ours = sharding.devices_indices_map(shape)
    their_map = {
        d.id: tuple(slice(*s.indices(n)[:2]) for s, n in zip(index, shape, strict=True))
        for d, index in reference.devices_indices_map(shape).items()
    }
    assert ours == their_map
    assert sharding.shard_shape(shape) == reference.shard_shape(shape)


@given(placements())
def test_blocks_tile_the_array(placement: tuple[pr.NamedSharding, Any]) -> None:
    sharding, shape = placement
    replicas = sharding.replica_ids(len(shape))
    count = np.zeros(shape, int)
    for device, index in sharding.devices_indices_map(shape).items():
        count[index] += replicas[device] == 0
    assert (count == 1).all()


def whole_map(sharding: pr.NamedSharding, shape: tuple[int, ...]) -> dict[int, Any]:
    """The oracle as it reads: the coordinates of each device, one by one."""
    mesh, found = sharding.mesh, {}
    for device, place in zip(mesh.device_ids, np.ndindex(mesh.shape), strict=True):
        at = dict(zip(mesh.axis_names, place, strict=True))
        index = []
        for size, axes in zip(shape, sharding.axes(len(shape)), strict=True):
            number, cut = 0, 1
            for axis in axes:
                number, cut = number * mesh.axis_size(axis) + at[axis], cut * mesh.axis_size(axis)
            index.append(slice(number * size // cut, (number + 1) * size // cut))
        found[device] = tuple(index)
    return found


@given(placements(), st.data())
def test_the_map_of_some_devices(placement: tuple[pr.NamedSharding, Any], data: Any) -> None:
    sharding, shape = placement
    ids, whole = sharding.mesh.device_ids, whole_map(*placement)
    assert list(sharding.devices_indices_map(shape).items()) == list(whole.items())
    some = data.draw(st.lists(st.sampled_from(ids), unique=True))
    found = sharding.indices_of(some, shape)
    assert list(found.items()) == [(device, whole[device]) for device in some]
    assert all(
        type(n) is int for s in found.values() for part in s for n in (part.start, part.stop)
    )
    own = frozenset(data.draw(st.lists(st.integers(0, 9))))
    assert sharding.mesh.positions_of(own) == tuple(i for i in ids if i in own)


@given(shardings())
def test_json_round_trip(sharding: pr.NamedSharding) -> None:
    text = json.dumps(sharding.to_dict())
    again = pr.NamedSharding.from_dict(json.loads(text))
    assert again == sharding
    assert hash(again) == hash(sharding)
    assert repr(again) == repr(sharding)
    assert pickle.loads(pickle.dumps(sharding)) == sharding
    assert copy.deepcopy(sharding) == sharding


def test_equal_by_value() -> None:
    some = pr.Mesh((2, 2), ("x", "y"), [3, 1, 2, 0])
    same = pr.Mesh([2, 2], ("x", "y"), np.array([[3, 1], [2, 0]]))
    others = [
        pr.Mesh((2, 2), ("x", "y"), [3, 1, 0, 2]),
        pr.Mesh((2, 2), ("x", "z"), [3, 1, 2, 0]),
        pr.Mesh((4, 1), ("x", "y"), [3, 1, 2, 0]),
        pr.Mesh((2, 2), ("x", "y"), [3, 1, 2, 0], axis_types=("auto", "explicit")),
        pr.Mesh((2, 2), ("x", "y")),
        pr.Mesh((2, 2), ("x", "y"), range(4)),  # a part of a run may have these ids too
    ]
    assert some == same
    assert len({some, same, *others}) == 1 + len(others)
    assert all(some != other for other in (*others, "mesh", None))
    sharding = pr.NamedSharding(some, ("x",))
    shardings = [pr.NamedSharding(mesh, ("x",)) for mesh in others]
    others_of_it = [*shardings, pr.NamedSharding(some, ("y",)), pr.NamedSharding(some, ())]
    assert sharding == pr.NamedSharding(same, ["x"])
    assert len({sharding, pr.NamedSharding(same, ["x"]), *others_of_it}) == 1 + len(others_of_it)
    assert all(sharding != other for other in (*others_of_it, some))


def test_a_pickle_has_no_hash() -> None:
    """Each process has its own hash of a text."""
    sharding = pr.NamedSharding(pr.Mesh((2, 2), ("x", "y"), [3, 1, 2, 0]), ("x",))
    before = pickle.dumps(sharding)
    hash(sharding), sharding.indices_of([1], (2,))
    assert pickle.dumps(sharding) == before


def test_inferred_sizes() -> None:
    assert pr.Mesh((-1, 4), ("x", "y"), range(8)) == pr.Mesh((2, 4), ("x", "y"), range(8))
    assert pr.Mesh((2, -1), ("x", "y"), [[0, 1, 2], [5, 4, 3]]).shape == (2, 3)
    assert pr.Mesh((-1,), "x", [7]).shape == (1,)
    with running_nothing(2, 6):
        found = pr.Mesh((2, np.int64(-1), 3), ("x", "y", "z"))
        assert found == pr.Mesh((2, 2, 3), ("x", "y", "z"))
        assert found.all_devices
        with pytest.raises(pr.ShardingError) as raised:
            pr.Mesh((-1, 5), ("x", "y"))
    assert str(raised.value) == (
        "Mesh of shape (-1, 5) needs a multiple of 5 devices of the run, the product of its other "
        "sizes, to infer -1, got 12; choose sizes whose product divides 12"
    )


def test_axis_types() -> None:
    plain = {"shape": [2, 4], "axis_names": ["x", "y"], "device_ids": None}
    auto = pr.Mesh((2, 4), ("x", "y"), axis_types=["auto", "auto"])
    assert auto == pr.Mesh((2, 4), ("x", "y"))
    assert auto.to_dict() == plain
    mixed = pr.Mesh((2, 4), ("x", "y"), axis_types=("auto", "explicit"))
    assert mixed.axis_types == ("auto", "explicit")
    assert repr(mixed) == "Mesh(x=2, y=4, axis_types=('auto', 'explicit'))"
    assert mixed.to_dict() == plain | {"axis_types": ["auto", "explicit"]}
    assert pr.Mesh.from_dict(mixed.to_dict()) == mixed


def test_a_mesh_is_checked_once_for_each_run() -> None:
    mesh, large = pr.Mesh((2, 4), ("x", "y")), pr.Mesh((16,), ("x",))
    for _ in range(2):
        with running_nothing(2, 4) as backend:
            check_mesh(mesh)
            assert backend.asked == 1
            check_mesh(pr.Mesh((2, 4), ("x", "y")))
            assert backend.asked == 1
            for _ in range(2):
                with pytest.raises(pr.ShardingError, match="needs 16 devices"):
                    check_mesh(large)
    with running_nothing(1, 16), pytest.raises(pr.ShardingError, match="uses 8 of 16 devices"):
        check_mesh(mesh)


def test_placing_reads_the_own_devices_only(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    rows_of = pr.Mesh.rows_of

    def counting(mesh: pr.Mesh, positions: tuple[int, ...]) -> np.ndarray:
        numbers.append(len(positions))
        return rows_of(mesh, positions)

    monkeypatch.setattr(pr.Mesh, "rows_of", counting)
    with running_nothing(8, 2):
        sharding = pr.NamedSharding(pr.Mesh((16,), ("x",), range(15, -1, -1)), ("x",))
        for n in (32, 64):
            blocks = pr.device_put(np.arange(n), sharding).value
            each = n // 16
            assert {start: block.tolist() for (start,), block in blocks.items()} == {
                n - 2 * each: list(range(n - 2 * each, n - each)),
                n - each: list(range(n - each, n)),
            }
    assert numbers == [2]


KEYS = ("mesh", "spec", "shape", "axis_names", "device_ids", "axis_types")
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner),
)


@settings(max_examples=200)
@given(json_values)
def test_from_dict_of_anything_else_raises_ours(value: Any) -> None:
    for kind in (pr.Mesh, pr.NamedSharding):
        try:
            found = kind.from_dict(value)
        except pr.ShardingError:
            continue
        assert isinstance(found, kind)


def test_repr_and_defaults() -> None:
    mesh = pr.Mesh((2, 4), ("x", "y"))
    assert repr(mesh) == "Mesh(x=2, y=4)"
    assert mesh.device_ids == tuple(range(8))
    named = pr.Mesh((2, 2), ("x", "y"), [[3, 2], [1, 0]])
    assert repr(named) == "Mesh(x=2, y=2, device_ids=(3, 2, 1, 0))"
    sharding = pr.NamedSharding(mesh, [["x", "y"], (), ("y",)][:2])
    assert repr(sharding) == "NamedSharding(Mesh(x=2, y=4), (('x', 'y'), None))"
    assert pr.NamedSharding(mesh, [("y",)]) == pr.NamedSharding(mesh, ["y"])
    with pytest.raises(AttributeError):
        mesh.shape = (4, 2)  # type: ignore[misc]


MESH = pr.Mesh((2, 4), ("x", "y"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pr.Mesh((2, 0), ("x", "y")), "positive whole numbers"),
        (lambda: pr.Mesh("24", ("x", "y")), "positive whole numbers"),
        (lambda: pr.Mesh((), ()), "positive whole numbers"),
        (lambda: pr.Mesh((2.0, 4), ("x", "y")), "positive whole numbers"),
        (lambda: pr.Mesh((-1, -1), ("x", "y"), [0]), r"of which one may be -1 .*, got \(-1, -1\)"),
        (lambda: pr.Mesh((-2, 4), ("x", "y")), "positive whole numbers"),
        (
            lambda: pr.Mesh((-1, 4), ("x", "y"), range(6)),
            "needs a multiple of 4 device ids, .* got 6; choose sizes whose product divides 6",
        ),
        (
            lambda: pr.Mesh((-1, 4), ("x", "y"), np.arange(0)),
            "needs a multiple of 4 device ids, .* got 0",
        ),
        (
            lambda: pr.Mesh((10**6, 10**6), ("x", "y")),
            r"at most 1048576 devices, got shape \(1000000, 1000000\) with 1000000000000; give the",
        ),
        (lambda: pr.Mesh((10**12,), ("x",), range(8)), "at most 1048576 devices, got shape"),
        (lambda: pr.Mesh.from_dict({**MESH.to_dict(), "shape": [-1, 4]}), "not the description"),
        (lambda: pr.Mesh((2,), ("x",), axis_types="auto"), "axis_types needs .* got 'auto'"),
        (lambda: pr.Mesh((2,), ("x",), axis_types=("manual",)), "axis_types needs 'auto' or 'exp"),
        (lambda: pr.Mesh((2,), ("x",), axis_types=("auto", "auto")), r"of the axes \('x',\), got"),
        (lambda: MESH.rows_of([8]), r"Mesh\(x=2, y=4\) does not have device 8"),
        (lambda: pr.NamedSharding(MESH, ("x",)).indices_of([1, 9], (8,)), "not have device 9"),
        (lambda: pr.Mesh((2, 4), ("x",)), "needs 2 axis names, got 1"),
        (lambda: pr.Mesh((2, 4), ("x", "x")), "must differ"),
        (lambda: pr.Mesh((2, 4), ("x", "1")), "must be identifiers"),
        (lambda: pr.Mesh((2,), ("x",), [0, 0]), "a mesh holds each device once"),
        (lambda: pr.Mesh((2,), ("x",), [0, 1, 2]), "needs 2 device ids"),
        (lambda: pr.Mesh((2, 2), ("x", "y"), [[0, 1, 2, 3]]), "flat or of that shape"),
        (lambda: pr.Mesh((2,), ("x",), [-1, 0]), "whole numbers from 0"),
        (lambda: pr.Mesh((2,), ("x",), [0.5, 1]), "whole numbers from 0"),
        (lambda: pr.Mesh((2,), ("x",), [[0], [1, 2]]), "must form a grid"),
        (lambda: pr.NamedSharding(MESH, ("z",)), "names axis 'z', but the mesh has axes"),
        (lambda: pr.NamedSharding(MESH, ("x", "x")), "uses axis 'x' twice"),
        (lambda: pr.NamedSharding(MESH, (("x", "x"), None)), "uses axis 'x' twice"),
        (lambda: pr.NamedSharding(MESH, "x,y"), r"such as \('x', 'y'\), got 'x,y'"),
        (lambda: pr.NamedSharding(MESH, (1,)), "None, an axis name or a tuple of names, got 1"),
        (lambda: pr.NamedSharding(MESH, None), "a tuple with one entry per dimension, got None"),
        (lambda: MESH.axis_size("z"), "unknown axis 'z'; the mesh has axes"),
        (lambda: pr.NamedSharding(None, ()), "needs a pyreactant.Mesh"),
        (
            lambda: pr.NamedSharding(MESH, ("x", "y", None)).shard_shape((8, 8)),
            "has 3 entries, more than the 2 of the array's dimensions",
        ),
        (
            lambda: pr.NamedSharding(MESH, (("x", "y"), None)).shard_shape((12, 8)),
            r"dimension 0 of shape \(12, 8\) has size 12, which is not divisible by its mesh axes "
            r"x=2 \* y=4 = 8; use a size such as 8 or 16",
        ),
        (
            lambda: pr.NamedSharding(MESH, ("x", "y")).shard_shape((2, 3)),
            r"dimension 1 of shape \(2, 3\) has size 3, .* y=4; use a size such as 4",
        ),
    ],
)
def test_messages(make: Any, message: str) -> None:
    with pytest.raises(pr.ShardingError, match=message):
        make()
