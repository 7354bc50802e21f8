"""Collective: one exchange between the devices of a compiled program, as plain data."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .groups import Groups, axes_of


@dataclass(frozen=True, slots=True)
class Collective:
    """One exchange between devices.

    Attributes:
        op: As in HLO, without ``-start``: "all-gather", ..., or "send" and "recv".
        shape: Of its result on each device, as HLO writes it, without layouts.
        bytes: Of that result (for "send" of what is sent).
        times: How often it runs in one call of the program; None in a loop whose length the
            compiler does not know. A branch counts as taken.
        groups: The devices that exchange, as partition ids; () for permutes and sends.
        pairs: Source and target of a permute.
        axes: Mesh axes along which it goes; () where no mesh is known.
        whole: Whether it joins all devices along those axes, or parts of them.
        channel: HLO's channel id.
        across_slices: Whether it leaves the slice, over the network between slices.
        note: What a send is part of, for instance "ALL_GATHER".
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
        """Devices in each group; 2 for what goes from one device to another."""
        return len(self.groups[0]) if self.groups else 2

    @property
    def wire_bytes(self) -> int:
        """Bytes that each device sends in one run of it, by the ring or pairwise algorithms.

        The counts of Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
        Operations in MPICH" (2005): a device sends (g-1)/g of the whole, twice for all-reduce.
        """
        g = self.group_size
        if self.op == "all-reduce":
            return 2 * self.bytes * (g - 1) // g
        if self.op == "reduce-scatter":
            return self.bytes * (g - 1)
        if self.op in ("all-gather", "all-to-all", "ragged-all-to-all"):
            return self.bytes * (g - 1) // g
        if self.op == "recv":
            return 0  # counted where it is sent
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
    """The same with the mesh axes along which each goes; arguments as for `axes_of`.

    Args:
        found: From `collectives`.
        coordinates: Where in the mesh each partition is.
        axis_names: Of the mesh.
        slice_axes: The axes along which devices lie in several slices.
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
