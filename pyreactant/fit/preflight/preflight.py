"""preflight: compile a program for an absent TPU slice and report what it needs there."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...arrays.dtypes import as_dtype
from ...arrays.matmul import MATMUL, Spec, check_operands, default_mesh, default_out_spec
from ...arrays.mesh import Mesh
from ...arrays.program import Program
from ...arrays.sharding import Aval, NamedSharding
from ...base.errors import InvalidArgumentError
from ...base.slices.topology import Topology
from ..compiler.ask import TIMEOUT
from ..request import (
    PreflightRequest,
    aval,
    check,
    find_program,
    find_slices,
    product_sizes,
)
from .compile import compile_request
from .report import Preflight


def preflight(
    program: Program | str = "matmul",
    *args: Any,
    topology: str | Topology,
    num_slices: int = 1,
    backend: str = "jax",
    size: int | tuple[int, int, int] | None = None,
    dtype: Any = "float32",
    mesh: Mesh | None = None,
    spec: Spec = ("x", "y"),
    y_spec: Spec | None = None,
    out_spec: Spec | None = None,
    out_sharding: NamedSharding | tuple[NamedSharding, ...] | None = None,
    precision: str | None = None,
    static: Mapping[str, Any] | None = None,
    cache: bool = True,
    timeout: float = TIMEOUT,
    alternatives: bool = True,
) -> Preflight:
    """Compile a program for a TPU slice with libtpu, on any machine.

    "matmul" takes a size; every other program takes its arguments, as for `pyreactant.compile`.
    Lowering and compiling run in child processes, so no runtime starts in this one. Reactant lowers
    in Julia, on as many CPU devices as the slice has, and libtpu compiles the StableHLO it writes.

    Args:
        program: "matmul" or another built-in program, a Program, or the name of a function:
            "package.module:function" for JAX, "Module.function" for Julia.
        *args: Arguments to compile for: ShardedArrays, or any other objects with a shape, a dtype
            and a sharding (a NamedSharding of this package).
        topology: The slice, such as "v6e-16" or "v5p:2x2x4"; see `pyreactant.topology`.
        num_slices: Number of slices, joined by the data-center network.
        backend: The runtime that lowers the program, "jax" or "reactant".
        size: Size of the matmul: n for square matrices, or (m, k, n).
        dtype: Element type of the matmul.
        mesh: Mesh of the matmul; None is all devices along two axes, "x" and "y".
        spec: Partition spec of x, as for `matmul_sharded`.
        y_spec: Partition spec of y.
        out_spec: Partition spec of the product.
        out_sharding: Sharding of another program's output, or a tuple with one for each.
        precision: "default", "high" or "highest"; None is the runtime's default.
        static: Keyword arguments that are part of the program.
        cache: Whether to use and update the cache in ``~/.cache/pyreactant/preflight``.
        timeout: Seconds for compiling; lowering with Reactant has as many again.
        alternatives: Whether to look for specs and slices that fit if this one does not.

    Returns:
        The report. After a KeyboardInterrupt during the search for alternatives it has none.

    Raises:
        ShardingError, DTypeError, InvalidArgumentError: The arguments are inconsistent, or the
            program cannot be traced. Where possible this is raised before a compiler starts.
        RequirementError: Julia or libtpu is missing, or libtpu does not match jax.
        DeadlineError: Lowering or compiling took longer than `timeout`.
        ChildLostError: The child process was killed.

    Examples:
        >>> found = pr.preflight("matmul", topology="v6e-4", size=1024)
        >>> found.fits
        True
    """
    slice_ = find_slices(topology, num_slices)
    chosen = find_program(program, backend)
    if chosen is None and not args:
        _refuse_options("has a size", out_sharding=out_sharding, static=static)
        arguments, out_sharding = _matmul_operands(
            slice_, size, dtype, mesh, spec=spec, y_spec=y_spec, out_spec=out_spec
        )
    else:
        _refuse_options(
            "has arguments with shardings", size=size, mesh=mesh, y_spec=y_spec, out_spec=out_spec
        )
        arguments = tuple(_aval_of(chosen or MATMUL, *pair) for pair in enumerate(args))
    request = PreflightRequest(
        program=chosen or MATMUL,
        arguments=arguments,
        topology=slice_,
        out_sharding=out_sharding,
        precision=precision,
        static=static or {},
        backend=backend,
    )
    check(request)
    report = compile_request(request, cache=cache, timeout=timeout)
    if report.fits or not alternatives:
        return report
    from .alternatives import alternatives_to

    try:
        texts = alternatives_to(request, report, cache=cache, timeout=timeout)
    except KeyboardInterrupt:
        return dataclasses.replace(report, interrupted=True)
    return dataclasses.replace(report, alternatives=texts)


def _refuse_options(why: str, **options: Any) -> None:
    """Refuse options that would otherwise be ignored."""
    given = [f"{name}=" for name, value in options.items() if value is not None]
    if given:
        raise InvalidArgumentError(
            f"{', '.join(given)} cannot be given for a program that {why}: matmul takes size=, "
            "mesh=, spec=, y_spec= and out_spec=; any other program takes its arguments, "
            "out_sharding= and static="
        )


def _aval_of(program: Program, position: int, argument: Any) -> Aval:
    if not isinstance(getattr(argument, "sharding", None), NamedSharding):
        raise InvalidArgumentError(
            f"argument {position} of program {program.name!r} needs a shape, a dtype and a "
            f"pyreactant.NamedSharding, like a ShardedArray; got {type(argument).__name__}"
        )
    return aval(argument.shape, argument.dtype, argument.sharding)


def _matmul_operands(
    topology: Topology,
    size: int | tuple[int, int, int] | None,
    dtype: Any,
    mesh: Mesh | None,
    *,
    spec: Spec,
    y_spec: Spec | None,
    out_spec: Spec | None,
) -> tuple[tuple[Aval, ...], NamedSharding]:
    """The operands and the output of `matmul_sharded`; the arguments mean the same.

    Raises:
        ShardingError, DTypeError, InvalidArgumentError: As `matmul_sharded`.
    """
    m, k, n = product_sizes(size)
    mesh, element = mesh or default_mesh(topology.devices), as_dtype(dtype)
    x = Aval((m, k), element, NamedSharding(mesh, spec))
    y = Aval((k, n), element, NamedSharding(mesh, spec if y_spec is None else y_spec))
    check_operands(x.shape, element, y.shape, element)
    usual = default_out_spec(x.sharding, y.sharding)
    out = NamedSharding(mesh, usual if out_spec is None else out_spec)
    out.shard_shape((m, n))
    return (x, y), out
