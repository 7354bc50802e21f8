"""Preflight of a program that the Reactant runtime lowered."""

import dataclasses

from .._array import Aval
from .._errors import PyReactantError
from .._sharding import NamedSharding
from .._text import format_spec
from ._lower import check_julia, lower
from ._preflight_report import Operand, Preflight
from ._preflight_request import Request
from ._preflight_stablehlo import compile_text
from ._preflight_versions import versions


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
        dataclasses.replace(one, spec=format_spec(sharding, len(one.shape)))
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
