"""Trace, lower and compile a program with Reactant.

The body is traced once for its StableHLO, and once more when that is compiled; a tree of output
shardings takes one more, because only a trace tells the structure of the results.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..._core.array import Aval
from ..._core.backend import Call, Executable, Lowered
from ..._core.dtypes import as_dtype
from ..._core.program import Program
from ..._core.sharding import Index, NamedSharding
from ..._core.tree import OpTrees, broadcast
from ..._errors import InvalidArgumentError, ShardingError
from . import julia
from .julia import call, call_program
from .placement import find_sharding
from .trees import Described, describe, is_plain, plain, rebuild

_TREES = OpTrees()


@dataclass(frozen=True, slots=True)
class Runtime:
    """What lowering needs of the runtime.

    Attributes:
        julia: The Julia module PyReactant.
        placed: Julia's form of a sharding.
        position: Position in `devices()` of Reactant's device ids.
    """

    julia: Any
    placed: Callable[[NamedSharding], Any]
    position: Mapping[int, int]


def lower(request: Call, runtime: Runtime) -> Lowered:
    """Lower a program; the body is traced anew, so that it is as it is defined now."""
    wanted = request.out_sharding
    if wanted is None or isinstance(wanted, NamedSharding):
        traced = _trace(request, runtime, () if wanted is None else (wanted,))
        given = _given(request, traced)
    else:
        traced = _trace(request, runtime, ())
        given = _given(request, traced)
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

    def in_julia(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """What is listed by result, in Julia's order."""
        by_number = dict(zip(self.numbers, values, strict=True))
        return tuple(by_number[number] for number in range(len(values)))


def _trace(request: Call, runtime: Runtime, wanted: tuple[NamedSharding | None, ...]) -> _Traced:
    arguments = _TREES.unflatten(request.structure, range(len(request.avals)))
    described = describe(arguments, f"program {request.program.name!r}")
    lowered = _lowered(request, described, runtime, wanted)
    text, described, rows = call(runtime.julia.description, lowered)
    tree = rebuild(described)
    numbers, structure = _TREES.flatten(tree)
    found = [(whole_numbers(shape), as_dtype(str(name))) for name, shape in rows]
    outputs = [found[number] for number in numbers]
    return _Traced(lowered, str(text), tree, structure, numbers, outputs)


def _lowered(
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
        tuple((a.dtype.name, a.shape, runtime.placed(a.sharding)) for a in request.avals),
        tuple(None if one is None else runtime.placed(one) for one in wanted),
        request.precision or "",
        tuple(request.static.items()),
    )


def write(request: Call, runtime: Runtime) -> tuple[str, Any]:
    """A program's StableHLO, and the structure of its results as plain data (see `rebuild`).

    Args:
        request: The program; its structure is plain data too, as `describe` returns it.
        runtime: The runtime.
    """
    lowered = _lowered(request, request.structure, runtime)
    text, described, _ = call(runtime.julia.description, lowered)
    return str(text), plain(described)


def _given(request: Call, traced: _Traced) -> list[NamedSharding | None]:
    """The sharding that is asked for each result; None leaves it to the compiler."""
    if request.out_sharding is None:
        return [None] * len(traced.outputs)
    name = request.program.name
    what, of = f"program {name!r}: out_sharding", "the result"
    given = broadcast(_TREES, request.out_sharding, traced.tree, _is_entry, what, of)
    for number, ((shape, _), sharding) in enumerate(zip(traced.outputs, given, strict=True)):
        if sharding is not None:
            _check_fits(name, number, shape, sharding)
    return given


def _is_entry(node: object) -> bool:
    return node is None or isinstance(node, NamedSharding)


def _check_fits(name: str, number: int, shape: tuple[int, ...], sharding: NamedSharding) -> None:
    try:
        sharding.shard_shape(shape)
    except ShardingError as error:
        raise ShardingError(
            f"program {name!r}: out_sharding does not fit output {number} of shape {shape}: {error}"
        ) from None


def _compile(
    request: Call, runtime: Runtime, traced: _Traced, given: Sequence[NamedSharding | None]
) -> Executable:
    compiled = call_program(request.program.name, runtime.julia.compile, traced.lowered)
    rows = list(call(runtime.julia.outputs, compiled))
    avals = []
    for output, (number, (shape, dtype)) in enumerate(
        zip(traced.numbers, traced.outputs, strict=True)
    ):
        sharding = given[output] or _chosen(request, runtime, output, shape, rows[number][2])
        avals.append(Aval(shape, dtype, sharding))
    shardings = traced.in_julia([runtime.placed(aval.sharding) for aval in avals])
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


def _chosen(
    request: Call, runtime: Runtime, number: int, shape: tuple[int, ...], blocks: Any
) -> NamedSharding:
    """The NamedSharding of a placement that the compiler chose."""
    placement = {
        runtime.position[int(device)]: as_index(starts, stops) for device, starts, stops in blocks
    }
    found = find_sharding(request.meshes, shape, placement)
    if found is None:
        shown = ", ".join(
            f"device {p}: {[f'{s.start}:{s.stop}' for s in placement[p]]}"
            for p in sorted(placement)[:8]
        )
        raise ShardingError(
            f"program {request.program.name!r}: the compiler placed output {number} of shape "
            f"{shape} in a way that no mesh of the arguments describes ({shown}); give "
            "out_sharding="
        )
    return found


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
    return program.julia, str(julia.project_folder(program.julia_project, what))


def check_static(program: Program, static: Mapping[str, Any]) -> None:
    """Check that keyword arguments can reach Julia.

    Raises:
        InvalidArgumentError: One cannot.
    """
    for name, value in static.items():
        if not is_plain(value):
            raise InvalidArgumentError(
                f"program {program.name!r}: static argument {name!r} must be a number, a text, "
                f"None or a tuple of these to reach Julia, got {type(value).__name__}"
            )


def as_index(starts: Sequence[Any], stops: Sequence[Any]) -> Index:
    """A block's index of where it starts and stops in each dimension."""
    return tuple(slice(int(a), int(b)) for a, b in zip(starts, stops, strict=True))


def whole_numbers(values: Sequence[Any]) -> tuple[int, ...]:
    """A shape of Julia's."""
    return tuple(int(n) for n in values)
