"""`pyreactant.as_jax`: a Julia body inside JAX."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...base.errors import DTypeError, InvalidArgumentError
from .. import stablehlo as files
from ..backend import check_precision
from ..dtypes import as_dtype
from ..mesh import Mesh
from ..program import Program
from ..sharding import NamedSharding
from . import enzyme
from .reactant import ReactantModule, check_julia, lower, tuples

if TYPE_CHECKING:
    from ..runtimes.jax.julia import JuliaFunction

TIMEOUT = 600.0
"""Seconds that lowering in Julia may take, and as many for differentiating."""

_HEADER = "// pyreactant: "
_OTHERWISE = (
    "or lower it where Julia is, write as_jax(...).as_text() to a file, and give "
    "stablehlo='file.mlir' here"
)


def as_jax(
    program: Program,
    *avals: Any,
    static: Mapping[str, Any] | None = None,
    precision: str | None = None,
    differentiable: bool = False,
    stablehlo: str | None = None,
    timeout: float = TIMEOUT,
) -> "JuliaFunction":
    """The Julia body of a program as a function of JAX, for use inside `jax.jit`.

    Reactant lowers the body to StableHLO in a child process, so this process never loads Julia.
    The function is sharded by its caller.

    Args:
        program: A Program with a Julia body.
        *avals: Trees of arrays with the shapes and dtypes of later calls, or of descriptions
            (`jax.ShapeDtypeStruct`). Their shardings do not count.
        static: Keyword arguments that are part of the program: numbers, text, None, tuples.
        precision: "default", "high" or "highest" for products; None is Reactant's default.
        differentiable: Whether `jax.grad`, `jax.vjp` and `jax.jvp` work, by Enzyme: needs the
            extra "enzyme", and takes float32, float64 and bfloat16. There are no second
            derivatives.
        stablehlo: Path of a module that was lowered before, which `as_text()` of the result
            returns; then Julia is not needed.
        timeout: Seconds that lowering may take, and as many for differentiating.

    Raises:
        InvalidArgumentError: The program has no Julia body, an argument or a static value cannot
            reach Julia, the module is not one function in StableHLO without shardings for these
            arguments, or Enzyme cannot differentiate it.
        DTypeError: An array has a type that no runtime holds or Enzyme cannot differentiate.
        FileError: The file cannot be read.
        RequirementError: Julia or the package enzyme-ad is missing.

    Examples:
        >>> double = pr.Program("double", julia="Models.double", julia_project=".")
        >>> module = '''
        ... func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
        ...   %y = stablehlo.add %x, %x : tensor<8x8xf32>
        ...   return %y : tensor<8x8xf32>
        ... }'''
        >>> Path("double.mlir").write_text(module) > 0  # or as_text(), with Julia
        True
        >>> ones = np.ones((8, 8), np.float32)
        >>> doubled = pr.as_jax(double, ones, stablehlo="double.mlir")
        >>> float(jax.jit(doubled)(ones).sum())
        128.0
    """
    what = _check_program(program)
    options = _static(what, static)
    check_precision(precision)
    if differentiable:
        enzyme.check_enzyme()
    question = _question(program, what, avals, options, precision)
    if stablehlo is None:
        check_julia(f"{what} is lowered in Julia", _OTHERWISE)
        lowered = lower(program.name, question, timeout)
        origin = f"{what}, as Reactant lowered it"
    else:
        file = Program(program.name, stablehlo=stablehlo)
        lowered = _read_lowered(file, what, program, options)
        origin = f"{what}: the StableHLO file {stablehlo!r}"
    return _function(program, what, origin, avals, question, lowered, differentiable, timeout)


def _check_program(program: Any) -> str:
    if not isinstance(program, Program) or program.julia is None:
        got = f"Program {program.name!r}" if isinstance(program, Program) else repr(program)
        raise InvalidArgumentError(
            f"as_jax takes a Program with a Julia body, got {got} without one; give "
            "pyreactant.Program(name, julia='Module.function', julia_project='folder')"
        )
    return f"Program {program.name!r}: the Julia function {program.julia}"


def _static(what: str, static: Mapping[str, Any] | None) -> dict[str, Any]:
    options = dict(sorted((static or {}).items()))
    for name, value in options.items():
        if not _is_plain(value):
            raise InvalidArgumentError(
                f"{what}: static value {name!r} cannot be lowered, because it must be a real "
                f"number, a text, None or a tuple of these, got {type(value).__name__}; give "
                "arrays as arguments"
            )
    return options


def _is_plain(value: Any) -> bool:
    """Whether a static value survives JSON."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _question(
    program: Program,
    what: str,
    avals: tuple[Any, ...],
    static: Mapping[str, Any],
    precision: str | None,
) -> dict[str, Any]:
    """The request for `lower`: on one device, for which Reactant writes no shardings."""
    from ..runtimes.jax.convert import JaxTrees
    from ..runtimes.reactant.lower import describe

    trees = JaxTrees()
    leaves, structure = trees.flatten(avals)
    described = describe(trees.unflatten(structure, range(len(leaves))), what)
    try:
        json.dumps(described)
    except TypeError as error:
        raise InvalidArgumentError(
            f"{what}: a static field of a dataclass goes to another process as JSON, so it must be "
            f"a real number, a text, None or a tuple of these: {error}"
        ) from None
    sharding = NamedSharding(Mesh((1,), ("device",), [0]), ()).to_dict()
    project = program.julia_project
    return {
        "program": {"name": program.name, "julia": program.julia, "julia_project": project},
        "arguments": [
            {**_describe_leaf(what, number, leaf), "sharding": sharding}
            for number, leaf in enumerate(leaves)
        ],
        "structure": described,
        "out_shardings": [],
        "several": False,
        "precision": precision,
        "static": dict(static),
        "devices": 1,
    }


def _describe_leaf(what: str, number: int, leaf: Any) -> dict[str, Any]:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        raise InvalidArgumentError(
            f"{what}: argument {number} must be an array or a description such as "
            f"jax.ShapeDtypeStruct((8, 8), 'float32'), got {type(leaf).__name__}"
        )
    return {"shape": [*map(int, leaf.shape)], "dtype": as_dtype(leaf.dtype).name}


def _read_lowered(
    file: Program, what: str, program: Program, static: Mapping[str, Any]
) -> ReactantModule:
    """A module that was lowered before; the first line of our own files describes it."""
    text = files.read(file).decode("utf-8", "replace")
    if not text.startswith(_HEADER):
        return ReactantModule(text, {})
    line, _, rest = text.partition("\n")
    try:
        header = json.loads(line.removeprefix(_HEADER))
        julia, results, versions = header["julia"], header["results"], header["versions"]
        recorded = {name: tuples(value) for name, value in header["static"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(
            f"{what}: the first line of the file {file.stablehlo!r} is damaged ({error!r}); write "
            "as_jax(...).as_text() anew"
        ) from None
    if (julia, recorded) != (program.julia, static):
        raise InvalidArgumentError(
            f"{what} with static values {dict(static)} is asked for, but the file "
            f"{file.stablehlo!r} is {julia} with static values {recorded}; give its own file, or "
            "write as_jax(...).as_text() anew"
        )
    return ReactantModule(rest, versions, results)


def _function(
    program: Program,
    what: str,
    origin: str,
    avals: tuple[Any, ...],
    question: Mapping[str, Any],
    lowered: ReactantModule,
    differentiable: bool,
    timeout: float,
) -> "JuliaFunction":
    from ..runtimes.jax.convert import JaxTrees
    from ..runtimes.jax.julia import JuliaFunction
    from ..runtimes.jax.stablehlo import Module
    from ..runtimes.reactant.lower import rebuild

    name = re.sub(r"\W", "_", program.name)
    module = Module(name, origin, lowered.text)
    _check_module(origin, module, question)
    count = len(module.results)
    described = lowered.results
    if described is None:  # a file that does not describe them: one, or a tuple of several
        described = 0 if count == 1 else ["tuple", *range(count)]
    results = rebuild(described)
    trees = JaxTrees()
    numbers, _ = trees.flatten(results)
    if sorted(numbers) != list(range(count)):
        raise InvalidArgumentError(
            f"{origin} has {count} results, but the program {len(numbers)}; if Reactant wrote it "
            "so, please report it, otherwise lower it anew"
        )
    derivatives = _derivatives(what, name, module, timeout) if differentiable else None
    header = {
        "program": program.name,
        "julia": program.julia,
        "static": question["static"],
        "results": described,
        "versions": lowered.versions,
    }
    record = f"{_HEADER}{json.dumps(header)}\n{lowered.text}"
    _, structure = trees.flatten(avals)
    return JuliaFunction(what, name, module, structure, results, derivatives, record)


def _check_module(origin: str, module: Any, question: Mapping[str, Any]) -> None:
    if module.sharded or module.partitions != 1:
        raise InvalidArgumentError(
            f"{origin} has shardings, but the function is sharded by its caller; lower it for "
            "arrays without shardings (as_jax does), and give shardings to jax.jit"
        )
    wanted = [f"{aval['dtype']}{aval['shape']}" for aval in question["arguments"]]
    got = [f"{aval.dtype.name}{list(aval.shape[::-1])}" for aval in module.arguments]
    if wanted != got:
        raise InvalidArgumentError(
            f"{origin} takes the arguments ({', '.join(got)}), with the sizes of each reversed in "
            f"the file, but as_jax was called for ({', '.join(wanted)}); give descriptions of "
            "these shapes and dtypes, or lower it anew"
        )


def _derivatives(what: str, name: str, module: Any, timeout: float) -> dict[str, Any]:
    from ..runtimes.jax.stablehlo import Module

    _check_differentiable(what, module)
    answers = enzyme.derivatives(what, module.plain_text(), timeout)
    return {
        mode: Module(f"{name}_{mode}", f"{what}: its {mode} derivative by Enzyme", answer["text"])
        if "text" in answer
        else answer["failed"]
        for mode, answer in answers.items()
    }


def _check_differentiable(what: str, module: Any) -> None:
    ends = [(f"argument {n}", aval) for n, aval in enumerate(module.arguments)]
    ends += [(f"result {n}", aval) for n, aval in enumerate(module.results)]
    takes = f"differentiable=True takes {', '.join(enzyme.DTYPES)}"
    otherwise = "convert it, or leave differentiable=True out"
    for where, aval in ends:
        if aval.dtype.name not in enzyme.DTYPES:
            raise DTypeError(f"{what}: {takes}, but {where} is {aval.dtype}; {otherwise}")
        if 0 in aval.shape:
            raise InvalidArgumentError(
                f"{what}: {where} has no elements (shape {aval.shape[::-1]}), so there is nothing "
                "to differentiate; leave differentiable=True out"
            )
    if not module.arguments or not module.results:
        raise InvalidArgumentError(
            f"{what} has no {'results' if module.arguments else 'arguments'} to differentiate; "
            "leave differentiable=True out"
        )
    inside = sorted(module.dtypes() - {*enzyme.DTYPES})
    floats = [name for name in inside if name.startswith(("float", "complex"))]
    if floats:
        raise DTypeError(f"{what}: {takes}, but it computes with {', '.join(floats)}; {otherwise}")
