"""The collectives of an optimised HLO program, in the order in which a device runs them."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .collective import Collective, parse_groups, parse_pairs


class Instruction(NamedTuple):
    """A line of a computation.

    Attributes:
        shape: Shape of its result.
        opcode: Its operation, such as "add".
        operands: Names of its operands; of a constant, its value.
        rest: The line from the operands on.
        root: Whether it is the result of its computation.
    """

    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str
    root: bool


Computation = Mapping[str, Instruction]
"""The instructions of a computation by their names, in order."""

COLLECTIVE_OPS = (
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
"""Operations that move data between devices; each may have a ``-start`` and a ``-done`` form."""

_BITS = {"pred": 8, "token": 0, "opaque": 0, "bf16": 16, "c64": 64, "c128": 128}
_NUMBER_OF_BITS = re.compile(r"[a-z]+(\d+)")
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r"\s*([a-z][a-z\-]*)(?=\()")
_OPERANDS = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)")
_SAME_VALUE = ("copy", "convert", "bitcast", "copy-done", "copy-start")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation|branch_computations|"
    r"called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_LOOP = re.compile(r"condition=%([\w.\-]+), body=%([\w.\-]+)")


def collectives(text: str, num_partitions: int) -> tuple[Collective, ...]:
    """The collectives of one device, from the program's entry on.

    Args:
        text: Optimised HLO, from ``compiled.as_text()``.
        num_partitions: Number of the program's partitions.

    Raises:
        RequirementError: Replica groups have an unknown form.
    """
    computations, entry = _computations(text)
    return tuple(_walk(computations, entry, 1, num_partitions))


def result_shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """The shapes of the program's results on one device.

    Args:
        text: As for `collectives`; its first line ends like ``...->(f32[8,4]{1,0}, s32[])}``.
    """
    _, _, layout = text.partition("entry_computation_layout={")
    _, _, results = layout.partition("->")
    listed = re.match(r"\(?(?:[^{}]|\{[^{}]*\})*", results)
    return tuple(_sides(sizes) for _, sizes in _SHAPE.findall(listed[0] if listed else ""))


def shape_bytes(text: str) -> int:
    """Bytes of an HLO shape, or of all shapes in a tuple; layouts do not matter."""
    return sum(math.prod(_sides(sizes)) * _bits(kind) // 8 for kind, sizes in _SHAPE.findall(text))


def _sides(sizes: str) -> tuple[int, ...]:
    """The sides in a shape's brackets; a dynamic one, such as "<=8", counts as its bound."""
    return tuple(int(n.lstrip("<=")) for n in sizes.split(",") if n)


def _bits(kind: str) -> int:
    number = _NUMBER_OF_BITS.match(kind)  # f32, s8, u4, f8e4m3fn
    return _BITS.get(kind, int(number[1]) if number else 0)


def _computations(text: str) -> tuple[dict[str, dict[str, Instruction]], str]:
    """The program's computations by their names, and the name of the entry."""
    computations: dict[str, dict[str, Instruction]] = {}
    entry = ""
    lines: dict[str, Instruction] = {}
    for line in text.splitlines():
        if line.endswith("{") and line[:1] not in (" ", "}", ""):
            name = line.removeprefix("ENTRY ").split()[0].lstrip("%").partition("(")[0]
            lines = computations[name] = {}
            if line.startswith("ENTRY "):
                entry = name
        elif begin := _INSTRUCTION.match(line):
            lines[begin[2]] = _instruction(line, begin.end(), root=bool(begin[1]))
    return computations, entry


def _instruction(line: str, start: int, *, root: bool) -> Instruction:
    end = _end_of_shape(line, start)
    opcode = _OPCODE.match(line, end)
    rest = line[opcode.end() if opcode else end :]
    listed = _OPERANDS.match(rest)
    names = re.sub(r"/\*.*?\*/", "", listed[1]).split(",") if listed else []
    operands = tuple(name.strip().lstrip("%") for name in names)
    return Instruction(line[start:end], opcode[1] if opcode else "", operands, rest, root)


def _end_of_shape(line: str, start: int) -> int:
    depth = 0
    for position in range(start, len(line)):
        character = line[position]
        depth += (character in "([{") - (character in ")]}")
        if character == " " and depth == 0:
            return position
    return len(line)


def _walk(
    computations: Mapping[str, Computation], name: str, times: int | None, num_partitions: int
) -> Iterator[Collective]:
    for line in computations.get(name, {}).values():
        if line.opcode.endswith(("-done", "-update")):
            continue
        if line.opcode.removesuffix("-start") in COLLECTIVE_OPS:
            yield _collective(line, times, num_partitions)
            continue
        inner = times
        if line.opcode == "while":
            trips = _trips(computations, computations[name], line)
            inner = None if trips is None or times is None else trips * times
        for called in _CALLED.findall(line.rest):
            for callee in called.strip("{}").split(","):
                callee = callee.strip().lstrip("%")
                yield from _walk(computations, callee, inner, num_partitions)


def _trips(
    computations: Mapping[str, Computation], within: Computation, loop: Instruction
) -> int | None:
    """How often a loop's body runs; None if that is unknown.

    libtpu's final text has no trip counts, so this reads the loop's counter: it starts as a
    constant, the condition compares it with a constant, and the body adds a constant to it.
    """
    if count := _TRIPS.search(loop.rest):
        return int(count[1])
    named = _LOOP.search(loop.rest)
    if named is None:
        return None
    condition, body = (computations.get(name, {}) for name in named.groups())
    test = _root(condition)
    if test is None or test.opcode != "compare":
        return None
    counter = _index(condition, test.operands[0])
    limit = _value(condition, test.operands[1])
    start = _start(within, loop.operands[0], counter)
    step = _step(body, counter)
    if limit is None or start is None or not step:
        return None
    if "direction=LT" in test.rest:
        return max(0, -(-(limit - start) // step))
    if "direction=LE" in test.rest:
        return max(0, (limit - start) // step + 1)
    return None


def _step(body: Computation, counter: int | None) -> int | None:
    root = _root(body)
    if root is None or counter is None or root.opcode != "tuple" or counter >= len(root.operands):
        return None
    sum_ = _source(body, root.operands[counter])
    if sum_ is None or sum_.opcode != "add":
        return None
    for name, other in (sum_.operands, sum_.operands[::-1]):
        if _index(body, name) == counter:
            return _value(body, other)
    return None


def _start(within: Computation, operand: str, counter: int | None) -> int | None:
    first = within.get(operand)
    if first is None or counter is None or first.opcode != "tuple":
        return None
    return _value(within, first.operands[counter]) if counter < len(first.operands) else None


def _index(within: Computation, name: str) -> int | None:
    """The index of a name's value in the computation's parameter, a tuple."""
    source = _source(within, name)
    if source is None or source.opcode != "get-tuple-element":
        return None
    index = re.search(r"index=(\d+)", source.rest)
    return int(index[1]) if index else None


def _value(within: Computation, name: str) -> int | None:
    source = _source(within, name)
    if source is None or source.opcode != "constant":
        return None
    return int(source.operands[0]) if re.fullmatch(r"-?\d+", source.operands[0]) else None


def _source(within: Computation, name: str) -> Instruction | None:
    """What computes a name's value, before it was copied or converted."""
    source = within.get(name)
    while source is not None and source.opcode in _SAME_VALUE:
        source = within.get(source.operands[0])
    return source


def _root(within: Computation) -> Instruction | None:
    return next((line for line in within.values() if line.root), None)


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


def _collective(line: Instruction, times: int | None, num_partitions: int) -> Collective:
    shape, opcode, rest = line.shape, line.opcode, line.rest
    kind = opcode.removesuffix("-start")
    elements = _elements(shape)
    if kind in ("send", "recv"):
        shape = elements[0]  # the others are a context and a token
    elif opcode in ("all-gather-start", "collective-permute-start") and len(elements) > 1:
        shape = elements[1]  # the first one is the operand
    groups = _after(rest, "replica_groups=")
    pairs = _after(rest, "source_target_pairs=")
    channel = re.search(r"\bchannel_id=(\d+)", rest)
    transfer = re.search(r'_xla_megascale_transfer_type="(\w+)"', rest)
    return Collective(
        op=kind,
        shape=", ".join(f"{k}[{sizes}]" for k, sizes in _SHAPE.findall(shape)),
        bytes=shape_bytes(shape),
        times=times,
        groups=parse_groups(groups, num_partitions) if groups is not None else (),
        pairs=parse_pairs(pairs) if pairs is not None else (),
        channel=int(channel[1]) if channel else None,
        across_slices="xla_megascale_runtime" in rest,
        note=transfer[1] if transfer else "",
    )


def _after(rest: str, attribute: str) -> str | None:
    start = rest.find(attribute)
    return None if start < 0 else rest[start + len(attribute) :]
