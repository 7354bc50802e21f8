"""The pieces of a StableHLO module's text: brackets, types, shardings, meshes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .._errors import InvalidArgumentError, ShardingError
from .._mesh import Mesh

_TENSOR = re.compile(r"tensor<((?:[\d?]+x)*)(complex<\w+>|[\w.]+)")
_DTYPES = {"i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128"}
_MESH = re.compile(r'sdy\.mesh @"?([\w.\-]+)"? = <\[([^\]]*)\](?:, device_ids=\[([^\]]*)\])?>')
SDY = re.compile(r'sdy\.sharding = #sdy\.sharding<@"?([\w.\-]+)"?, \[')
_MHLO = re.compile(r'mhlo\.sharding = "([^"]*)"')


@dataclass(frozen=True, slots=True)
class Tensor:
    """An argument or result of the module's main function.

    Attributes:
        shape: As the module has it.
        dtype: Element type, by this package's name where it has one.
        axes: For each dimension the axes that cut it, a part of an axis as Shardy writes it,
            ``x:(1)2``; None where nothing is said.
        mhlo: The text of an ``mhlo.sharding``, else "".
    """

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[tuple[str, ...], ...] | None
    mhlo: str = ""


def closing(text: str, start: int) -> int:
    """Where the bracket closes that stands open at `start`; strings do not count."""
    depth, quoted = 1, False
    for position in range(start, len(text)):
        character = text[position]
        if character == '"' and text[position - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (character in "([{") - (character in ")]}")
            if depth == 0:
                return position
    raise InvalidArgumentError("the StableHLO module does not parse: it ends within @main's head")


def parts(text: str) -> Iterator[str]:
    """The parts between commas, where no bracket and no string is open."""
    depth, quoted, start = 0, False, 0
    for position, character in enumerate(text):
        if character == '"' and text[position - 1] != "\\":
            quoted = not quoted
        elif not quoted and character in "([{<":
            depth += 1
        elif not quoted and character in ")]}>" and text[position - 1] != "-":
            depth -= 1
        elif not quoted and character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if text[start:].strip():
        yield text[start:]


def results(text: str, start: int) -> Iterator[Tensor]:
    """The results of a function whose arguments end before `start`."""
    arrow = re.compile(r"\s*->\s*(\()?").match(text, start)
    if arrow is None:
        return
    if arrow[1]:
        yield from map(tensor, parts(text[arrow.end() : closing(text, arrow.end())]))
    else:
        yield tensor(text[arrow.end() : text.index("{", arrow.end())])


def tensor(text: str) -> Tensor:
    """An argument or result from its type and attributes."""
    found = _TENSOR.search(text)
    if found is None:
        raise InvalidArgumentError(
            f"main has an argument or result that is no tensor: {text.strip()[:60]}; a program "
            "takes and gives arrays alone"
        )
    shape = tuple(int(n) for n in found[1].split("x") if n)
    mhlo, sdy = _MHLO.search(text), SDY.search(text)
    axes = None if sdy is None else _axes(text[sdy.end() : closing(text, sdy.end())])
    return Tensor(shape, _dtype(found[2]), axes, mhlo[1] if mhlo else "")


def _axes(text: str) -> tuple[tuple[str, ...], ...]:
    """Per dimension: `{"x", "y"}`; "?" (it may be cut further) and priorities are left out."""
    entries = re.findall(r"\{([^}]*)\}", text)
    return tuple(
        tuple(name + part for name, part in re.findall(r'"([^"]+)"(:\(\d+\)\d+)?', entry))
        for entry in entries
    )


def axis_size(mesh: Mesh, axis: str) -> int:
    """Devices along an axis, or along the part of it that ``x:(1)2`` says."""
    part = re.search(r":\(\d+\)(\d+)$", axis)
    return int(part[1]) if part else mesh.axis_size(axis)


def _dtype(text: str) -> str:
    if text in _DTYPES:
        return _DTYPES[text]
    if number := re.fullmatch(r"(u|s)?i(\d+)", text):
        return f"{'u' if number[1] == 'u' else ''}int{number[2]}"
    if number := re.fullmatch(r"(b?)f(\d+)", text):
        return f"{'b' if number[1] else ''}float{number[2]}"
    eight = re.fullmatch(r"f8(E\w+)", text)
    return f"float8_{eight[1].lower()}" if eight else text


def mesh(text: str, wanted: str | None) -> Mesh | None:
    """The mesh of that name, or the only one."""
    found = {name: (axes, ids) for name, axes, ids in _MESH.findall(text)}
    if not found:
        return None
    axes, ids = found[wanted] if wanted in found else next(iter(found.values()))
    pairs = re.findall(r'"([^"]+)"=(\d+)', axes)
    if not pairs:
        return None
    names, sizes = zip(*pairs, strict=True)
    places = [int(i) for i in ids.split(",")] if ids.strip() else None
    try:
        return Mesh([int(size) for size in sizes], names, places)
    except ShardingError as error:
        raise ShardingError(f"the module's sdy.mesh <[{axes}]>: {error}") from None
