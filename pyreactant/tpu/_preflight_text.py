"""The report of a preflight for people."""

from collections.abc import Iterator, Sequence

from ._hlo import Collective
from ._preflight_report import Operand, Preflight


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


def bytes_text(amount: int) -> str:
    """Bytes with a binary unit, as "1.5 GiB"."""
    size = float(amount)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.4g} {unit}"
        size /= 1024
    raise AssertionError(amount)


def seconds_text(value: float) -> str:
    """Seconds with a unit, as "948 us"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"
