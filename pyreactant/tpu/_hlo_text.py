"""The collectives of an optimised HLO program, in the order in which a device meets them."""

import math
import re
from collections.abc import Iterator

from ._hlo import Collective
from ._hlo_groups import parse_groups, parse_pairs
from ._hlo_loops import trip_count

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
    "send",
    "recv",
)
"""The operations that move data between devices; ``-start`` forms count, ``-done`` do not."""

_BITS = {"pred": 8, "token": 0, "opaque": 0, "bf16": 16, "c64": 64, "c128": 128}
_NUMBER_OF_BITS = re.compile(r"[a-z]+(\d+)")
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?[\w.\-]+ = ")
_OPCODE = re.compile(r"\s*([a-z][a-z\-]*)\(")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation|branch_computations|"
    r"called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_LOOP = re.compile(r"%([\w.\-]+)\), condition=%([\w.\-]+), body=%([\w.\-]+)")


def collectives(text: str, num_partitions: int) -> tuple[Collective, ...]:
    """The exchanges that one device takes part in, from the program's entry on.

    Args:
        text: Optimised HLO, as ``compiled.as_text()`` gives it.
        num_partitions: Number of devices that the program is for.

    Raises:
        RequirementError: Replica groups are written in an unknown form.
    """
    computations, entry = _computations(text)
    return tuple(_walk(computations, entry, 1, num_partitions))


def result_shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """The shapes of the program's results on one device.

    Args:
        text: As for `collectives`; the first line says it, as ``...->(f32[8,4]{1,0}, s32[])}``.
    """
    _, _, layout = text.partition("entry_computation_layout={")
    _, _, results = layout.partition("->")
    found = re.match(r"\(?(?:[^{}]|\{[^{}]*\})*", results)
    return tuple(
        tuple(int(n.lstrip("<=")) for n in sizes.split(",") if n)
        for _, sizes in _SHAPE.findall(found[0] if found else "")
    )


def shape_bytes(text: str) -> int:
    """Bytes of an HLO shape, or of all shapes in a tuple; layouts do not matter."""
    return sum(
        math.prod(int(n.lstrip("<=")) for n in sizes.split(",") if n) * _bits(kind) // 8
        for kind, sizes in _SHAPE.findall(text)
    )


def _bits(kind: str) -> int:
    if kind in _BITS:
        return _BITS[kind]
    found = _NUMBER_OF_BITS.match(kind)  # f32, s8, u4, f8e4m3fn
    return int(found[1]) if found else 0


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """The lines of each computation, and the name of the entry."""
    computations: dict[str, list[str]] = {}
    entry, lines = "", []
    for line in text.splitlines():
        if line.endswith("{") and line[:1] not in (" ", "}", ""):
            name = line.removeprefix("ENTRY ").split()[0].lstrip("%").partition("(")[0]
            lines = computations[name] = []
            if line.startswith("ENTRY "):
                entry = name
        elif _INSTRUCTION.match(line):
            lines.append(line)
    return computations, entry


def _walk(
    computations: dict[str, list[str]], name: str, times: int | None, num_partitions: int
) -> Iterator[Collective]:
    for line in computations.get(name, ()):
        shape, opcode, rest = _split(line)
        if opcode.endswith(("-done", "-update")):
            continue
        kind = opcode.removesuffix("-start")
        if kind in KINDS:
            yield _collective(kind, opcode, shape, rest, times, num_partitions)
            continue
        inner = times
        if opcode == "while":
            trips = _trips(computations, name, rest)
            inner = None if trips is None or times is None else trips * times
        for called in _CALLED.findall(rest):
            for callee in called.strip("{}").split(","):
                callee = callee.strip().lstrip("%")
                yield from _walk(computations, callee, inner, num_partitions)


def _trips(computations: dict[str, list[str]], where: str, rest: str) -> int | None:
    """How often a loop runs, from what follows ``while(``."""
    if said := _TRIPS.search(rest):
        return int(said[1])
    found = _LOOP.match(rest)
    return trip_count(computations, where, *found.groups()) if found else None


def _split(line: str) -> tuple[str, str, str]:
    """Result shape, opcode, and what follows it."""
    start = line.index(" = ") + 3
    end = _end_of_shape(line, start)
    found = _OPCODE.match(line, end)
    return line[start:end], found[1] if found else "", line[found.end() if found else end :]


def _end_of_shape(line: str, start: int) -> int:
    depth = 0
    for position in range(start, len(line)):
        character = line[position]
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == " " and depth == 0:
            return position
    return len(line)


def _elements(shape: str) -> list[str]:
    """The elements of a tuple shape, or the shape itself."""
    if not shape.startswith("("):
        return [shape]
    elements, depth, start = [], 0, 1
    for position in range(1, len(shape)):
        character = shape[position]
        if depth == 0 and character in ",)":
            elements.append(shape[start:position].strip())
            start = position + 1
        depth += (character in "([{") - (character in ")]}")
    return elements


def _collective(
    kind: str, opcode: str, shape: str, rest: str, times: int | None, num_partitions: int
) -> Collective:
    elements = _elements(shape)
    if kind in ("send", "recv"):
        shape = elements[0]  # then a context and a token
    elif opcode in ("all-gather-start", "collective-permute-start") and len(elements) > 1:
        shape = elements[1]  # the operand stands before it
    groups = _after(rest, "replica_groups=")
    pairs = _after(rest, "source_target_pairs=")
    channel = re.search(r"\bchannel_id=(\d+)", rest)
    transfer = re.search(r'_xla_megascale_transfer_type="(\w+)"', rest)
    return Collective(
        kind,
        ", ".join(f"{k}[{sizes}]" for k, sizes in _SHAPE.findall(shape)),
        shape_bytes(shape),
        times,
        parse_groups(groups, num_partitions) if groups is not None else (),
        parse_pairs(pairs) if pairs is not None else (),
        channel=int(channel[1]) if channel else None,
        across_slices="xla_megascale_runtime" in rest,
        note=transfer[1] if transfer else "",
    )


def _after(rest: str, attribute: str) -> str | None:
    start = rest.find(attribute)
    return None if start < 0 else rest[start + len(attribute) :]
