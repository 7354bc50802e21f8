"""The collective operations of a compiled program as plain data, their groups and mesh axes.

HLO prints groups of devices in three forms, those of XLA's ``replica_group.cc`` and
``mesh_and_axis.cc``, as libtpu 0.0.42 and 0.0.50 print them:

- a list, ``{{0,1},{2,3}}``; ``{}`` is one group of all;
- an iota, ``[4,2]<=[2,4]T(1,0)``: count to 8, shape it (2, 4), transpose by (1, 0), split the
  result into 4 groups of 2;
- a mesh, ``mesh['x'=4,'y'=2] {'y'}``: the groups whose members differ only along those axes;
  ``'x':(2)2`` is the part of axis x with size 2 after a part of size 2.
"""

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ...base.errors import RequirementError

Groups = tuple[tuple[int, ...], ...]
"""Partition ids; for an SPMD program the positions of its devices in row-major mesh order."""

_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\](?:, device_ids=\(([^{]*)\))? \{([^}]*)\}")
_AXIS = re.compile(r"'?([^':=,]+)'?(?:=(\d+))?(?::\((\d+)\)(\d+))?")


def parse_groups(text: str, num_partitions: int) -> Groups:
    """The groups in an attribute's text.

    Args:
        text: The text after ``replica_groups=``; other attributes may follow.
        num_partitions: Number of the program's partitions, all of which ``{}`` means.

    Raises:
        RequirementError: The text has none of the three forms.
    """
    if text.startswith("{}"):
        return (tuple(range(num_partitions)),)
    if text.startswith("{{"):
        return _lists(text[1 : text.index("}}") + 1])
    if iota := _IOTA.match(text):
        return _tuples(_iota(*iota.groups()))
    if mesh := _MESH.match(text):
        return _mesh_groups(*mesh.groups())
    raise RequirementError(
        "libtpu wrote replica groups in a form that this version of pyreactant does not know: "
        f"{text[:80]!r}; please report it with the file that --hlo writes"
    )


def parse_pairs(text: str) -> Groups:
    """The (source, target) pairs that follow ``source_target_pairs=``."""
    return _lists(text[1 : text.index("}}") + 1]) if text.startswith("{{") else ()


def _lists(text: str) -> Groups:
    return tuple(_numbers(group) for group in re.findall(r"\{([\d,]*)\}", text))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


def _tuples(grid: np.ndarray) -> Groups:
    return tuple(tuple(int(i) for i in row) for row in grid)


def _iota(groups: str, reshape: str, transpose: str | None) -> np.ndarray:
    sizes = _numbers(reshape)
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    if transpose is not None:
        ids = ids.transpose(_numbers(transpose))
    return ids.reshape(_numbers(groups))


def _mesh_groups(axes: str, device_ids: str | None, grouped: str) -> Groups:
    names, sizes = [], []
    for name, size, _, _ in _AXIS.findall(axes):
        names.append(name)
        sizes.append(int(size))
    ids = np.arange(math.prod(sizes)) if device_ids is None else _device_ids(device_ids)
    # Split every axis at the parts that the groups use, so that each part is a dimension.
    shape: list[int] = []
    part_of: dict[tuple[str, int], int] = {}
    wanted = [(n, int(pre or 1), int(s or 0)) for n, _, pre, s in _AXIS.findall(grouped)]
    for name, size in zip(names, sizes, strict=True):
        edges = {1, size}
        for other, before, part in wanted:
            if other == name:
                edges |= {before, before * (part or size)}
        ordered = sorted(edges)
        for low, high in itertools.pairwise(ordered):
            part_of[name, low] = len(shape)
            shape.append(high // low)
    inside = [part_of[name, before] for name, before, _ in wanted if (name, before) in part_of]
    outside = [d for d in range(len(shape)) if d not in inside]
    group = math.prod(shape[d] for d in inside)
    grid = ids.reshape(shape or [1]).transpose([*outside, *inside] or [0])
    return _tuples(grid.reshape(-1, group))


def _device_ids(text: str) -> np.ndarray:
    if iota := re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        return _iota(str(math.prod(_numbers(iota[1]))), iota[1], iota[2])
    return np.array(_numbers(text))


def axes_of(
    groups: Groups, coordinates: np.ndarray, axis_names: Sequence[str]
) -> tuple[tuple[str, ...], bool]:
    """The mesh axes along which the members of each group differ.

    Args:
        groups: Groups of partition ids.
        coordinates: Position of each partition in the mesh, shape (partitions, axes).
        axis_names: Names of the mesh's axes.

    Returns:
        The names of the axes, and whether each group has all devices along them; False if it has
        only a part of them, such as half of an axis.
    """
    varying = np.zeros(len(axis_names), bool)
    for group in groups:
        members = coordinates[list(group)]
        varying |= (members != members[:1]).any(axis=0)
    whole: dict[tuple[int, ...], set[int]] = {}
    for partition, row in enumerate(coordinates[:, ~varying]):
        whole.setdefault(tuple(row), set()).add(partition)
    same = {frozenset(g) for g in groups} == {frozenset(g) for g in whole.values()}
    return tuple(n for n, v in zip(axis_names, varying, strict=True) if v), same


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective operation, or a send or receive.

    Attributes:
        op: HLO's name without ``-start``, such as "all-gather", "send" or "recv".
        shape: Shape of its result on each device, as HLO writes it, without layouts.
        bytes: Bytes of that result; for "send", of the data that is sent.
        times: Number of runs in one call of the program; None in a loop of unknown length.
            Every branch counts as taken.
        groups: Groups of devices, as partition ids; () for permutes and sends.
        pairs: Source and target of each transfer of a permute.
        axes: Mesh axes along which data moves; () without a mesh.
        whole: Whether each group has all devices along those axes, rather than a part.
        channel: HLO's channel id.
        across_slices: Whether it uses the network between slices.
        note: The collective that a send belongs to, such as "ALL_GATHER".
    """

    op: str
    shape: str
    bytes: int
    times: int | None = 1
    groups: Groups = ()
    pairs: Groups = ()
    axes: tuple[str, ...] = ()
    whole: bool = True
    channel: int | None = None
    across_slices: bool = False
    note: str = ""

    @property
    def group_size(self) -> int:
        """Devices in each group; 2 for transfers from one device to another."""
        return len(self.groups[0]) if self.groups else 2

    @property
    def wire_bytes(self) -> int:
        """Bytes that each device sends in one run, by the ring or pairwise algorithms.

        The counts are from Thakur, Rabenseifner and Gropp, "Optimization of Collective
        Communication Operations in MPICH" (2005): (g-1)/g of the whole, twice for all-reduce.
        """
        g = self.group_size
        if self.op == "all-reduce":
            return 2 * self.bytes * (g - 1) // g
        if self.op == "reduce-scatter":
            return self.bytes * (g - 1)
        if self.op in ("all-gather", "all-to-all", "ragged-all-to-all"):
            return self.bytes * (g - 1) // g
        if self.op == "recv":
            return 0  # the send counts
        if self.pairs and all(source == target for source, target in self.pairs):
            return 0
        return self.bytes

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        plain = asdict(self)
        plain["whole_axes"] = plain.pop("whole")
        return {**plain, "wire_bytes": self.wire_bytes}


def sent_bytes(exchanges: Iterable[Collective]) -> int:
    """Bytes that a device sends in one call; loops of unknown length count once."""
    return sum(c.wire_bytes * (1 if c.times is None else c.times) for c in exchanges)


def name_axes(
    exchanges: tuple[Collective, ...],
    coordinates: np.ndarray,
    axis_names: tuple[str, ...],
    slice_axes: tuple[str, ...] = (),
) -> tuple[Collective, ...]:
    """The collectives with their mesh axes; see `axes_of`.

    Args:
        exchanges: The collectives, from `collectives`.
        coordinates: Position of each partition in the mesh, shape (partitions, axes).
        axis_names: Names of the mesh's axes.
        slice_axes: The axes that cross slices.
    """
    named = []
    for collective in exchanges:
        members, pairs = collective.groups or collective.pairs, bool(collective.pairs)
        if collective.across_slices:
            collective = replace(collective, axes=slice_axes, whole=False)
        elif members and max(max(group) for group in members) < len(coordinates):
            axes, whole = axes_of(members, coordinates, axis_names)
            collective = replace(collective, axes=axes, whole=whole or pairs)
        named.append(collective)
    return tuple(named)
