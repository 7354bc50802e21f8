"""Collective: one collective operation of a compiled program, as plain data."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .groups import Groups, axes_of


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
        return {
            "op": self.op,
            "shape": self.shape,
            "bytes": self.bytes,
            "times": self.times,
            "axes": list(self.axes),
            "whole_axes": self.whole,
            "groups": [list(g) for g in self.groups],
            "pairs": [list(p) for p in self.pairs],
            "channel": self.channel,
            "across_slices": self.across_slices,
            "note": self.note,
            "wire_bytes": self.wire_bytes,
        }


def sent_bytes(found: Iterable[Collective]) -> int:
    """Bytes that a device sends in one call; loops of unknown length count once."""
    return sum(one.wire_bytes * (1 if one.times is None else one.times) for one in found)


def name_axes(
    found: tuple[Collective, ...],
    coordinates: np.ndarray,
    axis_names: tuple[str, ...],
    slice_axes: tuple[str, ...] = (),
) -> tuple[Collective, ...]:
    """The collectives with their mesh axes; see `axes_of`.

    Args:
        found: The collectives, from `collectives`.
        coordinates: Position of each partition in the mesh, shape (partitions, axes).
        axis_names: Names of the mesh's axes.
        slice_axes: The axes that cross slices.
    """
    named = []
    for one in found:
        members = one.groups or one.pairs
        if one.across_slices:
            one = replace(one, axes=slice_axes, whole=False)
        elif members and max(max(group) for group in members) < len(coordinates):
            axes, whole = axes_of(members, coordinates, axis_names)
            one = replace(one, axes=axes, whole=whole or bool(one.pairs))
        named.append(one)
    return tuple(named)
