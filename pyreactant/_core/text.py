"""Meshes and partition specs as short text, for command lines and environment variables."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._errors import InvalidArgumentError, ShardingError

if TYPE_CHECKING:  # these load NumPy, which --help does not need
    from .mesh import Mesh
    from .sharding import Axes, Index, NamedSharding

_DEFAULT_AXES = "xyzuvw"

MESH_HELP = "sizes as 2x4 (axes x, y, ...) or names with sizes as data=2,model=4"
SPEC_HELP = "one entry per dimension as x,y ; None is not sharded, x+y is over both, x first"


def parse_mesh(text: str, device_ids: Sequence[int] | None = None) -> "Mesh":
    """The mesh that a text describes.

    Args:
        text: "2x4" has axes x and y; "data=2,model=4" names them.
        device_ids: As for `Mesh`.

    Raises:
        ShardingError: It has another form.
    """
    wrong = ShardingError(f"cannot read mesh {text!r}; write {MESH_HELP}")
    if "=" in text:
        pairs = [part.split("=") for part in text.split(",")]
        if not all(len(pair) == 2 for pair in pairs):
            raise wrong
        names, sizes = zip(*((name.strip(), size.strip()) for name, size in pairs), strict=True)
    else:
        sizes = tuple(part.strip() for part in text.lower().split("x"))
        names = tuple(_DEFAULT_AXES[: len(sizes)])
    # More digits than any machine has devices are a mistake, and int() refuses very long ones.
    if not all(re.fullmatch("[0-9]{1,9}", size) for size in sizes) or len(names) != len(sizes):
        raise wrong
    from .mesh import Mesh

    return Mesh([int(size) for size in sizes], names, device_ids)


def format_mesh(mesh: "Mesh") -> str:
    """The text that `parse_mesh` reads back, without device ids."""
    if mesh.axis_names == tuple(_DEFAULT_AXES[: len(mesh.shape)]):
        return "x".join(map(str, mesh.shape))
    return ",".join(f"{n}={size}" for n, size in zip(mesh.axis_names, mesh.shape, strict=True))


def parse_spec(text: str) -> "tuple[Axes, ...]":
    """The partition spec that a text describes: "x,y", "x,None", "x+y,None".

    Raises:
        ShardingError: It has another form. `NamedSharding` checks that the axes exist.
    """
    return tuple(_parse_entry(entry.strip(), text) for entry in text.split(","))


def _parse_entry(entry: str, text: str) -> "Axes":
    if entry in ("None", "none", "-"):
        return None
    names = tuple(name.strip() for name in entry.split("+"))
    if not all(name.isidentifier() for name in names):
        raise ShardingError(f"cannot read partition spec {text!r}; write {SPEC_HELP}")
    return names[0] if len(names) == 1 else names


def format_spec(sharding: "NamedSharding", ndim: int) -> str:
    """The text that `parse_spec` reads back."""
    return ",".join("+".join(axes) or "None" for axes in sharding.axes(ndim))


def parse_sizes(
    size: int | None, m: int | None, k: int | None, n: int | None
) -> tuple[int, int, int] | None:
    """Sizes (m, k, n) of a product from --size or --m, --k and --n; None without any.

    Raises:
        InvalidArgumentError: Both forms are given, or only some of the three.
    """
    if size is not None:
        if (m, k, n) != (None, None, None):
            raise InvalidArgumentError("give --size, or --m, --k and --n, not both")
        return size, size, size
    if m is None and k is None and n is None:
        return None
    if m is None or k is None or n is None:
        raise InvalidArgumentError("give --m, --k and --n together, or --size")
    return m, k, n


def block_text(index: "Index") -> str:
    """A block in Python's notation: "[0:4, 2:4]"."""
    return "[" + ", ".join(f"{s.start}:{s.stop}" for s in index) + "]"


def spec_text(spec: Sequence[Any]) -> str:
    """A partition spec as the command line takes it: "x,None", "x+y,None"; "-" for a scalar."""
    entries = ["+".join(e) if isinstance(e, (tuple, list)) else str(e) for e in spec]
    return ",".join(entries) or "-"


def seconds_text(value: float) -> str:
    """Seconds with three digits and a unit, such as "948 us"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"


def bytes_text(value: int | None) -> str:
    """Bytes with three digits and a binary unit, such as "1.5 GiB"; "-" for None."""
    if value is None:
        return "-"
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale:
            number = value / scale
            return f"{number:.3g} {unit}" if number < 1000 else f"{number:.0f} {unit}"
    return f"{value} B"
