"""A preflight for people: as text, and as a page; the page of two side by side."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...arrays.text import bytes_text, percent_text, seconds_text
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
from ..hlo.collective import Collective

if TYPE_CHECKING:
    from .diff import Difference
    from .report import DeviceBytes, Operand, Preflight


def text(found: "Preflight") -> str:
    """The report as text."""
    return "\n".join(_lines(found))


def _lines(found: "Preflight") -> Iterator[str]:
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
            yield f"{kind} {position}".ljust(11) + _operand_text(operand)
    yield from _memory_lines(found)
    if found.fits or found.collectives:
        yield from _collective_lines(found.collectives)
    yield from _estimate_lines(found)
    for note in found.notes:
        yield f"note       {note}"


def _operand_text(operand: "Operand") -> str:
    text = f"{operand.dtype}{list(operand.shape)}"
    if operand.spec:
        by = "" if operand.spec.startswith("into ") else "by "  # "into 2x2 blocks"
        text += f" sharded {by}{operand.spec}"
    if operand.block is not None:
        text += f": {list(operand.block)} on each device"
    return f"{text} ({operand.in_module})" if operand.in_module else text


def _memory_lines(found: "Preflight") -> Iterator[str]:
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


def _collective_lines(found: Sequence[Collective]) -> Iterator[str]:
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


def _estimate_lines(found: "Preflight") -> Iterator[str]:
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


_COLLECTIVES = 200
"""Collectives that the page lists."""


def document(found: "Preflight") -> Document:
    """What the page shows."""
    slice_, word = found.topology, "fits" if found.fits else "does not fit"
    several = f", {slice_.num_slices} slices" if slice_.num_slices > 1 else ""
    refusal: list[Part] = []
    if not found.fits and found.refusal:
        refusal = [Lines(found.refusal), *map(Paragraph, found.alternatives)]
    memory: list[Part] = []
    if found.bytes_per_device is not None:
        bar = _memory_bar(found.bytes_per_device, slice_.hbm_bytes)
        memory = [bar, Legend([bar]), Group([_memory(found), _estimates(found)], "side")]
    arrays: list[Part] = [_operands(found), _collectives(found.collectives)]
    if found.fits and not found.collectives:
        arrays.append(Paragraph("No collectives: the devices exchange nothing."))
    return Document(
        title=f"{found.program} {word} {slice_.name}",
        mark=Cell(word.capitalize(), "good" if found.fits else "bad"),
        heading=f"{found.program} on {slice_.name}{several}",
        summary=_summary(found),
        small=[f"{slice_.devices} devices on {slice_.hosts} VMs", "compiled, not run"],
        sections=[
            Section("What the compiler says", refusal),
            Section("Memory", memory),
            Section("Arrays and collectives", arrays),
            Section("About these numbers", [*_notes(found.notes), _facts(found)]),
        ],
    )


def _notes(notes: Sequence[str]) -> list[Part]:
    return [Items(notes)] if notes else []


def _summary(found: "Preflight") -> str:
    memory, hbm = found.bytes_per_device, found.topology.hbm_bytes
    if memory is None:
        need = found.refused_bytes
        needs = "" if need is None else f" it needs {bytes_text(need)}, and"
        return f"The compiler refuses it:{needs} a device has {bytes_text(hbm)}."
    share = percent_text(memory.total / hbm)
    return f"It needs {bytes_text(memory.total)} of {bytes_text(hbm)} on each device ({share})."


def _memory_bar(memory: "DeviceBytes", hbm: int) -> Bar:
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


def _memory(found: "Preflight") -> Table:
    memory, hbm = found.bytes_per_device, found.topology.hbm_bytes
    sizes = {} if memory is None else {k: v for k, v in memory.to_dict().items() if v}
    names = {"alias": "outputs in memory of arguments"}
    rows = [
        [names.get(name, name), bytes_text(size), percent_text(size / hbm)]
        for name, size in sizes.items()
    ]
    head = ["kind", "bytes", "share of the device"]
    return Table("Memory of each device", head, rows, numbers=(1, 2))


def _operands(found: "Preflight") -> Table:
    def row(name: str, operand: "Operand") -> list[Cell | str]:
        block = "-" if operand.block is None else _shape(operand.block)
        cut, module = operand.spec or "-", operand.in_module or "-"
        return [name, operand.dtype, _shape(operand.shape), cut, block, module]

    rows = [row(f"argument {i}", one) for i, one in enumerate(found.arguments)]
    rows += [row(f"output {i}", one) for i, one in enumerate(found.outputs)]
    head = ["array", "type", "shape", "sharded by", "block on each device", "in the module"]
    if all(row[-1] == "-" for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    mesh = f" on {found.mesh!r}" if found.mesh else ""
    return Table(f"Arrays{mesh}", head, rows)


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"


def _collectives(found: Sequence[Collective]) -> Table:
    rows: list[list[Cell | str]] = [
        [
            one.op,
            one.shape,
            bytes_text(one.bytes),
            _along(one),
            f"{len(one.groups)} of {one.group_size} devices" if one.groups else "-",
            "in a loop" if one.times is None else str(one.times),
        ]
        for one in found[:_COLLECTIVES]
    ]
    return Table(
        "Collectives of one device, in order",
        ["operation", "result on each device", "bytes of it", "along", "groups", "runs"],
        rows,
        numbers=(2, 5),
        left_out=len(found) - len(rows),
    )


def _along(found: Collective) -> str:
    axes = " and ".join(found.axes)
    if found.across_slices:
        return f"between slices{f', {axes}' if axes else ''}"
    if axes:
        return axes if found.whole else f"a part of {axes}"
    return "within a device" if found.pairs else "-"


def _estimates(found: "Preflight") -> Table:
    roofline = found.roofline
    times: list[tuple[str, float | None, str]] = []
    if roofline is not None:
        times = [
            ("XLA's own estimate", found.seconds, "without the network between slices"),
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


def _facts(found: "Preflight") -> Table:
    when = "compiled earlier, in" if found.cached else "compiled in"
    rows = [
        ("lowered by", found.source),
        ("compiler", f"{when} {found.compile_seconds:.1f} s"),
        ("operations of a device", "" if found.flops is None else f"{found.flops:.4g}"),
        ("HBM traffic of a device", bytes_text(found.bytes_accessed)),
        *sorted(found.versions.items()),
    ]
    return facts("Where the numbers come from", rows)


def difference_document(
    found: "Difference", rows: Sequence[Sequence[str]], verdict: str
) -> Document:
    """What the page of two programs side by side shows.

    Args:
        found: The two preflights.
        rows: Names and values of the comparison, as its text has them.
        verdict: What it shows about the collectives.
    """
    left, right, slice_ = found.left, found.right, found.left.topology
    same, fits = found.same_but_for_order, left.fits and right.fits
    look = "good" if same and fits else "warn" if fits else "bad"
    head = ["quantity", *(f"{one.program} ({one.source})" for one in (left, right))]
    notes = list(dict.fromkeys((*left.notes, *right.notes)))
    parts = [Table("Both programs", head, rows), *_notes(notes)]
    return Document(
        title=f"Two programs on {slice_.name}",
        mark=Cell("Same collectives" if same else "Different collectives", look),
        heading=f"{head[1]} and {head[2]} on {slice_.name}",
        summary=verdict,
        small=[f"{slice_.devices} devices", "compiled, not run"],
        sections=[Section("Comparison", parts, titled=False)],
    )
