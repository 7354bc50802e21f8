"""Compile for an absent slice: a StableHLO module, or a request that JAX or Reactant lowers.

The process that compiles parses a module with MLIR and describes it as plain JSON; see
`arrays/runtimes/jax/module.py`.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ...arrays.lowering.reactant import check_julia, lower
from ...arrays.mesh import Mesh
from ...arrays.sharding import Aval, NamedSharding
from ...arrays.text import format_mesh, spec_text
from ...base.counted import counted
from ...base.errors import FileError, InvalidArgumentError, PyReactantError, ShardingError
from ...base.slices.topology import Topology
from ..compiler.ask import TIMEOUT, ask, versions
from ..hlo.parse import result_shapes
from ..request import PreflightRequest, check_mesh, find_slices
from .answer import build, operands, outputs_of
from .report import Operand, Preflight

REVERSED = (
    "Julia is column-major: each tensor of Reactant's module has the dimensions of its Julia array "
    "in reverse order. Arguments and outputs are shown as Julia arrays, with the module's tensors "
    "beside them; collectives are shown as in the module"
)


def mesh_of(module: Mapping[str, Any]) -> Mesh | None:
    """The mesh of a module's shardings, over partition ids; None without Shardy's shardings.

    Args:
        module: The module's description; see `describe`.

    Raises:
        ShardingError: It is not a valid `Mesh`.
    """
    if (plain := module["mesh"]) is None:
        return None
    names, sizes = zip(*plain["axes"], strict=True)
    try:
        return Mesh(sizes, names, plain["device_ids"] or None)
    except ShardingError as error:
        raise ShardingError(f"the module's sdy.mesh {plain['text']}: {error}") from None


def axis_size(mesh: Mesh, axis: str) -> int:
    """Number of devices along an axis, or along a part of it such as ``x:(1)2``."""
    part = re.search(r":\(\d+\)(\d+)$", axis)
    return int(part[1]) if part else mesh.axis_size(axis)


def mhlo_cuts(text: str, ndim: int) -> tuple[int, ...] | None:
    """Number of blocks along each dimension in an ``mhlo.sharding``; None for other forms."""
    if text in ("{replicated}", "{maximal device=0}"):
        return (1,) * ndim
    devices = re.match(r"\{devices=\[([\d,]+)\]", text)
    if devices is None:
        return None
    sizes = tuple(int(n) for n in devices[1].split(","))
    return sizes[:ndim] if len(sizes) >= ndim else None


def preflight_stablehlo(
    text: str,
    *,
    topology: str | Topology,
    num_slices: int = 1,
    mesh: Mesh | None = None,
    column_major: bool | None = None,
    cache: bool = True,
    timeout: float = TIMEOUT,
    program: str | None = None,
    source: str = "stablehlo",
    more_versions: Mapping[str, str] = MappingProxyType({}),
) -> Preflight:
    """Compile a StableHLO module for a slice, on any machine.

    Args:
        text: The module, with shardings of Shardy (``sdy.mesh``, ``sdy.sharding``) or of XLA
            (``mhlo.sharding``), for instance from Reactant's ``@code_hlo``.
        topology: As for `preflight`.
        num_slices: As for `preflight`.
        mesh: Mesh over the module's partitions, to name axes if the module has no mesh.
        column_major: Whether the tensors are column-major arrays with reversed dimensions; None is
            True for modules with a name of Reactant's.
        cache: As for `preflight`.
        timeout: As for `preflight`.
        program: Name of the program; None is the module's name.
        source: What wrote the text: "stablehlo" or "reactant".
        more_versions: Versions of the packages that wrote it.

    Raises:
        InvalidArgumentError: The text is not a module, or has dynamic shapes or unknown custom
            calls.
        ShardingError: The module has another number of partitions than the slice has devices.
        RequirementError: As `preflight`, or this jax lacks a private interface.
        DeadlineError, ChildLostError: As `preflight`.
    """
    slice_ = find_slices(topology, num_slices)

    def checked_mesh(module: Mapping[str, Any]) -> Mesh | None:
        known = mesh_of(module) or mesh
        _check(module, known, slice_)
        return known

    installed = versions()
    question = {"kind": "stablehlo", "text": text, "topology": slice_.description_options}
    answer, cached = ask(
        question, slice_, installed, cache=cache, timeout=timeout, check=checked_mesh
    )
    module = answer["module"]
    mesh = checked_mesh(module)
    if column_major is None:
        column_major = module["name"].startswith("reactant_")
    operand = functools.partial(_operand, mesh=mesh, reversing=column_major)
    outputs = tuple(map(operand, module["results"]))
    return build(
        answer,
        program=program or module["name"],
        source=source,
        topology=slice_,
        mesh=mesh,
        positions=_positions(mesh, slice_),
        arguments=tuple(map(operand, module["arguments"])),
        outputs=() if "refusal" in answer else _with_blocks(outputs, column_major, answer["hlo"]),
        versions={**installed, **more_versions},
        cached=cached,
        notes=(REVERSED,) if column_major else (),
    )


def read_text(path: Path) -> str:
    """A module from a file; bytes that are no text are replaced, and the parser refuses them.

    Raises:
        FileError: It cannot be read.
    """
    if path.exists() and not path.is_file():
        raise FileError(f"{path}: not a file; give a file with a StableHLO module")
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise FileError(f"{path}: the module cannot be read ({error.strerror})") from None


def _check(module: Mapping[str, Any], mesh: Mesh | None, topology: Topology) -> None:
    name, partitions = module["name"], module["num_partitions"]
    if partitions is None and mesh is not None:
        partitions = mesh.size
    if partitions is None:
        raise InvalidArgumentError(
            f"module @{name} must have mhlo.num_partitions or an sdy.mesh, which give its "
            "number of devices, but has neither; export it with its shardings, or give its mesh "
            "(--mesh)"
        )
    if partitions != topology.devices:
        raise ShardingError(
            f"module @{name} is partitioned for "
            f"{counted(partitions, 'device')}, but {topology.name} has {topology.devices}; "
            f"export it with a mesh of {topology.devices}, or choose a slice with {partitions}"
        )
    if mesh is not None:
        if mesh.size != partitions:
            raise ShardingError(
                f"module @{name} has num_partitions = {partitions}, but its mesh "
                f"{format_mesh(mesh)} has {counted(mesh.size, 'device')}; they must be equal"
            )
        check_mesh(mesh, topology)


def _positions(mesh: Mesh | None, topology: Topology) -> Sequence[int]:
    """Position of each partition in the mesh, whose device ids are partition ids."""
    if mesh is None:
        return range(topology.devices)
    return [int(place) for place in np.argsort(mesh.device_ids)]


def _operand(tensor: Mapping[str, Any], mesh: Mesh | None, reversing: bool) -> Operand:
    """An argument or result of the module's main function, or the Julia array that it is."""
    order = slice(None, None, -1 if reversing else 1)
    shape, mhlo, cuts, spec = tuple(tensor["shape"])[order], tensor["mhlo"], None, ""
    if tensor["axes"] is not None and mesh is not None:
        axes = tensor["axes"][order]
        cuts = tuple(math.prod(axis_size(mesh, name) for name in names) for names in axes)
        spec = spec_text(axes)
    elif mhlo:
        cuts = mhlo_cuts(mhlo, len(shape))
        cuts = cuts[order] if cuts else cuts
        spec = mhlo if cuts is None else ""
    block = None
    if cuts is not None:
        block = tuple(-(-n // cut) for n, cut in zip(shape, cuts, strict=True))
    written = f"tensor<{'x'.join(map(str, tensor['shape']))}> in the module" if reversing else ""
    return Operand(shape, tensor["dtype"], spec, block, written, None if spec else cuts)


def _with_blocks(outputs: tuple[Operand, ...], reversing: bool, hlo: str) -> tuple[Operand, ...]:
    """The outputs; if the module does not shard one, its block is the one that XLA chose."""
    blocks = result_shapes(hlo)
    if len(blocks) != len(outputs):
        return outputs
    return tuple(
        dataclasses.replace(output, block=block[::-1] if reversing else block)
        if output.block is None
        else output
        for output, block in zip(outputs, blocks, strict=True)
    )


def compile_reactant(request: PreflightRequest, *, cache: bool, timeout: float) -> Preflight:
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
    check_julia(
        "backend 'reactant' lowers programs in Julia",
        "or give the program's StableHLO as a file (--stablehlo)",
    )
    versions()  # check the compiler before Julia starts
    question = {**request.to_dict(), "devices": request.topology.devices}
    lowered = lower(request.program.name, question, timeout)
    report = preflight_stablehlo(
        lowered.text,
        topology=request.topology,
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
        dataclasses.replace(output, spec=spec_text(sharding.axes(len(output.shape))), cuts=None)
        if output.block == sharding.shard_shape(output.shape)
        else output
        for output, sharding in zip(outputs, shardings, strict=True)
    )


def _check_arguments(requested: tuple[Aval, ...], lowered: tuple[Operand, ...]) -> None:
    """Check that the module's arguments, reversed, are those of the request."""
    wanted = [(a.shape, a.dtype.name) for a in requested]
    got = [(operand.shape, operand.dtype) for operand in lowered]
    if wanted != got:
        raise PyReactantError(
            f"Reactant's module must take {wanted} with the dimensions of each reversed, but takes "
            f"{[operand.in_module for operand in lowered]}; this version of Reactant writes "
            "modules in another form; please report it"
        )


def compile_request(
    request: PreflightRequest, *, cache: bool = True, timeout: float = TIMEOUT
) -> Preflight:
    """The Preflight of a checked request."""
    if request.backend == "reactant":
        return compile_reactant(request, cache=cache, timeout=timeout)
    installed = versions()
    question = {**request.to_dict(), "show_digest": cache and not request.named_by_version}
    answer, cached = ask(question, request.topology, installed, cache=cache, timeout=timeout)
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
        versions=installed,
        cached=cached,
    )
