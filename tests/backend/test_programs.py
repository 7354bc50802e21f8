"""Programs and compiled programs, in one process; --backend chooses the runtime."""

import itertools
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays import matmul
from tests.backend.common import MATMUL, MESH, XY, body, numbers
from tests.multiprocess.programs import SPECS

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize(("spec", "y_spec"), list(itertools.product(SPECS, SPECS)))
def test_matmul_of_every_pair_of_specs(spec: Any, y_spec: Any) -> None:
    x, y = numbers((16, 8)), numbers((8, 24))
    c = pr.matmul_sharded(x, y, mesh=MESH, spec=spec, y_spec=y_spec)
    oracle = c.sharding.devices_indices_map((16, 24))
    for shard in c.addressable_shards:
        assert shard.index == oracle[shard.device.position]
        np.testing.assert_array_equal(shard.data, (x @ y)[shard.index])


@pytest.mark.parametrize("out_spec", SPECS)
def test_out_spec(out_spec: Any) -> None:
    c = pr.matmul_sharded(numbers((16, 8)), numbers((8, 16)), mesh=MESH, out_spec=out_spec)
    assert c.sharding == pr.NamedSharding(MESH, out_spec)
    np.testing.assert_array_equal(np.asarray(c), numbers((16, 8)) @ numbers((8, 16)))


@pytest.mark.parametrize("precision", [None, "default", "high", "highest"])
def test_precision(precision: str | None) -> None:
    x = np.eye(8, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(pr.matmul_sharded(x, x, precision=precision)), x)


def test_matmul_of_placed_arrays_and_another_mesh() -> None:
    mesh = pr.Mesh((4,), ("rows",), [6, 1, 4, 3])
    x = pr.device_put(numbers((8, 8)), pr.NamedSharding(mesh, ("rows",)))
    c = pr.matmul_sharded(x, numbers((8, 8)), spec=(None, "rows"))
    assert c.sharding == pr.NamedSharding(mesh, ("rows", None))
    np.testing.assert_array_equal(np.asarray(c), numbers((8, 8)) @ numbers((8, 8)))
    with pytest.raises(pr.ShardingError, match="must be on one mesh"):
        pr.matmul_sharded(x, pr.device_put(numbers((8, 8)), XY))


def test_a_product_of_the_same_kind_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    a = pr.device_put(numbers((8, 8)), XY)
    for out_spec, precision in itertools.product((None, ("x", None), ((), "y")), (None, "highest")):
        c = pr.matmul_sharded(a, a, out_spec=out_spec, precision=precision)
        with monkeypatch.context() as patch:
            patch.setattr(matmul, "compile", None)
            again = pr.matmul_sharded(a, a, out_spec=out_spec, precision=precision)
        assert again.sharding == c.sharding == pr.NamedSharding(MESH, out_spec or ("x", "y"))
        np.testing.assert_array_equal(np.asarray(again), np.asarray(c))
    listed: Any = (["x"], None)
    c = pr.matmul_sharded(a, a, out_spec=listed)
    assert c.sharding == pr.NamedSharding(MESH, ("x", None))


def test_programs_with_several_outputs_scalars_and_statics() -> None:
    x = numbers((8, 8))
    a = pr.device_put(x, XY)
    rows, everything = pr.compile(body("sums"), a)(a)
    np.testing.assert_array_equal(np.asarray(rows), x.sum(axis=1))
    assert everything.shape == ()
    assert float(np.asarray(everything)) == x.sum()
    transposed = pr.compile(body("add_transposed"), a)(a)
    np.testing.assert_array_equal(np.asarray(transposed), x + x.T)
    factor = pr.device_put(np.float32(3), pr.NamedSharding(MESH, ()))
    program = body("scaled")
    for power in (1, 2):
        f = pr.compile(program, a, factor, static={"power": power}, out_sharding=XY)
        np.testing.assert_array_equal(np.asarray(f(a, factor)), 3 * x**power)


def test_static_values_that_are_equal_and_not_the_same() -> None:
    x = np.ones((8, 8), np.float32)
    a = pr.device_put(x, XY)
    for number in (0.0, -0.0):
        f = pr.compile(body("over"), a, static={"number": number}, out_sharding=XY)
        np.testing.assert_array_equal(np.asarray(f(a)), np.inf * np.copysign(x, number))
        assert pr.compile(body("over"), a, static={"number": number}, out_sharding=XY) is f
    kinds = [pr.compile(body("over"), a, static={"number": n}).outputs for n in (1, 1 + 0j)]
    assert [kind.dtype.kind for kind in kinds] == ["f", "c"]  # Julia widens to complex128
    with pytest.raises(pr.InvalidArgumentError, match=r"'number' must be hashable.*got list; give"):
        pr.compile(body("over"), a, static={"number": [1]})


def test_outputs_lie_on_the_mesh_that_was_given() -> None:
    """A mesh that names all devices in order differs from the default mesh; results keep it."""
    x = numbers((8, 8))
    for ids in (range(8), [3, 1, 7, 5, 0, 2, 4, 6], None):
        sharding = pr.NamedSharding(pr.Mesh((2, 4), ("x", "y"), ids), ("x", "y"))
        a = pr.device_put(x, sharding)
        c = pr.matmul_sharded(a, a)
        assert c.sharding == sharding
        np.testing.assert_array_equal(np.asarray(pr.matmul_sharded(c, a)), x @ x @ x)
        chosen = pr.compile(body("add_transposed"), a)(a)
        assert chosen.sharding.mesh == sharding.mesh
        sums = pr.compile(body("sums"), a, out_sharding=pr.NamedSharding(sharding.mesh, ()))(a)
        assert [s.sharding.mesh for s in sums] == [sharding.mesh] * 2


def test_compile_is_cached_by_all_that_matters() -> None:
    program = body("add_transposed")
    a, b = (pr.device_put(numbers((8, 8), d), XY) for d in ("float32", "float64"))
    other = pr.device_put(numbers((8, 8)), pr.NamedSharding(MESH, ("y", "x")))
    first = pr.compile(program, a)
    assert pr.compile(program, a) is first
    assert pr.compile(body("add_transposed"), a) is first
    different = [
        pr.compile(program, b),
        pr.compile(program, other),
        pr.compile(program, a, precision="highest"),
        pr.compile(program, a, out_sharding=XY),
    ]
    assert len({id(f) for f in [first, *different]}) == 5


def test_compiled_refuses_other_arguments() -> None:
    a = pr.device_put(numbers((8, 8)), XY)
    f = pr.compile(body("add_transposed"), a)
    for wrong, message in (
        (pr.device_put(numbers((4, 4)), XY), r"for float32\[8, 8\] .* got float32\[4, 4\]"),
        (pr.device_put(numbers((8, 8), "int32"), XY), r"got int32\[8, 8\]"),
        (pr.device_put(numbers((8, 8)), pr.NamedSharding(MESH, ())), r"got .*Mesh.*, \(\)\)"),
        (pr.device_put(numbers((8, 8)), pr.NamedSharding(MESH, ())), "with pyreactant.reshard, or"),
        (pr.device_put(numbers((8, 8), "int32"), XY), "; compile the program for it"),
        (numbers((8, 8)), "got a ndarray; place it with pyreactant.device_put first"),
    ):
        with pytest.raises(pr.InvalidArgumentError, match=message):
            f(wrong)
    with pytest.raises(pr.InvalidArgumentError, match="takes 1 argument, got 2"):
        f(a, a)


def test_compile_wants_one_set_of_devices() -> None:
    program = MATMUL
    half = pr.NamedSharding(pr.Mesh((4,), ("x",), range(4)), ("x",))
    a, b = pr.device_put(numbers((8, 8)), XY), pr.device_put(numbers((8, 8)), half)
    with pytest.raises(pr.ShardingError, match="must lie on the same devices"):
        pr.compile(program, a, b)
    with pytest.raises(pr.ShardingError, match="must lie on the same devices"):
        pr.compile(program, a, a, out_sharding=half)
    with pytest.raises(pr.ShardingError, match="NamedSharding or a tree of them, got str"):
        pr.compile(program, a, a, out_sharding="x,y")
    line = pr.NamedSharding(pr.Mesh((8,), ("i",)), ("i",))
    c = pr.compile(program, a, a, out_sharding=line)(a, a)
    assert c.sharding == line
    np.testing.assert_array_equal(np.asarray(c), numbers((8, 8)) @ numbers((8, 8)))


def test_a_body_runs_when_it_is_traced_and_never_afterwards() -> None:
    a = pr.device_put(numbers((8, 8)), XY)
    program = pr.compile(body("counted"), a)
    found = [np.asarray(program(a)) - numbers((8, 8)) for _ in range(3)]
    traced = found[0][0, 0]  # how often until then
    assert traced >= 1
    np.testing.assert_array_equal(found, np.full((3, 8, 8), traced))


@pytest.mark.parametrize("stage", ["stablehlo", "hlo"])
def test_text(stage: str) -> None:
    a = pr.device_put(numbers((8, 8)), XY)
    f = pr.compile(MATMUL, a, a, out_sharding=XY)
    assert "main" in f.as_text(stage) or "HloModule" in f.as_text(stage)
    assert f.as_text(stage) != pr.compile(body("add_transposed"), a).as_text(stage)
    with pytest.raises(pr.InvalidArgumentError, match="'stablehlo' or 'hlo'"):
        f.as_text("c")


def test_one_output_in_a_tuple_and_three_dimensions() -> None:
    cube = pr.NamedSharding(pr.Mesh((2, 2, 2), ("a", "b", "c")), ("a", ("b", "c")))
    x = numbers((2, 4, 3))
    a = pr.device_put(x, cube)
    f = pr.compile(body("turned"), a, out_sharding=pr.NamedSharding(cube.mesh, (None, "c", "a")))
    np.testing.assert_array_equal(np.asarray(f(a)), x.transpose(2, 0, 1))
    (one,) = pr.compile(body("one_in_a_tuple"), a)(a)
    np.testing.assert_array_equal(np.asarray(one), x + 1)


def test_out_shardings_of_each_output() -> None:
    a = pr.device_put(numbers((8, 8)), XY)
    outs = (pr.NamedSharding(MESH, ("y",)), pr.NamedSharding(MESH, ()))
    found = pr.compile(body("sums"), a, out_sharding=outs)(a)
    assert tuple(c.sharding for c in found) == outs
    for c, expected in zip(
        found, (numbers((8, 8)).sum(axis=1), numbers((8, 8)).sum()), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(c), expected)


def test_scalars_are_arguments_and_not_part_of_the_program() -> None:
    """A runtime that froze scalars while compiling would reuse those of the first call."""
    a = pr.device_put(numbers((8, 8)), XY)
    replicated = pr.NamedSharding(MESH, ())
    three, five = (pr.device_put(np.float32(n), replicated) for n in (3, 5))
    f = pr.compile(body("scaled"), a, three, static={"power": 1}, out_sharding=XY)
    for factor, number in ((three, 3), (five, 5)):
        np.testing.assert_array_equal(np.asarray(f(a, factor)), number * numbers((8, 8)))


def test_two_sizes_of_one_program() -> None:
    """A compiled program used for another size would silently give wrong results."""
    for shape in ((8, 8), (16, 16), (8, 8)):
        x = numbers(shape)
        a = pr.device_put(x, XY)
        np.testing.assert_array_equal(np.asarray(pr.compile(body("add_transposed"), a)(a)), x + x.T)


def test_arguments_are_as_they_were() -> None:
    x = numbers((8, 8))
    a = pr.device_put(x, XY)
    f = pr.compile(body("add_transposed"), a, out_sharding=XY)
    b = f(a)
    f(b)
    np.testing.assert_array_equal(np.asarray(a), x)
    np.testing.assert_array_equal(np.asarray(b), x + x.T)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda: pr.Program("p", jax="jax.numpy.matmul"), "must be a function, or a name such as"),
        (lambda: pr.Program("p", jax=3), "must be a function, or a name such as .*, got 3"),
        (lambda: pr.Program("", jax=len), "name must be text, got ''"),
        (lambda: pr.Program("p", julia="sum"), "must be a name such as 'Module.function'"),
        (lambda: pr.Program("p", julia="A.f(1)"), "must be a name such as 'Module.function'"),
        (lambda: pr.Program("p", julia=sum), "of a Julia project and give its name"),
        (lambda: pr.Program("p", julia="*", julia_project=1), "julia_project= must be the path"),
        (lambda: pr.Program("p", oracle="numpy:sin"), "has no (jax|julia) body"),
    ],
)
def test_bad_programs(program: Any, message: str) -> None:
    a = pr.device_put(numbers((8, 8)), XY)
    with pytest.raises(pr.InvalidArgumentError, match=message):
        pr.compile(program(), a)
