"""What is to be compiled for which slice, as plain data."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._core.array import Aval
from .._core.backend import PRECISIONS
from .._core.dtypes import as_dtype
from .._core.mesh import Mesh
from .._core.program import Program
from .._core.sharding import NamedSharding
from .._errors import InvalidArgumentError, ShardingError
from .._matmul.matmul import Spec, default_mesh
from ..programs import CASES, find_case
from ._topology import Topology


@dataclass(frozen=True, slots=True)
class Request:
    """One program for one slice.

    Attributes:
        program: What to compile.
        arguments: Shape, dtype and sharding of each.
        topology: For what.
        out_sharding: Of the output, or of each of several; None leaves it to the compiler.
        precision: "default", "high", "highest", or None for the runtime's own.
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
        """Of the first argument: the one that orders the devices."""
        return self.arguments[0].sharding.mesh

    @property
    def named_by_version(self) -> bool:
        """Whether its name and jax's version say what it computes, without looking at it."""
        return (
            self.program.jax is not None and self.program.jax.split(":")[0].split(".")[0] == "jax"
        )

    def _body(self) -> dict[str, str | None]:
        found = self.program
        if self.backend == "jax":
            return {"name": found.name, "jax": found.jax}
        return {"name": found.name, "julia": found.julia, "julia_project": found.julia_project}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the child process and for the key of the cache."""
        outs = self.out_sharding
        several = isinstance(outs, tuple)
        listed = outs if isinstance(outs, tuple) else () if outs is None else (outs,)
        return {
            "kind": self.backend,
            "program": self._body(),
            "arguments": [
                {"shape": list(a.shape), "dtype": a.dtype.name, "sharding": a.sharding.to_dict()}
                for a in self.arguments
            ],
            "out_shardings": [out.to_dict() for out in listed],
            "several": several,
            "precision": self.precision,
            "static": dict(self.static),
            "topology": self.topology.description_options,
        }


def static_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The static values of a request that was plain data.

    JSON made tuples lists; static values are hashable, so they were tuples.
    """
    return {name: _tuples(value) for name, value in plain["static"].items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def arguments_of(
    shapes: Sequence[Sequence[int]], specs: Sequence[Spec], dtype: Any, mesh: Mesh
) -> tuple[Aval, ...]:
    """Arguments with one dtype on one mesh; a spec for each shape, or one for all."""
    if len(specs) not in (1, len(shapes)):
        raise InvalidArgumentError(
            f"give one spec for all arguments or one for each, got {len(specs)} specs for "
            f"{len(shapes)} shapes"
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
        InvalidArgumentError: A size is not known: TPU programs have fixed shapes.
    """
    unknown = [n for n in shape if isinstance(n, bool) or not hasattr(n, "__index__") or n < 0]
    if unknown:
        raise InvalidArgumentError(
            f"a TPU program has fixed shapes, whole numbers from 0, got {tuple(shape)!r}; give the "
            "largest size that is needed and pad to it"
        )
    return Aval(tuple(int(n) for n in shape), as_dtype(dtype), sharding)


def environment() -> dict[str, str]:
    """The variables that change what JAX and libtpu compile."""
    ours = ("JAX_", "XLA_", "LIBTPU_")
    ignored = ("JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR")
    return {k: v for k, v in os.environ.items() if k.startswith(ours) and k not in ignored}


_BODIES = {"jax": ("jax", "package.module:function"), "reactant": ("julia", "Module.function")}


def check(request: Request) -> None:
    """Whether the parts fit together; what can be found without a compiler.

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
            f"program {name!r}: give the arguments that it is to be compiled for (--shape and "
            "--spec, once for each; --size is for matmul)"
        )
    if request.precision is not None and request.precision not in PRECISIONS:
        raise InvalidArgumentError(
            f"unknown precision {request.precision!r}; known are: {', '.join(PRECISIONS)}"
        )
    try:
        json.dumps(dict(request.static))
    except TypeError as error:
        raise InvalidArgumentError(
            f"program {name!r}: static values go to another process as JSON, so they are numbers, "
            f"text, None or tuples of them: {error}"
        ) from None
    _check_shardings(request)


def _check_shardings(request: Request) -> None:
    outs = request.out_sharding
    listed = outs if isinstance(outs, tuple) else () if outs is None else (outs,)
    for out in listed:
        if not isinstance(out, NamedSharding):
            raise ShardingError(
                f"program {request.program.name!r}: out_sharding must be a "
                f"pyreactant.NamedSharding or a tuple of them, got {type(out).__name__}"
            )
    for sharding in (*(a.sharding for a in request.arguments), *listed):
        check_mesh(sharding.mesh, request.topology)
    for argument in request.arguments:
        argument.sharding.shard_shape(argument.shape)


def check_mesh(mesh: Mesh, topology: Topology) -> None:
    """Whether a mesh fits a slice.

    Raises:
        ShardingError: It needs devices that the slice has not, or leaves some idle. Also where
            it names its own: libtpu 0.0.50 ends its process on programs for a part of a slice.
    """
    there = f"{topology.name}{f' x {topology.num_slices}' if topology.num_slices > 1 else ''}"
    square = default_mesh(topology.devices)
    if max(mesh.device_ids) >= topology.devices:
        raise ShardingError(
            f"{mesh!r} needs devices at positions up to {max(mesh.device_ids)}, but {there} has "
            f"{topology.devices}; use a mesh of {topology.devices} such as {square!r}"
        )
    if mesh.size < topology.devices:
        raise ShardingError(
            f"{mesh!r} uses {mesh.size} of the {topology.devices} devices of {there}; the compiler "
            f"takes whole slices: use a mesh of {topology.devices} such as {square!r}"
        )


BACKENDS = ("jax", "reactant")


def find_program(program: Program | str, backend: str) -> Program | None:
    """The program of that name; None for the product of two matrices, which has options of its own.

    Args:
        program: Itself, the name of a built-in one, or a function of the runtime:
            "package.module:function" of JAX's, "Module.function" of Julia's. For Reactant
            "package.module:object" is a `Program`, whose bodies it names.
        backend: "jax" or "reactant".

    Raises:
        InvalidArgumentError: There is no such program.
    """
    if backend not in BACKENDS:
        raise InvalidArgumentError(
            f"unknown backend {backend!r}; a program is lowered by one of: {', '.join(BACKENDS)}"
        )
    if isinstance(program, Program):
        return program
    if program == "matmul":
        return None
    if isinstance(program, str):
        if program in CASES:
            return CASES[program].program
        if backend == "jax" and ":" in program:
            return Program(program.rpartition(":")[2], jax=program)
        if ":" in program:
            return find_case(program).program
        if backend == "reactant" and "." in program:
            return Program(program.rpartition(".")[2], julia=program)
    example = "package.module:function" if backend == "jax" else "Module.function"
    language = "JAX" if backend == "jax" else "Julia"
    raise InvalidArgumentError(
        f"a program is 'matmul', another built-in one ({', '.join(list(CASES)[1:4])}, ...), a "
        f"pyreactant.Program or the name of a {language} function such as {example!r}, got "
        f"{program!r}"
    )
