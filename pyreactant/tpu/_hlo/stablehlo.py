"""A StableHLO module's arguments, results, shardings and mesh, from a description of it.

The process that compiles parses the module with MLIR and describes it as plain JSON; see
`_runtimes/jax/module.py`.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..._core.mesh import Mesh
from ..._errors import ShardingError


@dataclass(frozen=True, slots=True)
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


KNOWN_CUSTOM_CALLS = frozenset(
    (
        "AllocateBuffer",
        "ApproxTopK",
        "Eigh",
        "LuDecomposition",
        "Qr",
        "ProductOfElementaryHouseholderReflectors",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "Sharding",
        "annotate_device_placement",
        "tpu_custom_call",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
        "mhlo.topk",
        "mhlo.erf",
        "LayoutConstraint",
        "MoveToHost",
        "MoveToDevice",
        "TopK",
    )
)
"""Custom calls that XLA for TPU handles: those that JAX emits (``jax/_src/export/_export.py``, jax
0.12.0.1), and those of XLA's own Shardy and StableHLO conversions."""


@dataclass(frozen=True, slots=True)
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


def unknown_custom_calls(called: Iterable[str]) -> tuple[str, ...]:
    """The custom calls that are not in `KNOWN_CUSTOM_CALLS`."""
    return tuple(sorted(set(called) - KNOWN_CUSTOM_CALLS))


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
