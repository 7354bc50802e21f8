"""The runtime interface as laws, in one process; --backend says for which runtime."""

import itertools
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import pyreactant as pr
from pyreactant._dtypes import NAMES, as_dtype
from tests.harness import environment
from tests.multiprocess.programs import SPECS
from tests.unit.test_mesh import placements

pytestmark = pytest.mark.usefixtures("backend")

MESH = pr.Mesh((2, 4), ("x", "y"))
XY = pr.NamedSharding(MESH, ("x", "y"))
BODIES = "tests.backend.bodies:"


def _numbers(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return (np.arange(math.prod(shape)) % 100).reshape(shape).astype(as_dtype(dtype))


def test_devices() -> None:
    found = pr.devices()
    assert [d.position for d in found] == list(range(8))
    assert found == pr.local_devices()
    assert {d.platform for d in found} == {"cpu"}
    assert (pr.process_index(), pr.num_processes()) == (0, 1)
    assert str(found[3]) == "cpu:3"


@settings(max_examples=60, deadline=None)
@given(placements())
def test_shards_equal_the_oracle(placement: tuple[pr.NamedSharding, Any]) -> None:
    sharding, shape = placement
    # A mesh over some of the devices must name them.
    mesh = pr.Mesh(sharding.mesh.shape, sharding.mesh.axis_names, sharding.mesh.device_ids)
    sharding = pr.NamedSharding(mesh, sharding.spec)
    x = _numbers(shape)
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
    x = _numbers((8, 8), name)
    a = pr.device_put(x, XY)
    assert a.dtype == x.dtype
    assert a.value.dtype == x.dtype
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
    x = _numbers((16, 8))
    c = pr.matmul_sharded(make(x), make(_numbers((8, 16))), mesh=MESH)
    np.testing.assert_array_equal(np.asarray(c), x @ _numbers((8, 16)))


@pytest.mark.parametrize("n", [8, 1024, 2048])
@pytest.mark.parametrize("spec", [("x", "y"), ("x", None), (None, None)])
def test_later_writes_are_not_seen(n: int, spec: Any) -> None:
    x = np.ones((n, n), np.float32)
    a = pr.device_put(x, pr.NamedSharding(MESH, spec))
    x[:] = 2
    assert (np.asarray(a) == 1).all()


def test_reading_is_a_copy() -> None:
    a = pr.device_put(_numbers((8, 8)), XY)
    for read in (np.asarray(a), a.gather(), np.array(a)):
        read[:] = -1
    np.testing.assert_array_equal(np.asarray(a), _numbers((8, 8)))
    assert np.asarray(a, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(a, copy=False)


def test_from_callback_asks_once_per_block() -> None:
    asked = []

    def block(index: Any) -> np.ndarray:
        asked.append(tuple((s.start, s.stop) for s in index))
        return _numbers((8, 8))[index]

    a = pr.from_callback((8, 8), np.float32, pr.NamedSharding(MESH, (None, "y")), block)
    assert sorted(asked) == [((0, 8), (2 * i, 2 * i + 2)) for i in range(4)]
    np.testing.assert_array_equal(np.asarray(a), _numbers((8, 8)))


@pytest.mark.parametrize("wrong", [np.ones((4, 4), np.float32), np.ones((4, 2), np.float64)])
def test_from_callback_wants_the_block_it_asked_for(wrong: np.ndarray) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"must return float32\[4, 2\] for block"):
        pr.from_callback((8, 8), np.float32, XY, lambda index: wrong)


def test_from_process_local() -> None:
    x = _numbers((8, 8))
    np.testing.assert_array_equal(np.asarray(pr.from_process_local(x, XY, (8, 8))), x)
    with pytest.raises(pr.ShardingError, match="NamedSharding is needed, got Mesh"):
        pr.from_process_local(x, MESH, (8, 8))
    with pytest.raises(pr.ShardingError, match=r"that form shape \(8, 8\) .* got a local array"):
        pr.from_process_local(x[:4], XY, (8, 8))


@pytest.mark.parametrize(("spec", "y_spec"), list(itertools.product(SPECS, SPECS)))
def test_matmul_of_every_pair_of_specs(spec: Any, y_spec: Any) -> None:
    x, y = _numbers((16, 8)), _numbers((8, 24))
    c = pr.matmul_sharded(x, y, mesh=MESH, spec=spec, y_spec=y_spec)
    oracle = c.sharding.devices_indices_map((16, 24))
    for shard in c.addressable_shards:
        assert shard.index == oracle[shard.device.position]
        np.testing.assert_array_equal(shard.data, (x @ y)[shard.index])


@pytest.mark.parametrize("out_spec", SPECS)
def test_out_spec(out_spec: Any) -> None:
    c = pr.matmul_sharded(_numbers((16, 8)), _numbers((8, 16)), mesh=MESH, out_spec=out_spec)
    assert c.sharding == pr.NamedSharding(MESH, out_spec)
    np.testing.assert_array_equal(np.asarray(c), _numbers((16, 8)) @ _numbers((8, 16)))


@pytest.mark.parametrize("precision", [None, "default", "high", "highest"])
def test_precision(precision: str | None) -> None:
    x = np.eye(8, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(pr.matmul_sharded(x, x, precision=precision)), x)


def test_matmul_of_placed_arrays_and_another_mesh() -> None:
    mesh = pr.Mesh((4,), ("rows",), [6, 1, 4, 3])
    x = pr.device_put(_numbers((8, 8)), pr.NamedSharding(mesh, ("rows",)))
    c = pr.matmul_sharded(x, _numbers((8, 8)), spec=(None, "rows"))
    assert c.sharding == pr.NamedSharding(mesh, ("rows", None))
    np.testing.assert_array_equal(np.asarray(c), _numbers((8, 8)) @ _numbers((8, 8)))
    with pytest.raises(pr.ShardingError, match="must lie on one mesh"):
        pr.matmul_sharded(x, pr.device_put(_numbers((8, 8)), XY))


def test_programs_with_several_outputs_scalars_and_statics() -> None:
    x = _numbers((8, 8))
    a = pr.device_put(x, XY)
    rows, everything = pr.compile(pr.Program("sums", jax=BODIES + "sums"), a)(a)
    np.testing.assert_array_equal(np.asarray(rows), x.sum(axis=1))
    assert everything.shape == ()
    assert float(np.asarray(everything)) == x.sum()
    transposed = pr.compile(pr.Program("t", jax=BODIES + "add_transposed"), a)(a)
    np.testing.assert_array_equal(np.asarray(transposed), x + x.T)
    factor = pr.device_put(np.float32(3), pr.NamedSharding(MESH, ()))
    program = pr.Program("scaled", jax=BODIES + "scaled")
    for power in (1, 2):
        f = pr.compile(program, a, factor, static={"power": power}, out_sharding=XY)
        np.testing.assert_array_equal(np.asarray(f(a, factor)), 3 * x**power)


def test_compile_is_cached_by_all_that_matters() -> None:
    program = pr.Program("t", jax=BODIES + "add_transposed")
    a, b = (pr.device_put(_numbers((8, 8), d), XY) for d in ("float32", "float64"))
    other = pr.device_put(_numbers((8, 8)), pr.NamedSharding(MESH, ("y", "x")))
    first = pr.compile(program, a)
    assert pr.compile(program, a) is first
    assert pr.compile(pr.Program("t", jax=BODIES + "add_transposed"), a) is first
    different = [
        pr.compile(program, b),
        pr.compile(program, other),
        pr.compile(program, a, precision="highest"),
        pr.compile(program, a, out_sharding=XY),
    ]
    assert len({id(f) for f in [first, *different]}) == 5


def test_compiled_refuses_other_arguments() -> None:
    a = pr.device_put(_numbers((8, 8)), XY)
    f = pr.compile(pr.Program("t", jax=BODIES + "add_transposed"), a)
    for wrong, message in (
        (
            pr.device_put(_numbers((4, 4)), XY),
            r"for float32\[8, 8\] .* got float32\[4, 4\]",
        ),
        (pr.device_put(_numbers((8, 8), "int32"), XY), r"got int32\[8, 8\]"),
        (pr.device_put(_numbers((8, 8)), pr.NamedSharding(MESH, ())), r"got .*Mesh.*, \(\)\)"),
        (_numbers((8, 8)), "got a ndarray; place it with pyreactant.device_put first"),
    ):
        with pytest.raises(pr.InvalidArgumentError, match=message):
            f(wrong)
    with pytest.raises(pr.InvalidArgumentError, match="takes 1 arrays, got 2"):
        f(a, a)


def test_compile_wants_one_set_of_devices() -> None:
    program = pr.Program("matmul", jax="jax.numpy:matmul")
    half = pr.NamedSharding(pr.Mesh((4,), ("x",), range(4)), ("x",))
    a, b = pr.device_put(_numbers((8, 8)), XY), pr.device_put(_numbers((8, 8)), half)
    with pytest.raises(pr.ShardingError, match="must lie on the same devices"):
        pr.compile(program, a, b)
    with pytest.raises(pr.ShardingError, match="must lie on the same devices"):
        pr.compile(program, a, a, out_sharding=half)
    with pytest.raises(pr.ShardingError, match="NamedSharding or a tuple of them, got str"):
        pr.compile(program, a, a, out_sharding="x,y")
    line = pr.NamedSharding(pr.Mesh((8,), ("i",)), ("i",))
    c = pr.compile(program, a, a, out_sharding=line)(a, a)
    assert c.sharding == line
    np.testing.assert_array_equal(np.asarray(c), _numbers((8, 8)) @ _numbers((8, 8)))


def test_text() -> None:
    a = pr.device_put(_numbers((8, 8)), XY)
    f = pr.compile(pr.Program("matmul", jax="jax.numpy:matmul"), a, a, out_sharding=XY)
    assert "stablehlo.dot_general" in f.as_text()
    assert "sdy.mesh" in f.as_text()
    assert "all-gather" in f.as_text("hlo") or "all-reduce" in f.as_text("hlo")
    with pytest.raises(pr.InvalidArgumentError, match="'stablehlo' or 'hlo'"):
        f.as_text("c")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda: pr.Program("p", jax="jax.numpy.matmul"), "must be a name such as"),
        (lambda: pr.Program("p", jax=len), "put the function in a module and give its name"),
        (lambda: pr.Program("p", julia="*"), "has no jax body"),
        (lambda: pr.Program("p", jax="no.such:f"), "cannot import jax='no.such:f'"),
        (lambda: pr.Program("p", jax="jax.numpy:nothing"), "cannot import"),
        (lambda: pr.Program("p", jax="jax.numpy:pi"), "is not a function"),
    ],
)
def test_bad_programs(program: Any, message: str) -> None:
    a = pr.device_put(_numbers((8, 8)), XY)
    with pytest.raises(pr.InvalidArgumentError, match=message):
        pr.compile(program(), a)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: pr.device_put(np.array([None]), XY), pr.DTypeError, "arrays of Python objects"),
        (lambda: pr.device_put(_numbers((7, 8)), XY), pr.ShardingError, "dimension 0 of shape"),
        (
            lambda: pr.device_put(_numbers((8,)), XY),
            pr.ShardingError,
            "has 2 entries but",
        ),
        (
            lambda: pr.device_put(_numbers((8, 8)), MESH),
            pr.ShardingError,
            "NamedSharding is n",
        ),
        (lambda: pr.matmul_sharded(_numbers((8, 8))), pr.InvalidArgumentError, "both x and y"),
        (
            lambda: pr.matmul_sharded(_numbers((8, 4)), _numbers((8, 4))),
            pr.InvalidArgumentError,
            r"x of shape \(m, k\) and y of shape \(k, n\) are needed, got \(8, 4\) and \(8, 4\)",
        ),
        (
            lambda: pr.matmul_sharded(_numbers((8, 8)), _numbers((8, 8), "int8")),
            pr.DTypeError,
            "must have one dtype, got float32 and int8",
        ),
        (
            lambda: pr.device_put(pr.device_put(_numbers((8, 8)), XY), XY),
            pr.InvalidArgumentError,
            "device_put places host arrays",
        ),
        (
            lambda: pr.compile(pr.Program("m", jax="jax.numpy:matmul"), _numbers((8, 8))),
            pr.InvalidArgumentError,
            "argument 0 of program 'm' must be a ShardedArray, got ndarray",
        ),
        (lambda: pr.initialize("torch"), pr.StateError, "backend='torch', but .* backend='jax'"),
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


def test_initialize_again_for_the_same_is_fine(backend: str) -> None:
    pr.initialize()
    pr.initialize(backend, platform="cpu", num_cpu_devices=8, num_processes=1)
    assert pr.is_initialized()
    assert pr.backend_name() == backend
    pr.barrier("alone")


def test_pictures() -> None:
    from rich.console import Console

    a = pr.device_put(_numbers((8, 8)), XY)
    assert repr(a) == (
        "ShardedArray(shape=(8, 8), dtype=float32, mesh=Mesh(x=2, y=4), spec=('x', 'y'), "
        f"backend='{pr.backend_name()}')"
    )
    page = a._repr_html_()
    assert page.count("<td style") == 8
    assert "[4:8, 6:8]" in page
    assert "<script" not in page
    wide = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    wide.print(a)
    assert "[4:8, 6:8]" in wide.export_text()
    narrow = Console(width=40, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    narrow.print(a)
    assert "x=1 y=3" in narrow.export_text()
    cube = pr.NamedSharding(pr.Mesh((2, 2, 2), ("a", "b", "c")), ("a", ("b", "c")))
    assert pr.device_put(_numbers((8, 8)), cube)._repr_html_().count("<table") == 2
    line = pr.NamedSharding(pr.Mesh((8,), ("d",)), ("d",))
    assert "d=7" in pr.device_put(_numbers((8, 8)), line)._repr_html_()


def _alone(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", code]
    return subprocess.run(
        argv, env=environment(**settings), capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("code", "settings", "said"),
    [
        ("import pyreactant as p; print(len(p.devices()))", {}, "8"),
        (
            "import pyreactant as p; p.initialize(num_cpu_devices=3); print(len(p.devices()))",
            {},
            "3",
        ),
        (
            "import pyreactant as p; print(len(p.devices()))",
            {"XLA_FLAGS": "--xla_force_host_platform_device_count=5"},
            "5",
        ),
        ("import jax; jax.devices(); import pyreactant as p; print(len(p.devices()))", {}, "1"),
    ],
)
def test_number_of_devices(code: str, settings: dict[str, str], said: str) -> None:
    ran = _alone(code, **settings)
    assert ran.stdout.strip() == said, ran.stderr


@pytest.mark.parametrize(
    ("code", "settings", "message"),
    [
        (
            "import jax; jax.devices(); import pyreactant as p; p.initialize(num_cpu_devices=4)",
            {},
            "num_cpu_devices=4 was asked for, but JAX had already started with 1",
        ),
        (
            "import pyreactant as p; p.initialize(num_cpu_devices=4)",
            {"XLA_FLAGS": "--xla_force_host_platform_device_count=5"},
            "XLA_FLAGS sets xla_force_host_platform_device_count too; keep one of them",
        ),
        (
            "import pyreactant as p; p.initialize(platform='tpu')",
            {"JAX_PLATFORMS": "cpu"},
            "platform 'tpu' was asked for, but JAX has here: cpu",
        ),
        (
            "import numpy as n, pyreactant as p; p.matmul_sharded(n.ones((8, 8)), n.ones((8, 8)))",
            {"JAX_ENABLE_X64": "0"},
            "does not hold float64 as it is; convert the array to one of",
        ),
        (
            "import pyreactant as p; p.devices(); p.shutdown(); p.devices()",
            {},
            "was shut down; a process has one runtime for its whole life",
        ),
        (
            "import sys; sys.modules['jax'] = None; import pyreactant as p; p.initialize()",
            {},
            "backend 'jax' needs the package jax",
        ),
        (
            "import pyreactant as p; p.initialize(initialization_timeout=0)",
            {},
            "initialization_timeout must be positive seconds, got 0",
        ),
    ],
)
def test_starts_that_fail(code: str, settings: dict[str, str], message: str) -> None:
    ran = _alone(code, **settings)
    assert ran.returncode == 1
    assert message in ran.stderr.splitlines()[-1]


def test_many_calls_without_waiting() -> None:
    """With several programs in flight, collectives on virtual CPU devices wait for ever."""
    ran = _alone(
        "import numpy as n, pyreactant as p\n"
        "from pyreactant._matmul import compile_matmul\n"
        "s = p.NamedSharding(p.Mesh((2, 4), ('x', 'y')), ('x', 'y'))\n"
        "a = p.device_put(n.ones((8, 8), n.float32), s)\n"
        "f = compile_matmul(a, a, None, None)\n"
        "print(len([f(a, a) for _ in range(2000)]))\n"
    )
    assert ran.stdout.strip() == "2000", ran.stderr
