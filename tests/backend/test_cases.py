"""The cases of Reactant's own sharding tests, and cases that those leave out."""

import itertools
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from tests.backend.common import MATMUL, body

pytestmark = pytest.mark.usefixtures("backend")

SQUARE = np.arange(1, 65, dtype=np.float32).reshape(8, 8, order="F")
DATA = pr.Mesh((4, 2), ("data", "model"))
OUT_OF_ORDER = [5, 2, 7, 0, 3, 6, 1, 4]


@pytest.mark.parametrize("shape", [(2, 4), (8 // 4, 4), (4, 2), (8, 1), (1, 8)])
def test_matmul_of_the_reference_case(shape: tuple[int, int]) -> None:
    c = pr.matmul_sharded(mesh=pr.Mesh(shape, ("x", "y")))
    np.testing.assert_array_equal(np.asarray(c), SQUARE @ SQUARE)


def test_round_trip_over_two_devices() -> None:
    line = pr.NamedSharding(pr.Mesh((2,), ("i",), [6, 3]), ("i",))
    a = pr.device_put(SQUARE, line)
    assert [s.device.position for s in a.addressable_shards] == [3, 6]
    np.testing.assert_array_equal(a.addressable_shards[0].data, SQUARE[4:])
    np.testing.assert_array_equal(np.asarray(a), SQUARE)


@pytest.mark.parametrize("position", [0, 5])
def test_one_device_that_need_not_be_the_first(position: int) -> None:
    one = pr.NamedSharding(pr.Mesh((1,), ("i",), [position]), ("i",))
    a = pr.device_put(SQUARE, one)
    c = pr.compile(body("add_transposed"), a)(a)
    assert [s.device.position for s in c.addressable_shards] == [position]
    np.testing.assert_array_equal(np.asarray(c), SQUARE + SQUARE.T)
    np.testing.assert_array_equal(c.gather(), SQUARE + SQUARE.T)


@pytest.mark.parametrize(
    ("spec", "y_spec"),
    [
        (("data", "model"), ("data", "model")),
        (("data", None), (None, "model")),
        ((None, None), ("data", "model")),
        (("model",), ()),
    ],
)
def test_replicated_and_sharded_arguments(spec: Any, y_spec: Any) -> None:
    a, b = (pr.device_put(SQUARE, pr.NamedSharding(DATA, s)) for s in (spec, y_spec))
    c = pr.compile(MATMUL, a, b)(a, b)
    oracle = c.sharding.devices_indices_map(c.shape)
    for shard in c.addressable_shards:
        assert shard.index == oracle[shard.device.position]
    np.testing.assert_array_equal(np.asarray(c), SQUARE @ SQUARE)


@pytest.mark.parametrize("spec", [("x", "y"), ("y", "x"), (("x", "y"),), (None, ("y", "x")), ()])
def test_mesh_whose_order_is_not_that_of_the_devices(spec: Any) -> None:
    """If a runtime sorted the mesh's device ids, every block would be on another device."""
    mesh = pr.Mesh((2, 4), ("x", "y"), OUT_OF_ORDER)
    sharding = pr.NamedSharding(mesh, spec)
    a = pr.device_put(SQUARE, sharding)
    oracle = sharding.devices_indices_map((8, 8))
    for array, expected in (
        (a, SQUARE),
        (pr.compile(body("add_transposed"), a, out_sharding=sharding)(a), SQUARE + SQUARE.T),
    ):
        for shard in array.addressable_shards:
            assert shard.index == oracle[shard.device.position]
            np.testing.assert_array_equal(shard.data, expected[shard.index])
        np.testing.assert_array_equal(array.gather(), expected)


def test_mesh_is_not_changed_by_its_use() -> None:
    ids = np.array(OUT_OF_ORDER).reshape(4, 2)
    a = pr.device_put(SQUARE, pr.NamedSharding(pr.Mesh((4, 2), ("x", "y"), ids), ("x", "y")))
    np.asarray(a)
    assert ids.ravel().tolist() == OUT_OF_ORDER


def test_two_meshes_in_one_program() -> None:
    a = pr.device_put(SQUARE, pr.NamedSharding(pr.Mesh((2, 4), ("x", "y")), ("x", "y")))
    b = pr.device_put(SQUARE, pr.NamedSharding(DATA, ("model", "data")))
    line = pr.NamedSharding(pr.Mesh((8,), ("i",)), (None, "i"))
    c = pr.compile(MATMUL, a, b, out_sharding=line)(a, b)
    assert c.sharding == line
    np.testing.assert_array_equal(np.asarray(c), SQUARE @ SQUARE)


@pytest.mark.parametrize(
    ("shape", "mesh"), [((2, 7), (2, 4)), ((5, 5), (2, 4)), ((142, 142), (3, 2))]
)
def test_uneven_dimensions_are_refused(shape: tuple[int, int], mesh: tuple[int, int]) -> None:
    """Reactant would pad them with uninitialized elements."""
    named = pr.Mesh(mesh, ("x", "y"), range(mesh[0] * mesh[1]))
    with pytest.raises(pr.ShardingError, match="blocks must be equal: nothing is padded"):
        pr.device_put(np.ones(shape, np.float32), pr.NamedSharding(named, ("x", "y")))


@pytest.mark.parametrize("spec", [("x", "y"), ("y",), ()])
def test_arrays_without_elements(spec: Any) -> None:
    sharding = pr.NamedSharding(pr.Mesh((2, 4), ("x", "y")), spec)
    a = pr.device_put(np.ones((0, 4), np.float32), sharding)
    oracle = sharding.devices_indices_map((0, 4))
    assert {s.device.position: s.index for s in a.addressable_shards} == oracle
    assert np.asarray(a).shape == a.gather().shape == (0, 4)


def test_arrays_of_no_to_five_dimensions() -> None:
    mesh = pr.Mesh((2, 2, 2), ("a", "b", "c"))
    names = [None, "c", "a", "b", None]
    for ndim in range(6):
        shape = (2, 4, 2, 6, 3)[:ndim]
        x = np.random.default_rng(ndim).random(shape, np.float32)
        for layout in (np.ascontiguousarray, np.asfortranarray):
            a = pr.device_put(layout(x).reshape(shape), pr.NamedSharding(mesh, names[:ndim]))
            np.testing.assert_array_equal(np.asarray(a), x)
            assert a.gather().flags.c_contiguous


def test_writing_to_what_was_read_changes_nothing() -> None:
    a = pr.device_put(SQUARE, pr.NamedSharding(DATA, ()))
    whole = a.gather()
    whole[:] = 0
    np.testing.assert_array_equal(np.asarray(a), SQUARE)


@pytest.mark.parametrize(("rows", "columns"), list(itertools.product([1, 8, 63, 256], [1, 17, 64])))
def test_transposing_copies_of_any_size(rows: int, columns: int) -> None:
    """The transposition works in blocks, with remainders on every side."""
    x = np.random.default_rng(0).random((rows, columns))
    everywhere = pr.NamedSharding(DATA, ())
    backwards = np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]
    for array in (x, np.asfortranarray(x), backwards, np.repeat(x, 3, axis=0)[::3]):
        np.testing.assert_array_equal(np.asarray(pr.device_put(array, everywhere)), x)
