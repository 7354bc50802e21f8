"""Compile a request for an absent slice, lowered by JAX or by Reactant in a child process."""

import dataclasses

from ..._core.array import Aval
from ..._core.sharding import NamedSharding
from ..._core.text import spec_text
from ..._errors import PyReactantError
from ..._lowering.ask import check_julia, lower
from .._compiler.ask import TIMEOUT, ask, versions
from .._request import Request
from .build import build, operands, outputs_of
from .report import Operand, Preflight
from .stablehlo import compile_text

_NEEDS = "backend 'reactant' lowers programs in Julia"
_OTHERWISE = "or give the program's StableHLO as a file (--stablehlo)"


def compile_reactant(request: Request, *, cache: bool, timeout: float) -> Preflight:
    """The Preflight of a checked request that Reactant lowers.

    Reactant lowers the program every time, since the function may have been edited. The cache holds
    the compiler's answer to Reactant's text.

    Args:
        request: Its program must have a Julia body.
        cache: As for `preflight`.
        timeout: Seconds for lowering, and as many for compiling.

    Raises:
        RequirementError: Julia, libtpu or jax is missing.
        PyReactantError: Reactant or XLA failed.
    """
    check_julia(_NEEDS, _OTHERWISE)
    versions()  # check the compiler before Julia starts
    question = {**request.to_dict(), "devices": request.topology.devices}
    lowered = lower(request.program.name, question, timeout)
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
    outputs: tuple[Operand, ...], requested: NamedSharding | tuple[NamedSharding, ...] | None
) -> tuple[Operand, ...]:
    """The outputs, with the requested spec where XLA's block has the shape that it gives.

    Reactant constrains shardings within the program; its results have no sharding attributes.
    """
    if requested is None:
        return outputs
    shardings = requested if isinstance(requested, tuple) else (requested,) * len(outputs)
    return tuple(
        dataclasses.replace(one, spec=spec_text(sharding.axes(len(one.shape))))
        if one.block == sharding.shard_shape(one.shape)
        else one
        for one, sharding in zip(outputs, shardings, strict=True)
    )


def _check_arguments(requested: tuple[Aval, ...], found: tuple[Operand, ...]) -> None:
    """Check that the module's arguments, reversed, are those of the request."""
    wanted = [(a.shape, a.dtype.name) for a in requested]
    got = [(operand.shape, operand.dtype) for operand in found]
    if wanted != got:
        raise PyReactantError(
            f"Reactant's module must take {wanted} with the dimensions of each reversed, but takes "
            f"{[operand.in_module for operand in found]}; this version of Reactant writes modules "
            "in another form; please report it"
        )


def compile_request(request: Request, *, cache: bool = True, timeout: float = TIMEOUT) -> Preflight:
    """The Preflight of a checked request."""
    if request.backend == "reactant":
        return compile_reactant(request, cache=cache, timeout=timeout)
    found = versions()
    question = {**request.to_dict(), "show_digest": cache and not request.named_by_version}
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
