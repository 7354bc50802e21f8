"""Meshes and shardings, compared with JAX's own map for random meshes, device orders and specs."""

import json
import math
import pickle
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import pyreactant as pr

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


@given(shardings())
def test_json_round_trip(sharding: pr.NamedSharding) -> None:
    text = json.dumps(sharding.to_dict())
    again = pr.NamedSharding.from_dict(json.loads(text))
    assert again == sharding
    assert hash(again) == hash(sharding)
    assert repr(again) == repr(sharding)
    assert pickle.loads(pickle.dumps(sharding)) == sharding


KEYS = ("mesh", "spec", "shape", "axis_names", "device_ids")
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
        (lambda: pr.NamedSharding(MESH, "x"), r"write \('x',\), not 'x'"),
        (lambda: pr.NamedSharding(MESH, (1,)), "None, an axis name or a tuple of names, got 1"),
        (lambda: pr.NamedSharding(MESH, None), "a tuple with one entry per dimension, got None"),
        (lambda: MESH.axis_size("z"), "unknown axis 'z'; the mesh has axes"),
        (lambda: pr.NamedSharding(None, ()), "needs a pyreactant.Mesh"),
        (
            lambda: pr.NamedSharding(MESH, ("x", "y", None)).shard_shape((8, 8)),
            "has 3 entries but the array has 2 dimensions",
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
