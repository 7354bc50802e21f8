"""Preflight of a StableHLO module that JAX did not make, such as Reactant's."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..._core.mesh import Mesh
from ..._core.text import format_mesh
from ..._errors import FileError, InvalidArgumentError, ShardingError
from .._compiler.ask import TIMEOUT, Answer, ask, versions
from .._hlo.parse import result_shapes
from .._hlo.stablehlo import Module, Tensor, axis_size, mhlo_cuts, reverse
from .._request import check_mesh
from .._topology import Topology
from .._topology import topology as find_topology
from .build import build
from .report import Operand, Preflight

REVERSED = (
    "Julia is column-major: each tensor of a module of Reactant's has its Julia array's dimensions "
    "in reverse order. Arguments and outputs are shown as the Julia arrays, with the module's "
    "tensor beside them; collectives are shown as in the module"
)


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
    """Compile a StableHLO module for a slice that need not be there.

    Args:
        text: The module, with shardings of Shardy (``sdy.mesh``, ``sdy.sharding``) or of XLA
            (``mhlo.sharding``), such as ``@code_hlo`` of Reactant prints it.
        topology: As for `preflight`.
        num_slices: As for `preflight`.
        mesh: What to name axes by where the module has no mesh: its partitions in order.
        column_major: Whether its tensors are arrays of a column-major language with reversed
            dimensions; None is where its name says that Reactant wrote it.
        cache: As for `preflight`.
        timeout: As for `preflight`.

    Raises:
        InvalidArgumentError: The text is no module, has dynamic shapes or unknown custom calls.
        ShardingError: It is not partitioned for that many devices.
        RequirementError, DeadlineError, ChildLostError: As `preflight`; RequirementError too where
            this jax has not the private interface that this uses.
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
    """As `preflight_stablehlo`.

    Args:
        text, topology, mesh, column_major, cache, timeout: As there.
        program: Its name; None is the module's.
        source: What made the text.
        more_versions: Of that.
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
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileError(f"{path}: the module cannot be read ({error.strerror})") from None


def _check(module: Module, topology: Topology) -> None:
    said = module.num_partitions
    if said is None and module.mesh is not None:
        said = module.mesh.size
    if said is None:
        raise InvalidArgumentError(
            f"module @{module.name} says neither mhlo.num_partitions nor an sdy.mesh, so it is not "
            "known for how many devices it is; take its text with its shardings"
        )
    if said != topology.devices:
        raise ShardingError(
            f"module @{module.name} is partitioned for {said} device{'' if said == 1 else 's'}, "
            f"but {topology.name} has {topology.devices}; export it with a mesh of "
            f"{topology.devices}, or name a slice of {said}"
        )
    if module.mesh is not None:
        if module.mesh.size != said:
            raise ShardingError(
                f"module @{module.name} says num_partitions = {said}, but its mesh "
                f"{format_mesh(module.mesh)} has {module.mesh.size} devices; they must be equal"
            )
        check_mesh(module.mesh, topology)


def _positions(mesh: Mesh | None, topology: Topology) -> Sequence[int]:
    """Where in the mesh each partition is: its device ids are partitions."""
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
        spec = tensor.mhlo if cuts is None else _turned("x".join(map(str, _turn(cuts, reversing))))
    if cuts is not None:
        cuts = _turn(cuts, reversing)
    block = (
        None if cuts is None else tuple(-(-n // c) for n, c in zip(shown.shape, cuts, strict=True))
    )
    written = f"tensor<{'x'.join(map(str, tensor.shape))}> in the module" if reversing else ""
    return Operand(shown.shape, tensor.dtype, spec, block, written)


def _outputs(module: Module, reversing: bool, answer: Answer) -> tuple[Operand, ...]:
    """The results, with the blocks that XLA made where the module leaves their sharding open."""
    found = [_operand(tensor, module, reversing) for tensor in module.results]
    blocks = result_shapes(answer["hlo"])
    if len(blocks) != len(found):
        return tuple(found)
    return tuple(
        dataclasses.replace(one, block=_turn(block, reversing)) if one.block is None else one
        for one, block in zip(found, blocks, strict=True)
    )


def _turn(cuts: tuple[int, ...], reversing: bool) -> tuple[int, ...]:
    return cuts[::-1] if reversing else cuts


def _turned(text: str) -> str:
    return f"into {text} blocks"
