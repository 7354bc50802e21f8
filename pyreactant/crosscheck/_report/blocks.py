"""The blocks of an output for the page: on the mesh, with the numbers of each block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..._bounds.sight import cell_sizes
from ..._core.mesh import Mesh
from ..._core.text import block_text
from ..._pages.parts import Cell, Table
from .._records.verdict import BlockVerdict
from .data import Result, Row
from .text import ratio_text

_WITH_TEXT = 64
"""Most devices of a mesh whose cells have text; with more, a cell is only a sign."""

_DRAWN = 1024
"""Most devices of a mesh that is drawn."""

_MAPS = 8
"""Most wrong blocks whose wrong elements are drawn."""

_ROWS = 64
"""Most blocks in the table of their numbers."""


@dataclass(frozen=True, slots=True)
class Map:
    """Where in a block the wrong elements are.

    Attributes:
        title: Device, block and the number of wrong elements.
        text: In which cells they are.
        lines: Lines of the grid.
        columns: Columns of the grid.
        cells: Line, column and part of its elements that is wrong, of each cell with wrong ones.
    """

    title: str
    text: str
    lines: int
    columns: int
    cells: Sequence[tuple[int, int, float]]


@dataclass(frozen=True, slots=True)
class Figure:
    """The blocks of one output on one runtime.

    Attributes:
        title: Runtime and output.
        down: Labels of the lines of the mesh.
        across: Labels of its columns.
        lines: Its devices, line by line; none if the mesh is too large to draw.
        numbers: The numbers of each block, the wrong ones first.
        maps: Where the wrong elements are, of the first wrong blocks.
        more: Number of further wrong blocks.
    """

    title: str
    down: Sequence[str]
    across: Sequence[str]
    lines: Sequence[Sequence[Cell]]
    numbers: Table
    maps: Sequence[Map] = ()
    more: int = 0


def figures(row: Row, result: Result) -> list[Figure]:
    """One figure for each output that has blocks."""
    outputs = (name for name in row.plans if name.startswith("output"))
    found = ((name, [b for b in result.blocks if b.array == name]) for name in outputs)
    return [
        _figure(row.plans[name].sharding.mesh, f"{result.runtime}: {name}", blocks)
        for name, blocks in found
        if blocks
    ]


def _figure(mesh: Mesh, title: str, blocks: Sequence[BlockVerdict]) -> Figure:
    down, across = _labels(mesh)
    lines = [] if mesh.size > _DRAWN else _cells(mesh, blocks)
    wrong = [block for block in blocks if block.places is not None]
    maps, more = [_map(block) for block in wrong[:_MAPS]], max(0, len(wrong) - _MAPS)
    return Figure(title, down, across, lines, _numbers(title, blocks), maps, more)


def _map(block: BlockVerdict) -> Map:
    shape = [stop - start for start, stop in block.index or []]
    places = np.array(block.places, np.int64)
    height, width = places.shape
    across = np.array(cell_sizes(shape[-1] if shape else 1, width))
    down = np.array(cell_sizes(math.prod(shape[:-1]), height))
    parts = places / np.outer(down, across)
    lines, columns = (np.flatnonzero(places.any(axis)) for axis in (1, 0))
    where = [f"{at[0]} to {at[-1]}" for at in (lines, columns) if at.size]
    return Map(
        title=f"device {block.device}: {block.wrong} of {math.prod(shape)} elements are wrong",
        text=f"wrong in lines {' and columns '.join(where)} of {height} x {width}",
        lines=height,
        columns=width,
        cells=[(int(i), int(j), round(float(parts[i, j]), 3)) for i, j in np.argwhere(places)],
    )


def _labels(mesh: Mesh) -> tuple[list[str], list[str]]:
    names, (lines, columns) = mesh.axis_names, grid(mesh.shape)
    if len(names) == 1:
        return [f"{names[0]}={i}" for i in range(lines)], [""]
    first = f"{names[0]}=" if len(names) == 2 else ""
    down = [first + ".".join(map(str, at)) for at in np.ndindex(mesh.shape[:-1])]
    return down, [f"{names[-1]}={i}" for i in range(columns)]


def _cells(mesh: Mesh, blocks: Sequence[BlockVerdict]) -> list[list[Cell]]:
    """Each device at its mesh position."""
    found = {block.device: block for block in blocks}
    _, columns = grid(mesh.shape)
    text = mesh.size <= _WITH_TEXT
    cells = [_cell(device, found.get(device), text) for device in mesh.device_ids]
    return [cells[at : at + columns] for at in range(0, len(cells), columns)]


def _cell(device: int, block: BlockVerdict | None, text: bool) -> Cell:
    if block is None:
        return Cell(f"d{device}" if text else "", "bad", detail="no block" if text else "")
    look = "" if block.passed else "bad"
    if not text:
        return Cell("" if look else "·", look)
    where = block_text(block.index).strip("[]") or "all of it"
    share = block.ratio if block.passed else None
    return Cell(f"d{device} p{block.process}", look, detail=where, share=share)


def _numbers(title: str, blocks: Sequence[BlockVerdict]) -> Table:
    order = sorted(blocks, key=lambda b: (b.passed, -b.ratio, b.device))
    rows: list[list[Cell | str]] = [
        [
            str(b.device),
            str(b.process),
            block_text(b.index),
            Cell("right", "good") if b.passed else Cell(", ".join(b.kinds) or "wrong", "bad"),
            f"{b.error:.2e}",
            f"{b.allowed:.2e}",
            ratio_text(b.ratio),
            f"{b.ulps:.3g}",
        ]
        for b in (order[:_ROWS] if len(order) > _ROWS else blocks)
    ]
    return Table(
        f"Blocks of {title}",
        ["device", "process", "block", "verdict", "error", "allowed", "share of allowed", "ULP"],
        rows,
        numbers=(4, 5, 6, 7),
        left_out=len(order) - len(rows),
    )


def grid(sizes: Sequence[int]) -> tuple[int, int]:
    """Lines and columns for any number of axes; one axis runs down, so that text has room."""
    if len(sizes) < 2:
        return (sizes[0] if sizes else 1), 1
    return math.prod(sizes[:-1]), sizes[-1]
