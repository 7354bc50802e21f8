"""`pyreactant plan`: the best mesh and specs for a program, on a slice or on this machine."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._core.text import Fitting, bytes_text, parse_sizes, seconds_text
from .._errors import InvalidArgumentError
from .._pages.page import check_page
from ._command import INTERRUPTED
from ._examples import examples

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from ..tpu import Candidate, Plan
    from ..tpu._plan.plan import Progress

NOTHING_FITS = 5

EXAMPLES = examples(
    "pyreactant plan --topology v6e-8 --size 4096",
    "pyreactant plan --platform cpu --devices 8 --size 2048",
)


def plan(
    program: Annotated[
        str | None,
        typer.Argument(
            help="matmul, or a JAX function as package.module:function.", show_default="matmul"
        ),
    ] = None,
    topology: Annotated[
        str | None, typer.Option(help="Slice to compile for, as v6e-16 or v6e:4x4.")
    ] = None,
    slices: Annotated[int, typer.Option("--slices", "--num-slices", help="Number of slices.")] = 1,
    platform: Annotated[
        str | None, typer.Option(help="Measure on devices of this machine, cpu or gpu, instead.")
    ] = None,
    devices: Annotated[int | None, typer.Option(help="Number of devices of --platform.")] = None,
    size: Annotated[int | None, typer.Option(help="Matmul: side of square matrices.")] = None,
    m: Annotated[int | None, typer.Option("--m", help="Matmul: rows of x.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="Matmul: columns of x, rows of y.")] = None,
    n: Annotated[int | None, typer.Option("--n", help="Matmul: columns of y.")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Other programs: shape of an argument, as 1024x512; once for each."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="Element type, such as bfloat16.")] = "float32",
    precision: Annotated[
        str | None,
        typer.Option(
            help="Precision of products: default, high or highest.",
            show_default="the runtime's default",
        ),
    ] = None,
    tried: Annotated[int, typer.Option(help="Number of candidates to compile or measure.")] = 8,
    workers: Annotated[
        int | None, typer.Option(help="Most compilations at once.", show_default="by memory")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the plan as a page to this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Do not use the cache of compilations.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds for each candidate.")] = 600.0,
) -> None:
    """Find the fastest mesh and specs of a program.

    For a slice all times are estimates: nothing is run. Ctrl-C shows the best candidates so far.
    Exit code 5: nothing fits.
    """
    check_page(html)
    from ..tpu import plan as find

    sizes = parse_sizes(size, m, k, n)
    shapes = [_shape(text) for text in shape or []]
    with _progress("compiled" if topology else "measured") as progress:
        found = find(
            program or "matmul",
            topology=topology,
            num_slices=slices,
            size=sizes,
            shapes=shapes,
            dtype=dtype,
            precision=precision,
            platform=platform,
            devices=devices,
            tried=tried,
            workers=workers,
            cache=not no_cache,
            timeout=timeout,
            progress=progress,
        )
    if as_json:
        print(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        from ._console import output

        _show(output(), found)
    if html is not None:
        found.to_html(html)
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)
    if found.best is None:
        raise typer.Exit(NOTHING_FITS)


def _shape(text: str) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InvalidArgumentError(f"--shape must look like 1024x512, got {text!r}")
    return tuple(map(int, parts))


@contextlib.contextmanager
def _progress(verb: str) -> "Iterator[Progress]":
    from ._console import working

    with working(f"layouts are {verb}") as tell:

        def update(done: int, total: int, best: "Candidate | None") -> None:
            text = f"layouts {verb}: {done} of {total}"
            if best is not None and best.seconds is not None:
                text += f", best {seconds_text(best.seconds)}"
            tell(text)

        yield update


def _show(console: "Console", found: "Plan") -> None:
    for part in _parts(found):
        console.print(part, soft_wrap=isinstance(part, str))


def _parts(found: "Plan") -> "Iterator[RenderableType]":
    from ..tpu._plan.report import Point, scatter

    yield _head(found)
    rows = [(str(number), one) for number, one in enumerate(found.candidates, 1)]
    if found.reference is not None:
        rows.append(("R", found.reference))
    if rows:
        yield Fitting(_table(found, rows))
    if any(not one.mesh.all_devices for _, one in rows):
        yield "along the network: devices are ordered by chip coordinates, not by VM (--device-ids)"
    if any(one.at_least for _, one in rows):
        yield ">: XLA has no estimate for this layout, so the time is only a lower bound"
    for label, one in rows:
        if one.trouble:
            yield f"{label}: {one.trouble}"
    points = [
        Point(label, one.bytes_per_device or one.layout.memory_bytes, one.seconds)
        for label, one in rows
        if one.seconds is not None
    ]
    if points:
        yield "\n".join(["", *scatter(points, found.hbm_bytes), ""])
    best, reference = found.best, found.reference
    if best is None and found.interrupted:
        yield "no layout that fits was found before the interruption"
        return
    if best is None:
        yield f"no layout fits the {bytes_text(found.hbm_bytes or 0)} of a device"
        return
    if reference is not None and reference.seconds and best.seconds:
        yield (
            f"1 takes {best.seconds / reference.seconds:.2f} of the time of R, the default layout "
            "of matmul_sharded"
        )
    for where, line in found.commands().items():
        yield f"{where + ':':<12}{line}"


def _head(found: "Plan") -> str:
    sizes = " @ " if found.program == "matmul" else ", "
    shapes = sizes.join("x".join(map(str, shape)) for shape in found.shapes)
    if found.topology is None:
        where = f"{found.devices} {found.platform} devices of this machine"
    else:
        several = found.topology.num_slices > 1
        where = (
            f"{found.topology.name}{f' x {found.topology.num_slices} slices' if several else ''}"
        )
    tried = len(found.candidates) + (found.reference is not None)
    how = "measured" if found.measured else "compiled; all times are estimates, nothing was run"
    left = f", {found.too_large} of them with blocks too large to fit" if found.too_large else ""
    lines = [
        f"plan of {found.program} {shapes} {found.dtype} for {where}",
        f"{found.considered} layouts considered{left}; {tried} {how}",
    ]
    if found.interrupted:
        lines.append("interrupted: these are the results so far")
    return "\n".join(lines)


def _table(found: "Plan", rows: "list[tuple[str, Candidate]]") -> "Table":
    from rich import box
    from rich.table import Table

    matmul = found.program == "matmul"
    names = ["x", "y", "product"] if matmul else [f"argument {i}" for i in range(len(found.shapes))]
    times = ["measured"] if found.measured else ["estimate", "XLA", "links"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("", "mesh", *names):
        table.add_column(name, overflow="fold")
    for name in (*times, "sends", "per device"):
        table.add_column(name, justify="right", overflow="fold")
    for label, one in rows:
        seconds = (
            [one.seconds] if found.measured else [one.seconds, one.xla_seconds, one.link_seconds]
        )
        numbers = ["-" if value is None else seconds_text(value) for value in seconds]
        if one.at_least:
            numbers[0] = f"> {numbers[0]}"
        sizes = (one.sent_bytes, one.bytes_per_device)
        numbers += ["-" if size is None else bytes_text(size) for size in sizes]
        table.add_row(
            label, _mesh(one), *one.texts(), *numbers, style="bold" if one is found.best else None
        )
    return table


def _mesh(one: "Candidate") -> str:
    sizes = ",".join(f"{n}={s}" for n, s in zip(one.mesh.axis_names, one.mesh.shape, strict=True))
    return sizes if one.mesh.all_devices else f"{sizes} along the network"
