"""Layout: a mesh and the specs of a program's arguments on it, as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..._core.mesh import Mesh
from ..._core.sharding import Axes
from .model import LOOPS

Spec = tuple[Axes, ...]
Role = tuple[int, int, int, int]
"""The dimensions of x, y and c that an axis cuts, and the loop that it divides."""

SLICE_AXIS = "slice"
"""Name of the mesh axis over the slices."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A mesh and specs, with the figures of the closed forms.

    Attributes:
        mesh: The devices; with device_ids if their order follows the chips' network.
        specs: Specs of the arguments.
        out_spec: Spec of the output; None leaves it to the compiler.
        memory_bytes: Bytes of the blocks on each device, a lower bound.
        received_bytes: Bytes that each device receives in a call; None without a closed form.
        local_seconds: Time of computing, or of reading and writing memory if that is longer.
        link_seconds: Time until the busiest link has carried its data, or all data is received.
        slice_seconds: Time to receive data from other slices.
    """

    mesh: Mesh
    specs: tuple[Spec, ...]
    out_spec: Spec | None
    memory_bytes: float
    received_bytes: float | None = None
    local_seconds: float = 0.0
    link_seconds: float = 0.0
    slice_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The sum of all parts, as if nothing overlapped; it chooses what to compile."""
        return self.local_seconds + self.link_seconds + self.slice_seconds


@dataclass(frozen=True, slots=True)
class Choice:
    """The layouts that the closed forms chose.

    Attributes:
        layouts: Layouts, the best first.
        considered: Number of layouts considered.
        too_large: Number of these that cannot fit.
    """

    layouts: tuple[Layout, ...]
    considered: int
    too_large: int


def specs_of(mesh: Mesh, roles: Sequence[Role]) -> tuple[Spec, Spec, Spec]:
    """The specs of x, y and the product.

    In each dimension, the axes that divide its loop come first, ordered by how many arrays they cut
    along that loop. Then the part that a device holds is one piece of the part that it needs, if
    any order achieves this (see `model`).
    """
    x, y, c = (_spec(mesh, roles, name) for name in "xyc")
    return x, y, c


def _spec(mesh: Mesh, roles: Sequence[Role], name: str) -> Spec:
    entries: list[Axes] = []
    for dimension, loop in enumerate(LOOPS[name], 1):
        here = [
            (-aligned_entries(role, loop) if role[3] == loop else 1, axis)
            for axis, role in zip(mesh.axis_names, roles, strict=True)
            if role["xyc".index(name)] == dimension
        ]
        names = tuple(axis for _, axis in sorted(here, key=lambda pair: pair[0]))
        entries.append(names if len(names) > 1 else names[0] if names else None)
    return tuple(entries)


def aligned_entries(role: Role, loop: int) -> int:
    """How many of x, y and c an axis cuts along a loop."""
    return sum(
        bool(cut) and LOOPS[name][cut - 1] == loop
        for name, cut in zip("xyc", role[:3], strict=True)
    )
