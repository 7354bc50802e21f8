"""Preflight: what the compiler reports of a program, as plain data and as text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ..._core.mesh import Mesh
from ..._core.text import bytes_text, percent_text, seconds_text
from ..._pages.page import HasPage
from .._hlo.collective import Collective
from .._topology import Topology
from .page import page


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """Bytes on each device, by kind, as the compiler counts them.

    Attributes:
        arguments: Blocks of the arguments.
        outputs: Blocks of the outputs.
        temporaries: Peak of the memory that the program needs while it runs.
        code: The program itself.
        alias: Outputs that use the memory of an argument; `arguments` counts them too.
    """

    arguments: int
    outputs: int
    temporaries: int
    code: int
    alias: int

    @property
    def total(self) -> int:
        """Bytes that the device needs."""
        return self.arguments + self.outputs + self.temporaries + self.code - self.alias

    def to_dict(self) -> dict[str, int]:
        """Plain data for `json.dumps`."""
        return {**asdict(self), "total": self.total}


@dataclass(frozen=True, slots=True)
class Roofline:
    """Lower bounds on the seconds of one call, one for each part of a chip.

    They assume that all parts run at the same time at their published speeds (see `Topology`;
    Williams, Waterman and Patterson, "Roofline", CACM 2009).

    Attributes:
        compute: Seconds for the operations, at the peak rate of `peak`; None if unknown.
        hbm: Seconds for the bytes that the compiler counts as accessed; None if unknown.
        ici: Seconds for the bytes that collectives send over the chip's links, if all are used.
        dcn: Seconds for the bytes sent between slices; None if no speed is published.
        peak: Element type of the peak rate, such as "bfloat16".
    """

    compute: float | None
    hbm: float | None
    ici: float
    dcn: float | None
    peak: str

    @property
    def seconds(self) -> float:
        """The largest part: no run can be faster."""
        return max(part or 0.0 for part in (self.compute, self.hbm, self.ici, self.dcn))

    @property
    def bound(self) -> str:
        """Name of the largest part."""
        return max(("compute", "hbm", "ici", "dcn"), key=lambda name: getattr(self, name) or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {**asdict(self), "seconds": self.seconds, "bound": self.bound}


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument or output.

    Attributes:
        shape: Shape of the whole array; for Reactant's modules, of the Julia array.
        dtype: Element type.
        spec: Partition spec as text; "" if unknown.
        block: Shape of the block on each device; None if unknown.
        in_module: The tensor in the StableHLO module, if it differs.
    """

    shape: tuple[int, ...]
    dtype: str
    spec: str = ""
    block: tuple[int, ...] | None = None
    in_module: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight(HasPage):
    """The compiler's answer for a program on a slice. The program was compiled, not run.

    Attributes:
        program: Name of the program.
        source: What lowered it: "jax", "reactant", or "stablehlo" for a module from a file.
        topology: The slice.
        mesh: Mesh of the first argument; None for a module without a mesh.
        arguments: The arguments, in order.
        outputs: The outputs, in order; () if the program does not fit.
        fits: Whether the program fits the memory of each device.
        refusal: The compiler's message if the program does not fit, otherwise "".
        bytes_per_device: Memory of each device; None if the program does not fit.
        collectives: Collectives of one device, in order.
        seconds: XLA's own estimate of one call (`optimal_seconds`), without the network between
            slices; None if XLA has none.
        flops: Operations of one device in one call; None if unknown.
        bytes_accessed: Bytes of HBM that one device reads and writes in one call; None if unknown.
        roofline: Lower bounds from published speeds; None if the program does not fit.
        alternatives: Texts of specs or slices that fit, if the program does not.
        interrupted: Whether the search for alternatives was interrupted.
        notes: Limits of these numbers.
        versions: Versions of the packages that lowered and compiled the program.
        compile_seconds: Seconds that the compiler took.
        compiler_bytes: Peak memory of the compiling process, in bytes of this machine.
        cached: Whether the answer came from the cache.
        hlo: Text of the optimised program.

    Examples:
        >>> found.topology.name, len(found.arguments), found.mesh.size
        ('v6e-4', 2, 4)
    """

    program: str
    source: str
    topology: Topology
    mesh: Mesh | None
    arguments: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    fits: bool
    refusal: str
    bytes_per_device: DeviceBytes | None
    collectives: tuple[Collective, ...]
    seconds: float | None
    flops: float | None
    bytes_accessed: float | None
    roofline: Roofline | None
    alternatives: tuple[str, ...] = ()
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(hash=False)
    compile_seconds: float
    compiler_bytes: int
    cached: bool
    hlo: str = field(repr=False)

    @property
    def refused_bytes(self) -> int | None:
        """Bytes that a device would need, from the compiler's refusal; None without a refusal.

        A refusal has one of two forms: "required for HLO temporaries (56.00G) exceeds available
        HBM (31.24G)" and "Used 96.00G of 31.24G hbm".
        """
        found = re.search(r"(?:required[^(]*\(|Used )([\d.]+)([KMGT]?)", self.refusal)
        return found and int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " "))

    def text(self) -> str:
        """The report for people."""
        return report(self)

    def __str__(self) -> str:
        return self.text()

    def _page(self) -> str:
        return page(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`, without the HLO text. Times are estimates."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "hlo"}
        memory, roofline = self.bytes_per_device, self.roofline
        return {
            **plain,
            "topology": self.topology.to_dict(),
            "mesh": None if self.mesh is None else self.mesh.to_dict(),
            "arguments": [asdict(operand) for operand in self.arguments],
            "outputs": [asdict(operand) for operand in self.outputs],
            "bytes_per_device": None if memory is None else memory.to_dict(),
            "hbm_bytes": self.topology.hbm_bytes,
            "collectives": [collective.to_dict() for collective in self.collectives],
            "roofline": None if roofline is None else roofline.to_dict(),
            "versions": dict(self.versions),
        }


def report(found: Preflight) -> str:
    """The report as text."""
    return "\n".join(_lines(found))


def _lines(found: Preflight) -> Iterator[str]:
    slice_ = found.topology
    several = f" x {slice_.num_slices} slices" if slice_.num_slices > 1 else ""
    yield (
        f"preflight of {found.program} for {slice_.name}{several}: {slice_.devices} devices on "
        f"{slice_.hosts} VM{'' if slice_.hosts == 1 else 's'}; compiled, not run"
    )
    shown = [name for name in ("Reactant", "julia", "jax", "libtpu") if name in found.versions]
    versions = ", ".join(f"{name} {found.versions[name]}" for name in shown)
    how = "compiled earlier, in" if found.cached else "compiled in"
    yield f"{versions}; {how} {found.compile_seconds:.1f} s"
    yield f"mesh       {found.mesh!r}" if found.mesh else "mesh       none in the module"
    for kind, operands in (("argument", found.arguments), ("output", found.outputs)):
        for position, operand in enumerate(operands):
            yield f"{kind} {position}".ljust(11) + _operand(operand)
    yield from _memory(found)
    if found.fits or found.collectives:
        yield from _collectives(found.collectives)
    yield from _estimates(found)
    for note in found.notes:
        yield f"note       {note}"


def _operand(operand: Operand) -> str:
    text = f"{operand.dtype}{list(operand.shape)}"
    if operand.spec:
        by = "" if operand.spec.startswith("into ") else "by "  # "into 2x2 blocks"
        text += f" sharded {by}{operand.spec}"
    if operand.block is not None:
        text += f": {list(operand.block)} on each device"
    return f"{text} ({operand.in_module})" if operand.in_module else text


def _memory(found: Preflight) -> Iterator[str]:
    memory, hbm = found.bytes_per_device, found.topology.hbm_bytes
    if memory is None:
        yield "memory     DOES NOT FIT; the compiler says:"
        yield f"           {found.refusal.splitlines()[0]}"
    else:
        verdict = "fits" if found.fits else "DOES NOT FIT"
        yield (
            f"memory     {verdict}: {bytes_text(memory.total)} of {bytes_text(hbm)} on each device "
            f"({percent_text(memory.total / hbm)})"
        )
        parts = {k: v for k, v in memory.to_dict().items() if k != "total" and v}
        yield "           " + ", ".join(f"{kind} {bytes_text(n)}" for kind, n in parts.items())
    for line in found.alternatives:
        yield f"           {line}"
    if found.interrupted:
        yield "           interrupted before specs or a slice that fit were found"


def _collectives(found: Sequence[Collective]) -> Iterator[str]:
    if not found:
        yield "collectives  none"
        return
    yield "collectives, in order, with the bytes of the result on each device:"
    rows = [(c.op, c.shape, bytes_text(c.bytes), _route(c)) for c in found]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for op, shape, size, route in rows:
        columns = (op.ljust(widths[0]), shape.ljust(widths[1]), size.rjust(widths[2]), route)
        yield "  " + "  ".join(columns)


def _route(found: Collective) -> str:
    axes = " and ".join(found.axes) if found.axes else ""
    if found.across_slices:
        route = "between slices" + (f", along {axes}" if axes else "")
        route += f", part of {found.note.lower().replace('_', '-')}" if found.note else ""
    elif axes:
        route = f"along {'' if found.whole else 'a part of '}{axes}"
    else:
        route = "within a device" if found.pairs else ""
    if found.groups:
        groups = len(found.groups)
        route += f", {groups} group{'' if groups == 1 else 's'} of {found.group_size}"
    if found.times != 1:
        route += ", in a loop" if found.times is None else f", {found.times} times"
    return route.removeprefix(", ")


def _estimates(found: Preflight) -> Iterator[str]:
    roofline = found.roofline
    if roofline is None:
        return
    yield "estimates of one call (nothing was run):"
    unknown = "unknown"
    yield f"  XLA's own  {unknown if found.seconds is None else seconds_text(found.seconds)}"
    parts = [
        ("compute", roofline.compute, f" at the {roofline.peak} peak"),
        ("HBM", roofline.hbm, ""),
        ("ICI", roofline.ici, ""),
    ]
    if roofline.dcn != 0:
        parts.append(("between slices", roofline.dcn, ""))
    shown = ", ".join(
        f"{name} {unknown if part is None else seconds_text(part)}{suffix}"
        for name, part, suffix in parts
    )
    names = {"hbm": "HBM", "ici": "ICI", "dcn": "the network between slices"}
    bound = names.get(roofline.bound, roofline.bound)
    yield f"  roofline   at least {seconds_text(roofline.seconds)}, by {bound} ({shown})"
