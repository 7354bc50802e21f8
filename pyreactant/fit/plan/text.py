"""A plan as text: a table, a picture of time against memory, and command lines for its best layout.

The page has the same sentences.
"""

import io
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...arrays.draw import SCATTER_WIDTH, Point, scatter
from ...arrays.runtimes.known import MOST_CPU_DEVICES
from ...arrays.sharding import NamedSharding
from ...arrays.text import bytes_text, seconds_text
from ...base.document.parts import Cell, Lines, Paragraph, Table
from ...base.document.terminal import printed

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from .report import Candidate, Plan

_FILE_WIDTH = 120


def text(found: "Plan") -> str:
    """The report as plain text of at most 120 columns, except for command lines."""
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, width=_FILE_WIDTH, highlight=False, no_color=True).print(
        Shown(found), crop=False
    )
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


@dataclass(frozen=True, slots=True)
class Shown:
    """What rich prints of a plan, for the width of the terminal."""

    plan: "Plan"

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        """The parts in order."""
        yield from printed(_parts(self.plan, options.max_width))


def _parts(found: "Plan", width: int) -> Iterator[Paragraph | Lines | Table]:
    yield from map(Paragraph, _head(found))
    if found.rows:
        yield _table(found)
        yield from map(Paragraph, _legend(found))
    yield from _picture(found, width)
    yield Paragraph(verdict_text(found))
    commands = found.commands()
    if commands:
        yield Paragraph("")
    yield from (Lines(f"{where + ':':<12}{line}") for where, line in commands.items())
    yield from map(Paragraph, remarks(found))


def _head(found: "Plan") -> Iterator[str]:
    yield f"plan of {found.program} {shapes_text(found)} {found.dtype} for {where_text(found)}"
    yield considered_text(found)
    if not found.measured:
        yield "all times are estimates, nothing was run"
    if found.interrupted:
        yield "interrupted: these are the results so far"


def _legend(found: "Plan") -> Iterator[str]:
    columns = MEASURED_LEGEND if found.measured else LEGEND
    yield from (f"{name}: {meaning}" for name, meaning in columns.items())
    yield from remarks_on_rows(found)
    troubles: dict[str, list[str]] = {}
    for label, one in found.rows:
        if one.trouble:
            troubles.setdefault(one.trouble, []).append(label)
    for trouble, labels in troubles.items():
        yield f"{', '.join(labels)}: {trouble}"


def _picture(found: "Plan", width: int) -> Iterator[Paragraph | Lines]:
    points = [
        Point(label, one.bytes_per_device or one.layout.memory_bytes, one.seconds)
        for label, one in found.rows
        if one.seconds is not None
    ]
    lines = scatter(points, found.hbm_bytes, min(width, SCATTER_WIDTH))
    if not lines:
        return
    yield Paragraph("")
    yield Lines("\n".join(lines))
    limit = "; ┊ is what a device has" if any("┊" in line for line in lines) else ""
    yield Paragraph(f"time of a call (up), against bytes on each device (to the right){limit}")
    yield Paragraph("")


def _table(found: "Plan") -> Table:
    names = array_names(found)
    times = ["measured"] if found.measured else ["estimate", "XLA", "links"]
    rows = []
    for label, one in found.rows:
        specs = list(one.texts())
        texts = [label, mesh_text(one), *specs, *[""] * (len(names) - len(specs))]
        texts += times_of(found, one)
        sizes = (one.sent_bytes, one.bytes_per_device)
        texts += ["-" if size is None else bytes_text(size) for size in sizes]
        rows.append([Cell(text, "strong" if one is found.best else "") for text in texts])
    head = ["", "mesh", *names, *times, "sends", "per device"]
    first = 2 + len(names)
    return Table("", head, rows, numbers=range(first, len(head)))


def array_names(found: "Plan") -> list[str]:
    """Names of the arrays of the program."""
    if found.program == "matmul":
        return ["x", "y", "product"]
    return [f"argument {number}" for number in range(len(found.shapes))]


def times_of(found: "Plan", one: "Candidate") -> list[str]:
    """The time, and the estimates that it is the largest of; "-" for those that are unknown."""
    times = [one.seconds] if found.measured else [one.seconds, one.xla_seconds, one.link_seconds]
    first, *others = ("-" if value is None else seconds_text(value) for value in times)
    return [f"> {first}" if one.at_least else first, *others]


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


_LARGE, _SMALL = 4096, 512
"""A product with a larger side is tried here with sides of about the smaller length."""


def commands(found: "Plan") -> dict[str, str]:
    """The command lines; see `Plan.commands`."""
    best = found.best
    if best is None or found.program != "matmul":
        return {}
    (m, k), (_, n) = found.shapes
    whole = _matmul(found, best, (m, k, n))
    cpu = ["--platform", "cpu", "--devices-per-process", str(found.devices)]
    if found.measured:
        where = cpu if found.platform == "cpu" else ["--platform", found.platform]
        return {"matmul": shlex.join(["pyreactant", *whole, *where])}
    lines = dict(_here(found, best, cpu)) if found.devices <= MOST_CPU_DEVICES else {}
    assert found.topology is not None
    slices = ["--topology", found.topology.accelerator_type]
    slices += ["--slices", str(found.topology.num_slices)]
    account = ["--name", "NAME", "--project", "PROJECT", "--zone", "ZONE"]
    module = ["--", "-m", "pyreactant", *whole]
    lines["slurm"] = shlex.join(["pyreactant", "run", "--on", "slurm", "--nodes", "NODES", *module])
    lines["tpu"] = shlex.join(["pyreactant", "run", "--on", "tpu", *slices, *account, *module])
    return lines


def remarks(found: "Plan") -> Iterator[str]:
    """Sentences about the command lines."""
    best, lines = found.best, found.commands()
    if best is None or found.measured or not lines:
        return
    sizes, devices = _tried(found, best), counted(found.devices, "device")
    here = [name for name in ("matmul", "run", "crosscheck") if name in lines]
    if here:
        size = (
            "" if sizes == _sides(found) else f" with smaller sizes ({'x'.join(map(str, sizes))})"
        )
        yield f"{', '.join(here)}: for CPU devices of this machine, {found.devices} in total{size}."
    if "crosscheck" not in lines:
        yield (
            "There is no crosscheck command for this layout: crosscheck takes neither --out-spec "
            f"nor --device-ids, and up to {MOST_CPU_DEVICES} devices."
        )
    yield (
        f"slurm, tpu: replace NODES by the number of nodes that have {devices} in total, and NAME, "
        "PROJECT and ZONE by your own for Cloud TPU, which costs money."
    )


def _here(found: "Plan", best: "Candidate", cpu: list[str]) -> Iterator[tuple[str, str]]:
    """Commands for CPU devices of this machine."""
    small = _matmul(found, best, _tried(found, best))
    yield "matmul", shlex.join(["pyreactant", *small, *cpu])
    several = 2 if found.devices % 2 == 0 else 1
    there = ["--platform", "cpu", "--processes", str(several)]
    there += ["--devices-per-process", str(found.devices // several)]
    yield "run", shlex.join(["pyreactant", "run", *there, "--", "-m", "pyreactant", *small])
    flags = best.flags()
    if "--out-spec" in flags or "--device-ids" in flags:
        return
    size = _multiple(math.lcm(*_cuts(best)), min(_SMALL, max(_sides(found))))
    words = ["pyreactant", "crosscheck", "matmul", "--size", str(size), "--dtype", found.dtype]
    words += ["--platform", "cpu", "--processes", "1", *cpu[2:], *flags[:2]]
    yield "crosscheck", shlex.join([*words, "--spec", ";".join(best.texts()[:2])])


def _matmul(found: "Plan", best: "Candidate", sides: tuple[int, ...]) -> list[str]:
    m, k, n = sides
    sizes = ["--size", str(m)] if m == k == n else ["--m", str(m), "--k", str(k), "--n", str(n)]
    precision = ["--precision", found.precision] if found.precision else []
    return ["matmul", *sizes, "--dtype", found.dtype, *precision, *best.flags()]


def _sides(found: "Plan") -> tuple[int, int, int]:
    (m, k), (_, n) = found.shapes
    return m, k, n


def _tried(found: "Plan", best: "Candidate") -> tuple[int, ...]:
    """The sides m, k and n that are tried on this machine; blocks stay equal."""
    sides, cuts = _sides(found), _cuts(best)
    if max(sides) <= _LARGE:
        return sides
    if len(set(sides)) == 1:
        cuts = (math.lcm(*cuts),) * 3
    return tuple(min(s, _multiple(cut, _SMALL)) for s, cut in zip(sides, cuts, strict=True))


def _cuts(best: "Candidate") -> tuple[int, int, int]:
    """Numbers that m, k and n must be multiples of."""
    x, y, c = (
        NamedSharding(best.mesh, spec).cuts(2) for spec in (*best.specs, best.out_spec or ())
    )
    return math.lcm(x[0], c[0]), math.lcm(x[1], y[0]), math.lcm(y[1], c[1])


def _multiple(step: int, least: int) -> int:
    return step * math.ceil(least / step)
