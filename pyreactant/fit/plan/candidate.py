"""Candidate: a layout as it was compiled or measured."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...arrays.matmul import Spec
from ...arrays.mesh import Mesh
from ...base.words import is_too_large
from ..layouts.layouts import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A mesh and specs, with the figures of the compiler or of a measurement.

    Attributes:
        layout: The mesh, the specs, and the figures of the closed forms.
        seconds: Time of a call, measured or estimated: the largest of `xla_seconds`, the
            rooflines and `link_seconds`. None if it failed.
        xla_seconds: XLA's estimate, which ignores the links; None without one.
        link_seconds: Time until the busiest link has carried the compiled program's data.
        sent_bytes: Bytes that each device sends in a call, from the compiled program.
        bytes_per_device: Bytes that each device needs; if measured, those of its blocks.
        fits: Whether these fit.
        trouble: Why there is no time; "" if there is one.
        notes: Limits of these numbers; see `Preflight.notes`.
        reference: Whether this is the default layout of `matmul_sharded`, for comparison.
    """

    layout: Layout
    seconds: float | None = None
    xla_seconds: float | None = None
    link_seconds: float | None = None
    sent_bytes: float | None = None
    bytes_per_device: float | None = None
    fits: bool = True
    trouble: str = ""
    notes: tuple[str, ...] = ()
    reference: bool = False

    @property
    def at_least(self) -> bool:
        """Whether `seconds` is only a lower bound, because XLA's estimate is missing."""
        return self.link_seconds is not None and self.xla_seconds is None

    @property
    def refused(self) -> bool:
        """Whether the compiler refused it because it does not fit."""
        return is_too_large(self.trouble)

    @property
    def mesh(self) -> Mesh:
        """The devices."""
        return self.layout.mesh

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Specs of the arguments."""
        return self.layout.specs

    @property
    def mesh_text(self) -> str:
        """The mesh, and whether its devices are in an order of their own."""
        sizes = self.layout.sizes_text
        return sizes if self.mesh.all_devices else f"{sizes} along the network"

    @property
    def order(self) -> tuple[Any, ...]:
        """The sort key: fits, time to three digits, bytes sent, memory.

        Times that agree to three digits are a tie: no estimate is better than that.
        """
        usable = self.fits and self.seconds is not None
        time = math.inf if self.seconds is None else self.seconds
        size = self.layout.memory_bytes if self.bytes_per_device is None else self.bytes_per_device
        sent = self.layout.received_bytes if self.sent_bytes is None else self.sent_bytes
        return not usable, float(f"{time:.3g}"), float(f"{sent or 0.0:.3g}"), size

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        layout = {**asdict(self.layout), "mesh": self.mesh.to_dict()}
        return {**asdict(self), "layout": layout, "texts": list(self.layout.texts())}


def ranked(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Candidates, the best first; see `Candidate.order`."""
    return tuple(sorted(candidates, key=lambda candidate: candidate.order))
