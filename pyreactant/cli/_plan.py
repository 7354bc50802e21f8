"""`pyreactant plan`: the best mesh and specs for a program, on a slice or on this machine."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._core.text import parse_shape, parse_sizes, seconds_text
from .._pages.page import check_page
from ._command import INTERRUPTED, examples, interruptible, tell_interrupted

if TYPE_CHECKING:
    from ..tpu import Candidate
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
            help="matmul, another built-in program (`pyreactant crosscheck --list` lists them), or "
            "a JAX function as package.module:function.",
            show_default="matmul",
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
    tried: Annotated[
        int,
        typer.Option(
            help="Number of candidates to compile or measure, beside the default layout of matmul."
        ),
    ] = 8,
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

    For a slice all times are estimates: nothing is run. Ctrl-C shows the best candidates so far;
    compilations that finished stay in the cache.
    Exit code 5: nothing fits.
    """
    check_page(html)
    sizes = parse_sizes(size, m, k, n)
    shapes = [parse_shape(text) for text in shape or []]
    cached = topology is not None and not no_cache
    with interruptible(cached), _progress("compiled" if topology else "measured") as progress:
        from ..tpu import plan as find

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
        from ..tpu._plan.text import Shown
        from ._console import output

        output().print(Shown(found), crop=False)
    if html is not None:
        found.to_html(html)
    if found.interrupted:
        tell_interrupted(cached)
        raise typer.Exit(INTERRUPTED)
    if found.best is None:
        raise typer.Exit(NOTHING_FITS)


@contextlib.contextmanager
def _progress(verb: str) -> "Iterator[Progress]":
    from ._console import working

    with working(f"layouts are being {verb}") as tell:

        def update(done: int, total: int, best: "Candidate | None") -> None:
            text = f"layouts {verb}: {done} of {total}"
            if best is not None and best.seconds is not None:
                text += f", best {seconds_text(best.seconds)}"
            tell(text)

        yield update
