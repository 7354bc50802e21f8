"""JAX's arrays, meshes, shardings and keys in and out: the JAX runtime alone."""

from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from tests.backend.common import MESH, XY, numbers

pytestmark = [pytest.mark.only("jax"), pytest.mark.usefixtures("backend")]

WHOLE = pr.NamedSharding(MESH, ())


@pytest.fixture
def ones() -> pr.ShardedArray:
    array: pr.ShardedArray = pr.device_put(np.ones((8, 8), np.float32), XY)
    return array


def test_arrays_of_jax_in_and_out_without_a_copy() -> None:
    import jax
    from jax._src.sharding_impls import GSPMDSharding
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
    there = NamedSharding(mesh, PartitionSpec("x", "y"))
    array = jax.device_put(numbers((8, 8)), there)
    ours = pr.from_jax({"a": array})["a"]
    assert ours.value is array
    assert ours.to_jax() is array
    assert ours.sharding == XY == pr.NamedSharding(mesh, PartitionSpec("x", "y"))
    assert XY.to_jax() == there
    assert MESH.to_jax() == mesh
    placed = pr.device_put(numbers((8, 8)), there)
    assert placed.sharding == XY
    f = pr.compile(lambda x: x, jax.ShapeDtypeStruct((8, 8), np.float32, sharding=there))
    np.testing.assert_array_equal(f(placed).gather(), numbers((8, 8)))
    assert pr.compile(lambda x: x, placed, out_sharding=there)(placed).sharding == XY
    single = pr.from_jax(jax.device_put(np.arange(3.0, dtype=np.float32), jax.devices()[5]))
    assert single.sharding.mesh.device_ids == (5,)
    with pytest.raises(pr.InvalidArgumentError, match=r"got a jax\.Array; .*pyreactant\.from_jax"):
        f(array)
    for wrong in (numbers((2, 2)), "text"):
        with pytest.raises(pr.InvalidArgumentError, match=r"from_jax takes a jax\.Array"):
            pr.from_jax(wrong)
    with pytest.raises(pr.ShardingError, match="which no mesh and spec describe"):
        pr.from_jax(jax.device_put(numbers((8, 8)), GSPMDSharding.get_replicated(jax.devices())))


def test_results_on_devices_in_another_order(ones: pr.ShardedArray) -> None:
    """XLA runs a program on devices in one order."""
    order = list(reversed([d.position for d in pr.devices()]))
    there = pr.NamedSharding(pr.Mesh((2, 4), ("x", "y"), order), ("x", "y"))
    for action in (
        lambda: pr.reshard(ones, there),
        lambda: pr.compile(lambda a: a + 1, ones, out_sharding=there),
    ):
        with pytest.raises(pr.ShardingError, match="results go to a mesh with another order"):
            action()


def test_axis_types_of_a_mesh_are_kept() -> None:
    import jax

    mesh = jax.make_mesh((2, 4), ("x", "y"))  # Explicit, by JAX's default
    placed = pr.device_put(numbers((8, 8)), pr.NamedSharding(mesh, ("x", "y")))
    assert placed.sharding.mesh.axis_types == ("explicit", "explicit")
    assert placed.sharding.mesh.to_jax().axis_types == mesh.axis_types
    found = pr.compile(lambda x: x + x, placed)(placed)
    assert found.sharding == placed.sharding
    assert MESH.axis_types == ("auto", "auto")


def test_shard_map_takes_the_mesh_of_the_arguments(ones: pr.ShardedArray) -> None:
    import jax
    from jax.sharding import PartitionSpec

    def body(x: Any, *rest: Any) -> Any:
        def block(b: Any) -> Any:
            return b + jax.lax.axis_index("x")

        return jax.shard_map(block, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"))(x)

    found = pr.compile(body, ones)(ones).gather()
    assert found[:, 0].tolist() == [1] * 4 + [2] * 4
    other = pr.device_put(numbers((8,)), pr.NamedSharding(pr.Mesh((8,), ("x",)), ("x",)))
    with pytest.raises(pr.ShardingError, match=r"these lie on Mesh\(x=2, y=4\) and Mesh\(x=8\)"):
        pr.compile(body, ones, other)


def test_keys_of_random_numbers() -> None:
    import jax

    key = pr.device_put(jax.random.key(7), WHOLE)
    assert (key.shape, str(key.dtype)) == ((), "key<fry>")
    assert pr.from_jax(key.value).dtype == key.dtype

    def body(key: Any) -> Any:
        first, second = jax.random.split(key)
        return first, jax.random.normal(second, (8,))

    next_key, drawn = pr.compile(body, key)(key)
    expected_key, second = jax.random.split(jax.random.key(7))
    np.testing.assert_array_equal(drawn.gather(), jax.random.normal(second, (8,)))
    assert (jax.random.key_data(next_key.value) == jax.random.key_data(expected_key)).all()
    again = pr.compile(lambda k: jax.random.key_data(k), next_key)(next_key)
    assert again.dtype == np.uint32
    for read in (key.gather, lambda: np.asarray(key), lambda: key.addressable_shards):
        with pytest.raises(pr.DTypeError, match=r"jax\.random\.key_data"):
            read()
