"""preflight: compile a program for a TPU slice that is not here, and say what it would need."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..._core.array import Aval
from ..._core.dtypes import as_dtype
from ..._core.mesh import Mesh
from ..._core.program import Program
from ..._core.sharding import NamedSharding
from ..._errors import InvalidArgumentError
from ..._matmul.matmul import MATMUL, Spec, check_operands, default_mesh, default_out_spec
from .._compiler.ask import TIMEOUT
from .._request import Request, aval, check, check_mesh, find_program
from .._topology import Topology
from .._topology import topology as find_topology
from .compile import compile_request
from .report import Preflight


def preflight(
    program: Program | str = "matmul",
    *args: Any,
    topology: str | Topology,
    num_slices: int = 1,
    backend: str = "jax",
    size: int | tuple[int, int, int] | None = None,
    dtype: Any = "bfloat16",
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
    """Compile a program for a slice that need not be there, with libtpu, on any machine.

    A product is asked for by its size; every other program by its arguments, as for
    `pyreactant.compile`. It starts no runtime here: what lowers and compiles runs in processes
    of its own. Reactant lowers in Julia, on as many CPU devices as the slice has, for arguments
    that are not there; libtpu compiles what it wrote.

    Args:
        program: "matmul" or another built-in program, a Program, or a function of the backend's
            language: "package.module:function", or "Module.function" in Julia.
        *args: What the program is compiled for: ShardedArrays, or anything else that has a
            shape, a dtype and a sharding (a NamedSharding of this package).
        topology: "v6e-16", "v5p:2x2x4", ...: what `pyreactant.tpu.topology` takes.
        num_slices: How many of them, joined by the data-center network.
        backend: The runtime that lowers it, "jax" or "reactant".
        size: Of the matmul: square, or (m, k, n).
        dtype: Of the matmul.
        mesh: Of the matmul; None is all devices in two axes "x" and "y".
        spec, y_spec, out_spec: Of the matmul, as for `matmul_sharded`.
        out_sharding: Of another program's output, or of each of several.
        precision: "default", "high" or "highest"; None is the runtime's own.
        static: Keyword arguments that are part of the program.
        cache: Whether to look the answer up, and keep it, in ``~/.cache/pyreactant/preflight``.
        timeout: Seconds that compiling may take, and lowering with Reactant as many.
        alternatives: Where it does not fit, look for what does.

    Raises:
        ShardingError, DTypeError, InvalidArgumentError: The parts do not fit together, or the
            program cannot be traced; before a compiler is started, where that can be known.
        RequirementError: libtpu is missing, or not the one that this jax wants; or Julia is.
        DeadlineError: It took too long.
        ChildLostError: The process that compiles was killed.
    """
    found = topology if isinstance(topology, Topology) else find_topology(topology, num_slices)
    chosen = find_program(program, backend)
    if chosen is None and not args:
        _refuse("has a size", out_sharding=out_sharding, static=static)
        if size is None:
            raise InvalidArgumentError("give size= of the product (--size, or --m, --k and --n)")
        request = _matmul_request(
            found,
            size=size,
            dtype=dtype,
            mesh=mesh,
            spec=spec,
            y_spec=y_spec,
            out_spec=out_spec,
            precision=precision,
            backend=backend,
        )
    else:
        _refuse(
            "has arguments with shardings", size=size, mesh=mesh, y_spec=y_spec, out_spec=out_spec
        )
        request = _request(chosen or MATMUL, args, found, out_sharding, precision, static, backend)
    report = compile_request(request, cache=cache, timeout=timeout)
    if report.fits or not alternatives:
        return report
    from .alternatives import alternatives_to

    return dataclasses.replace(
        report, alternatives=alternatives_to(request, report, cache=cache, timeout=timeout)
    )


def _refuse(why: str, **options: Any) -> None:
    """What would be left out silently."""
    given = [f"{name}=" for name, value in options.items() if value is not None]
    if given:
        raise InvalidArgumentError(
            f"{', '.join(given)} cannot be given for a program that {why}: a matmul is asked for "
            "by size=, mesh=, spec=, y_spec= and out_spec=, any other program by its arguments, "
            "out_sharding= and static="
        )


def _request(
    program: Program,
    args: tuple[Any, ...],
    topology: Topology,
    out_sharding: Any,
    precision: str | None,
    static: Mapping[str, Any] | None,
    backend: str,
) -> Request:
    avals = []
    for position, arg in enumerate(args):
        if not isinstance(getattr(arg, "sharding", None), NamedSharding):
            raise InvalidArgumentError(
                f"argument {position} of program {program.name!r} needs a shape, a dtype and a "
                f"pyreactant.NamedSharding, as a ShardedArray has them, got {type(arg).__name__}"
            )
        avals.append(aval(arg.shape, arg.dtype, arg.sharding))
    request = Request(
        program, tuple(avals), topology, out_sharding, precision, static or {}, backend
    )
    check(request)
    return request


def _matmul_request(
    topology: Topology,
    *,
    size: int | tuple[int, int, int],
    dtype: Any,
    mesh: Mesh | None,
    spec: Spec,
    y_spec: Spec | None,
    out_spec: Spec | None,
    precision: str | None,
    backend: str,
) -> Request:
    """The product of `matmul_sharded`; the arguments mean the same.

    Raises:
        ShardingError, DTypeError, InvalidArgumentError: As `matmul_sharded`.
    """
    sizes = (size, size, size) if isinstance(size, int) else tuple(size)
    if len(sizes) != 3 or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise InvalidArgumentError(
            f"size is a whole number from 1, or three of them (m, k, n), got {size!r}"
        )
    m, k, n = sizes
    mesh, element = mesh or default_mesh(topology.devices), as_dtype(dtype)
    check_mesh(mesh, topology)
    x = NamedSharding(mesh, spec)
    y = NamedSharding(mesh, spec if y_spec is None else y_spec)
    check_operands((m, k), element, (k, n), element)
    out = NamedSharding(mesh, default_out_spec(x, y) if out_spec is None else out_spec)
    avals = (Aval((m, k), element, x), Aval((k, n), element, y))
    request = Request(MATMUL, avals, topology, out, precision, {}, backend)
    check(request)
    out.shard_shape((m, n))
    return request
