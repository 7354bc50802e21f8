"""What a program's arrays are, and how they lie on a mesh: plain data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .._errors import ShardingError
from .._mesh import Mesh
from .._sharding import Axes, NamedSharding

Spec = tuple[Axes, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of a program.

    Attributes:
        name: For messages.
        shape: Global shape.
        dtype: Name of the element type.
        kind: "uniform" (in [-1, 1), integers from -8 to 7) or "indices" (0 to high - 1).
        scale: A power of two by which uniform numbers are multiplied.
        high: The limit of indices.
    """

    name: str
    shape: Shape
    dtype: str
    kind: str = "uniform"
    scale: float = 1.0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """One result of a program.

    Attributes:
        shape: Global shape.
        dtype: Name of the element type; None where NumPy's rules for it are not the runtimes'.
    """

    shape: Shape
    dtype: str | None


@dataclass(frozen=True, slots=True)
class Layout:
    """How a program's arrays lie on a mesh: one partition spec each.

    Attributes:
        in_specs: Of the arguments.
        out_specs: Of the results; () where their number is known only to the runtime, and then
            `default_spec` is taken for each.
    """

    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; `from_dict` reads it back."""
        return {"in_specs": _plain(self.in_specs), "out_specs": _plain(self.out_specs)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Layout":
        """The layout that `to_dict` described."""
        return cls(_specs(data["in_specs"]), _specs(data["out_specs"]))


def default_spec(mesh: Mesh, shape: Shape) -> Spec:
    """One mesh axis for each dimension in turn, where it cuts the dimension evenly."""
    entries: list[Axes] = []
    left = list(mesh.axis_names)
    for size in shape:
        fits = bool(left) and size % mesh.axis_size(left[0]) == 0
        entries.append(left.pop(0) if fits else None)
    return tuple(entries)


def cuts_evenly(mesh: Mesh, spec: Spec, shape: Shape) -> bool:
    """Whether a spec cuts an array of this shape into equal blocks."""
    try:
        NamedSharding(mesh, spec).shard_shape(shape)
    except ShardingError:
        return False
    return True


def _plain(specs: tuple[Spec, ...]) -> list[Any]:
    return [[list(e) if isinstance(e, tuple) else e for e in spec] for spec in specs]


def _specs(plain: Iterable[Iterable[Any]]) -> tuple[Spec, ...]:
    return tuple(tuple(tuple(e) if isinstance(e, list) else e for e in spec) for spec in plain)
