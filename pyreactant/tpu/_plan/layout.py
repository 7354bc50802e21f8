"""Layout: a mesh and the specs of a program's arguments on it, as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..._core.mesh import Mesh
from ..._core.sharding import Axes
from .model import LOOPS

Spec = tuple[Axes, ...]
Role = tuple[int, int, int, int]
"""Which dimension of x, y and c an axis cuts, and which loop it divides."""

SLICE_AXIS = "slice"
"""Name of the mesh axis that goes over several slices."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A mesh and the specs on it, with what the closed forms say.

    Attributes:
        mesh: The devices; with device_ids where their order follows the chips' network.
        specs: Of the arguments.
        out_spec: Of the output; None leaves it to the compiler.
        memory_bytes: Of the blocks on each device: it needs at least these.
        received_bytes: That each device receives in one call; None where no closed form is known.
        local_seconds: Of computing, and of reading and writing memory, the larger.
        link_seconds: Until the busiest link has carried all, or all is received.
        slice_seconds: Of what comes from other slices.
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
        """One after the other, nothing at the same time: for choosing what to compile."""
        return self.local_seconds + self.link_seconds + self.slice_seconds


@dataclass(frozen=True, slots=True)
class Found:
    """What the closed forms left.

    Attributes:
        layouts: Best first.
        considered: How many there were.
        too_large: How many of them cannot fit.
    """

    layouts: tuple[Layout, ...]
    considered: int
    too_large: int


def specs_of(mesh: Mesh, roles: Sequence[Role]) -> tuple[Spec, Spec, Spec]:
    """The specs of x, y and the product.

    In each dimension the axes that divide its loop come first, and of them first those that cut
    most of the operands along that loop; then what a device holds is one piece of what it needs,
    wherever an order can make it so (see `_plan_model`).
    """
    x, y, c = (_spec(mesh, roles, name) for name in "xyc")
    return x, y, c


def _spec(mesh: Mesh, roles: Sequence[Role], name: str) -> Spec:
    entries: list[Axes] = []
    for dimension, loop in enumerate(LOOPS[name], 1):
        here = [
            (-_aligned(role, loop) if role[3] == loop else 1, axis)
            for axis, role in zip(mesh.axis_names, roles, strict=True)
            if role["xyc".index(name)] == dimension
        ]
        names = tuple(axis for _, axis in sorted(here, key=lambda pair: pair[0]))
        entries.append(names if len(names) > 1 else names[0] if names else None)
    return tuple(entries)


def _aligned(role: Role, loop: int) -> int:
    """How many of x, y and c the axis cuts along a loop."""
    return sum(
        bool(cut) and LOOPS[name][cut - 1] == loop
        for name, cut in zip("xyc", role[:3], strict=True)
    )
