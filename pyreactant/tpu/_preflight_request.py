"""What is to be compiled for which slice, as plain data."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._array import Aval
from .._dtypes import as_dtype
from .._errors import InvalidArgumentError
from .._matmul import Spec
from .._mesh import Mesh
from .._program import Program
from .._sharding import NamedSharding
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
