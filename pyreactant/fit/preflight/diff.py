"""Difference: two preflights side by side, such as a program that JAX and Reactant lowered."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...arrays.text import bytes_text, seconds_text
from ...base.document.page import HasPage
from ...base.document.parts import Document
from ..hlo.collective import Collective, sent_bytes
from .report import Preflight
from .shown import difference_document


@dataclass(frozen=True, slots=True)
class Difference(HasPage):
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
        """Both side by side, as text for people."""
        return "\n".join(_lines(self))

    def __str__(self) -> str:
        return self.text()

    def document(self) -> Document:
        """What the page shows."""
        rows = [*_numbers(self.left, self.right), *_collectives(self)]
        return difference_document(self, rows, _verdict(self))


def _key(found: Collective) -> tuple[object, ...]:
    return found.op, found.bytes, found.group_size, found.times, found.across_slices


def _lines(found: Difference) -> Iterator[str]:
    left, right = found.left, found.right
    slice_ = left.topology
    rows = [
        ("", f"{left.program} ({left.source})", f"{right.program} ({right.source})"),
        *_numbers(left, right),
        *_collectives(found),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    yield f"two programs for {slice_.name}, {slice_.devices} devices; compiled, not run"
    for name, first, second in rows:
        yield f"{name.ljust(widths[0])}  {first.ljust(widths[1])}  {second}".rstrip()
    yield _verdict(found)
    for note in dict.fromkeys((*left.notes, *right.notes)):
        yield f"note: {note}"


def _verdict(found: Difference) -> str:
    other = "the same in another order" if found.same_but_for_order else "DIFFERENT"
    same = "the same" if found.same_collectives else other
    return f"collectives are {same}; all times are estimates"


def _numbers(left: Preflight, right: Preflight) -> Iterator[tuple[str, str, str]]:
    def both(name: str, shown: Callable[[Preflight], str]) -> tuple[str, str, str]:
        return name, shown(left), shown(right)

    yield both("fits", lambda p: "yes" if p.fits else "NO")
    yield both("bytes, total", lambda p: _bytes(p, "total"))
    yield both("  arguments", lambda p: _bytes(p, "arguments"))
    yield both("  outputs", lambda p: _bytes(p, "outputs"))
    yield both("  temporaries", lambda p: _bytes(p, "temporaries"))
    yield both("  code", lambda p: _bytes(p, "code"))
    yield both("XLA's own estimate", lambda p: _seconds(p.seconds))
    yield both("roofline, at least", lambda p: _seconds(p.roofline.seconds if p.roofline else None))
    yield both("operations", lambda p: "unknown" if p.flops is None else f"{p.flops:.4g}")
    yield both("sent by a device", lambda p: bytes_text(sent_bytes(p.collectives)))


def _collectives(found: Difference) -> Iterator[tuple[str, str, str]]:
    """Rows of the table: equal collectives share a row."""
    first, second = found.left.collectives, found.right.collectives
    matcher = difflib.SequenceMatcher(
        None, [_key(c) for c in first], [_key(c) for c in second], autojunk=False
    )
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            for one, other in zip(first[a:b], second[c:d], strict=True):
                yield "collective", _collective(one), _collective(other)
        else:
            for one in first[a:b]:
                yield "only left", _collective(one), ""
            for other in second[c:d]:
                yield "only right", "", _collective(other)


def _collective(found: Collective) -> str:
    axes = f" along {' and '.join(found.axes)}" if found.axes else ""
    where = " between slices" if found.across_slices else ""
    return f"{found.op} {bytes_text(found.bytes)}{axes}{where}"


def _bytes(found: Preflight, kind: str) -> str:
    memory = found.bytes_per_device
    return "unknown" if memory is None else bytes_text(getattr(memory, kind))


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else seconds_text(value)
