"""Trace, lower and compile a program with Reactant.

The body is traced once for its StableHLO, and once more when that is compiled; a tree of output
shardings takes one more, because only a trace tells the structure of the results.

Structures are plain data in between. In Julia (``julia/src/trees.jl``) a dict, a dataclass or a
namedtuple is a NamedTuple, a tuple a Tuple, a list a Vector (a Tuple if its parts have several
types), and None nothing. A NamedTuple that a program returns becomes a dict.
"""

import itertools
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ....base.errors import InvalidArgumentError, ShardingError
from ...backend import Call, Executable, Lowered
from ...dtypes import as_dtype
from ...mesh import Mesh
from ...program import Program
from ...sharding import Aval, Index, NamedSharding
from ...tree import OpTrees, data_fields, is_user_dataclass
from .julia import call, call_program, project_folder

_TREES = OpTrees()

Described = int | tuple[Any, ...] | None
"""An array's number, None, or the kind of a container, its names if it has some, and its parts."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What lowering needs of the runtime.

    Attributes:
        julia: The Julia module PyReactant.
        place: Julia's form of a sharding.
        position: Position in `devices()` of Reactant's device ids.
    """

    julia: Any
    place: Callable[[NamedSharding], Any]
    position: Mapping[int, int]


def lower(request: Call, runtime: Runtime) -> Lowered:
    """Lower a program; the body is traced anew, so that it is as it is defined now."""
    wanted = request.out_sharding
    if wanted is None or isinstance(wanted, NamedSharding):
        traced = _trace(request, runtime, () if wanted is None else (wanted,))
        given = traced.asked(request)
    else:
        traced = _trace(request, runtime, ())
        given = traced.asked(request)
        if any(sharding is not None for sharding in given):
            traced = _trace(request, runtime, traced.in_julia(given))
    compile_ = partial(_compile, request, runtime, traced, given)
    return Lowered(traced.text, traced.structure, True, compile_)


@dataclass(frozen=True, slots=True)
class _Traced:
    """A traced program, with its results in Python's order.

    Julia numbers the values of a NamedTuple as they are written, Python those of a dict by its
    sorted keys.

    Attributes:
        lowered: Julia's object.
        text: StableHLO.
        tree: The results, with Julia's number in place of each.
        structure: Structure of the results.
        numbers: Julia's number of each result.
        outputs: Shape and dtype of each result.
    """

    lowered: Any
    text: str
    tree: Any
    structure: Any
    numbers: list[int]
    outputs: list[tuple[tuple[int, ...], np.dtype[Any]]]

    def asked(self, request: Call) -> list[NamedSharding | None]:
        """The sharding that is asked for each result."""
        return request.result_shardings(_TREES, self.tree, [shape for shape, _ in self.outputs])

    def in_julia(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Values that are listed by result, in Julia's order."""
        by_number = dict(zip(self.numbers, values, strict=True))
        return tuple(by_number[number] for number in range(len(values)))


def _trace(request: Call, runtime: Runtime, wanted: tuple[NamedSharding | None, ...]) -> _Traced:
    arguments = _TREES.unflatten(request.structure, range(len(request.avals)))
    described = describe(arguments, f"program {request.program.name!r}")
    lowered = _lower_call(request, described, runtime, wanted)
    text, described, rows = call(runtime.julia.description, lowered)
    tree = rebuild(described)
    numbers, structure = _TREES.flatten(tree)
    leaves = [(whole_numbers(shape), as_dtype(str(name))) for name, shape in rows]
    outputs = [leaves[number] for number in numbers]
    return _Traced(lowered, str(text), tree, structure, numbers, outputs)


def _lower_call(
    request: Call,
    described: Described,
    runtime: Runtime,
    wanted: tuple[NamedSharding | None, ...] = (),
) -> Any:
    """Julia's object of a lowered program, for arguments of a described structure."""
    program = request.program
    body, project = function_of(program)
    check_static(program, request.static)
    return call_program(
        program.name,
        runtime.julia.lower,
        program.name,
        body,
        project,
        described,
        tuple((a.dtype.name, a.shape, runtime.place(a.sharding)) for a in request.avals),
        tuple(None if sharding is None else runtime.place(sharding) for sharding in wanted),
        request.precision or "",
        tuple(request.static.items()),
    )


def write(request: Call, runtime: Runtime) -> tuple[str, Any]:
    """A program's StableHLO, and the structure of its results as plain data (see `rebuild`).

    The structure of the request is plain data too, as `describe` returns it.
    """
    lowered = _lower_call(request, request.structure, runtime)
    text, described, _ = call(runtime.julia.description, lowered)
    return str(text), plain(described)


def _compile(
    request: Call, runtime: Runtime, traced: _Traced, given: Sequence[NamedSharding | None]
) -> Executable:
    compiled = call_program(request.program.name, runtime.julia.compile, traced.lowered)
    rows = list(call(runtime.julia.outputs, compiled))
    avals = []
    for output, (number, (shape, dtype)) in enumerate(
        zip(traced.numbers, traced.outputs, strict=True)
    ):
        sharding = given[output] or _sharding_of(request, runtime, output, shape, rows[number][2])
        avals.append(Aval(shape, dtype, sharding))
    shardings = traced.in_julia([runtime.place(aval.sharding) for aval in avals])
    call(runtime.julia.settle, compiled, shardings)

    def text(stage: str) -> str:
        return traced.text if stage == "stablehlo" else str(call(runtime.julia.optimized, compiled))

    run = _in_order(partial(call, compiled), traced.numbers)
    return Executable(run, traced.structure, tuple(avals), text, lambda: None)


def _in_order(
    run: Callable[..., Sequence[Any]], numbers: Sequence[int]
) -> Callable[..., Sequence[Any]]:
    """Run a program whose results have these numbers in Julia."""
    if list(numbers) == list(range(len(numbers))):
        return run
    pick = operator.itemgetter(*numbers)
    return lambda *values: pick(run(*values))


def _sharding_of(
    request: Call, runtime: Runtime, number: int, shape: tuple[int, ...], blocks: Any
) -> NamedSharding:
    """The NamedSharding of a placement that the compiler chose."""
    placement = {
        runtime.position[int(device)]: as_index(starts, stops) for device, starts, stops in blocks
    }
    sharding = find_sharding(request.meshes, shape, placement)
    if sharding is None:
        shown = ", ".join(
            f"device {p}: {[f'{s.start}:{s.stop}' for s in placement[p]]}"
            for p in sorted(placement)[:8]
        )
        raise ShardingError(
            f"program {request.program.name!r}: the compiler placed output {number} of shape "
            f"{shape} in a way that no mesh of the arguments describes ({shown}); give "
            "out_sharding="
        )
    return sharding


def find_sharding(
    meshes: Iterable[Mesh], shape: tuple[int, ...], placement: Mapping[int, Index]
) -> NamedSharding | None:
    """The sharding with the fewest axes whose placement oracle equals a placement.

    Args:
        meshes: Where to look, in order of preference.
        shape: Global shape.
        placement: For each device position the block that it holds.

    Returns:
        None where no partition spec says this.
    """
    for mesh in meshes:
        if set(mesh.device_ids) != set(placement):
            continue
        entries = [_axes(mesh, dimension, placement) for dimension in range(len(shape))]
        if None in entries:
            continue
        while entries and not entries[-1]:
            entries.pop()
        used = [axis for entry in entries for axis in entry or ()]
        if len(used) != len(set(used)):
            continue
        sharding = NamedSharding(mesh, entries)
        if _equals(sharding, shape, placement):
            return sharding
    return None


def _axes(mesh: Mesh, dimension: int, placement: Mapping[int, Index]) -> tuple[str, ...] | None:
    """The mesh axes that cut a dimension, major to minor; None if no axes explain its blocks."""
    starts = np.array([placement[d][dimension].start for d in mesh.device_ids])
    grid = np.searchsorted(np.unique(starts), starts).reshape(mesh.shape)
    steps = {}
    for number, (axis, size) in enumerate(zip(mesh.axis_names, mesh.shape, strict=True)):
        if size > 1:
            # The distance in blocks from the first device to the next along this axis.
            step = int(np.take(grid, 1, axis=number).flat[0] - grid.flat[0])
            if step:
                steps[axis] = step
    axes = sorted(steps, key=lambda axis: -steps[axis])
    sizes = [mesh.axis_size(axis) for axis in axes]
    strides = [*itertools.accumulate(reversed([*sizes, 1]), lambda a, b: a * b)][::-1][1:]
    return tuple(axes) if [steps[axis] for axis in axes] == strides else None


def _equals(
    sharding: NamedSharding, shape: tuple[int, ...], placement: Mapping[int, Index]
) -> bool:
    if any(size % cut for size, cut in zip(shape, sharding.cuts(len(shape)), strict=True)):
        return False
    return sharding.devices_indices_map(shape) == dict(placement)


def function_of(program: Program) -> tuple[str, str]:
    """The name of a program's Julia body, and the folder of its project or ""."""
    if program.julia is None and program.stablehlo is not None:
        raise InvalidArgumentError(
            f"Program {program.name!r} is the StableHLO file {program.stablehlo!r}, which the JAX "
            "runtime runs; use it (--backend jax, PYREACTANT_BACKEND=jax), or give its Julia "
            "function as julia='Module.function'"
        )
    if program.julia is None:
        raise InvalidArgumentError(
            f"Program {program.name!r} has no julia body; give julia='Module.function'"
        )
    if program.julia_project is None:
        return program.julia, ""
    what = f"Program {program.name!r}"
    return program.julia, str(project_folder(program.julia_project, what))


def check_static(program: Program, static: Mapping[str, Any]) -> None:
    """Check that keyword arguments can reach Julia; InvalidArgumentError if one cannot."""
    for name, value in static.items():
        if not is_plain(value):
            raise InvalidArgumentError(
                f"program {program.name!r}: static argument {name!r} must be a number of at most "
                f"64 bits, a text, None or a tuple of these to reach Julia, got {value!r:.80} "
                f"({type(value).__name__})"
            )


def as_index(starts: Sequence[Any], stops: Sequence[Any]) -> Index:
    """A block's index of where it starts and stops in each dimension."""
    return tuple(slice(int(a), int(b)) for a, b in zip(starts, stops, strict=True))


def whole_numbers(values: Sequence[Any]) -> tuple[int, ...]:
    """A shape of Julia's."""
    return tuple(int(n) for n in values)


def describe(tree: Any, what: str) -> Described:
    """The structure of arguments that are numbers in place of arrays; `what` is for the message.

    Raises:
        InvalidArgumentError: A container, a key or a static field cannot reach Julia.
    """
    if tree is None or isinstance(tree, int):
        return tree
    kind: type = type(tree)
    if is_user_dataclass(kind):
        return _describe_dataclass(tree, what)
    if isinstance(tree, dict):
        return _describe_named([(key, describe(tree[key], what)) for key in _keys(tree, what)])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _describe_named([(n, describe(getattr(tree, n), what)) for n in tree._fields])
    if type(tree) in (list, tuple):
        return (type(tree).__name__, *(describe(part, what) for part in tree))
    raise InvalidArgumentError(
        f"{what}: Julia takes trees of dicts, dataclasses, namedtuples, tuples, lists and None, "
        f"got a {type(tree).__name__}"
    )


def _describe_named(parts: Sequence[tuple[str, Described]]) -> Described:
    return ("named", tuple(name for name, _ in parts), *(part for _, part in parts))


def _keys(tree: Mapping[Any, Any], what: str) -> Iterable[str]:
    for key in tree:
        if not isinstance(key, str):
            raise InvalidArgumentError(
                f"{what}: a dict reaches Julia as a NamedTuple, so its keys must be text, got "
                f"{key!r}"
            )
    # Equal dicts may have another order, which must not make another program.
    return tree if isinstance(tree, OrderedDict) else sorted(tree)


def _describe_dataclass(tree: Any, what: str) -> Described:
    data, static = data_fields(type(tree))
    parts = [(name, describe(getattr(tree, name), what)) for name in data]
    for name in static:
        value = getattr(tree, name)
        if not is_plain(value):
            raise InvalidArgumentError(
                f"{what}: static field {name!r} of {type(tree).__name__} must be a number, a text, "
                f"None or a tuple of these to reach Julia, got a {type(value).__name__}"
            )
        parts.append((name, ("value", value)))
    return _describe_named(parts)


def is_plain(value: Any) -> bool:
    """Whether a value that is part of a program can reach Julia."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    return value is None or isinstance(value, (float, complex, str))


def rebuild(node: Any) -> Any:
    """The tree that Julia describes, with its number in place of each array."""
    if node is None or isinstance(node, int):
        return node
    kind, *parts = node
    if kind == "named":
        names, *parts = parts
        return {str(name): rebuild(part) for name, part in zip(names, parts, strict=True)}
    rebuilt = [rebuild(part) for part in parts]
    return tuple(rebuilt) if kind == "tuple" else rebuilt


def plain(node: Any) -> Any:
    """What Julia describes, as plain data for JSON."""
    if node is None or isinstance(node, (int, str)):
        return node
    return [plain(part) for part in node]
