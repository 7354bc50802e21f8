"""Laws of the runtime interface, in one process; --backend chooses the runtime."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import pyreactant as pr
from pyreactant.arrays.dtypes import NAMES
from tests.backend.common import MATMUL, MESH, WHOLE, XY, numbers
from tests.unit.test_mesh import placements

pytestmark = pytest.mark.usefixtures("backend")


def test_devices() -> None:
    found = pr.devices()
    assert [d.position for d in found] == list(range(8))
    assert found == pr.local_devices()
    assert {d.platform for d in found} == {"cpu"}
    assert (pr.process_index(), pr.num_processes()) == (0, 1)
    assert str(found[3]) == "cpu:3"
    assert pr.make_mesh((2, -1), ("x", "y")) == pr.Mesh((-1, 4), ("x", "y")) == MESH


@settings(max_examples=60, deadline=None)
@given(placements())
def test_shards_equal_the_oracle(placement: tuple[pr.NamedSharding, Any]) -> None:
    sharding, shape = placement
    # A mesh over some of the devices must name them.
    mesh = pr.Mesh(sharding.mesh.shape, sharding.mesh.axis_names, sharding.mesh.device_ids)
    sharding = pr.NamedSharding(mesh, sharding.spec)
    x = numbers(shape)
    a = pr.device_put(x, sharding)
    oracle = sharding.devices_indices_map(shape)
    shards = a.addressable_shards
    assert [s.device.position for s in shards] == sorted(oracle)
    for shard in shards:
        assert shard.index == oracle[shard.device.position]
        np.testing.assert_array_equal(shard.data, x[shard.index])
    np.testing.assert_array_equal(np.asarray(a), x)
    np.testing.assert_array_equal(a.gather(), x)


@pytest.mark.parametrize("name", NAMES)
def test_dtypes_stay(name: str) -> None:
    x = numbers((8, 8), name)
    a = pr.device_put(x, XY)
    assert a.dtype == x.dtype
    assert {s.data.dtype for s in a.addressable_shards} == {x.dtype}
    assert np.asarray(a).tobytes() == x.tobytes()
    if name not in ("bool", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz"):
        assert pr.matmul_sharded(x, x).dtype == x.dtype


@pytest.mark.parametrize(
    "make",
    [
        np.asfortranarray,
        lambda x: np.ascontiguousarray(x[::-1])[::-1],
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x.astype(">f4"),
        lambda x: x.tolist() and np.array(x.tolist(), np.float32),
        lambda x: np.lib.stride_tricks.as_strided(x, x.shape, x.strides, writeable=False),
    ],
)
def test_layout_in_memory_does_not_matter(make: Any) -> None:
    x = numbers((16, 8))
    c = pr.matmul_sharded(make(x), make(numbers((8, 16))), mesh=MESH)
    np.testing.assert_array_equal(np.asarray(c), x @ numbers((8, 16)))


@pytest.mark.parametrize("n", [8, 1024, 2048])
@pytest.mark.parametrize("spec", [("x", "y"), ("x", None), (None, None)])
def test_later_writes_are_not_seen(n: int, spec: Any) -> None:
    x = np.ones((n, n), np.float32)
    a = pr.device_put(x, pr.NamedSharding(MESH, spec))
    x[:] = 2
    assert (np.asarray(a) == 1).all()


def test_reading_is_a_copy() -> None:
    a = pr.device_put(numbers((8, 8)), XY)
    for read in (np.asarray(a), a.gather(), np.array(a)):
        read[:] = -1
    np.testing.assert_array_equal(np.asarray(a), numbers((8, 8)))
    assert np.asarray(a, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(a, copy=False)


def test_from_callback_asks_once_per_block() -> None:
    requested = []

    def block(index: Any) -> np.ndarray:
        requested.append(tuple((s.start, s.stop) for s in index))
        return numbers((8, 8))[index]

    a = pr.from_callback((8, 8), np.float32, pr.NamedSharding(MESH, (None, "y")), block)
    assert sorted(requested) == [((0, 8), (2 * i, 2 * i + 2)) for i in range(4)]
    np.testing.assert_array_equal(np.asarray(a), numbers((8, 8)))


@pytest.mark.parametrize("wrong", [np.ones((4, 4), np.float32), np.ones((4, 2), np.float64)])
def test_from_callback_wants_the_block_it_asked_for(wrong: np.ndarray) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"must return float32\[4, 2\] for block"):
        pr.from_callback((8, 8), np.float32, XY, lambda index: wrong)


def test_from_process_local() -> None:
    x = numbers((8, 8))
    np.testing.assert_array_equal(np.asarray(pr.from_process_local(x, XY, (8, 8))), x)
    with pytest.raises(pr.ShardingError, match=r"must be a pyreactant\.NamedSharding, got Mesh"):
        pr.from_process_local(x, MESH, (8, 8))
    with pytest.raises(pr.ShardingError, match=r"that form shape \(8, 8\) .* got a local array"):
        pr.from_process_local(x[:4], XY, (8, 8))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: pr.device_put(np.array([None]), XY), pr.DTypeError, "arrays of Python objects"),
        (lambda: pr.device_put(2**70, WHOLE), pr.DTypeError, "more than 64 bits, got one of 71"),
        (lambda: pr.device_put(np.array([2**64]), WHOLE), pr.DTypeError, "got one of 65 bits"),
        (
            lambda: pr.device_put(np.array([2**63], object), WHOLE),
            pr.DTypeError,
            "arrays of Python objects",
        ),
        (lambda: len(pr.device_put(3, WHOLE)), TypeError, r"has no dimensions, and so no len\(\)"),
        (
            lambda: pr.reshard(numbers((8, 8)), XY),
            pr.InvalidArgumentError,
            "reshard takes ShardedArrays, or trees of them, got a ndarray; place it with",
        ),
        (lambda: pr.device_put(numbers((7, 8)), XY), pr.ShardingError, "dimension 0 of shape"),
        (lambda: pr.device_put(numbers((8,)), XY), pr.ShardingError, "has 2 entries, more"),
        (
            lambda: pr.device_put(numbers((8, 8)), MESH),
            pr.ShardingError,
            "be a pyreactant.NamedSharding",
        ),
        (lambda: pr.matmul_sharded(numbers((8, 8))), pr.InvalidArgumentError, "both x and y"),
        (
            lambda: pr.matmul_sharded(numbers((8, 4)), numbers((8, 4))),
            pr.InvalidArgumentError,
            r"x must have shape \(m, k\) and y shape \(k, n\), got \(8, 4\) and \(8, 4\)",
        ),
        (
            lambda: pr.matmul_sharded(numbers((8, 8)), numbers((8, 8), "int8")),
            pr.DTypeError,
            "must have one dtype, got float32 and int8",
        ),
        (
            lambda: pr.device_put(pr.device_put(numbers((8, 8)), XY), XY),
            pr.InvalidArgumentError,
            "device_put places host arrays",
        ),
        (
            lambda: pr.compile(MATMUL, numbers((8, 8))),
            pr.InvalidArgumentError,
            "argument 0 of program 'matmul' must be a ShardedArray or a tree of them, got a nd",
        ),
        (
            lambda: pr.device_put(numbers((8, 8)), XY).sum(),
            AttributeError,
            r"the attribute sum is not defined for .* gather\(\)",
        ),
        (lambda: pr.initialize("torch"), pr.StateError, "backend='torch', but .* backend='"),
        (lambda: pr.initialize(num_cpu_devices=4), pr.StateError, "already runs with num_cpu_dev"),
        (
            lambda: pr.initialize(
                num_processes=2, process_index=0, coordinator_address="localhost:9"
            ),
            pr.StateError,
            "asked for .*num_processes=2.* already runs with .*num_processes=1",
        ),
    ],
)
def test_bad_input(call: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_an_array_of_another_library() -> None:
    """Only JAX's own values are traced, whatever another class is called."""

    class RayTracer:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return numbers((8, 8))

    np.testing.assert_array_equal(pr.device_put(RayTracer(), XY).gather(), numbers((8, 8)))


def test_a_tree_that_contains_itself() -> None:
    tree: list[Any] = []
    tree.append(tree)
    errors = []
    for _ in range(2):
        with pytest.raises(pr.PyReactantError, match="a tree of arrays must not contain it") as got:
            pr.device_put(tree, XY)
        errors.append(got.value)
    assert errors[0] is not errors[1]  # one error for all would keep each caller's arrays alive


@pytest.mark.parametrize(
    ("name", "timeout", "message"),
    [
        (None, 1, r"the name of a barrier must be printable text, got None"),
        ("\udc80", 1, r"must be printable text, got '\\udc80'"),
        *(
            ("end", wrong, r"timeout must be positive seconds, at most a year, got")
            for wrong in (0, -1, float("nan"), float("inf"), "1", None, True)
        ),
    ],
)
def test_bad_barriers(name: Any, timeout: Any, message: str) -> None:
    with pytest.raises(pr.PyReactantError, match=message) as caught:
        pr.barrier(name, timeout=timeout)
    assert caught.value.exit_code == 2


def test_initialize_again_for_the_same_is_fine(backend: str) -> None:
    pr.initialize()
    pr.initialize(backend, platform="cpu", num_cpu_devices=8, num_processes=1)
    assert pr.is_initialized()
    assert pr.backend_name() == backend
    pr.barrier("alone")


def test_pictures() -> None:
    from rich.console import Console

    a = pr.device_put(numbers((8, 8)), XY)
    assert repr(a) == (
        "ShardedArray(shape=(8, 8), dtype=float32, mesh=Mesh(x=2, y=4), spec=('x', 'y'), "
        f"backend='{pr.backend_name()}')"
    )
    page = a._repr_html_()
    assert page.count("cpu:") == 8
    assert "[4:8, 6:8]" in page
    assert "<script" not in page
    wide = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    wide.print(a)
    assert "[4:8, 6:8]" in wide.export_text()
    narrow = Console(width=40, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    narrow.print(a)
    assert "x=1 y=3" in narrow.export_text()
    cube = pr.NamedSharding(pr.Mesh((2, 2, 2), ("a", "b", "c")), ("a", ("b", "c")))
    assert pr.device_put(numbers((8, 8)), cube)._repr_html_().count("b=0") == 2
    line = pr.NamedSharding(pr.Mesh((8,), ("d",)), ("d",))
    assert "d=7" in pr.device_put(numbers((8, 8)), line)._repr_html_()
