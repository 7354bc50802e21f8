"""`pyreactant topology` and `pyreactant plan`: a Cloud TPU slice, and the best mesh and specs."""

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ..arrays.text import parse_shape, parse_sizes, seconds_text
from ..base.document.page import check_page
from ..base.document.terminal import Fitting
from ..base.errors import ExitCode, InvalidArgumentError
from ..base.outputs import check_outputs
from .command import (
    Beside,
    Html,
    Overwrite,
    examples,
    interruptible,
    tell_interrupted,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..base.slices.topology import Topology
    from ..fit.plan.plan import Progress
    from ..fit.plan.report import Candidate

TOPOLOGY_EXAMPLES = examples(
    "pyreactant topology v6e-16",
    "pyreactant topology --all --json",
)
_GIB = 2**30


def topology(
    name: Annotated[
        str | None, typer.Argument(help="Slice, as v6e-16 or v5p-32, or by its shape as v6e:4x4.")
    ] = None,
    slices: Annotated[int, typer.Option("--slices", help="Number of slices.")] = 1,
    every: Annotated[
        bool,
        typer.Option("--all", help="Print a table of all slices up to 256 chips."),
        Beside(excludes="--slices"),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Describe a Cloud TPU slice: chips, VMs, memory, speeds.

    The numbers are Google's published ones; no service is contacted.
    """
    from ..base.slices.topology import topologies
    from ..base.slices.topology import topology as find

    if every == (name is not None):
        raise InvalidArgumentError(
            "give the name of one slice, such as v6e-16, or --all for the table of slices"
        )
    found = list(topologies()) if name is None else [find(name, slices)]
    if as_json:
        plain = [one.to_dict() for one in found]
        print(json.dumps(plain if name is None else plain[0], indent=2))
        return

    from .console import output

    console = output()
    if name is None:
        console.print(Fitting(_table(found)))
    else:
        _show(console, found[0])


def _show(console: "Console", found: "Topology") -> None:
    from rich.table import Table

    from ..base.slices.topology import SlicePicture

    several = found.num_slices > 1
    what = f"{found.name} x {found.num_slices} slices" if several else found.name
    where = f"{_n(found.hosts, 'VM')}, {_n(found.devices, 'JAX device')}"
    console.print(f"{what}: {_n(found.chips, 'chip')} on {where}")
    rows = Table.grid(padding=(0, 2))
    for row in _rows(found):
        rows.add_row(*row)
    console.print(rows)
    for note in found.notes:
        console.print(f"note: {note}")
    each = found.hosts // found.num_slices
    more = f"; the next slice continues from {each}" if several else ""
    console.print(f"\neach chip shows its VM's number, which is the process index{more}:")
    console.print(SlicePicture(found))


def _rows(found: "Topology") -> list[tuple[str, str]]:
    rings = [axis for axis, ring in zip("xyz", found.wraparound, strict=False) if ring]
    peaks = (f"{flops / 1e12:g} TFLOP/s {dtype}" for dtype, flops in found.peak_flops.items())
    ici = (
        f"{found.ici_bandwidth / 1e9:g} GB/s per chip over {found.ici_links} links, sum of both "
        "directions"
    )
    dcn = found.dcn_bandwidth
    return [
        (
            "ICI shape",
            f"{_shape(found)}{' of one slice' if found.num_slices > 1 else ''}, "
            + (f"rings along {', '.join(rings)}" if rings else "no rings"),
        ),
        ("TensorCores", str(found.cores)),
        (
            "each VM",
            f"{_n(found.chips_per_host, 'chip')}, {_n(found.devices_per_process, 'local device')}",
        ),
        (
            "HBM",
            f"{found.hbm_bytes_per_chip / _GIB:g} GiB per chip; the compiler uses up to "
            f"{found.hbm_bytes / _GIB:.2f} GiB per device",
        ),
        ("HBM speed", f"{found.hbm_bandwidth / 1e9:g} GB/s per chip"),
        ("peak", ", ".join(peaks) + " per chip"),
        ("ICI speed", ici),
        ("between slices", f"{dcn / 1e9:g} GB/s per chip" if dcn else "not published"),
        ("accelerator type", found.accelerator_type),
        ("runtime version", found.runtime_version or "none"),
        ("GKE machine", found.machine_type or "none"),
        ("libtpu", found.libtpu_name),
    ]


def _table(found: "list[Topology]") -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in (
        "slice",
        "ICI shape",
        "chips",
        "cores",
        "VMs",
        "chips\nper VM",
        "JAX\ndevices",
        "devices per\nprocess",
        "HBM\nper chip",
        "bf16\nper chip",
        "runtime version",
    ):
        left = column in ("slice", "ICI shape", "runtime version")
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    for before, one in zip([None, *found], found, strict=False):
        if before is not None and before.generation != one.generation:
            table.add_section()
        table.add_row(
            one.name,
            _shape(one),
            *map(
                str,
                (
                    one.chips,
                    one.cores,
                    one.hosts,
                    one.chips_per_host,
                    one.devices,
                    one.devices_per_process,
                ),
            ),
            f"{one.hbm_bytes_per_chip / _GIB:g} GiB",
            f"{one.peak_flops['bfloat16'] / 1e12:g} T",
            one.runtime_version or "-",
        )
    return table


def _shape(found: "Topology") -> str:
    return "x".join(map(str, found.shape))


def _n(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


PLAN_EXAMPLES = examples(
    "pyreactant plan --topology v6e-8 --size 4096",
    "pyreactant plan --platform cpu --devices 8 --size 2048",
)


def plan(
    program: Annotated[
        str | None,
        typer.Argument(
            help="matmul, another built-in program (`pyreactant crosscheck --list` lists them), or "
            "a JAX function as package.module:function.",
            show_default="matmul",
        ),
    ] = None,
    topology: Annotated[
        str | None, typer.Option(help="Slice to compile for, as v6e-16 or v6e:4x4.")
    ] = None,
    slices: Annotated[int, typer.Option("--slices", help="Number of slices.")] = 1,
    platform: Annotated[
        str | None,
        typer.Option(help="Measure on devices of this machine, cpu or gpu, instead."),
        Beside(excludes="--slices --workers --no-cache"),
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
    tried: Annotated[
        int,
        typer.Option(
            help="Number of candidates to compile or measure, beside the default layout of matmul."
        ),
    ] = 8,
    workers: Annotated[
        int | None, typer.Option(help="Most compilations at once.", show_default="by memory")
    ] = None,
    html: Html = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Do not use the cache of compilations.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds for each candidate.")] = 600.0,
) -> None:
    """Find the fastest mesh and specs of a program.

    For a slice all times are estimates: nothing is run. Ctrl-C shows the best candidates so far;
    compilations that finished stay in the cache.
    Exit code 5: nothing fits.
    """
    check_page(html)
    check_outputs({"html": html}, overwrite=overwrite)
    sizes = parse_sizes(size, m, k, n)
    shapes = [parse_shape(text) for text in shape or []]
    cached = topology is not None and not no_cache
    with interruptible(cached), _progress("compiled" if topology else "measured") as progress:
        from ..fit.plan.plan import plan as find

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
        from ..fit.plan.text import Shown
        from .console import output

        output().print(Shown(found), crop=False)
    if html is not None:
        found.to_html(html, overwrite=overwrite)
    if found.interrupted:
        tell_interrupted(cached)
        raise typer.Exit(ExitCode.INTERRUPTED)
    if found.best is None:
        raise typer.Exit(ExitCode.MISMATCH)


@contextlib.contextmanager
def _progress(verb: str) -> "Iterator[Progress]":
    from .console import working

    with working(f"layouts are being {verb}") as tell:

        def update(done: int, total: int, best: "Candidate | None") -> None:
            text = f"layouts {verb}: {done} of {total}"
            if best is not None and best.seconds is not None:
                text += f", best {seconds_text(best.seconds)}"
            tell(text)

        yield update
