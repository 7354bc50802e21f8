"""The page of a plan."""

from typing import TYPE_CHECKING

from ..._core.text import bytes_text, format_mesh, seconds_text
from ..._pages.page import render
from ..._pages.parts import Cell, Table

if TYPE_CHECKING:
    from .report import Candidate, Plan


def page(found: "Plan") -> str:
    """The whole page.

    Raises:
        RequirementError: jinja2 is not installed.
    """
    best, where = found.best, _where(found)
    shapes = (" @ " if found.program == "matmul" else ", ").join(
        "x".join(map(str, shape)) for shape in found.shapes
    )
    word = "Nothing fits" if best is None else "Fastest layout"
    if found.interrupted:
        word += " so far"
    return render(
        "plan.html",
        title=f"Plan of {found.program} on {where}",
        mark=Cell(word, "bad" if best is None else "good"),
        heading=f"{found.program} {shapes} {found.dtype} on {where}",
        summary=_summary(found),
        small=["measured" if found.measured else "compiled, not run: all times are estimates"],
        table=_table(found),
        more=_remarks(found),
        commands=found.commands(),
    )


def _where(found: "Plan") -> str:
    if found.topology is None:
        return f"{found.devices} {found.platform} devices of this machine"
    several = f" x {found.topology.num_slices} slices" if found.topology.num_slices > 1 else ""
    return f"{found.topology.name}{several}"


def _summary(found: "Plan") -> str:
    best = found.best
    if best is None or best.seconds is None:
        limit = "" if found.hbm_bytes is None else f" the {bytes_text(found.hbm_bytes)} of"
        return f"No layout was found that fits{limit} a device."
    least = "at least " if best.at_least else ""
    specs, seconds = "; ".join(best.texts()), seconds_text(best.seconds)
    text = f"{mesh_text(best)}, sharded by {specs}: {least}{seconds}"
    reference = found.reference
    if reference is not None and reference.seconds:
        part = best.seconds / reference.seconds
        text += f", {part:.2f} of the time of the default layout of matmul_sharded"
    return f"{text}."


def mesh_text(one: "Candidate") -> str:
    """The mesh of a candidate, and whether its devices are in an order of its own."""
    text = format_mesh(one.mesh)
    return text if one.mesh.all_devices else f"{text} along the network"


def _remarks(found: "Plan") -> list[str]:
    tried = len(found.candidates) + (found.reference is not None)
    large = f", {found.too_large} of them too large to fit" if found.too_large else ""
    how = "measured" if found.measured else "compiled"
    more = [f"{found.considered} layouts were considered{large}; {how}: {tried}."]
    shown = [*found.candidates, *([found.reference] if found.reference else [])]
    if any(not one.mesh.all_devices for one in shown):
        more.append(
            "Along the network: devices are ordered by chip coordinates, not by VM (--device-ids)."
        )
    if any(one.at_least for one in shown):
        more.append("XLA has no estimate for times with >, so they are only lower bounds.")
    return more


def _table(found: "Plan") -> Table:
    rows = [(str(number), one) for number, one in enumerate(found.candidates, 1)]
    if found.reference is not None:
        rows.append(("default", found.reference))
    matmul = found.program == "matmul"
    names = ["x", "y", "product"] if matmul else [f"argument {i}" for i in range(len(found.shapes))]
    times = ["measured"] if found.measured else ["estimate", "XLA", "links"]
    head = ["rank", "mesh", *names, *times, "sends", "memory of a device"]
    first = 2 + len(names)
    troubles = any(one.trouble for _, one in rows)
    most = max((one.seconds or 0.0 for _, one in rows), default=0.0) or 1.0
    return Table(
        "Layouts, the fastest first",
        head + (["trouble"] if troubles else []),
        [_row(found, label, one, most)[: len(head) + troubles] for label, one in rows],
        numbers=range(first, first + len(times) + 2),
    )


def _row(found: "Plan", label: str, one: "Candidate", most: float) -> list[Cell | str]:
    times = [one.seconds] if found.measured else [one.seconds, one.xla_seconds, one.link_seconds]
    texts = ["-" if value is None else seconds_text(value) for value in times]
    first = f"> {texts[0]}" if one.at_least else texts[0]
    size, hbm = one.bytes_per_device, found.hbm_bytes
    memory = Cell(bytes_text(size), share=size / hbm if size and hbm else None)
    specs = list(one.texts())
    specs += ["-"] * ((3 if found.program == "matmul" else len(found.shapes)) - len(specs))
    return [
        Cell(label, "good" if one is found.best else ""),
        mesh_text(one),
        *specs[: 3 if found.program == "matmul" else len(found.shapes)],
        Cell(first, share=None if one.seconds is None else one.seconds / most),
        *texts[1:],
        bytes_text(one.sent_bytes),
        memory,
        one.trouble,
    ]
