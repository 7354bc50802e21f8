"""The collectives of an optimised HLO program, in the order in which a device runs them."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from .collective import Collective, parse_groups, parse_pairs

Computations = Mapping[str, Sequence[str]]
"""The lines of each computation."""

_OPERANDS = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)")
_SAME_VALUE = ("copy", "convert", "bitcast", "copy-done", "copy-start")


def trip_count(
    computations: Computations, where: str, operand: str, condition: str, body: str
) -> int | None:
    """How often a loop's body runs; None if that is unknown.

    libtpu's final text has no trip counts, so this reads the loop's counter: it starts as a
    constant, the condition compares it with a constant, and the body adds a constant to it.

    Args:
        computations: The program's computations.
        where: Name of the computation that has the loop.
        operand: Name of the tuple that the loop starts with.
        condition: Name of the computation that decides whether to go on.
        body: Name of the computation that is repeated.
    """
    test = _last(computations, condition)
    if test is None or test[0] != "compare":
        return None
    _, operands, rest = test
    counter = _index(computations, condition, operands[0])
    limit = _value(computations, condition, operands[1])
    start = _element(computations, where, operand, counter)
    step = _step(computations, body, counter)
    if limit is None or start is None or not step:
        return None
    if "direction=LT" in rest:
        return max(0, -(-(limit - start) // step))
    if "direction=LE" in rest:
        return max(0, (limit - start) // step + 1)
    return None


def _step(computations: Computations, body: str, counter: int | None) -> int | None:
    root = _last(computations, body)
    if root is None or counter is None or root[0] != "tuple" or counter >= len(root[1]):
        return None
    found = _find(computations, body, root[1][counter])
    while found is not None and found[0] in _SAME_VALUE:
        found = _find(computations, body, found[1][0])
    if found is None or found[0] != "add":
        return None
    one, other = found[1]
    if _index(computations, body, one) == counter:
        return _value(computations, body, other)
    return _value(computations, body, one) if _index(computations, body, other) == counter else None


def _element(computations: Computations, where: str, operand: str, index: int | None) -> int | None:
    found = _find(computations, where, operand)
    if found is None or index is None or found[0] != "tuple" or index >= len(found[1]):
        return None
    return _value(computations, where, found[1][index])


def _index(computations: Computations, where: str, name: str) -> int | None:
    """The index of a name's value in the computation's parameter, a tuple."""
    found = _find(computations, where, name)
    while found is not None and found[0] in _SAME_VALUE:
        found = _find(computations, where, found[1][0])
    if found is None or found[0] != "get-tuple-element":
        return None
    index = re.search(r"index=(\d+)", found[2])
    return int(index[1]) if index else None


def _value(computations: Computations, where: str, name: str) -> int | None:
    found = _find(computations, where, name)
    while found is not None and found[0] in _SAME_VALUE:
        found = _find(computations, where, found[1][0])
    if found is None or found[0] != "constant" or not re.fullmatch(r"-?\d+", found[1][0]):
        return None
    return int(found[1][0])


def _last(computations: Computations, where: str) -> tuple[str, list[str], str] | None:
    root = next((x for x in computations.get(where, ()) if x.lstrip().startswith("ROOT ")), None)
    return None if root is None else _read(root)


def _find(computations: Computations, where: str, name: str) -> tuple[str, list[str], str] | None:
    start = f"%{name} = "
    for line in computations.get(where, ()):
        if line.lstrip().removeprefix("ROOT ").startswith(start):
            return _read(line)
    return None


def _read(line: str) -> tuple[str, list[str], str] | None:
    """Opcode, operands and the rest of the line."""
    found = re.search(r"[}\])] ([a-z][a-z\-]*)\(", line)
    operands = _OPERANDS.match(line, found.end() - 1) if found else None
    if found is None or operands is None:
        return None
    names = re.sub(r"/\*.*?\*/", "", operands[1]).split(",")
    return found[1], [name.strip().lstrip("%") for name in names], line[operands.end() :]


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
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?[\w.\-]+ = ")
_OPCODE = re.compile(r"\s*([a-z][a-z\-]*)\(")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation|branch_computations|"
    r"called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_LOOP = re.compile(r"%([\w.\-]+)\), condition=%([\w.\-]+), body=%([\w.\-]+)")


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
        if opcode.removesuffix("-start") in COLLECTIVE_OPS:
            yield _collective(opcode, shape, rest, times=times, num_partitions=num_partitions)
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
    """How often a loop runs, from the text after ``while(``."""
    if count := _TRIPS.search(rest):
        return int(count[1])
    found = _LOOP.match(rest)
    return trip_count(computations, where, *found.groups()) if found else None


def _split(line: str) -> tuple[str, str, str]:
    """Result shape, opcode, and the rest of the line."""
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
    opcode: str, shape: str, rest: str, *, times: int | None, num_partitions: int
) -> Collective:
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
