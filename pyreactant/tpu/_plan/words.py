"""Sentences of a plan that its text and its page share."""

from typing import TYPE_CHECKING

from ..._core.text import bytes_text

if TYPE_CHECKING:
    from .report import Candidate, Plan

LEGEND = {
    "estimate": "time of a call, the largest of XLA, links and the rooflines",
    "XLA": "the compiler's own estimate",
    "links": "time until the busiest link has carried its data",
    "sends": "bytes that a device sends in a call",
    "per device": "memory that a device needs",
}
"""The columns of a plan for a slice."""

MEASURED_LEGEND = {
    "measured": "median time of five calls",
    "sends": "bytes that a device sends in a call, counted",
    "per device": "memory of a device's blocks",
}
"""The columns of a plan for this machine."""


def where_text(found: "Plan") -> str:
    """The slice, or this machine's devices."""
    if found.topology is None:
        return f"{found.devices} {found.platform} devices of this machine"
    several = f" x {found.topology.num_slices} slices" if found.topology.num_slices > 1 else ""
    return f"{found.topology.name}{several}"


def counted(number: int, what: str) -> str:
    """A number of things: "1 layout", "2 layouts"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def shapes_text(found: "Plan") -> str:
    """The shapes of the arguments."""
    joint = " @ " if found.program == "matmul" else ", "
    return joint.join("x".join(map(str, shape)) or "scalar" for shape in found.shapes)


def mesh_text(one: "Candidate") -> str:
    """The mesh of a candidate, and whether its devices are in an order of its own."""
    sizes = ",".join(f"{n}={s}" for n, s in zip(one.mesh.axis_names, one.mesh.shape, strict=True))
    return sizes if one.mesh.all_devices else f"{sizes} along the network"


def considered_text(found: "Plan") -> str:
    """How many layouts were considered, and how many compiled or measured."""
    large = f", {found.too_large} of them with blocks too large to fit" if found.too_large else ""
    verb = "measured" if found.measured else "compiled"
    extra = "" if found.reference is None else ", and R, the default layout of matmul_sharded"
    considered = counted(found.considered, "layout")
    return f"{considered} considered{large}; {len(found.candidates)} {verb}{extra}"


def remarks_on_rows(found: "Plan") -> list[str]:
    """Explanations of what some rows show."""
    shown = [one for _, one in found.rows]
    more = []
    if any(not one.mesh.all_devices for one in shown):
        more.append(
            "along the network: devices are ordered by chip coordinates, not by VM (--device-ids)"
        )
    if any(one.at_least for one in shown):
        more.append(">: XLA has no estimate for this layout, so the time is only a lower bound")
    notes = dict.fromkeys(note for one in shown for note in one.notes)
    return more + [f"note: {note}" for note in notes]


def verdict_text(found: "Plan") -> str:
    """Which layout is the fastest, and what ties with it."""
    best, reference = found.best, found.reference
    if best is None and found.interrupted:
        return "no layout that fits was found before the interruption"
    if best is None:
        if any(one.trouble and not one.refused for _, one in found.rows):
            return "no layout could be tried to its end"
        limit = "" if found.hbm_bytes is None else f" the {bytes_text(found.hbm_bytes)} of"
        return f"no layout that was tried fits{limit} a device"
    labels = {id(one): label for label, one in found.rows}
    name = labels[id(best)]
    default = ", the default layout of matmul_sharded"
    chosen = f"{name}{f'{default},' if best is reference else ''}"
    if len(found.tied) > 1:
        others = [labels[id(one)] for one in found.tied if one is not best]
        why = (
            "the default is preferred"
            if best is reference
            else f"{name} is the first of them in the table"
        )
        within = "as times of equal runs do" if found.measured else "less than the model resolves"
        return (
            f"{chosen} ties with {' and '.join(others)}: their times differ by less than "
            f"{100 * found.tie:g} %, {within}; {why}"
        )
    if best is not reference and reference is not None and reference.seconds and best.seconds:
        part = best.seconds / reference.seconds
        return f"{name} takes {part:.2f} of the time of R{default}"
    return f"{chosen} is the fastest"
