"""Compile for an absent slice: a StableHLO module, or a request that JAX or Reactant lowers.

The process that compiles parses a module with MLIR and describes it as plain JSON; see
`arrays/runtimes/jax/module.py`.
"""

import dataclasses
import itertools
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
from ...base.errors import FileError, InvalidArgumentError, PyReactantError, ShardingError
from ...base.slices.topology import Topology
from ...base.slices.topology import topology as find_topology
from ..compiler.ask import TIMEOUT, Answer, ask, versions
from ..hlo.parse import result_shapes
from ..request import PreflightRequest, check_mesh
from .report import Operand, Preflight, build, operands, outputs_of

REVERSED = (
    "Julia is column-major: each tensor of Reactant's module has the dimensions of its Julia array "
    "in reverse order. Arguments and outputs are shown as Julia arrays, with the module's tensors "
    "beside them; collectives are shown as in the module"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """An argument or result of the module's main function.

    Attributes:
        shape: Shape in the module.
        dtype: Element type, by this package's name or otherwise by MLIR's.
        axes: For each dimension the axes that shard it, a part of an axis as Shardy writes it,
            ``x:(1)2``; None without Shardy's sharding.
        mhlo: The text of an ``mhlo.sharding``, otherwise "".
    """

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[tuple[str, ...], ...] | None
    mhlo: str = ""


def axis_size(mesh: Mesh, axis: str) -> int:
    """Number of devices along an axis, or along a part of it such as ``x:(1)2``."""
    part = re.search(r":\(\d+\)(\d+)$", axis)
    return int(part[1]) if part else mesh.axis_size(axis)


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """A module's description.

    Attributes:
        name: Name of the module.
        num_partitions: Its ``mhlo.num_partitions``; None without one.
        mesh: The mesh of its shardings, over partition ids; None without Shardy's shardings.
        arguments: Arguments of main.
        results: Results of main.
        from_reactant: Whether its name is one of Reactant's.
    """

    name: str
    num_partitions: int | None
    mesh: Mesh | None
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    from_reactant: bool

    @classmethod
    def from_description(cls, plain: Mapping[str, Any]) -> "Module":
        """The module of a description that `describe` made.

        Raises:
            ShardingError: Its mesh is not a valid `Mesh`.
        """
        return cls(
            name=plain["name"],
            num_partitions=plain["num_partitions"],
            mesh=None if plain["mesh"] is None else _mesh(plain["mesh"]),
            arguments=tuple(map(_tensor, plain["arguments"])),
            results=tuple(map(_tensor, plain["results"])),
            from_reactant=plain["name"].startswith("reactant_"),
        )


def _tensor(plain: Mapping[str, Any]) -> Tensor:
    axes = None if plain["axes"] is None else tuple(map(tuple, plain["axes"]))
    return Tensor(tuple(plain["shape"]), plain["dtype"], axes, plain["mhlo"])


def _mesh(plain: Mapping[str, Any]) -> Mesh:
    names, sizes = zip(*plain["axes"], strict=True)
    try:
        return Mesh(sizes, names, plain["device_ids"] or None)
    except ShardingError as error:
        raise ShardingError(f"the module's sdy.mesh {plain['text']}: {error}") from None


def reverse(tensor: Tensor) -> Tensor:
    """The Julia array of a tensor in Reactant's module: its dimensions are reversed."""
    axes = None if tensor.axes is None else tensor.axes[::-1]
    return Tensor(tensor.shape[::-1], tensor.dtype, axes, tensor.mhlo)


def mhlo_cuts(text: str, ndim: int) -> tuple[int, ...] | None:
    """Number of blocks along each dimension in an ``mhlo.sharding``; None for other forms."""
    if text in ("{replicated}", "{maximal device=0}"):
        return (1,) * ndim
    found = re.match(r"\{devices=\[([\d,]+)\]", text)
    if found is None:
        return None
    sizes = tuple(int(n) for n in found[1].split(","))
    return tuple(itertools.islice(sizes, ndim)) if len(sizes) >= ndim else None


def preflight_stablehlo(
    text: str,
    *,
    topology: str | Topology,
    num_slices: int = 1,
    mesh: Mesh | None = None,
    column_major: bool | None = None,
    cache: bool = True,
    timeout: float = TIMEOUT,
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

    Raises:
        InvalidArgumentError: The text is not a module, or has dynamic shapes or unknown custom
            calls.
        ShardingError: The module has another number of partitions than the slice has devices.
        RequirementError: As `preflight`, or this jax lacks a private interface.
        DeadlineError, ChildLostError: As `preflight`.
    """
    found = topology if isinstance(topology, Topology) else find_topology(topology, num_slices)
    return compile_text(
        text, found, mesh=mesh, column_major=column_major, cache=cache, timeout=timeout
    )


def compile_text(
    text: str,
    topology: Topology,
    *,
    mesh: Mesh | None,
    column_major: bool | None,
    cache: bool,
    timeout: float,
    program: str | None = None,
    source: str = "stablehlo",
    more_versions: Mapping[str, str] = MappingProxyType({}),
) -> Preflight:
    """The Preflight of a module; see `preflight_stablehlo`.

    Args:
        text, topology, mesh, column_major, cache, timeout: As for `preflight_stablehlo`.
        program: Name of the program; None is the module's name.
        source: What wrote the text: "stablehlo" or "reactant".
        more_versions: Versions of the packages that wrote it.
    """

    def read(description: Mapping[str, Any]) -> Module:
        module = Module.from_description(description)
        if module.mesh is None and mesh is not None:
            module = dataclasses.replace(module, mesh=mesh)
        _check(module, topology)
        return module

    installed = versions()
    question = {"kind": "stablehlo", "text": text, "topology": topology.description_options}
    answer, cached = ask(
        question,
        topology,
        installed,
        cache=cache,
        timeout=timeout,
        check=read,
    )
    module = read(answer["module"])
    reversing = module.from_reactant if column_major is None else column_major
    fits = "refusal" not in answer
    return build(
        answer,
        program=program or module.name,
        source=source,
        topology=topology,
        mesh=module.mesh,
        positions=_positions(module.mesh, topology),
        arguments=tuple(_operand(t, module, reversing) for t in module.arguments),
        outputs=_outputs(module, reversing, answer) if fits else (),
        versions={**installed, **more_versions},
        cached=cached,
        notes=(REVERSED,) if reversing else (),
    )


def read_text(path: Path) -> str:
    """A module's text from a file.

    Raises:
        FileError: It cannot be read.
    """
    if path.exists() and not path.is_file():
        raise FileError(f"{path}: not a file; give a file with a StableHLO module")
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileError(f"{path}: the module cannot be read ({error.strerror})") from None


def _check(module: Module, topology: Topology) -> None:
    partitions = module.num_partitions
    if partitions is None and module.mesh is not None:
        partitions = module.mesh.size
    if partitions is None:
        raise InvalidArgumentError(
            f"module @{module.name} must have mhlo.num_partitions or an sdy.mesh, which give its "
            "number of devices, but has neither; export it with its shardings"
        )
    if partitions != topology.devices:
        raise ShardingError(
            f"module @{module.name} is partitioned for {partitions} "
            f"device{'' if partitions == 1 else 's'}, but {topology.name} has {topology.devices}; "
            f"export it with a mesh of {topology.devices}, or choose a slice with {partitions}"
        )
    if module.mesh is not None:
        if module.mesh.size != partitions:
            raise ShardingError(
                f"module @{module.name} has num_partitions = {partitions}, but its mesh "
                f"{format_mesh(module.mesh)} has {module.mesh.size} devices; they must be equal"
            )
        check_mesh(module.mesh, topology)


def _positions(mesh: Mesh | None, topology: Topology) -> Sequence[int]:
    """Position of each partition in the mesh, whose device ids are partition ids."""
    if mesh is None:
        return range(topology.devices)
    return [int(place) for place in np.argsort(mesh.device_ids)]


def _operand(tensor: Tensor, module: Module, reversing: bool) -> Operand:
    shown = reverse(tensor) if reversing else tensor
    cuts: tuple[int, ...] | None = None
    spec = ""
    if tensor.axes is not None and module.mesh is not None:
        per_dimension = [[axis_size(module.mesh, axis) for axis in axes] for axes in tensor.axes]
        cuts = tuple(int(np.prod(sizes, dtype=int)) for sizes in per_dimension)
        assert shown.axes is not None
        spec = ",".join("+".join(axes) or "None" for axes in shown.axes)
    elif tensor.mhlo:
        cuts = mhlo_cuts(tensor.mhlo, len(tensor.shape))
        blocks = "x".join(map(str, _reversed(cuts or (), reversing)))
        spec = tensor.mhlo if cuts is None else f"into {blocks} blocks"
    if cuts is not None:
        cuts = _reversed(cuts, reversing)
    block = (
        None if cuts is None else tuple(-(-n // c) for n, c in zip(shown.shape, cuts, strict=True))
    )
    written = f"tensor<{'x'.join(map(str, tensor.shape))}> in the module" if reversing else ""
    return Operand(shown.shape, tensor.dtype, spec, block, written)


def _outputs(module: Module, reversing: bool, answer: Answer) -> tuple[Operand, ...]:
    """The results; if the module does not shard one, its block is the one that XLA chose."""
    found = [_operand(tensor, module, reversing) for tensor in module.results]
    blocks = result_shapes(answer["hlo"])
    if len(blocks) != len(found):
        return tuple(found)
    return tuple(
        dataclasses.replace(one, block=_reversed(block, reversing)) if one.block is None else one
        for one, block in zip(found, blocks, strict=True)
    )


def _reversed(sizes: tuple[int, ...], reversing: bool) -> tuple[int, ...]:
    return sizes[::-1] if reversing else sizes


_NEEDS = "backend 'reactant' lowers programs in Julia"
_OTHERWISE = "or give the program's StableHLO as a file (--stablehlo)"


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


def compile_request(
    request: PreflightRequest, *, cache: bool = True, timeout: float = TIMEOUT
) -> Preflight:
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
