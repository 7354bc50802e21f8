"""What can be found wrong with a request without a compiler."""

import json

from .._backend import PRECISIONS
from .._errors import InvalidArgumentError, ShardingError
from .._matmul import default_mesh
from .._mesh import Mesh
from .._sharding import NamedSharding
from ._preflight_request import Request
from ._topology import Topology

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
