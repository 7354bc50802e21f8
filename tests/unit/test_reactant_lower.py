"""Lowering with Reactant, without Julia: a module of the test takes Julia's place."""

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.backend import Call, Lowered
from pyreactant.arrays.runtimes.reactant.backend import ReactantBackend, julia_sharding
from pyreactant.arrays.runtimes.reactant.lower import Runtime, describe, function_of, lower, rebuild
from pyreactant.arrays.runtimes.reactant.setup import make_devices
from pyreactant.arrays.sharding import Aval
from pyreactant.arrays.tree import OpTrees
from pyreactant.process.group import ProcessGroup

TREES = OpTrees()
MESH = pr.Mesh((2, 2), ("x", "y"))
XY = pr.NamedSharding(MESH, ("x", "y"))
ROWS = pr.NamedSharding(MESH, ("y",))
Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any
    rate: Any = dataclasses.field(default=3, metadata={"static": True})


@pytest.mark.parametrize(
    ("tree", "described"),
    [
        (7, 0),
        (None, None),
        ((), ("tuple",)),
        ([7, None], ("list", 0, None)),
        ({"w": 7, "b": [8]}, ("named", ("b", "w"), ("list", 0), 1)),
        ({"b": [8], "w": 7}, ("named", ("b", "w"), ("list", 0), 1)),
        (OrderedDict(w=7, b=8), ("named", ("w", "b"), 0, 1)),
        (defaultdict(int, a=7), ("named", ("a",), 0)),
        (Pair(7, (8,)), ("named", ("first", "second"), 0, ("tuple", 1))),
        (Layer(7, None), ("named", ("w", "b", "rate"), 0, None, ("value", 3))),
    ],
)
def test_arguments_for_julia(tree: Any, described: Any) -> None:
    leaves, structure = TREES.flatten(tree)
    assert describe(TREES.unflatten(structure, range(len(leaves))), "p") == described


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {1: 7},
            "program 'p': a dict reaches Julia as a NamedTuple, so its keys must be.*got 1",
        ),
        (deque([7]), "takes trees of dicts, dataclasses, .* got a deque"),
        (Layer(7, 8, rate=b"x"), "static field 'rate' of Layer must be a number.*got a bytes"),
    ],
)
def test_arguments_that_cannot_reach_julia(tree: Any, message: str) -> None:
    leaves, structure = TREES.flatten(tree)
    with pytest.raises(pr.InvalidArgumentError, match=message):
        describe(TREES.unflatten(structure, range(len(leaves))), "program 'p'")


def test_results_of_julia() -> None:
    node = ["named", ["w", "b"], ["tuple", 0, None], ["list", 1, ["tuple"]]]
    assert rebuild(node) == {"w": (0, None), "b": [1, ()]}
    assert list(rebuild(node)) == ["w", "b"]  # as they were written
    assert rebuild(0) == 0


class Julia:
    """The Julia module: it returns results of a structure and of shapes, and notes what it got."""

    def __init__(self, structure: Any, *shapes: tuple[int, ...]) -> None:
        self.structure, self.shapes = structure, shapes
        self.lowered: list[tuple[Any, ...]] = []
        self.settled: Any = None

    def lower(self, *args: Any) -> Any:
        self.lowered.append(args)
        return f"lowered {len(self.lowered)}"

    def description(self, lowered: str) -> Any:
        return f"text of {lowered}", self.structure, [("float32", s) for s in self.shapes]

    def compile(self, lowered: str) -> Callable[..., Any]:
        return lambda *values: tuple(f"{lowered}: {i}" for i in range(len(self.shapes)))

    def outputs(self, compiled: Any) -> Any:
        """The placement: every device has the whole."""
        whole = [(100 + i, (0,) * 9, None) for i in range(4)]
        return [
            ("float32", shape, [(device, zeros[: len(shape)], shape) for device, zeros, _ in whole])
            for shape in self.shapes
        ]

    def settle(self, compiled: Any, shardings: Any) -> None:
        self.settled = shardings

    def optimized(self, compiled: Any) -> str:
        return "hlo"


def _lower(julia: Julia, out_sharding: Any = None, **options: Any) -> Lowered:
    aval = Aval((8, 8), np.dtype(np.float32), XY)
    _, structure = TREES.flatten(({"w": aval},))
    program = options.pop("program", pr.Program("p", julia="M.f"))
    request = Call(program, structure, (aval,), out_sharding, **options)
    position: Mapping[int, int] = {100 + i: i for i in range(4)}
    return lower(request, Runtime(julia, lambda sharding: sharding.spec, position))


def test_what_julia_is_given() -> None:
    julia = Julia(0, (8, 8))
    lowered = _lower(julia, XY, precision="high", static={"n": 3})
    arguments = ("tuple", ("named", ("w",), 0))
    inputs = (("float32", (8, 8), ("x", "y")),)
    assert julia.lowered == [
        ("p", "M.f", "", arguments, inputs, (("x", "y"),), "high", (("n", 3),))
    ]
    assert (lowered.text, lowered.reusable) == ("text of lowered 1", True)
    assert TREES.is_leaf(lowered.structure)
    executable = lowered.compile()
    assert executable.avals == (Aval((8, 8), np.dtype(np.float32), XY),)
    assert executable.run("a") == ("lowered 1: 0",)
    assert executable.text("stablehlo") == lowered.text
    assert executable.text("hlo") == "hlo"
    assert executable.memory() is None


def test_results_have_pythons_order() -> None:
    """Python numbers the values of a dictionary by its sorted keys, Julia as they are written."""
    julia = Julia(["named", ["w", "b"], 0, 1], (8, 8), (8,))
    whole = pr.NamedSharding(MESH, ())
    executable = _lower(julia).compile()
    assert [aval.shape for aval in executable.avals] == [(8,), (8, 8)]
    assert [aval.sharding for aval in executable.avals] == [whole] * 2  # as Julia placed them
    found = TREES.unflatten(executable.structure, executable.run("a"))
    assert found == {"w": "lowered 1: 0", "b": "lowered 1: 1"}
    assert len(julia.lowered) == 1
    assert julia.lowered[0][5] == ()


def test_a_tree_of_output_shardings() -> None:
    """Only a first trace tells the structure; some may be left to the compiler."""
    julia = Julia(["named", ["w", "b"], 0, 1], (8, 8), (8,))
    executable = _lower(julia, {"w": XY, "b": ROWS}).compile()
    assert [args[5] for args in julia.lowered] == [(), (("x", "y"), ("y",))]
    assert [aval.sharding for aval in executable.avals] == [ROWS, XY]
    assert julia.settled == (("x", "y"), ("y",))
    assert executable.run("a") == ("lowered 2: 1", "lowered 2: 0")
    executable = _lower(julia, {"w": None, "b": ROWS}).compile()
    assert julia.lowered[-1][5] == (None, ("y",))
    assert [aval.sharding for aval in executable.avals] == [ROWS, pr.NamedSharding(MESH, ())]
    before = len(julia.lowered)
    _lower(julia, {"w": None, "b": None})
    assert len(julia.lowered) == before + 1


@pytest.mark.parametrize(
    ("out_sharding", "kind", "message"),
    [
        ((XY,), pr.InvalidArgumentError, r"program 'p': out_sharding must have the structure of t"),
        (XY, pr.ShardingError, r"'p': out_sharding does not fit output 0 of shape \(8,\): parti"),
        ({"w": XY, "b": pr.NamedSharding(MESH, ())}, None, ""),
        ({"w": ROWS, "b": XY}, pr.ShardingError, r"does not fit output 0 of shape \(8,\)"),
    ],
)
def test_output_shardings_that_do_not_fit(out_sharding: Any, kind: Any, message: str) -> None:
    julia = Julia(["named", ["w", "b"], 0, 1], (8, 8), (8,))
    if kind is None:
        _lower(julia, out_sharding)
        return
    with pytest.raises(kind, match=message):
        _lower(julia, out_sharding)


def test_a_program_without_a_julia_body() -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"has no julia body; give julia='Module"):
        _lower(Julia(0, (8, 8)), program=pr.Program("p", jax="jax.numpy:sin"))


def test_processes_have_the_launchers_numbers() -> None:
    """Reactant numbers processes and their devices itself; positions follow the launcher."""
    rows = [(i, "cpu", "k") for i in (0, 1, 2048, 2049)]
    owned = [[2049, 2048], [0, 1]]  # Reactant's second process is the launcher's first
    devices = make_devices(rows, owned)
    assert [(d.position, d.process_index, d.id) for d in devices] == [
        (0, 0, 2048),
        (1, 0, 2049),
        (2, 1, 0),
        (3, 1, 1),
    ]
    backend = ReactantBackend()
    meshes = []

    class Meshes:
        """Notes the device ids of each mesh that Julia is given."""

        @staticmethod
        def mesh(ids: Any, shape: Any, names: Any) -> Any:
            meshes.append(ids)
            return ids

        @staticmethod
        def sharding(mesh: Any, spec: Any) -> Any:
            return mesh, spec

    backend._use(ProcessGroup(2, 1, "h:1"), Meshes(), devices, None)
    assert julia_sharding(backend, XY) == ((2048, 2049, 0, 1), ("x", "y"))
    asked: list[Any] = []
    backend._julia.from_blocks = lambda *args: asked.append(args)
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    backend.from_blocks((4, 4), x.dtype, pr.NamedSharding(MESH, ("x",)), x.__getitem__)
    ((_, _, _, holders, block),) = asked
    assert holders == ((0, 1),)  # this process, the launcher's second, holds the second rows
    np.testing.assert_array_equal(block, x[2:])
    assert not backend.is_fully_addressable(MESH)
    assert backend.is_fully_addressable(pr.Mesh((2,), ("x",), [2, 3]))
    assert meshes == [(2048, 2049, 0, 1)] * 2


def test_explicit_axes_are_refused() -> None:
    mesh = pr.Mesh((2, 2), ("x", "y"), axis_types=("auto", "explicit"))
    with pytest.raises(pr.ShardingError, match=r"Reactant takes Auto mesh axes only, got Mesh\(x"):
        julia_sharding(ReactantBackend(), pr.NamedSharding(mesh, ()))


@pytest.mark.parametrize(
    ("body", "built_in"),
    [("*", True), ("Base.sum", True), ("PyReactant.Programs.gram", True), ("Models.f", False)],
)
def test_programs_that_cannot_change(body: str, built_in: bool) -> None:
    backend = ReactantBackend()
    program = pr.Program("p", julia=body)
    assert backend.is_built_in(program) == built_in
    if built_in:
        assert backend.body_of(program) == body
    assert not backend.is_built_in(pr.Program("p", jax="jax.numpy:sin"))


def test_a_stablehlo_file_is_for_jax() -> None:
    program = pr.Program("p", stablehlo="p.mlir")
    with pytest.raises(
        pr.InvalidArgumentError, match=r"file 'p.mlir', which the JAX runtime runs;"
    ):
        function_of(program)
    both = pr.Program("p", stablehlo="p.mlir", julia="Models.p")
    assert function_of(both) == ("Models.p", "")
