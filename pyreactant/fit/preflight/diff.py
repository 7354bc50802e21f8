"""Difference: two preflights side by side, such as a program that JAX and Reactant lowered."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...arrays.text import bytes_text, seconds_text
from ...base.counted import counted
from ...base.document.page import HasPage
from ...base.document.parts import Cell, Document, Paragraph, Part, Section, Table
from ...base.document.terminal import HasText
from ..hlo.collective import Collective, sent_bytes
from .report import Preflight, note_parts


@dataclass(frozen=True, slots=True)
class Difference(HasText, HasPage):
    """Two programs compiled for one slice.

    Attributes:
        left: The first program's Preflight.
        right: The second program's.
    """

    left: Preflight
    right: Preflight

    @property
    def same_collectives(self) -> bool:
        """Whether both exchange the same bytes by the same operations, in the same order.

        Shapes are not compared: Reactant's dimensions are reversed.
        """
        return [_key(c) for c in self.left.collectives] == [_key(c) for c in self.right.collectives]

    @property
    def same_but_for_order(self) -> bool:
        """Whether both exchange the same bytes by the same operations, in any order."""
        left, right = self.left.collectives, self.right.collectives
        return Counter(map(_key, left)) == Counter(map(_key, right))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {
            "left": self.left.to_dict(),
            "right": self.right.to_dict(),
            "same_collectives": self.same_collectives,
            "same_but_for_order": self.same_but_for_order,
        }

    def text(self) -> str:
        """The report for people, in at most 120 columns except for command lines."""
        return self.to_text()

    def parts(self) -> Iterator[Part]:
        """What a terminal shows."""
        slice_ = self.left.topology
        yield Paragraph(
            f"two programs for {slice_.name}, {counted(slice_.devices, 'device')}; compiled, "
            "not run"
        )
        yield self._table("")
        yield Paragraph(self._verdict)
        yield from note_parts(self._notes)

    def document(self) -> Document:
        """What the page shows."""
        slice_ = self.left.topology
        same, fits = self.same_but_for_order, self.left.fits and self.right.fits
        look = "good" if same and fits else "warn" if fits else "bad"
        left, right = self._names
        parts = [self._table("Both programs"), *note_parts(self._notes)]
        return Document(
            title=f"Two programs on {slice_.name}",
            mark=Cell("Same collectives" if same else "Different collectives", look),
            heading=f"{left} and {right} on {slice_.name}",
            summary=self._verdict,
            small=[counted(slice_.devices, "device"), "compiled, not run"],
            sections=[Section("Comparison", parts, titled=False)],
        )

    @property
    def _names(self) -> list[str]:
        return [f"{report.program} ({report.source})" for report in (self.left, self.right)]

    @property
    def _notes(self) -> list[str]:
        return list(dict.fromkeys((*self.left.notes, *self.right.notes)))

    @property
    def _verdict(self) -> str:
        other = "the same in another order" if self.same_but_for_order else "DIFFERENT"
        same = "the same" if self.same_collectives else other
        return f"collectives are {same}; all times are estimates"

    def _table(self, caption: str) -> Table:
        rows = [[name, value(self.left), value(self.right)] for name, value in _QUANTITIES.items()]
        return Table(caption, ["quantity", *self._names], [*rows, *self._collectives()])

    def _collectives(self) -> Iterator[list[str]]:
        """Rows of the table: equal collectives share a row."""
        first, second = self.left.collectives, self.right.collectives
        keys = [_key(c) for c in first], [_key(c) for c in second]
        for tag, a, b, c, d in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
            if tag == "equal":
                for left, right in zip(first[a:b], second[c:d], strict=True):
                    yield ["collective", _collective(left), _collective(right)]
            else:
                yield from (["only left", _collective(left), ""] for left in first[a:b])
                yield from (["only right", "", _collective(right)] for right in second[c:d])


def _key(collective: Collective) -> tuple[object, ...]:
    size, times = collective.bytes, collective.times
    return collective.op, size, collective.group_size, times, collective.across_slices


def _collective(collective: Collective) -> str:
    axes = f" along {' and '.join(collective.axes)}" if collective.axes else ""
    where = " between slices" if collective.across_slices else ""
    return f"{collective.op} {bytes_text(collective.bytes)}{axes}{where}"


def _bytes(kind: str) -> Callable[[Preflight], str]:
    def text(report: Preflight) -> str:
        memory = report.bytes_per_device
        return "unknown" if memory is None else bytes_text(getattr(memory, kind))

    return text


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else seconds_text(value)


_QUANTITIES: dict[str, Callable[[Preflight], str]] = {
    "fits": lambda p: "yes" if p.fits else "NO",
    "bytes, total": _bytes("total"),
    "  arguments": _bytes("arguments"),
    "  outputs": _bytes("outputs"),
    "  temporaries": _bytes("temporaries"),
    "  code": _bytes("code"),
    "XLA's own estimate": lambda p: _seconds(p.seconds),
    "roofline, at least": lambda p: _seconds(p.roofline.seconds if p.roofline else None),
    "operations": lambda p: "unknown" if p.flops is None else f"{p.flops:.4g}",
    "sent by a device": lambda p: bytes_text(sent_bytes(p.collectives)),
}
