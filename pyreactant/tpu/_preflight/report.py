"""Preflight: what compiling a program for a slice told, as plain data."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ..._core.mesh import Mesh
from ..._core.text import bytes_text, seconds_text
from .._hlo.collective import Collective
from .._topology import Topology


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """Bytes on each device, by kind, as the compiler counts them.

    Attributes:
        arguments: Their blocks.
        outputs: Their blocks.
        temporaries: What the program needs while it runs, at its peak.
        code: The program itself.
        alias: Outputs that use the memory of an argument, counted in both.
    """

    arguments: int
    outputs: int
    temporaries: int
    code: int
    alias: int

    @property
    def total(self) -> int:
        """All that must fit together."""
        return self.arguments + self.outputs + self.temporaries + self.code - self.alias

    def to_dict(self) -> dict[str, int]:
        """Plain data for `json.dumps`."""
        return {**asdict(self), "total": self.total}


@dataclass(frozen=True, slots=True)
class Roofline:
    """The least seconds that each part of a chip needs: lower bounds, and estimates as such.

    From the chip's published speeds (see `Topology`), as if each part ran at full speed all the
    time and beside the others (Williams, Waterman and Patterson, "Roofline", CACM 2009).

    Attributes:
        compute: The operations, at the peak rate of `peak`.
        hbm: The bytes that the compiler says are accessed.
        ici: What the collectives send over the chip's links, as if all links were used.
        dcn: What is sent between slices; None where no speed is published.
        peak: Element type whose peak rate it is.
    """

    compute: float | None
    hbm: float | None
    ici: float
    dcn: float | None
    peak: str

    @property
    def seconds(self) -> float:
        """The largest: no run can be faster."""
        return max(part or 0.0 for part in (self.compute, self.hbm, self.ici, self.dcn))

    @property
    def bound(self) -> str:
        """Which part it is."""
        return max(("compute", "hbm", "ici", "dcn"), key=lambda name: getattr(self, name) or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {**asdict(self), "seconds": self.seconds, "bound": self.bound}


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument or output.

    Attributes:
        shape: Of the whole array; of a module of Reactant's that of the Julia array.
        dtype: Element type.
        spec: How it is cut, for each dimension, as text; "" where that is not known.
        block: Shape on each device, None where that is not known.
        in_module: How a StableHLO module writes it, where it is not the same.
    """

    shape: tuple[int, ...]
    dtype: str
    spec: str = ""
    block: tuple[int, ...] | None = None
    in_module: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What the compiler said of a program for a slice that need not be there. Nothing was run.

    Attributes:
        program: Its name.
        source: "jax", "reactant", or "stablehlo" for a module from elsewhere.
        topology: The slice.
        mesh: Of the first argument; None for a module without a mesh.
        arguments: In order.
        outputs: In order; () where it does not fit.
        fits: Whether it fits the memory of each device.
        refusal: What the compiler said where it does not fit, else "".
        bytes_per_device: None where the compiler refused it.
        collectives: In order, of one device.
        seconds: XLA's own estimate of one call (`optimal_seconds`); None where it has none.
            It does not know of the network between slices.
        flops: Operations of one device in one call; None where unknown.
        bytes_accessed: Bytes of HBM that one device reads and writes in one call, likewise.
        roofline: Lower bounds from published speeds; None where it does not fit.
        alternatives: Where it does not fit, what does, in words.
        notes: What to know about these numbers.
        versions: Of what lowered and compiled it.
        compile_seconds: How long the compiler took.
        compiler_bytes: The most memory that the process that compiled had, on this machine.
        cached: Whether that was earlier.
        hlo: The optimised program as text.
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
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(hash=False)
    compile_seconds: float
    compiler_bytes: int
    cached: bool
    hlo: str = field(repr=False)

    @property
    def refused_bytes(self) -> int | None:
        """Bytes on a device that the compiler's refusal says are needed, None without one.

        Its two forms: "required for HLO temporaries (56.00G) exceeds available HBM (31.24G)" and
        "Used 96.00G of 31.24G hbm".
        """
        found = re.search(r"(?:required[^(]*\(|Used )([\d.]+)([KMGT]?)", self.refusal)
        return found and int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " "))

    def text(self) -> str:
        """The report for people."""
        return report(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; all but the HLO text. Times are estimates."""
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
    """All of it, in lines."""
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
        text += f" cut {operand.spec}"
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
            f"({100 * memory.total / hbm:.1f} %)"
        )
        parts = {k: v for k, v in memory.to_dict().items() if k != "total" and v}
        yield "           " + ", ".join(f"{kind} {bytes_text(n)}" for kind, n in parts.items())
    for line in found.alternatives:
        yield f"           {line}"


def _collectives(found: Sequence[Collective]) -> Iterator[str]:
    if not found:
        yield "collectives  none"
        return
    yield "collectives, in order, with the bytes of the result on each device:"
    rows = [(c.op, c.shape, bytes_text(c.bytes), _way(c)) for c in found]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for op, shape, size, way in rows:
        yield (f"  {op.ljust(widths[0])}  {shape.ljust(widths[1])}  {size.rjust(widths[2])}  {way}")


def _way(found: Collective) -> str:
    axes = " and ".join(found.axes) if found.axes else ""
    if found.across_slices:
        way = "between slices" + (f", along {axes}" if axes else "")
        way += f", part of {found.note.lower().replace('_', '-')}" if found.note else ""
    elif axes:
        way = f"along {'' if found.whole else 'a part of '}{axes}"
    else:
        way = "within a device" if found.pairs else ""
    if found.groups:
        groups = len(found.groups)
        way += f", {groups} group{'' if groups == 1 else 's'} of {found.group_size}"
    if found.times != 1:
        way += ", in a loop" if found.times is None else f", {found.times} times"
    return way.removeprefix(", ")


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
