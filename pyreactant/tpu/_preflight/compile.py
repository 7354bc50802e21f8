"""Compile a request for an absent slice."""

import dataclasses

from ..._core.array import Aval
from ..._core.sharding import NamedSharding
from ..._core.text import spec_text
from ..._errors import PyReactantError
from .._compiler.ask import TIMEOUT, ask, versions
from .._compiler.lower import check_julia, lower
from .._request import Request
from .build import build, operands, outputs_of
from .report import Operand, Preflight
from .stablehlo import compile_text


def compile_reactant(request: Request, *, cache: bool, timeout: float) -> Preflight:
    """The Preflight of a request that was checked, as Reactant lowers it.

    The cache has the compiler's answer to Reactant's text, which is made anew each time: a
    program's name does not say what a function that may be edited computes.

    Args:
        request: With a Julia body.
        cache: As for `preflight`.
        timeout: Seconds for lowering, and as many for compiling.

    Raises:
        RequirementError: Julia, libtpu or jax is missing.
        PyReactantError: What Reactant raised, or XLA.
    """
    check_julia()
    versions()  # whether there is a compiler, before Julia starts
    lowered = lower(request, timeout)
    report = compile_text(
        lowered.text,
        request.topology,
        mesh=request.mesh,
        column_major=True,
        cache=cache,
        timeout=timeout,
        program=request.program.name,
        source="reactant",
        more_versions=lowered.versions,
    )
    _check_arguments(request.arguments, report.arguments)
    return dataclasses.replace(report, outputs=_named(report.outputs, request.out_sharding))


def _named(
    outputs: tuple[Operand, ...], asked: NamedSharding | tuple[NamedSharding, ...] | None
) -> tuple[Operand, ...]:
    """The outputs with the specs that were asked for, where XLA's blocks are of that shape.

    Reactant says them within the program, and of its results nothing.
    """
    if asked is None:
        return outputs
    shardings = asked if isinstance(asked, tuple) else (asked,) * len(outputs)
    return tuple(
        dataclasses.replace(one, spec=spec_text(sharding.axes(len(one.shape))))
        if one.block == sharding.shard_shape(one.shape)
        else one
        for one, sharding in zip(outputs, shardings, strict=True)
    )


def _check_arguments(asked: tuple[Aval, ...], found: tuple[Operand, ...]) -> None:
    """Whether reversing the module's dimensions gives the arguments that were asked for."""
    wanted = [(a.shape, a.dtype.name) for a in asked]
    got = [(operand.shape, operand.dtype) for operand in found]
    if wanted != got:
        raise PyReactantError(
            f"Reactant's module must take {wanted} with the dimensions of each reversed, but takes "
            f"{[operand.in_module for operand in found]}; this version of Reactant writes modules "
            "in another form: please report it"
        )


def compile_request(request: Request, *, cache: bool = True, timeout: float = TIMEOUT) -> Preflight:
    """The Preflight of a request that was checked."""
    if request.backend == "reactant":
        return compile_reactant(request, cache=cache, timeout=timeout)
    found = versions()
    question = {**request.to_dict(), "ask": cache and not request.named_by_version}
    answer, cached = ask(question, request.topology, found, cache=cache, timeout=timeout)
    mesh = request.mesh
    return build(
        answer,
        program=request.program.name,
        source="jax",
        topology=request.topology,
        mesh=mesh,
        positions=range(mesh.size),  # JAX numbers partitions by the mesh
        arguments=operands(request.arguments),
        outputs=outputs_of(answer, mesh),
        versions=found,
        cached=cached,
    )
