"""Behaviour of the Reactant runtime alone: programs in Julia and their failures."""

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.dtypes import as_dtype
from tests.backend.common import JULIA_BODIES, MATMUL, MESH, XY, numbers
from tests.harness import environment
from tests.julia import place

pytestmark = pytest.mark.only("reactant")


def _program(name: str, project: str | None = JULIA_BODIES) -> pr.Program:
    return pr.Program("p", julia=name, julia_project=project)


@pytest.fixture
def a(backend: str) -> pr.ShardedArray:
    return pr.device_put(numbers((8, 8)), XY)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (pr.Program("p", jax="jax.numpy:matmul"), "has no julia body; give julia='Module.func"),
        (_program("Bodies.nothing_such"), "Bodies has no function 'nothing_such'"),
        (_program("Bodies.Nowhere.f"), "Bodies has no module 'Nowhere'"),
        (_program("NoSuchModule.f"), "there is no Julia module 'NoSuchModule'"),
        (_program("Bodies.number"), "'Bodies.number' is not a Julia function, but a Int64"),
        (_program("Bodies.gives_text"), "must return arrays, numbers or nothing, .*got a String"),
        (_program("Bodies.gives_pair"), "must return arrays, numbers or nothing, .*got a String"),
        (_program("Bodies.gives_struct"), "named tuples and vectors of these, got a Model"),
        (_program("Bodies.empty"), r"'p' must return an array or a tree of arrays, got \(\)"),
        (_program("Bodies.real"), "elements of type Real, which NumPy does not have; convert"),
        (_program("Bodies.nothing"), "'p' must return an array or a tree of arrays, got nothing"),
        (_program("Bodies.turned", "/no/such/folder"), "with a Project.toml, got '/no/such/folde"),
    ],
)
def test_wrong_programs(a: pr.ShardedArray, program: pr.Program, message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        pr.compile(program, a)


def test_function_that_throws(a: pr.ShardedArray) -> None:
    with pytest.raises(pr.PyReactantError) as caught:
        pr.compile(_program("Bodies.throws"), a)
    text = str(caught.value)
    assert "the model wants another shape" in text.splitlines()[0] + text.splitlines()[1]
    assert "Stacktrace" not in text
    (note,) = caught.value.__notes__
    assert note.startswith("Julia's backtrace:")
    assert caught.value.exit_code == 1
    source = Path(JULIA_BODIES, "src", "Bodies.jl")
    at = [line for line, text in enumerate(source.open(), 1) if text.startswith("throws(x) =")]
    assert f"{source}:{at[0]}" in text.splitlines()[-1]
    with pytest.raises(pr.PyReactantError, match=re.escape(r"\e[31mred\0")):
        pr.compile(_program("Bodies.throws_badly"), a)
    np.testing.assert_array_equal(np.asarray(a), numbers((8, 8)))  # the runtime still works


def test_wrong_number_of_arguments_and_keywords(a: pr.ShardedArray) -> None:
    with pytest.raises(pr.PyReactantError, match="MethodError"):
        pr.compile(_program("Bodies.add_transposed"), a, a)
    with pytest.raises(pr.PyReactantError, match="nonsense"):
        pr.compile(_program("Bodies.add_transposed"), a, static={"nonsense": 1})
    with pytest.raises(pr.InvalidArgumentError, match="static argument 'power' must be a number"):
        pr.compile(_program("Bodies.scaled"), a, a, static={"power": b"2"})


def test_function_that_calls_itself_without_end() -> None:
    """It ends the process, which says of which program; Julia cannot."""
    if place.real_sources:
        pytest.skip("Reactant notes all calls with each operation: no overflow within 14 minutes")
    code = (
        "import numpy as np, pyreactant as pr\n"
        "pr.initialize('reactant', platform='cpu', num_cpu_devices=2)\n"
        "a = pr.device_put(np.ones(4), pr.NamedSharding(pr.Mesh((2,), ('i',)), ('i',)))\n"
        f"p = pr.Program('deep', julia='Bodies.endless', julia_project={JULIA_BODIES!r})\n"
        "pr.compile(p, a)\n"
    )
    argv = [sys.executable, "-c", code]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=300)
    assert ran.returncode != 0
    said = "does its function call itself without end?", "a function calls itself without end"
    assert any(words in ran.stderr for words in said), ran.stderr


def test_results_without_elements(a: pr.ShardedArray) -> None:
    """Reactant cannot cut them; each device has the block that its sharding says all the same."""
    for out in (XY, pr.NamedSharding(MESH, ("y",)), pr.NamedSharding(MESH, ()), None):
        c = pr.compile(_program("Bodies.no_rows"), a, out_sharding=out)(a)
        assert c.shape == (0, 8)
        for shard in c.addressable_shards:
            index = c.sharding.devices_indices_map(c.shape)[shard.device.position]
            assert shard.index == index
            assert shard.data.shape == numbers((0, 8))[index].shape
        assert c.gather().shape == (0, 8)
        again = pr.compile(_program("Bodies.plus"), c, c, out_sharding=out)(c, c)
        assert again.gather().shape == (0, 8)


def test_the_same_array_twice(a: pr.ShardedArray) -> None:
    """Later calls with two arrays use both, and change neither."""
    two = pr.compile(MATMUL, a, a, out_sharding=XY)
    x, y = numbers((8, 8)), numbers((8, 8))[::-1].copy()
    b = pr.device_put(y, XY)
    np.testing.assert_array_equal(np.asarray(two(a, b)), x @ y)
    np.testing.assert_array_equal(np.asarray(two(b, a)), y @ x)
    np.testing.assert_array_equal(np.asarray(b), y)
    np.testing.assert_array_equal(np.asarray(a), x)


@pytest.mark.parametrize("spec", [(), ("x",), ("x", "y"), (None, "y")])
def test_results_lie_where_they_are_asked_for(a: pr.ShardedArray, spec: Any) -> None:
    """Also whole on each device, and where the constraint lands on an argument."""
    sharding = pr.NamedSharding(MESH, spec)
    x = numbers((8, 8))
    for name, expected in (("add_transposed", x + x.T), ("turned_over", x.T)):
        c = pr.compile(_program(f"Bodies.{name}"), a, out_sharding=sharding)(a)
        assert c.sharding.spec == sharding.spec
        for shard in c.addressable_shards:
            np.testing.assert_array_equal(shard.data, expected[shard.index])


def test_two_projects_with_packages_of_one_name(a: pr.ShardedArray, tmp_path: Path) -> None:
    folders = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        (folder / "src").mkdir(parents=True)
        uuid = f"33333333-3333-3333-3333-33333333333{number}"
        (folder / "Project.toml").write_text(f'name = "OneName"\nuuid = "{uuid}"\n')
        text = f"module OneName\nf(x) = {number} .* x\nend\n"
        (folder / "src" / "OneName.jl").write_text(text)
        folders.append(folder)
    first = _program("OneName.f", str(folders[0]))
    c = pr.compile(first, a, out_sharding=XY)(a)
    np.testing.assert_array_equal(np.asarray(c), numbers((8, 8)))
    with pytest.raises(pr.StateError, match="another package of that name"):
        pr.compile(_program("OneName.f", str(folders[1])), a)
    (folders[0] / "src" / "OneName.jl").write_text("module OneName\nf(x) = 55 .* x\nend\n")
    with pytest.raises(pr.StateError, match=r"OneName\.jl has changed since Julia loaded"):
        pr.compile(first, a)


def test_submodules_and_names_with_a_bang(a: pr.ShardedArray) -> None:
    c = pr.compile(_program("Bodies.Deep.scale!"), a, out_sharding=XY)(a)
    np.testing.assert_array_equal(np.asarray(c), 2 * numbers((8, 8)))


def test_project_with_spaces_and_unicode(a: pr.ShardedArray, tmp_path: Path) -> None:
    folder = tmp_path / "ein Modell, ü"
    shutil.copytree(JULIA_BODIES, folder)
    uuid = "11111111-1111-1111-1111-111111111111"
    (folder / "Project.toml").write_text(f'name = "Modell"\nuuid = "{uuid}"\n')
    (folder / "src" / "Modell.jl").write_text("module Modell\ndouble(x) = x .+ x\nend\n")
    c = pr.compile(_program("Modell.double", str(folder)), a, out_sharding=XY)(a)
    np.testing.assert_array_equal(np.asarray(c), 2 * numbers((8, 8)))


def test_no_argument_at_all(backend: str) -> None:
    line = pr.NamedSharding(pr.Mesh((8,), ("i",)), ("i",))
    c = pr.compile(_program("Bodies.filled"), out_sharding=line)()
    np.testing.assert_array_equal(np.asarray(c), np.arange(8, dtype=np.float32))


def test_lists_never_reach_julia(a: pr.ShardedArray) -> None:
    """Reactant refuses a list in a spec, so specs written as lists become tuples."""
    spec: Any = [["x", "y"], None]
    sharding = pr.NamedSharding(MESH, spec)
    c = pr.device_put(numbers((8, 8)), sharding)
    assert c.sharding.spec == (("x", "y"), None)
    np.testing.assert_array_equal(np.asarray(c), numbers((8, 8)))


def test_showing_the_value_communicates_nothing(a: pr.ShardedArray) -> None:
    assert "Held(float32[8, 8]" in repr(a.value)
    assert str(a.value)


def test_a_block_is_read_as_julia_holds_it(a: pr.ShardedArray) -> None:
    """A block is in Fortran order; C order would need a second copy."""
    for shard in a.addressable_shards:
        assert shard.data.flags.f_contiguous
        assert not shard.data.flags.c_contiguous
        np.testing.assert_array_equal(shard.data, numbers((8, 8))[shard.index])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_julia_keeps_no_numpy_array(backend: str, dtype: str) -> None:
    """Otherwise Julia's collector would free it, which runs only for Julia's own memory."""
    x = numbers((8, 8)).astype(as_dtype(dtype))
    references = sys.getrefcount(x)
    placed = pr.device_put(x, XY)
    assert sys.getrefcount(x) == references
    assert sys.getrefcount(np.asarray(placed)) == sys.getrefcount(np.empty(1))
    assert sys.getrefcount(placed.addressable_shards[0].data) == sys.getrefcount(np.empty(1))


@dataclasses.dataclass
class Layer:
    """Its second field is part of the program."""

    w: Any
    rate: int = dataclasses.field(default=3, metadata={"static": True})


def test_what_containers_are_in_julia(a: pr.ShardedArray) -> None:
    row = pr.device_put(numbers((8,)), pr.NamedSharding(MESH, ("x",)))
    number = pr.device_put(np.float32(2), pr.NamedSharding(MESH, ()))
    tree = {
        "dict": {"b": a, "a": a},
        "one_type": [a, a],
        "mixed": [a, row],
        "numbers": [number, number],
        "none": None,
        "layer": Layer(a),
    }
    kinds = pr.compile(_program("Bodies.kinds"), tree)
    assert int(kinds(tree).gather()) == 63
    returned = pr.compile(_program("Bodies.same"), tree)(tree)
    assert returned["layer"].keys() == {"w", "rate"}  # a dataclass comes back as a dict
    for found, wanted in (
        (returned["dict"]["a"], a),
        (returned["one_type"][1], a),
        (returned["mixed"][1], row),  # a list of several types as a tuple
        (returned["numbers"][1], number),
        (returned["layer"]["w"], a),
    ):
        np.testing.assert_array_equal(found.gather(), wanted.gather())
    kinds_of = [type(returned[name]) for name in ("one_type", "mixed", "numbers", "none")]
    assert kinds_of == [list, tuple, list, type(None)]
    for wrong, message in (
        ({1: a}, "a dict reaches Julia as a NamedTuple, so its keys must be text, got 1"),
        (Layer(a, rate=b"x"), "static field 'rate' of Layer must be a number"),
    ):
        with pytest.raises(pr.InvalidArgumentError, match=message):
            pr.compile(_program("Bodies.same"), wrong)


def test_a_julia_function_that_was_redefined(a: pr.ShardedArray, tmp_path: Path) -> None:
    """Python compiles what is defined now; what is compiled stays."""
    uuid = "22222222-2222-2222-2222-222222222222"
    (tmp_path / "Project.toml").write_text(f'name = "Redefined"\nuuid = "{uuid}"\n')
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "Redefined.jl").write_text(
        "module Redefined\nf(x) = helper(x)\nhelper(x) = 2 .* x\n"
        "again(text) = Base.include_string(Redefined, text)\nend\n"
    )
    x = numbers((8, 8))
    program = _program("Redefined.f", str(tmp_path))
    two = pr.compile(program, a)
    assert pr.compile(program, a) is two
    np.testing.assert_array_equal(program(a).gather(), 2 * x)

    import juliacall

    redefined = juliacall.Base.root_module(
        juliacall.Base.PkgId(juliacall.Base.UUID(uuid), "Redefined")
    )
    redefined.again("helper(x) = 3 .* x")
    np.testing.assert_array_equal(pr.compile(program, a)(a).gather(), 3 * x)
    np.testing.assert_array_equal(program(a).gather(), 2 * x)  # as in jax.jit
    redefined.again("f(x) = 4 .* x")
    np.testing.assert_array_equal(program(a).gather(), 4 * x)
    np.testing.assert_array_equal(pr.compile(program, a)(a).gather(), 4 * x)
    np.testing.assert_array_equal(two(a).gather(), 2 * x)


def test_what_belongs_to_jax(a: pr.ShardedArray) -> None:
    for use in (a.to_jax, XY.to_jax, MESH.to_jax, lambda: pr.from_jax(a.value)):
        with pytest.raises(pr.StateError, match="needs the runtime 'jax', but this process runs"):
            use()
    explicit = pr.Mesh((2, 4), ("x", "y"), axis_types=("explicit", "auto"))
    for sharded in (
        lambda: pr.device_put(numbers((8, 8)), pr.NamedSharding(explicit, ("x",))),
        lambda: pr.compile(MATMUL, a, a, out_sharding=pr.NamedSharding(explicit, ())),
    ):
        with pytest.raises(pr.ShardingError, match="Reactant takes Auto mesh axes only"):
            sharded()
    with pytest.raises(pr.InvalidArgumentError, match=r"has no julia body; give julia='Module"):
        pr.compile(lambda x: x, a)
    assert pr.compile(MATMUL, a, a).memory_analysis() is None


def test_functions_that_write_to_an_argument_are_refused(a: pr.ShardedArray) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"'p' writes to its argument 1"):
        pr.compile(_program("Bodies.writes_to_the_second!"), {"w": a}, (a,))
    with pytest.raises(pr.InvalidArgumentError, match=r"writes to its argument 0"):
        pr.compile(_program("Bodies.writes!"), a)
    np.testing.assert_array_equal(np.asarray(a), numbers((8, 8)))


def test_only_the_main_thread(a: pr.ShardedArray) -> None:
    import threading

    found: list[Any] = []

    def read() -> None:
        try:
            found.append(np.asarray(a))
        except pr.StateError as error:
            found.append(str(error))

    thread = threading.Thread(target=read, name="reader")
    thread.start()
    thread.join()
    assert found == [
        "Julia must be called from the main thread, this is 'reader'; hand the work over to the "
        "main thread"
    ]
