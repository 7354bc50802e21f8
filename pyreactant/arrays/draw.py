"""Pictures by rich: an array on its mesh, in a terminal and in a notebook."""

import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..base.document.terminal import COLOURS
from .sharding import Device, NamedSharding
from .text import block_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_NOTEBOOK_WIDTH = 120
_IN_NOTEBOOK = "<pre style='color:{foreground};background:{background}'>{code}</pre>"


@dataclass(frozen=True, slots=True)
class _Cell:
    """The text of one device in the picture."""

    device: str
    process: str
    block: str
    number: int


@dataclass(frozen=True, slots=True)
class _Page:
    """Two axes of the mesh as a table. Meshes of more axes have several pages."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[_Cell]]]


def _pages(
    sharding: NamedSharding, shape: Sequence[int], devices: Sequence[Device]
) -> Iterator[_Page]:
    mesh = sharding.mesh
    numbers: dict[str, int] = {}
    cells = []
    for device_id, index in sharding.devices_indices_map(shape).items():
        block = block_text(index)
        number = numbers.setdefault(block, len(numbers))
        device = devices[device_id]
        cells.append(_Cell(str(device), f"process {device.process_index}", block, number))
    *outer, columns = mesh.shape
    rows = outer.pop() if outer else 1
    for page, place in enumerate(itertools.product(*(range(n) for n in outer))):
        title = ", ".join(f"{a}={i}" for a, i in zip(mesh.axis_names, place, strict=False))
        row_axis = mesh.axis_names[-2] if len(mesh.shape) > 1 else None
        table = []
        for row in range(rows):
            start = (page * rows + row) * columns
            name = "" if row_axis is None else f"{row_axis}={row}"
            table.append((name, cells[start : start + columns]))
        yield _Page(title, [f"{mesh.axis_names[-1]}={i}" for i in range(columns)], table)


@dataclass(frozen=True, slots=True)
class Drawing:
    """The mesh as a terminal table: each device with the block it holds, coloured by block."""

    sharding: NamedSharding
    shape: tuple[int, ...]
    devices: Sequence[Device]
    title: str = ""

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        from rich.measure import Measurement
        from rich.text import Text

        if self.title:
            yield Text(self.title)
        for page in _pages(self.sharding, self.shape, self.devices):
            grid = _grid(page)
            fits = Measurement.get(console, options.update(width=10_000), grid).maximum
            yield grid if fits <= options.max_width else _list(page)


def _grid(page: _Page) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=page.title or None, box=box.SQUARE, show_lines=True)
    for name in ["", *page.columns]:
        table.add_column(name, justify="center", no_wrap=True)
    for name, cells in page.rows:
        table.add_row(
            name,
            *(
                Text(f"{c.device}\n{c.process}\n{c.block}", COLOURS[c.number % len(COLOURS)])
                for c in cells
            ),
        )
    return table


def _list(page: _Page) -> "RenderableType":
    """One line per device, for meshes wider than the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=page.title or None, box=box.SIMPLE_HEAD)
    for name in ("mesh", "device", "process", "block"):
        table.add_column(name, overflow="fold")
    for row_name, cells in page.rows:
        for column, cell in zip(page.columns, cells, strict=True):
            where = f"{row_name} {column}".strip()
            colour = COLOURS[cell.number % len(COLOURS)]
            table.add_row(where, cell.device, cell.process, Text(cell.block, colour))
    return table


def html(drawing: Drawing) -> str:
    """The same picture as an HTML fragment without scripts or external resources."""
    from rich.console import Console
    from rich.terminal_theme import SVG_EXPORT_THEME

    console = Console(record=True, file=io.StringIO(), width=_NOTEBOOK_WIDTH)
    console.print(drawing)
    return console.export_html(theme=SVG_EXPORT_THEME, inline_styles=True, code_format=_IN_NOTEBOOK)
