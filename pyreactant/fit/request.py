"""The request of a preflight: one program for one slice, as plain data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays.backend import check_precision
from ..arrays.dtypes import as_dtype
from ..arrays.matmul import Spec, default_mesh
from ..arrays.mesh import Mesh
from ..arrays.program import Program, function_name, with_names
from ..arrays.runtimes.known import BACKENDS
from ..arrays.sharding import Aval, NamedSharding
from ..base.counted import counted
from ..base.errors import InvalidArgumentError, ShardingError, argument
from ..base.slices.topology import Topology, slices_text
from ..base.slices.topology import topology as find_topology
from ..check.programs import CASES, find_case, hint_of


@dataclass(frozen=True, slots=True)
class PreflightRequest:
    """One program for one slice.

    Attributes:
        program: The program.
        arguments: Shape, dtype and sharding of each argument.
        topology: The slice.
        out_sharding: Sharding of the output, or a tuple with one for each; None leaves it to the
            compiler.
        precision: "default", "high", "highest", or None for the runtime's default.
        static: Keyword arguments that are part of the program.
        backend: The runtime that lowers it: "jax" or "reactant".
    """

    program: Program
    arguments: tuple[Aval, ...]
    topology: Topology
    out_sharding: NamedSharding | tuple[NamedSharding, ...] | None
    precision: str | None
    static: Mapping[str, Any]
    backend: str = "jax"

    @property
    def mesh(self) -> Mesh:
        """The mesh of the first argument, which orders the devices."""
        return self.arguments[0].sharding.mesh

    @property
    def named_by_version(self) -> bool:
        """Whether its name and jax's version determine what it computes."""
        return isinstance(self.program.jax, str) and self.program.jax.startswith("jax.")

    @property
    def outs(self) -> tuple[NamedSharding, ...]:
        """The requested shardings of outputs."""
        out = self.out_sharding
        return out if isinstance(out, tuple) else () if out is None else (out,)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the child process and for the key of the cache."""
        program = self.program
        body: dict[str, Any] = {"jax": program.jax}
        if self.backend == "reactant":
            body = {"julia": program.julia, "julia_project": program.julia_project}
        return {
            "kind": self.backend,
            "program": {"name": program.name, **body},
            "arguments": [
                {"shape": list(a.shape), "dtype": a.dtype.name, "sharding": a.sharding.to_dict()}
                for a in self.arguments
            ],
            "out_shardings": [out.to_dict() for out in self.outs],
            "several": isinstance(self.out_sharding, tuple),
            "precision": self.precision,
            "static": dict(self.static),
            "topology": self.topology.description_options,
        }


def arguments_of(
    shapes: Sequence[Sequence[int]], specs: Sequence[Spec], dtype: Any, mesh: Mesh
) -> tuple[Aval, ...]:
    """Arguments with one dtype on one mesh, with one spec for each shape or one for all."""
    if len(specs) not in (1, len(shapes)):
        raise InvalidArgumentError(
            "give one spec for all arguments or one for each, got "
            f"{counted(len(specs), 'spec')} for {counted(len(shapes), 'shape')}"
        )
    chosen = list(specs) * len(shapes) if len(specs) == 1 else specs
    element = as_dtype(dtype)
    return tuple(
        aval(shape, element, NamedSharding(mesh, spec))
        for shape, spec in zip(shapes, chosen, strict=True)
    )


def aval(shape: Sequence[Any], dtype: Any, sharding: NamedSharding) -> Aval:
    """Shape, dtype and sharding of an argument.

    Raises:
        InvalidArgumentError: A size is unknown; TPU programs have fixed shapes.
    """
    unknown = [n for n in shape if isinstance(n, bool) or not hasattr(n, "__index__") or n < 0]
    if unknown:
        raise InvalidArgumentError(
            f"a TPU program has fixed shapes, whole numbers from 0, got {tuple(shape)!r}; give the "
            "largest size that you need and pad to it"
        )
    return Aval(tuple(int(n) for n in shape), as_dtype(dtype), sharding)


_BODIES = {"jax": ("jax", "package.module:function"), "reactant": ("julia", "Module.function")}


def check(request: PreflightRequest) -> None:
    """Check that the parts fit together, without a compiler.

    Raises:
        ShardingError: A mesh does not fill the slice, or a spec does not divide.
        InvalidArgumentError: There are no arguments, or a static value is not plain data.
    """
    name = request.program.name
    if getattr(request.program, _BODIES[request.backend][0]) is None:
        field, form = _BODIES[request.backend]
        raise InvalidArgumentError(
            f"Program {name!r} has no {field} body; give {field}={form!r}, or its StableHLO as a "
            "file (--stablehlo)"
        )
    if not request.arguments:
        raise InvalidArgumentError(
            f"program {name!r}: give the arguments to compile it for (--shape and --spec, "
            "once for each); of a built-in program, --size is enough"
        )
    check_precision(request.precision)
    try:
        json.dumps(dict(request.static))
    except TypeError as error:
        raise InvalidArgumentError(
            f"program {name!r}: static values go to another process as JSON, so they must be "
            f"numbers, text, None or tuples of them: {error}"
        ) from None
    _check_shardings(request)


def _check_shardings(request: PreflightRequest) -> None:
    for out in request.outs:
        if not isinstance(out, NamedSharding):
            raise ShardingError(
                f"program {request.program.name!r}: out_sharding must be a "
                f"pyreactant.NamedSharding or a tuple of them, got {type(out).__name__}"
            )
    for sharding in (*(a.sharding for a in request.arguments), *request.outs):
        check_mesh(sharding.mesh, request.topology)
    for argument_ in request.arguments:
        argument_.sharding.shard_shape(argument_.shape)


def check_mesh(mesh: Mesh, topology: Topology) -> None:
    """Check that a mesh fits a slice.

    Raises:
        ShardingError: It needs more devices than the slice has, or leaves some idle, also if it
            names its devices: libtpu 0.0.50 aborts on programs for a part of a slice.
    """
    there, devices, last = slices_text(topology), topology.devices, max(mesh.device_ids)
    advice = f"use a mesh of {devices} such as {default_mesh(devices)!r}"
    if mesh.size > devices:
        problem = f"needs {counted(mesh.size, 'device')}, but {there} has {devices}; "
    elif last >= devices:
        problem = f"needs devices at positions up to {last}, but {there} has {devices}; "
    elif mesh.size < devices:
        problem = (
            f"uses {mesh.size} of the {devices} devices of {there}; the compiler takes whole "
            "slices only: "
        )
    else:
        return
    raise ShardingError(f"{mesh!r} {problem}{advice}")


def find_slices(name: str | Topology, num_slices: int) -> Topology:
    """The slices of that name, or as they are given."""
    return name if isinstance(name, Topology) else find_topology(name, num_slices)


def peak_of(dtype: str, topology: Topology) -> str:
    """The element type of the chip's peak rate that counts for a dtype; see `peak_flops`."""
    kind = "float8" if dtype.startswith("float8") else dtype.removeprefix("u")
    return kind if kind in topology.peak_flops else "bfloat16"


def find_program(program: Program | str, backend: str) -> Program | None:
    """The program of that name; None for "matmul", which has options of its own.

    Args:
        program: A Program, the name of a built-in one, or the name of a function:
            "package.module:function" for JAX, "Module.function" for Julia. For Reactant,
            "package.module:object" names a `Program`.
        backend: "jax" or "reactant".

    Raises:
        InvalidArgumentError: No program has this name.
    """
    if backend not in BACKENDS:
        raise InvalidArgumentError(
            f"unknown backend {backend!r}; a program is lowered by one of: {', '.join(BACKENDS)}"
        )
    if isinstance(program, Program):
        return with_names(program)
    if callable(program):
        return with_names(Program(function_name(program), jax=program))
    if program == "matmul":
        return None
    if isinstance(program, str):
        if program in CASES:
            return CASES[program].program
        if backend == "jax" and all(program.rpartition(":")):
            return Program(program.rpartition(":")[2], jax=program)
        if backend == "reactant" and ":" in program:
            return find_case(program).program
        if backend == "reactant" and all(program.rpartition(".")):
            return Program(program.rpartition(".")[2], julia=program)
    own = "a Julia function as 'Module.function', or a Program as 'package.module:object'"
    if backend == "jax":
        own = "your own as 'package.module:function' or 'path/to/file.py:function'"
    raise InvalidArgumentError(f"no program {program!r}: {hint_of(str(program))}; name {own}")


def product_sizes(size: int | tuple[int, int, int] | None) -> tuple[int, int, int]:
    """The sizes m, k and n of a product: one number for all of them, or three.

    Raises:
        InvalidArgumentError: They are absent or not whole numbers from 1; in the words of Python or
            of a command.
    """
    name = argument("size")
    if size is None:
        forms = "size=n or size=(m, k, n)"
        if name.startswith("--"):
            forms = "--size, or --m, --k and --n"
        raise InvalidArgumentError(f"matmul needs {forms}")
    sizes = tuple(size) if isinstance(size, Sequence) else (size, size, size)
    if len(sizes) != 3 or not all(isinstance(side, int) and side > 0 for side in sizes):
        raise InvalidArgumentError(
            f"{name} must be a whole number from 1, or three of them (m, k, n), got {size!r}"
        )
    return sizes
