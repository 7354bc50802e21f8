"""`pyreactant crosscheck` and `pyreactant compare`: do runtimes compute the same, and rightly?"""

import importlib.util
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._core.text import MESH_HELP, SPEC_HELP, parse_mesh, parse_spec
from .._errors import FileError, InvalidArgumentError

if TYPE_CHECKING:
    from ..crosscheck._report.report import Report

Html = Annotated[Path | None, typer.Option(help="Write the page with pictures to this file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def crosscheck(
    programs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROGRAM ...]", help="Names, or package.module:object."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All that are built in.")] = False,
    list_them: Annotated[bool, typer.Option("--list", help="Say which are built in.")] = False,
    backends: Annotated[
        str, typer.Option(help="Runtimes, as jax,reactant; auto is what is here.")
    ] = "auto",
    processes: Annotated[
        int | None,
        typer.Option("--processes", "-n", help="Of each run.", show_default="2 on CPU, else 1"),
    ] = None,
    devices_per_process: Annotated[
        int | None, typer.Option(help="Of each run.", show_default="4 on CPU, else all")
    ] = None,
    mesh: Annotated[
        str | None, typer.Option(help=f"Devices: {MESH_HELP}.", show_default="all")
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(
            help=f"How the first input is cut: {SPEC_HELP}; of several inputs with ; between.",
            show_default="the program's own",
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="The n of shapes.", show_default="the program's own")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Element type.", show_default="the program's own")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the inputs.")] = 0,
    platform: Annotated[str | None, typer.Option(help="cpu, gpu or tpu.")] = None,
    repeat: Annotated[int, typer.Option(help="Calls to time.")] = 3,
    timeout: Annotated[float | None, typer.Option(help="Seconds for each run.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for all files.", show_default="in pyreactant-crosschecks"),
    ] = None,
    html: Html = None,
    as_json: AsJson = False,
    request: Annotated[
        Path | None,
        typer.Option(
            help="Only write what to run to this file, for processes that another launcher starts."
        ),
    ] = None,
) -> None:
    """Run programs on every runtime, check them against an oracle, and compare them.

    Each runtime gets processes of its own, one after the other. Without a program it is the
    matrix product.
    """
    if list_them:
        _list()
        return
    if every and programs:
        raise InvalidArgumentError("give programs or --all, not both")
    # Typed text first: a typing mistake costs no import.
    specs = None if spec is None else [parse_spec(part) for part in spec.split(";")]
    chosen_mesh = None if mesh is None else parse_mesh(mesh)
    _check_pictures(html)
    from ..crosscheck import _run
    from ..crosscheck._request import Request, write_request
    from ..programs import find_case

    selection = "all" if every else programs or "matmul"
    if request is not None:
        asked = Request(
            _run.selected(selection),
            size,
            dtype,
            seed,
            chosen_mesh,
            tuple(specs) if specs else None,
            repeat,
        )
        for program in asked.programs:
            find_case(program)
        write_request(asked, request)
        return
    folder = out or Path("pyreactant-crosschecks", f"{datetime.now():%Y-%m-%dT%H%M%S}")
    report = _run.crosscheck(
        selection,
        backends=backends,
        processes=processes,
        devices_per_process=devices_per_process,
        mesh=chosen_mesh,
        spec=specs,
        size=size,
        dtype=dtype,
        seed=seed,
        platform=platform,
        repeat=repeat,
        out=folder,
        timeout=timeout,
        progress=True,
    )
    _show(report, html or folder / "report.html", html is not None, as_json, folder)


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR ...", help="Of finished runs, such as OUT/jax.")
    ],
    html: Html = None,
    report_file: Annotated[
        Path | None, typer.Option("--report", help="Write the report as JSON to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check finished runs of a cross-check, from here or from other machines, and compare them."""
    _check_pictures(html)
    from ..crosscheck._run import compare as compare_runs

    report = compare_runs(*folders)
    if report_file is not None:
        report.to_json(report_file)
    _show(report, html, html is not None, as_json, None)


def _list() -> None:
    from ..programs import CASES

    width = max(map(len, CASES))
    for name, case in CASES.items():
        print(f"{name:{width}}  {case.summary}; {', '.join(case.dtypes)}")


def _check_pictures(html: Path | None) -> None:
    """Before anything runs, whether the page that is asked for can be made."""
    if html is None:
        return
    from ..crosscheck._report.svg import check_matplotlib

    check_matplotlib()
    if not html.absolute().parent.is_dir():
        raise FileError(f"--html {html}: its folder does not exist")


def _show(
    report: "Report", html: Path | None, asked: bool, as_json: bool, folder: Path | None
) -> None:
    from rich.console import Console

    drawable = importlib.util.find_spec("matplotlib") is not None
    page = html if asked or drawable else None
    if page is not None:
        report.to_html(page)
    if folder is not None:
        report.to_json(folder / "report.json")
    if as_json:
        print(report.to_json(), end="")
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = 120  # a file or pipe has no width of its own
        console.print(report)
        if folder is not None and page is None:
            print(f"files: {folder} (no page with pictures: matplotlib is not installed)")
        elif page is not None:
            print(f"page: {page}" + (f", files: {folder}" if folder else ""))
    if not report.passed:
        raise typer.Exit(report.exit_code)
