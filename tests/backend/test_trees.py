"""Trees as arguments and results of programs; --backend chooses the runtime."""

import dataclasses
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyreactant as pr
from pyreactant.arrays.dtypes import EXTENDED, as_dtype
from pyreactant.arrays.tree import OpTrees, Trees, broadcast
from tests.backend.common import MESH, WHOLE, XY, body, numbers

pytestmark = pytest.mark.usefixtures("backend")

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Layer:
    """A dataclass that no library has registered."""

    w: Any
    b: Any


def test_a_dictionary_keeps_its_keys() -> None:
    x = numbers((8, 8))
    found = pr.compile(body("as_dict"), pr.device_put(x, XY))(pr.device_put(x, XY))
    assert sorted(found) == ["b", "w"]
    np.testing.assert_array_equal(found["w"].gather(), x + 1)
    np.testing.assert_array_equal(found["b"].gather(), x.sum(axis=0))


def test_nested_results_keep_their_structure() -> None:
    x = numbers((8, 8))
    found = pr.compile(body("nested"), pr.device_put(x, XY))(pr.device_put(x, XY))
    (first, rest), last = found["pair"], found["none"]
    assert last is None
    assert isinstance(rest, list)
    np.testing.assert_array_equal(first.gather(), x)
    assert [float(one.gather()) for one in rest] == [x.sum(), x.max()]


def test_trees_as_arguments() -> None:
    x = numbers((8, 8))
    tree = {"w": x, "layers": [x + 1, x + 2], "bias": (x[0], None)}
    placed = pr.device_put(
        tree, {"w": XY, "layers": XY, "bias": (pr.NamedSharding(MESH, ("y",)), None)}
    )
    assert placed["bias"][1] is None
    assert placed["layers"][1].sharding == XY
    f = pr.compile(body("total"), placed)
    expected = x + (x + 1) + (x + 2) + x[0]
    np.testing.assert_array_equal(f(placed).gather(), expected)
    again = pr.gather(placed)
    np.testing.assert_array_equal(again["layers"][0], x + 1)
    with pytest.raises(
        pr.InvalidArgumentError, match=r"was compiled for arguments of the structure"
    ):
        f({**placed, "layers": tuple(placed["layers"]), "bias": placed["bias"]})
    other = {**placed, "layers": [placed["w"], pr.device_put(x[:4], XY)]}
    with pytest.raises(pr.InvalidArgumentError, match=r"'layers'\]\[1\] .*got float32\[4, 8\]"):
        f(other)


def test_a_dataclass_and_a_namedtuple_as_arguments() -> None:
    x = pr.device_put(numbers((8, 8)), XY)
    layer = Layer(w=x, b=Pair(x, x))
    np.testing.assert_array_equal(
        pr.compile(body("of_layer"), layer)(layer).gather(), 3 * numbers((8, 8))
    )


def test_descriptions_in_place_of_arrays() -> None:
    x = numbers((8, 8))
    f = pr.compile(body("as_dict"), pr.Aval((8, 8), np.dtype(np.float32), XY))
    np.testing.assert_array_equal(f(pr.device_put(x, XY))["w"].gather(), x + 1)
    with pytest.raises(pr.InvalidArgumentError, match="can be compiled for, but not computed"):
        f(pr.Aval((8, 8), np.dtype(np.float32), XY))


def test_out_shardings_are_a_prefix() -> None:
    a = pr.device_put(numbers((8, 8)), XY)
    rows = pr.NamedSharding(MESH, ("y",))
    f = pr.compile(body("as_dict"), a, out_sharding={"w": XY, "b": rows})
    assert {name: one.sharding for name, one in f(a).items()} == {"w": XY, "b": rows}
    assert f.output_shardings == {"w": XY, "b": rows}
    one = pr.compile(body("as_dict"), a, out_sharding={"w": None, "b": rows})
    assert one(a)["b"].sharding == rows


@pytest.mark.parametrize(
    ("name", "out_sharding", "kind", "message"),
    [
        ("nothing", None, pr.InvalidArgumentError, "must return an array or a tree of arrays"),
        ("empty", None, pr.InvalidArgumentError, "must return an array or a tree of arrays"),
        ("in_a_list", (XY,), pr.InvalidArgumentError, r"out_sharding must have the structure"),
        ("as_dict", XY, pr.ShardingError, r"out_sharding does not fit output 0 of shape \(8,\)"),
    ],
)
def test_results_that_do_not_fit(name: str, out_sharding: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        pr.compile(body(name), pr.device_put(numbers((8, 8)), XY), out_sharding=out_sharding)


def test_arguments_that_are_no_arrays() -> None:
    a = pr.device_put(numbers((8, 8)), XY)
    for wrong in ("text", 3.0, numbers((8, 8))):
        with pytest.raises(pr.InvalidArgumentError, match=r"must be a ShardedArray or a tree"):
            pr.compile(body("total"), {"w": a, "layers": [wrong], "bias": (a, None)})
    with pytest.raises(pr.InvalidArgumentError, match="compile takes a Program or a function"):
        pr.compile("as_dict", a)
    with pytest.raises(pr.InvalidArgumentError, match="gather takes ShardedArrays, or trees"):
        pr.gather({"a": numbers((8, 8))})


def test_from_callback_and_process_local_take_trees() -> None:
    x = {"a": numbers((8, 8)), "b": numbers((8,), "int32")}
    specs = {"a": XY, "b": WHOLE}
    made = pr.from_callback(
        {"a": (8, 8), "b": (8,)},
        {"a": np.float32, "b": "int32"},
        specs,
        {name: array.__getitem__ for name, array in x.items()},
    )
    for tree in (
        made,
        pr.from_process_local(x, specs),
        pr.from_process_local(x, specs, {"a": (8, 8), "b": (8,)}),
    ):
        for name, array in pr.gather(tree).items():
            np.testing.assert_array_equal(array, x[name])
            assert array.dtype == x[name].dtype
    with pytest.raises(pr.InvalidArgumentError, match="from_callback: dtype must have the struct"):
        pr.from_callback({"a": (8, 8)}, {"b": "int32"}, XY, lambda index: x["a"][index])


def test_reshard_moves_on_the_devices() -> None:
    x = numbers((8, 8))
    turned = pr.NamedSharding(pr.Mesh((4, 2), ("r", "c")), ("c", "r"))
    a = pr.device_put({"x": x, "n": np.arange(8)}, {"x": XY, "n": WHOLE})
    moved = pr.reshard(a, {"x": turned, "n": pr.NamedSharding(turned.mesh, ("r",))})
    assert moved["x"].sharding == turned
    np.testing.assert_array_equal(moved["x"].gather(), x)
    np.testing.assert_array_equal(moved["n"].gather(), np.arange(8))
    with pytest.raises(pr.InvalidArgumentError, match="reshard takes ShardedArrays"):
        pr.reshard(x, XY)


@pytest.mark.parametrize("name", ["float16", *EXTENDED])
def test_reshard_keeps_every_bit(name: str) -> None:
    """Those of each NaN, too, on every device."""
    dtype = as_dtype(name)
    bits = np.arange(256**dtype.itemsize, dtype=f"uint{8 * dtype.itemsize}").reshape(16, -1)
    turned = pr.NamedSharding(pr.Mesh((4, 2), ("r", "c")), ("c", "r"))
    a = pr.device_put({"x": bits.view(dtype), "n": bits.view(dtype)[0, 1]}, {"x": XY, "n": WHOLE})
    moved = pr.reshard(a, {"x": turned, "n": pr.NamedSharding(turned.mesh, ())})
    assert (moved["x"].dtype, moved["x"].sharding) == (dtype, turned)
    for shard in moved["x"].addressable_shards:
        np.testing.assert_array_equal(shard.data.view(bits.dtype), bits[shard.index])
    assert moved["n"].gather().tobytes() == bits[0, 1].tobytes()


def test_donated_arrays_raise_when_used() -> None:
    x = numbers((8, 8))
    f = pr.compile(body("add_transposed"), pr.device_put(x, XY), donate=0, out_sharding=XY)
    a = f(pr.device_put(x, XY))  # memory of programs can be taken over
    b = f(a)
    np.testing.assert_array_equal(b.gather(), 2 * (x + x.T))
    for use in (a.gather, lambda: a.value, lambda: a.addressable_shards, lambda: f(a), a.to_jax):
        with pytest.raises(pr.StateError, match="was donated to program 'add_transposed'"):
            use()
    with pytest.raises(pr.StateError, match="was donated"):
        np.asarray(a)
    with pytest.raises(pr.StateError, match="was donated"):
        pr.compile(body("add_transposed"), a)
    assert "shape=(8, 8)" in repr(a)
    assert len(a) == len(b) == 8


def test_an_array_is_not_donated_and_given() -> None:
    a = pr.device_put(numbers((8, 8)), XY)
    f = pr.compile(body("plus"), a, a, donate=[0])
    with pytest.raises(pr.InvalidArgumentError, match="donated and also given as array 1"):
        f(a, a)
    for wrong in (2, "x", (0, 5), 0.0, None, (0.0,)):
        with pytest.raises(pr.InvalidArgumentError, match="donate= has positions of arguments"):
            pr.compile(body("plus"), a, a, donate=wrong)


def test_the_same_array_twice_and_then_two() -> None:
    """A runtime that traces one argument for both computes with the first only, later too."""
    x, y = numbers((8, 8)), numbers((8, 8)) + 1
    a, b = pr.device_put(x, XY), pr.device_put(y, XY)
    f = pr.compile(body("minus"), a, a)
    np.testing.assert_array_equal(f(a, a).gather(), x - x)
    np.testing.assert_array_equal(f(a, b).gather(), x - y)
    np.testing.assert_array_equal(b.gather(), y)


def test_a_program_is_called() -> None:
    x = numbers((8, 8))
    a = pr.device_put(x, XY)
    program = body("scaled")
    three = pr.device_put(np.float32(3), WHOLE)
    for power in (1, 2, 1):
        np.testing.assert_array_equal(program(a, three, power=power).gather(), 3 * x**power)
    with pytest.raises(pr.InvalidArgumentError, match="argument 0 of program 'scaled' must be"):
        program(x, three, power=1)
    with pytest.raises(pr.InvalidArgumentError, match="'power' must be hashable"):
        program(a, three, power=[1])


@pytest.mark.parametrize(
    "operation",
    [lambda a: a == a, lambda a: a != 1, lambda a: 1 in a, bool, hash, lambda a: {a: 1}],
)
def test_operators_that_would_be_silently_wrong(operation: Any) -> None:
    with pytest.raises(TypeError):
        operation(pr.device_put(numbers((8, 8)), XY))


def test_masks_are_not_dropped() -> None:
    masked = np.ma.array(numbers((8, 8)), mask=numbers((8, 8)) > 3)
    for place in (
        lambda: pr.device_put(masked, XY),
        lambda: pr.from_process_local(masked, XY),
        lambda: pr.matmul_sharded(masked, numbers((8, 8))),
        lambda: pr.matmul_sharded(numbers((8, 8)), masked),
        lambda: pr.from_callback((8, 8), np.float32, XY, masked.__getitem__),
    ):
        with pytest.raises(pr.DTypeError, match=r"x\.filled\(0\)"):
            place()


def test_numbers_of_python() -> None:
    three = pr.device_put(np.float32(3), WHOLE)
    assert (float(three), int(three), complex(three), three.item()) == (3.0, 3, 3 + 0j, 3.0)
    assert three.is_fully_replicated
    assert not pr.device_put(numbers((8, 8)), XY).is_fully_replicated
    with pytest.raises(ValueError, match="can only convert an array of size 1"):
        float(pr.device_put(numbers((8, 8)), XY))
    with pytest.raises(pr.ShardingError, match=r"no dimensions .* pass np\.asarray\(list\)"):
        pr.device_put([1, 2, 3], XY)


def test_a_size_of_a_mesh_is_inferred() -> None:
    assert pr.Mesh((-1, 4), ("x", "y")) == MESH


TREES = st.recursive(
    st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.builds(Layer, inner, inner)
        | st.builds(Pair, inner, inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


def _both() -> list[Trees]:
    return [OpTrees(), pr_trees()]


def pr_trees() -> Trees:
    from pyreactant.arrays.runtimes.runtime import current

    return current().backend.trees


@settings(max_examples=60)
@given(TREES)
def test_flatten_and_unflatten(tree: Any) -> None:
    found = []
    for trees in _both():
        leaves, structure = trees.flatten(tree)
        assert trees.unflatten(structure, leaves) == tree
        assert structure == trees.flatten(tree)[1]
        assert len(trees.keys(tree)) == len(leaves)
        assert trees.is_leaf(structure) == isinstance(tree, int)
        assert broadcast(trees, 7, tree, lambda x: x == 7, "w", "t") == [7] * len(leaves)
        found.append(leaves)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "operation",
    [
        lambda x, a: x + a,
        lambda x, a: x @ a,
        lambda x, a: x == a,
        lambda x, a: x < a,
        lambda x, a: np.float32(2) * a,
    ],
)
def test_numpy_on_the_left_is_no_operator_either(operation: Any) -> None:
    x = numbers((8, 8))
    with pytest.raises(TypeError, match="is not defined for a ShardedArray"):
        operation(x, pr.device_put(x, XY))


def test_functions_of_numpy_read_an_array() -> None:
    x = numbers((8, 8))
    np.testing.assert_array_equal(np.exp(pr.device_put(x, XY)), np.exp(x))
