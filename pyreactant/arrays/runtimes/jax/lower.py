"""Trace, lower and compile a program with JAX."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from ....base.errors import InvalidArgumentError, ShardingError
from ....base.words import has_other_devices, has_other_mesh, has_own_mesh
from ...backend import Call, Executable, Lowered, is_out_sharding
from ...program import Program, function_name, load
from ...sharding import Aval
from . import x64
from .convert import (
    Devices,
    JaxTrees,
    jax_mesh,
    jax_sharding,
    our_sharding,
    plain_dtype,
    wrap_dataclasses,
)

TREES = JaxTrees()
_LEAVES = inspect.Signature([inspect.Parameter("leaves", inspect.Parameter.VAR_POSITIONAL)])


def lower(call: Call, devices: Devices, one_in_flight: bool) -> Lowered:
    """Lower a program; the body is traced anew, so that it is as it is defined now.

    With `one_in_flight`, its runs wait for their results.
    """
    if call.program.stablehlo is not None:
        call = _of_a_file(call)
    wide = x64.is_needed(call)
    jitted = jax.jit(
        _traced(call),
        out_shardings=_out_shardings(call, devices),
        donate_argnums=call.donated(TREES),
        keep_unused=True,  # a text without them would not tell programs apart
    )
    avals = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=jax_sharding(devices, a.sharding))
        for a in call.avals
    ]

    def trace(mesh: Any) -> Any:
        with _contexts(call, wide, mesh):
            return jitted.lower(*avals)

    mesh = jax_mesh(devices, call.meshes[0]) if len(call.meshes) == 1 else None
    try:
        lowered = _named_meshes(call, lambda: trace(mesh))
    except ValueError as error:
        if mesh is None or not has_own_mesh(error):
            raise
        # A body that gives shard_map a mesh of its own needs none of ours; `jax.jit` sets none.
        mesh, lowered = None, trace(None)
    with _contexts(call, wide, mesh):
        text = lowered.as_text()
    calls_back = "callback" in text
    outputs, structure = TREES.flatten(lowered.out_info)
    x64.check_widths(call, outputs)

    def compile_() -> Executable:
        with _contexts(call, wide, mesh):
            compiled = _compile(call, lowered)
        avals = _describe(call, devices, lowered, compiled)
        if wide and calls_back:
            execute, wait = partial(_with_callbacks, compiled), False
        else:
            execute = partial(_wide, compiled) if wide else compiled
            wait = one_in_flight
        return _executable(lowered, compiled, structure, avals, execute, wait)

    return Lowered(text, structure, not calls_back, compile_)


def body_of(program: Program) -> Callable[..., Any]:
    """The program's function of JAX's arrays, as it is defined now."""
    if program.stablehlo is None:
        return load(program, "jax")
    from .stablehlo import module_of

    return module_of(program)


def _of_a_file(call: Call) -> Call:
    """The call of a program of a StableHLO file, checked, with 64-bit types if it has some."""
    from .stablehlo import check_call, module_of

    module = module_of(call.program)
    check_call(call, module)
    return dataclasses.replace(call, x64=call.x64 or module.wide)


def _traced(call: Call) -> Callable[..., Any]:
    """The function that is traced in place of the program's: it checks the results.

    It is new for each call of `lower`, because JAX does not trace a function twice.
    """
    function = body_of(call.program)

    def traced(*leaves: Any) -> Any:
        # JAX sees a flat list, so that a call need not flatten its arguments twice.
        results = function(*TREES.unflatten(call.structure, leaves), **call.static)
        _check_results(call, results)
        return wrap_dataclasses(results)

    traced.__name__ = traced.__qualname__ = function_name(function)
    # JAX's errors name the user's function then; the arguments stay a flat list.
    body: Any = traced
    body.__wrapped__, body.__signature__ = function, _LEAVES
    return traced


def _check_results(call: Call, results: Any) -> None:
    name = call.program.name
    leaves, _ = TREES.flatten(results)
    if not leaves:
        raise InvalidArgumentError(
            f"program {name!r} must return an array or a tree of arrays, got {results!r}"
        )
    for leaf in leaves:
        if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
            raise InvalidArgumentError(
                f"program {name!r} must return arrays, got a {type(leaf).__name__} in its result"
            )
    call.result_shardings(TREES, results, [*map(np.shape, leaves)])


def _out_shardings(call: Call, devices: Devices) -> Any:
    """The shardings of the results, as `jax.jit` takes them."""
    if call.out_sharding is None:
        return None
    leaves, structure = TREES.flatten(call.out_sharding, is_out_sharding)
    theirs = [s if s is None else jax_sharding(devices, s) for s in leaves]
    return jax.tree.unflatten(structure, theirs)


def _describe(call: Call, devices: Devices, lowered: Any, compiled: Any) -> tuple[Aval, ...]:
    """Shape, dtype and sharding of each result."""
    outputs, _ = TREES.flatten(lowered.out_info)
    asked = call.result_shardings(TREES, lowered.out_info, [out.shape for out in outputs])
    chosen = jax.tree.leaves(compiled.output_shardings)
    avals = []
    for number, (out, sharding, theirs) in enumerate(zip(outputs, asked, chosen, strict=True)):
        if sharding is None:
            what = f"program {call.program.name!r}: output {number}"
            try:
                sharding = our_sharding(devices, theirs, call.meshes, what)
            except ShardingError as error:
                raise ShardingError(f"{error}; give out_sharding=") from None
        avals.append(Aval(tuple(out.shape), plain_dtype(out.dtype), sharding))
    return tuple(avals)


def _compile(call: Call, lowered: Any) -> Any:
    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if call.program.stablehlo is None:
            raise
        raise InvalidArgumentError(
            f"Program {call.program.name!r}: XLA cannot compile the StableHLO file "
            f"{call.program.stablehlo!r}: {error}"
        ) from None


def _named_meshes(call: Call, action: Callable[[], Any]) -> Any:
    """Run an action that may fail because the arguments lie on several meshes."""
    try:
        return action()
    except ValueError as error:
        what, meshes = f"program {call.program.name!r}", " and ".join(map(repr, call.meshes))
        several = len(call.meshes) > 1
        if has_other_devices(error) and (several or call.out_sharding is not None):
            results = ", and the results go to a mesh with another order or with other devices"
            raise ShardingError(
                f"{what}: JAX runs a program on devices in one order, but its arguments lie on "
                f"{meshes}{'' if several else results}; give all meshes the same device_ids, or "
                "gather the array and place it anew"
            ) from None
        if several and has_other_mesh(error):
            raise ShardingError(
                f"{what}: shard_map takes the mesh of the arguments, but these lie on {meshes}; "
                "place them on one mesh, or give shard_map its mesh="
            ) from error
        raise


@contextlib.contextmanager
def _contexts(call: Call, wide: bool, mesh: Any) -> Any:
    """The settings of JAX for a program: 64 bits, precision, and a mesh if there is one."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(x64.context(wide))
        if call.precision is not None:
            stack.enter_context(jax.default_matmul_precision(call.precision))
        if mesh is not None:
            stack.enter_context(jax.set_mesh(mesh))
        yield


def _wide(compiled: Any, *values: Any) -> Any:
    with x64.context(True):
        return compiled(*values)


def _with_callbacks(compiled: Any, *values: Any) -> Any:
    """Run a program with 64-bit types that calls back to Python, and wait for it."""
    with x64.in_all_threads():
        return jax.block_until_ready(compiled(*values))


def _executable(
    lowered: Any,
    compiled: Any,
    structure: Any,
    avals: tuple[Aval, ...],
    execute: Callable[..., Any],
    wait: bool,
) -> Executable:
    def run(*values: Any) -> Sequence[Any]:
        results = jax.tree.leaves(execute(*values))
        if wait:
            # The results of one execution become ready together.
            results[0].block_until_ready()
        return results

    def text(stage: str) -> str:
        return str(lowered.as_text() if stage == "stablehlo" else compiled.as_text())

    return Executable(run, structure, avals, text, compiled.memory_analysis)
