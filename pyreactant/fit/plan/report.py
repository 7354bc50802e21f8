"""Plan: meshes and specs, the best first, as plain data, and what shows it."""

import math
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...arrays.runtimes.known import MOST_CPU_DEVICES
from ...arrays.sharding import NamedSharding
from ...arrays.text import bytes_text, ranges_text, seconds_text, spec_text
from ...base.counted import counted
from ...base.document.page import HasPage
from ...base.document.parts import (
    Cell,
    Document,
    Group,
    Label,
    Lines,
    Paragraph,
    Part,
    Picture,
    Rectangle,
    Section,
    Table,
)
from ...base.document.terminal import HasText
from ...base.slices.topology import Topology, slices_text
from .candidate import Candidate, ranked


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(HasText, HasPage):
    """The result of `plan`.

    Attributes:
        program: Name of the program.
        shapes: Shapes of the arguments.
        dtype: Element type of the arguments.
        precision: The requested precision.
        topology: The slice; None if this machine was measured.
        platform: "tpu", or the platform of the measured devices.
        devices: Number of devices.
        hbm_bytes: Memory of each device; None if unknown.
        candidates: Candidates without the reference, the best first.
        reference: The default layout of `matmul_sharded`, for comparison; None if its specs do not
            divide the sizes, and for other programs.
        considered: Number of layouts considered.
        too_large: Number of these whose blocks do not fit.
        interrupted: Whether it was stopped before all candidates were tried.
        peak_bytes: Most memory that one compilation took; None if nothing was compiled.
        at_once: Most compilations at a time.

    Examples:
        >>> found_plan.program, found_plan.devices, len(found_plan.candidates)
        ('matmul', 8, 1)
    """

    program: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    precision: str | None
    topology: Topology | None
    platform: str
    devices: int
    hbm_bytes: int | None
    candidates: tuple[Candidate, ...]
    reference: Candidate | None
    considered: int
    too_large: int
    interrupted: bool
    peak_bytes: int | None
    at_once: int

    @property
    def best(self) -> Candidate | None:
        """The fastest candidate, or the default layout if that ties with it; None if nothing fits.

        See `tied`. The default layout needs no options, so another one must be faster.
        """
        tied = self.tied
        return next((c for c in tied if c.reference), tied[0] if tied else None)

    @property
    def tied(self) -> tuple[Candidate, ...]:
        """The candidates, the default layout included, whose time the model calls the least.

        Estimates within 1 % are a tie, and measured times within 5 %.
        """
        usable = ranked([c for _, c in self.rows if c.fits and c.seconds is not None])
        if not usable or usable[0].seconds is None:
            return ()
        most = (1 + self.tie) * usable[0].seconds
        least = usable[0].at_least  # a lower bound ties only with other lower bounds
        return tuple(c for c in usable if (c.seconds or 0) <= most and c.at_least == least)

    @property
    def tie(self) -> float:
        """The relative difference of times below which they tie."""
        return 0.05 if self.measured else 0.01

    @property
    def rows(self) -> list[tuple[str, Candidate]]:
        """The candidates with their labels in the report: their rank, or R for the default."""
        rows = [(str(number), c) for number, c in enumerate(self.candidates, 1)]
        return rows + ([] if self.reference is None else [("R", self.reference)])

    @property
    def measured(self) -> bool:
        """Whether times were measured rather than estimated."""
        return self.topology is None

    def text(self) -> str:
        """The report for people, in at most 120 columns except for command lines."""
        return self.to_text()

    def parts(self) -> Iterator[Part]:
        """What a terminal shows."""
        yield Paragraph(
            f"plan of {self.program} {self._shapes_text} {self.dtype} for {self._where}"
        )
        yield Paragraph(self._considered_text)
        if not self.measured:
            yield Paragraph("all times are estimates, nothing was run")
        if self.interrupted:
            yield Paragraph("interrupted: these are the results so far")
        if self.rows:
            yield self._table("", with_trouble=False)
            yield from map(Paragraph, [*self._legend, *self._remarks_on_rows()])
            troubles: dict[str, list[str]] = {}
            for label, candidate in self.rows:
                if candidate.trouble:
                    troubles.setdefault(candidate.trouble, []).append(label)
            for trouble, labels in troubles.items():
                yield Paragraph(f"{', '.join(labels)}: {trouble}")
            yield Paragraph("")
        yield Paragraph(self._verdict)
        commands = self.commands()
        if commands:
            yield Paragraph("")
        yield from (Lines(f"{where + ':':<12}{line}") for where, line in commands.items())
        yield from map(Paragraph, self._remarks_on_commands())

    def document(self) -> Document:
        """What the page shows."""
        word = "Nothing fits" if self.best is None else "Fastest layout"
        if len(self.tied) > 1:
            word = "Layouts tie"
        if self.interrupted:
            word += " so far"
        arrays, commands = self._placement(), self.commands()
        bars = "Bars under times are shares of the longest one"
        if self.hbm_bytes:
            bars += f"; bars under bytes are shares of a device's {bytes_text(self.hbm_bytes)}"
        legend = [f"{self._considered_text}.", *self._legend, f"{bars}.", *self._remarks_on_rows()]
        table = self._table("Layouts, the fastest first", with_trouble=True)
        commands_parts = [Lines(line, where) for where, line in commands.items()]
        return Document(
            title=f"Plan of {self.program} on {self._where}",
            mark=Cell(word, "bad" if self.best is None else "good"),
            heading=f"{self.program} {self._shapes_text} {self.dtype} on {self._where}",
            summary=self._summary,
            small=["measured" if self.measured else "compiled, not run: all times are estimates"],
            sections=[
                Section("Layouts", [table, *map(_small, legend)], titled=False),
                Section(
                    "Which device holds what",
                    [_small(_PLACEMENT), Group(arrays, "figures narrow")] if arrays else [],
                ),
                Section(
                    "Commands for the chosen layout",
                    [*map(_small, self._remarks_on_commands()), *commands_parts],
                ),
            ],
        )

    def _table(self, caption: str, *, with_trouble: bool) -> Table:
        names = self._array_names
        times = ["measured"] if self.measured else ["estimate", "XLA", "links"]
        head = ["rank" if with_trouble else "", "mesh", *names, *times, "sends", "per device"]
        with_trouble = with_trouble and any(candidate.trouble for _, candidate in self.rows)
        most = max((candidate.seconds or 0.0 for _, candidate in self.rows), default=0.0) or 1.0
        rows = []
        for label, candidate in self.rows:
            size, hbm = candidate.bytes_per_device, self.hbm_bytes
            specs = [*candidate.layout.texts(), *["-"] * len(names)][: len(names)]
            first, *estimates = self._times_of(candidate)
            share = None if candidate.seconds is None else candidate.seconds / most
            row = [
                Cell(label, "good" if candidate is self.best else ""),
                *map(Cell, [candidate.mesh_text, *specs]),
                Cell(first, share=share),
                *map(Cell, [*estimates, bytes_text(candidate.sent_bytes)]),
                Cell(bytes_text(size), share=size / hbm if size and hbm else None),
            ]
            rows.append(row + [Cell(candidate.trouble)] * with_trouble)
        first_number = 2 + len(names)
        numbers = range(first_number, first_number + len(times) + 2)
        return Table(caption, head + ["trouble"] * with_trouble, rows, numbers=numbers)

    def _placement(self) -> list[Picture]:
        """The arrays of the best layout, each with its blocks and the devices that hold them."""
        best = self.best
        if best is None:
            return []
        shapes, specs = list(self.shapes), list(best.specs)
        if self.program == "matmul":
            shapes.append((shapes[0][0], shapes[1][1]))
            specs.append(best.layout.out_spec or ())
        return [
            _blocks_picture(name, shape, NamedSharding(best.mesh, spec))
            for name, shape, spec in zip(self._array_names, shapes, specs, strict=True)
        ]

    @property
    def _array_names(self) -> list[str]:
        if self.program == "matmul":
            return ["x", "y", "product"]
        return [f"argument {number}" for number in range(len(self.shapes))]

    def _times_of(self, candidate: Candidate) -> list[str]:
        """The time, and the estimates that it is the largest of; "-" for unknown ones."""
        times = [candidate.seconds]
        if not self.measured:
            times += [candidate.xla_seconds, candidate.link_seconds]
        first, *others = ("-" if value is None else seconds_text(value) for value in times)
        return [f"> {first}" if candidate.at_least else first, *others]

    @property
    def _legend(self) -> list[str]:
        columns = _MEASURED_LEGEND if self.measured else _LEGEND
        return [f"{name}: {meaning}" for name, meaning in columns.items()]

    @property
    def _where(self) -> str:
        """The slice, or this machine's devices."""
        if self.topology is None:
            return f"{counted(self.devices, f'{self.platform} device')} of this machine"
        return slices_text(self.topology)

    @property
    def _shapes_text(self) -> str:
        joint = " @ " if self.program == "matmul" else ", "
        return joint.join("x".join(map(str, shape)) or "scalar" for shape in self.shapes)

    @property
    def _considered_text(self) -> str:
        """How many layouts were considered, and how many compiled or measured."""
        large = f", {self.too_large} of them with blocks too large to fit" * bool(self.too_large)
        verb = "measured" if self.measured else "compiled"
        extra = "" if self.reference is None else ", and R, the default layout of matmul_sharded"
        considered = counted(self.considered, "layout")
        return f"{considered} considered{large}; {len(self.candidates)} {verb}{extra}"

    def _remarks_on_rows(self) -> Iterator[str]:
        """Explanations of what some rows show."""
        shown = [candidate for _, candidate in self.rows]
        if any(not candidate.mesh.all_devices for candidate in shown):
            yield (
                "along the network: devices are ordered by chip coordinates, not by VM "
                "(--device-ids)"
            )
        if any(candidate.at_least for candidate in shown):
            yield ">: XLA has no estimate for this layout, so the time is only a lower bound"
        notes = dict.fromkeys(note for candidate in shown for note in candidate.notes)
        yield from (f"note: {note}" for note in notes)

    @property
    def _limit(self) -> str:
        return "" if self.hbm_bytes is None else f" the {bytes_text(self.hbm_bytes)} of"

    @property
    def _summary(self) -> str:
        best = self.best
        if best is None or best.seconds is None:
            return f"No layout was found that fits{self._limit} a device."
        least = "at least " if best.at_least else ""
        specs, seconds = "; ".join(best.layout.texts()), seconds_text(best.seconds)
        return f"{best.mesh_text}, sharded by {specs}: {least}{seconds}. {self._verdict}."

    @property
    def _verdict(self) -> str:
        """Which layout is the fastest, and what ties with it."""
        best, reference = self.best, self.reference
        if best is None and self.interrupted:
            return "no layout that fits was found before the interruption"
        if best is None:
            if any(row.trouble and not row.refused for _, row in self.rows):
                return "no layout could be tried to its end"
            return f"no layout that was tried fits{self._limit} a device"
        labels = {id(candidate): label for label, candidate in self.rows}
        name = labels[id(best)]
        default = ", the default layout of matmul_sharded"
        chosen = f"{name}{f'{default},' if best is reference else ''}"
        if len(self.tied) > 1:
            others = [labels[id(other)] for other in self.tied if other is not best]
            why = f"{name} is the first of them in the table"
            if best is reference:
                why = "the default is preferred"
            within = "as times of equal runs do"
            if not self.measured:
                within = "less than the model resolves"
            return (
                f"{chosen} ties with {' and '.join(others)}: their times differ by less than "
                f"{100 * self.tie:g} %, {within}; {why}"
            )
        if best is not reference and reference is not None and reference.seconds and best.seconds:
            part = best.seconds / reference.seconds
            return f"{name} takes {part:.2f} of the time of R{default}"
        return f"{chosen} is the fastest"

    def commands(self) -> dict[str, str]:
        """Command lines for the best candidate, by name.

        "matmul", "run" and "crosscheck" try the layout on CPU devices of this machine, large
        products with smaller sizes. "slurm" and "tpu" run the product itself; words such as ZONE
        stand for what the user fills in. {} without a best candidate and for other programs than a
        product. If this machine was measured, only "matmul".
        """
        best = self.best
        if best is None or self.program != "matmul":
            return {}
        whole = self._matmul(best, self._sides)
        cpu = ["--platform", "cpu", "--devices-per-process", str(self.devices)]
        if self.topology is None:
            where = cpu if self.platform == "cpu" else ["--platform", self.platform]
            return {"matmul": shlex.join(["pyreactant", *whole, *where])}
        lines = dict(self._commands_here(best, cpu)) if self.devices <= MOST_CPU_DEVICES else {}
        run, module = ["pyreactant", "run", "--on"], ["--", "-m", "pyreactant", *whole]
        slices = ["--topology", self.topology.accelerator_type]
        slices += ["--slices", str(self.topology.num_slices)]
        account = ["--name", "NAME", "--project", "PROJECT", "--zone", "ZONE"]
        lines["slurm"] = shlex.join([*run, "slurm", "--nodes", "NODES", *module])
        lines["tpu"] = shlex.join([*run, "tpu", *slices, *account, *module])
        return lines

    def _commands_here(self, best: Candidate, cpu: list[str]) -> Iterator[tuple[str, str]]:
        """Commands for CPU devices of this machine."""
        small = self._matmul(best, _sides_here(best, self._sides))
        yield "matmul", shlex.join(["pyreactant", *small, *cpu])
        several = 2 if self.devices % 2 == 0 else 1
        there = ["--platform", "cpu", "--processes", str(several)]
        there += ["--devices-per-process", str(self.devices // several)]
        yield "run", shlex.join(["pyreactant", "run", *there, "--", "-m", "pyreactant", *small])
        flags = best.layout.flags()
        if "--out-spec" in flags or "--device-ids" in flags:
            return
        size = _multiple(math.lcm(*_cuts(best)), min(_SMALL, max(self._sides)))
        words = ["pyreactant", "crosscheck", "matmul", "--size", str(size), "--dtype", self.dtype]
        words += ["--platform", "cpu", "--processes", "1", *cpu[2:], *flags[:2]]
        yield "crosscheck", shlex.join([*words, "--spec", ";".join(best.layout.texts()[:2])])

    def _matmul(self, best: Candidate, sides: tuple[int, ...]) -> list[str]:
        m, k, n = sides
        sizes = ["--m", str(m), "--k", str(k), "--n", str(n)]
        if m == k == n:
            sizes = ["--size", str(m)]
        precision = ["--precision", self.precision] if self.precision else []
        return ["matmul", *sizes, "--dtype", self.dtype, *precision, *best.layout.flags()]

    @property
    def _sides(self) -> tuple[int, int, int]:
        (m, k), (_, n) = self.shapes
        return m, k, n

    def _remarks_on_commands(self) -> Iterator[str]:
        best, lines = self.best, self.commands()
        if best is None or self.measured or not lines:
            return
        sizes, devices = _sides_here(best, self._sides), counted(self.devices, "device")
        here = [name for name in ("matmul", "run", "crosscheck") if name in lines]
        if here:
            size = f" with smaller sizes ({'x'.join(map(str, sizes))})"
            yield (
                f"{', '.join(here)}: for CPU devices of this machine, {self.devices} in total"
                f"{'' if sizes == self._sides else size}."
            )
        if "crosscheck" not in lines:
            yield (
                "There is no crosscheck command for this layout: crosscheck takes neither "
                f"--out-spec nor --device-ids, and up to {MOST_CPU_DEVICES} devices."
            )
        yield (
            f"slurm, tpu: replace NODES by the number of nodes that have {devices} in total, and "
            "NAME, PROJECT and ZONE by your own for Cloud TPU, which costs money."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {
            **plain,
            "topology": None if self.topology is None else self.topology.to_dict(),
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "reference": None if self.reference is None else self.reference.to_dict(),
            "best": None if self.best is None else self.best.to_dict(),
            "measured": self.measured,
            "commands": self.commands(),
        }


_LEGEND = {
    "estimate": "time of a call, the largest of XLA, links and the rooflines",
    "XLA": "the compiler's own estimate",
    "links": "time until the busiest link has carried its data",
    "sends": "bytes that a device sends in a call",
    "per device": "memory that a device needs",
}
"""The columns of a plan for a slice."""

_MEASURED_LEGEND = {
    "measured": "median time of five calls",
    "sends": "bytes that a device sends in a call, counted",
    "per device": "memory of a device's blocks",
}
"""The columns of a plan for this machine."""

_PLACEMENT = "The blocks of the chosen layout; the numbers are positions in pyreactant.devices()."

_LARGE, _SMALL = 4096, 512
"""A product with a larger side is tried here with sides of about the smaller length."""


def _small(text: str) -> Paragraph:
    return Paragraph(text, "small")


def _sides_here(best: Candidate, sides: tuple[int, ...]) -> tuple[int, ...]:
    """The sides m, k and n that are tried on this machine; blocks stay equal."""
    cuts = _cuts(best)
    if max(sides) <= _LARGE:
        return sides
    if len(set(sides)) == 1:
        cuts = (math.lcm(*cuts),) * 3
    return tuple(min(s, _multiple(cut, _SMALL)) for s, cut in zip(sides, cuts, strict=True))


def _cuts(best: Candidate) -> tuple[int, int, int]:
    """Numbers that m, k and n must be multiples of."""
    x, y, c = (
        NamedSharding(best.mesh, spec).cuts(2) for spec in (*best.specs, best.layout.out_spec or ())
    )
    return math.lcm(x[0], c[0]), math.lcm(x[1], y[0]), math.lcm(y[1], c[1])


def _multiple(step: int, least: int) -> int:
    return step * math.ceil(least / step)


_WIDTH = 360.0
"""Width of a picture in its own units; one is about a pixel."""

_LEAST = 0.3
"""Smallest ratio of sides of a drawn matrix."""

_MOST_NAMED, _ROOM = 8, 14
"""Blocks along a side up to which each block names its devices, and characters of the names."""


def _blocks_picture(name: str, shape: tuple[int, ...], sharding: NamedSharding) -> Picture:
    """The blocks of an array, and the devices that hold them if they are few.

    It shows the last two dimensions; those before are drawn as one.
    """
    devices_of: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        flat = [(0, 1), (0, 1), *((s.start, s.stop) for s in index)]
        devices_of.setdefault(tuple(flat[-2:]), []).append(device)
    rows, columns = ([1, 1, *shape])[-2:]
    height = _WIDTH * min(1.0, max(_LEAST, rows / columns))
    width = _WIDTH * min(1.0, max(_LEAST, columns / rows))
    down, right = (len({place[side] for place in devices_of}) for side in (0, 1))
    named = max(down, right) <= _MOST_NAMED
    rectangles, labels = [], []
    for ((top, bottom), (left, end)), devices in devices_of.items():
        x, y = round(width * left / columns, 2), round(height * top / rows, 2)
        across, along = width * (end - left) / columns, height * (bottom - top) / rows
        text = ranges_text(devices) if named else ""
        title = f"devices {text}" if named else ""
        rectangles.append(Rectangle(x, y, round(across, 2), round(along, 2), title=title))
        if named:
            text = textwrap.shorten(text, _ROOM, placeholder=" ...")
            labels.append(Label(round(x + across / 2, 2), round(y + along / 2, 2), text, "middle"))
    notes = [] if named else [f"{down} x {right} blocks"]
    notes += ["of its last two dimensions"] if len(shape) > 2 else []
    size = "x".join(map(str, shape)) or "scalar"
    return Picture(
        text=f"Blocks of {name} and the devices that hold them",
        width=_WIDTH,
        height=round(height, 2),
        rectangles=rectangles,
        labels=labels,
        caption=name,
        detail=f"{size} by {spec_text(sharding.axes(len(shape)))}",
        note="; ".join(notes),
        look="narrow",
    )
