"""Compile programs: describe the arguments, lower, and look for an equal program."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import InvalidArgumentError, ShardingError
from ..array import DonatedArray, ShardedArray
from ..backend import Call, check_precision, is_out_sharding
from ..dtypes import as_dtype
from ..program import Program, function_name
from ..sharding import Aval, NamedSharding, as_sharding
from .compiled import Compiled, describe, place_of
from .guard.operation import compiling, program_digest
from .mesh import check_mesh
from .replay import Replayed
from .runtime import Running, current


def compile(
    program: Program | Callable[..., Any],
    *args: Any,
    out_sharding: Any = None,
    precision: str | None = None,
    static: Mapping[str, Any] | None = None,
    donate: int | Sequence[int] = (),
    x64: bool = False,
) -> Compiled:
    """Compile a program for arrays like these. Collective in effect.

    The body is traced at each call of `compile`, so that the program is as its functions, globals
    and closures are now; XLA compiles only if no equal program was compiled before. Calls of the
    result trace nothing.

    Args:
        program: A Program, or with the JAX runtime any function of trees of arrays.
        *args: Trees of arrays with the shapes, dtypes and shardings of later calls, or of
            descriptions (`pyreactant.Aval`, `jax.ShapeDtypeStruct` with a sharding). A tree is an
            array, or a dict, list, tuple, namedtuple or dataclass of trees; with JAX also
            every type that is registered there. Scalars are 0-d arrays.
        out_sharding: Sharding of the results: one for all, or a tree that has the structure of the
            results or is a prefix of it; None leaves it to the compiler, for all or in the tree.
        precision: "default", "high" or "highest" for products; None is the runtime's default.
        static: Keyword arguments that are part of the program (hashable values).
        donate: Positions of arguments whose memory the results may take. These arrays cannot be
            used afterwards.
        x64: Trace with 64-bit types even if no argument has one (JAX only).

    Returns:
        The compiled program; its results have the structure that the body returns.

    Raises:
        InvalidArgumentError: The program has no body for this runtime, an argument is not a tree of
            arrays, a static value is not hashable, or the body returns something else than arrays.
        ShardingError: Arrays and out_sharding lie on different devices, or do not fit.
        DTypeError: 64-bit integers would make 32-bit floats wider.

    Examples:
        >>> f = pr.compile(lambda x: {"sum": x.sum(), "x": x * 2}, x)
        >>> float(f(x)["sum"])
        2016.0
    """
    running = current()
    program = _as_program(program)
    check_precision(precision)
    leaves, structure = running.backend.trees.flatten(args)
    call_ = Call(
        program,
        structure,
        tuple(_aval(running, program, args, number, leaf) for number, leaf in enumerate(leaves)),
        _our_shardings(running, program, out_sharding),
        precision,
        _static(program, static),
        _positions(program, donate, len(args)),
        x64,
    )
    _check_one_set_of_devices(running, call_)
    key: Any = None
    if running.backend.is_built_in(program):
        key = _key(running, call_)
        known = running.cache.find(key)
        if known is not None:
            if running.guarded is not None and known.operation is not None:
                running.guarded.guard.ran(known.operation)  # as if it were compiled again
            return known
    lowered = running.backend.lower(call_)
    operation = None
    if running.guarded is not None:
        # Before XLA compiles: on GPUs its autotuner waits for all processes (openxla/xla#16153).
        operation = compiling(call_, lowered, running.backend.trees)
        running.guarded.guard.announce(operation)
    if key is None:
        key = (program_digest(lowered.text), lowered.structure, _key(running, call_, named=False))
    known = running.cache.find(key) if lowered.reusable else None
    if known is not None and known.program == program:
        return known
    executable = lowered.compile() if known is None else known.executable
    ran = None if running.guarded is None else running.guarded.guard.ran
    run = None
    if running.replay_every and lowered.reusable:  # callbacks have effects
        run = Replayed(running.replay_every, call_, executable, running.backend)
    compiled = Compiled(call_, executable, running.backend, operation, ran, run)
    if lowered.reusable:
        running.cache.keep(key, compiled)
    return compiled


def call(program: Program, args: tuple[Any, ...], static: Mapping[str, Any]) -> Any:
    """Call a program; compile it for such arguments the first time. See `Program.__call__`."""
    running = current()
    leaves, structure = running.backend.trees.flatten(args)
    avals = tuple(leaf.aval if type(leaf) is ShardedArray else leaf for leaf in leaves)
    options = dict(sorted(static.items()))
    body = running.backend.body_of(program)
    try:
        settings = running.backend.settings()
        key = (program, body, settings, structure, avals, _exact_key(tuple(options.items())))
        compiled = running.calls.find(key)
    except TypeError:  # an argument or static value cannot be hashed; `compile` says so
        compiled = None
    if compiled is None:
        compiled = compile(program, *args, static=static)
        running.calls.keep(key, compiled)
    return compiled(*args)


def _as_program(program: Any) -> Program:
    if isinstance(program, Program):
        return program
    if callable(program):
        return Program(function_name(program), jax=program)
    raise InvalidArgumentError(
        f"compile takes a Program or a function, got {program!r}; for a name write "
        "pyreactant.Program(name, jax='package.module:function')"
    )


def _aval(
    running: Running, program: Program, args: tuple[Any, ...], number: int, leaf: Any
) -> Aval:
    if type(leaf) is ShardedArray:
        return leaf.aval
    if isinstance(leaf, DonatedArray):
        leaf.donate()
    sharding = as_sharding(getattr(leaf, "sharding", None))
    described = isinstance(sharding, NamedSharding) and hasattr(leaf, "shape")
    if described and not hasattr(leaf, "addressable_shards"):
        aval = Aval(tuple(map(int, leaf.shape)), _dtype(leaf.dtype), sharding)
        check_mesh(sharding.mesh)
        sharding.shard_shape(aval.shape)
        return aval
    where = place_of(running.backend, args, number)
    raise InvalidArgumentError(
        f"{where} of program {program.name!r} must be a ShardedArray or a tree of them, got "
        f"{describe(leaf)}"
    )


def _dtype(dtype: Any) -> Any:
    return dtype if str(dtype).startswith("key<") else as_dtype(dtype)


def _our_shardings(running: Running, program: Program, out_sharding: Any) -> Any:
    """The tree of shardings with ours in place of JAX's."""
    leaves, structure = running.backend.trees.flatten(
        out_sharding, lambda node: is_out_sharding(as_sharding(node))
    )
    shardings = list(map(as_sharding, leaves))
    for leaf in shardings:
        if not is_out_sharding(leaf):
            raise ShardingError(
                f"program {program.name!r}: out_sharding must be a pyreactant.NamedSharding or a "
                f"tree of them, got {type(leaf).__name__}"
            )
    return running.backend.trees.unflatten(structure, shardings)


def _check_one_set_of_devices(running: Running, call_: Call) -> None:
    shardings, _ = running.backend.trees.flatten(call_.out_sharding, is_out_sharding)
    results = (sharding.mesh for sharding in shardings if sharding is not None)
    meshes = list(dict.fromkeys([*call_.meshes, *results]))
    for mesh in meshes:
        check_mesh(mesh)
    other = next((m for m in meshes if set(m.device_ids) != set(meshes[0].device_ids)), None)
    if other is not None:
        raise ShardingError(
            f"program {call_.program.name!r}: all arrays of a program must lie on the same "
            f"devices, got {meshes[0]!r} and {other!r}; place one of them anew with device_put"
        )


def _static(program: Program, static: Mapping[str, Any] | None) -> dict[str, Any]:
    if static is not None and not isinstance(static, Mapping):
        raise InvalidArgumentError(
            f"program {program.name!r}: static= has the values of keyword arguments, as in "
            f"{{'power': 2}}, got {static!r}"
        )
    options = dict(sorted((static or {}).items()))
    for name, value in options.items():
        try:
            hash(value)
        except TypeError:
            raise InvalidArgumentError(
                f"program {program.name!r}: static argument {name!r} must be hashable, because it "
                f"is part of the program, got {type(value).__name__}; give a tuple in place of a "
                "list, and arrays as arguments"
            ) from None
    return options


def _positions(program: Program, donate: int | Sequence[int], count: int) -> tuple[int, ...]:
    given = tuple(donate) if isinstance(donate, Iterable) else (donate,)
    for position in given:
        if not isinstance(position, (int, np.integer)) or not -count <= position < count:
            raise InvalidArgumentError(
                f"program {program.name!r}: donate= has positions of arguments, 0 to {count - 1}, "
                f"got {donate!r}"
            )
    return tuple(sorted({int(position) % count for position in given}))


def _key(running: Running, call_: Call, named: bool = True) -> tuple[Any, ...]:
    outs, structure = running.backend.trees.flatten(call_.out_sharding, is_out_sharding)
    return (
        call_.program if named else None,
        call_.structure,
        call_.avals,
        tuple(outs),
        structure,
        call_.precision,
        _exact_key(tuple(call_.static.items())) if named else None,
        call_.donate,
        call_.x64,
        running.backend.settings(),
    )


def _exact_key(value: Any) -> Any:
    """A static value as part of a cache key; 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple):
        return (type(value), *map(_exact_key, value))
    if isinstance(value, frozenset):
        return (type(value), frozenset(map(_exact_key, value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (getattr(value, field.name) for field in dataclasses.fields(value))
        return (type(value), value, *map(_exact_key, fields))
    inexact = isinstance(value, (float, complex, np.inexact))
    return type(value), repr(value) if inexact else value
