"""How often a loop of an HLO program runs, where its counter says so.

libtpu's final text has no trip counts, so they are read from the counter: the condition compares
it with a constant, the body adds a constant to it, and it begins as one. Loops of other forms are
of unknown length.
"""

import re
from collections.abc import Mapping, Sequence

Computations = Mapping[str, Sequence[str]]
"""The lines of each computation."""

_OPERANDS = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)")
_SAME_VALUE = ("copy", "convert", "bitcast", "copy-done", "copy-start")


def trip_count(
    computations: Computations, where: str, operand: str, condition: str, body: str
) -> int | None:
    """How often the body runs; None where the counter is not a plain one.

    Args:
        computations: Of the program.
        where: The computation that the loop stands in.
        operand: Name of the tuple that the loop starts with.
        condition: Name of the computation that decides.
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
    """Which element of the computation's parameter a name is."""
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
    """Opcode, operands and what follows them."""
    found = re.search(r"[}\])] ([a-z][a-z\-]*)\(", line)
    operands = _OPERANDS.match(line, found.end() - 1) if found else None
    if found is None or operands is None:
        return None
    names = re.sub(r"/\*.*?\*/", "", operands[1]).split(",")
    return found[1], [name.strip().lstrip("%") for name in names], line[operands.end() :]
