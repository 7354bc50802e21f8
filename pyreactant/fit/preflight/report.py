"""Preflight: what the compiler reports of a program, as plain data, and what shows it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...arrays.mesh import Mesh
from ...arrays.text import bytes_text, percent_text, seconds_text
from ...base.counted import counted
from ...base.document.page import HasPage
from ...base.document.parts import (
    Bar,
    Cell,
    Document,
    Group,
    Items,
    Legend,
    Lines,
    Paragraph,
    Part,
    Piece,
    Section,
    Table,
    facts,
)
from ...base.document.terminal import HasText
from ...base.slices.topology import Topology, slices_text
from ..hlo.collective import Collective


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
        cuts: Number of blocks along each dimension, if they are known without axes.
    """

    shape: tuple[int, ...]
    dtype: str
    spec: str = ""
    block: tuple[int, ...] | None = None
    in_module: str = ""
    cuts: tuple[int, ...] | None = None

    @property
    def sharding(self) -> str:
        """How it is sharded: "by x,None", "into 2x2 blocks", or ""."""
        if self.spec:
            return f"by {self.spec}"
        return f"into {'x'.join(map(str, self.cuts))} blocks" if self.cuts else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        plain = asdict(self)
        del plain["cuts"]
        return {**plain, "spec": self.spec or self.sharding}


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight(HasText, HasPage):
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
        needed = re.search(r"(?:required[^(]*\(|Used )([\d.]+)([KMGT]?)", self.refusal)
        return needed and int(float(needed[1]) * 1024 ** " KMGT".index(needed[2] or " "))

    def text(self) -> str:
        """The report for people, in at most 120 columns except for command lines."""
        return self.to_text()

    def parts(self) -> Iterator[Part]:
        """What a terminal shows."""
        slice_ = self.topology
        yield Paragraph(
            f"preflight of {self.program} for {slices_text(slice_)}: {self._size}; "
            "compiled, not run"
        )
        shown = (name for name in _COMPILERS if name in self.versions)
        versions = ", ".join(f"{name} {self.versions[name]}" for name in shown)
        yield Paragraph(f"{versions}; {self._compiled}")
        if self.bytes_per_device is None:
            yield Paragraph("DOES NOT FIT; the compiler says:", "bad")
            yield Lines(self.refusal.partition("\n")[0])
        else:
            yield Paragraph(f"fits: {self._share}", "good")
        yield from map(Paragraph, self.alternatives)
        if self.interrupted:
            yield Paragraph("interrupted before specs or a slice that fit were found")
        tables = [_memory_table(self), _array_table(self), _collective_table(self.collectives)]
        for table in (*tables, _estimate_table(self)):
            if table.rows:
                yield Section(table.caption, [table._replace(caption="")])
        if self.fits and not self.collectives:
            yield Paragraph(_NO_COLLECTIVES)
        if self.notes:
            yield Section("Notes", [Items(self.notes)])

    @property
    def _size(self) -> str:
        slice_ = self.topology
        return f"{counted(slice_.devices, 'device')} on {counted(slice_.hosts, 'VM')}"

    def document(self) -> Document:
        """What the page shows."""
        slice_, word = self.topology, "fits" if self.fits else "does not fit"
        refusal: list[Part] = []
        if not self.fits and self.refusal:
            refusal = [Lines(self.refusal), *map(Paragraph, self.alternatives)]
        memory: list[Part] = []
        if self.bytes_per_device is not None:
            bar = _memory_bar(self.bytes_per_device, slice_.hbm_bytes)
            tables = [_memory_table(self), _estimate_table(self)]
            memory = [bar, Legend([bar]), Group(tables, "side")]
        arrays: list[Part] = [_array_table(self), _collective_table(self.collectives)]
        if self.fits and not self.collectives:
            arrays.append(Paragraph(_NO_COLLECTIVES))
        return Document(
            title=f"{self.program} {word} {slice_.name}",
            mark=Cell(word.capitalize(), "good" if self.fits else "bad"),
            heading=f"{self.program} on {slices_text(slice_)}",
            summary=self._summary,
            small=[self._size, "compiled, not run"],
            sections=[
                Section("What the compiler says", refusal),
                Section("Memory", memory),
                Section("Arrays and collectives", arrays),
                Section("About these numbers", [*note_parts(self.notes), self._facts]),
            ],
        )

    @property
    def _compiled(self) -> str:
        when = "compiled earlier, in" if self.cached else "compiled in"
        return f"{when} {self.compile_seconds:.1f} s"

    @property
    def _share(self) -> str:
        """How much of a device's memory is used."""
        assert self.bytes_per_device is not None
        used, hbm = self.bytes_per_device.total, self.topology.hbm_bytes
        share = percent_text(used / hbm)
        return f"{bytes_text(used)} of {bytes_text(hbm)} on each device ({share})"

    @property
    def _summary(self) -> str:
        if self.bytes_per_device is not None:
            return f"It needs {self._share}."
        needs = "" if (n := self.refused_bytes) is None else f" it needs {bytes_text(n)}, and"
        hbm = bytes_text(self.topology.hbm_bytes)
        return f"The compiler refuses it:{needs} a device has {hbm}."

    @property
    def _facts(self) -> Table:
        rows = [
            ("lowered by", self.source),
            ("compiler", self._compiled),
            ("operations of a device", "" if self.flops is None else f"{self.flops:.4g}"),
            ("HBM traffic of a device", bytes_text(self.bytes_accessed)),
            *sorted(self.versions.items()),
        ]
        return facts("Where the numbers come from", rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`, without the HLO text. Times are estimates."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "hlo"}
        memory, roofline = self.bytes_per_device, self.roofline
        return {
            **plain,
            "topology": self.topology.to_dict(),
            "mesh": None if self.mesh is None else self.mesh.to_dict(),
            "arguments": [operand.to_dict() for operand in self.arguments],
            "outputs": [operand.to_dict() for operand in self.outputs],
            "bytes_per_device": None if memory is None else memory.to_dict(),
            "hbm_bytes": self.topology.hbm_bytes,
            "collectives": [collective.to_dict() for collective in self.collectives],
            "roofline": None if roofline is None else roofline.to_dict(),
            "versions": dict(self.versions),
        }


_COMPILERS = ("Reactant", "julia", "jax", "libtpu")
_NO_COLLECTIVES = "No collectives: the devices exchange nothing."
_PARTS = {
    "compute": "compute",
    "hbm": "HBM",
    "ici": "ICI",
    "dcn": "the network between slices",
}
_COLLECTIVES = 200
"""Collectives that a report lists."""


def note_parts(notes: Sequence[str]) -> list[Part]:
    """The list of notes; nothing without any."""
    return [Items(notes)] if notes else []


def _memory_bar(memory: DeviceBytes, hbm: int) -> Bar:
    sizes = {
        "arguments": memory.arguments,
        "outputs": max(0, memory.outputs - memory.alias),
        "temporaries": memory.temporaries,
        "code": memory.code,
    }
    whole, start, parts = max(hbm, memory.total, 1), 0.0, []
    for colour, (name, size) in enumerate(sizes.items(), 1):
        if size:
            parts.append(Piece(name, start, size / whole, colour))
        start += size / whole
    return Bar(f"{bytes_text(memory.total)} of {bytes_text(hbm)} are used", parts)


def _memory_table(report: Preflight) -> Table:
    memory, hbm = report.bytes_per_device, report.topology.hbm_bytes
    sizes = {} if memory is None else {k: v for k, v in memory.to_dict().items() if v}
    names = {"alias": "outputs in memory of arguments"}
    rows = [
        [names.get(name, name), bytes_text(size), percent_text(size / hbm)]
        for name, size in sizes.items()
    ]
    head = ["kind", "bytes", "share of the device"]
    return Table("Memory of each device", head, rows, numbers=(1, 2))


def _array_table(report: Preflight) -> Table:
    def row(name: str, operand: Operand) -> list[Cell | str]:
        block = "-" if operand.block is None else _shape(operand.block)
        cut, module = operand.sharding or "-", operand.in_module or "-"
        return [name, operand.dtype, _shape(operand.shape), cut, block, module]

    rows = [row(f"argument {i}", operand) for i, operand in enumerate(report.arguments)]
    rows += [row(f"output {i}", operand) for i, operand in enumerate(report.outputs)]
    head = ["array", "type", "shape", "sharded", "block on each device", "in the module"]
    if all(row[-1] == "-" for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    mesh = f"on {report.mesh!r}" if report.mesh else "of a module without a mesh"
    return Table(f"Arrays {mesh}", head, rows)


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"


def _collective_table(exchanges: Sequence[Collective]) -> Table:
    rows: list[list[Cell | str]] = [
        [
            collective.op,
            collective.shape,
            bytes_text(collective.bytes),
            _along(collective),
            _groups(collective),
            "in a loop" if collective.times is None else str(collective.times),
        ]
        for collective in exchanges[:_COLLECTIVES]
    ]
    return Table(
        "Collectives of one device, in order",
        ["operation", "result on each device", "bytes of it", "along", "groups", "runs"],
        rows,
        numbers=(2, 5),
        left_out=len(exchanges) - len(rows),
    )


def _groups(collective: Collective) -> str:
    groups = collective.groups
    return f"{len(groups)} of {counted(collective.group_size, 'device')}" if groups else "-"


def _along(collective: Collective) -> str:
    axes = " and ".join(collective.axes)
    if collective.across_slices:
        whole = collective.note.lower().replace("_", "-")
        return ", ".join(filter(None, ["between slices", axes, whole and f"part of {whole}"]))
    if axes:
        return axes if collective.whole else f"a part of {axes}"
    return "within a device" if collective.pairs else "-"


def _estimate_table(report: Preflight) -> Table:
    roofline = report.roofline
    times: list[tuple[str, float | None, str]] = []
    if roofline is not None:
        times = [
            ("XLA's own estimate", report.seconds, "without the network between slices"),
            ("roofline", roofline.seconds, f"lower bound, by {_PARTS[roofline.bound]}"),
            ("compute", roofline.compute, f"lower bound, at the {roofline.peak} peak"),
            ("HBM", roofline.hbm, "lower bound"),
            ("ICI", roofline.ici, "lower bound"),
        ]
        if roofline.dcn != 0:
            times.append(("between slices", roofline.dcn, "lower bound"))
    most = max((time or 0.0 for _, time, _ in times), default=0.0) or 1.0
    rows: list[list[Cell | str]] = [
        [name, "unknown" if t is None else Cell(seconds_text(t), share=t / most), remark]
        for name, t, remark in times
    ]
    head = ["part", "time of a call", "what it is"]
    return Table("Estimates of one call; nothing was run", head, rows, numbers=(1,))
