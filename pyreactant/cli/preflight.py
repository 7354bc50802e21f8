"""`pyreactant preflight`: compile a program for an absent TPU slice."""

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arrays.text import SPEC_HELP, parse_mesh, parse_shape, parse_sizes, parse_spec
from ..base.document.page import check_page
from ..base.errors import ExitCode, InvalidArgumentError
from ..base.outputs import check_outputs, write_output
from .command import Beside, DType, Html, MeshText, Overwrite, examples, interruptible

if TYPE_CHECKING:
    from ..arrays.program import Program
    from ..fit.preflight.report import Preflight

EXAMPLES = examples(
    "pyreactant preflight --topology v6e-16 --size 4096 --spec x,None --y-spec None,y",
    "pyreactant preflight softmax --topology v6e-8 --shape 4096x512 --spec x,None",
)


def preflight(
    topology: Annotated[
        str, typer.Option(help="Slice to compile for, as v6e-16, v5p-32 or v6e:4x4.")
    ],
    program: Annotated[
        str | None,
        typer.Argument(
            help="matmul, another built-in program (`pyreactant crosscheck --list` lists them), or "
            "a function: package.module:function for JAX, Module.function for Julia.",
            show_default="matmul",
        ),
    ] = None,
    slices: Annotated[int, typer.Option("--slices", help="Number of slices.")] = 1,
    size: Annotated[
        int | None,
        typer.Option(
            help="Matmul: side of square matrices. Others whose shapes are known: their n."
        ),
    ] = None,
    m: Annotated[int | None, typer.Option("--m", help="Matmul: rows of x.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="Matmul: columns of x, rows of y.")] = None,
    n: Annotated[int | None, typer.Option("--n", help="Matmul: columns of y.")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Other programs: shape of an argument, as 1024x512; once for each."),
    ] = None,
    dtype: DType = None,
    mesh: MeshText = None,
    spec: Annotated[
        list[str] | None,
        typer.Option(
            help="Partition spec of the arguments, once for all or once for each shape: "
            f"{SPEC_HELP}.",
            show_default="x,y",
        ),
    ] = None,
    y_spec: Annotated[
        str | None, typer.Option(help="Matmul: partition spec of y.", show_default="as --spec")
    ] = None,
    out_spec: Annotated[
        str | None,
        typer.Option(help="Partition spec of the output.", show_default="x's rows, y's columns"),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="Precision of products: default, high or highest.",
            show_default="the runtime's default",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="Runtime that lowers PROGRAM: jax or reactant.", show_default="jax"),
    ] = None,
    stablehlo: Annotated[
        Path | None,
        typer.Option(help="StableHLO module to compile, for instance from Reactant's @code_hlo."),
        Beside(enables="--column-major --row-major"),
    ] = None,
    column_major: Annotated[
        bool | None,
        typer.Option(
            "--column-major/--row-major",
            help="Whether the tensors of --stablehlo have reversed dimensions.",
            show_default="by its name",
        ),
    ] = None,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff",
            help="Compare PROGRAM as JAX and Reactant lower it, or PROGRAM and --stablehlo.",
        ),
    ] = False,
    hlo: Annotated[
        Path | None,
        typer.Option(help="Write the optimised HLO to this file."),
        Beside(enables="--overwrite"),
    ] = None,
    html: Html = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Do not use the cache of compilations.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds for lowering, and for compiling.")
    ] = 600.0,
) -> None:
    """Compile a program for an absent TPU slice.

    The report has the bytes on each device, the collectives and estimates of the time.
    Exit code 5: the program does not fit.
    """
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    _check_choice(program, backend, stablehlo, diff=diff, hlo=hlo)
    check_page(html)
    own = (size, m, k, n, shape, dtype, spec, y_spec, out_spec, precision)
    if stablehlo is not None and not diff and any(one is not None for one in own):
        raise InvalidArgumentError(
            "a module has its own shapes, types, shardings and precision; give --stablehlo with "
            "--topology, --slices, --mesh and --column-major only"
        )
    check_outputs({"hlo": hlo, "html": html}, overwrite=overwrite)
    common: dict[str, Any] = {"cache": not no_cache, "timeout": timeout}
    reports: list[Preflight] = []
    lowered_by, chosen = _lowered_by(program, backend, stablehlo, diff)
    specs = [parse_spec(text) for text in spec or ["x,y"]]
    from .console import working

    with interruptible(not no_cache):
        try:
            with working(f"compiling for {topology}"):
                for name in lowered_by:
                    one = _preflight_program(
                        chosen,
                        backend=name,
                        topology=topology,
                        slices=slices,
                        side=size,
                        size=parse_sizes(size, m, k, n),
                        shapes=shape or [],
                        dtype="float32" if dtype is None else dtype,
                        mesh=mesh,
                        specs=specs,
                        y_spec=y_spec,
                        out_spec=out_spec,
                        precision=precision,
                        common=common,
                    )
                    reports.insert(0, one)
                    if one.interrupted:
                        raise KeyboardInterrupt
                if stablehlo is not None:
                    from ..fit.preflight.compile import preflight_stablehlo, read_text

                    text = read_text(stablehlo)
                    reports.append(
                        preflight_stablehlo(
                            text,
                            topology=topology,
                            num_slices=slices,
                            column_major=column_major,
                            mesh=None if mesh is None else parse_mesh(mesh),
                            **common,
                        )
                    )
        except KeyboardInterrupt:
            if reports:  # what has finished, such as one of two programs
                _print(reports, as_json, html, overwrite)
            raise
    if hlo is not None:
        _write(hlo, reports[0], overwrite)
    _print(reports, as_json, html, overwrite)
    if not all(report.fits for report in reports):
        raise typer.Exit(ExitCode.MISMATCH)


def _check_choice(
    program: str | None,
    backend: str | None,
    stablehlo: Path | None,
    *,
    diff: bool,
    hlo: Path | None,
) -> None:
    if diff and hlo is not None:
        raise InvalidArgumentError(
            "--diff compares two programs, but --hlo writes one; use --hlo without --diff"
        )
    if diff and stablehlo is None and backend is not None:
        raise InvalidArgumentError(
            "--diff without --stablehlo lowers PROGRAM with both runtimes; leave --backend out"
        )
    if stablehlo is not None and not diff and (program is not None or backend is not None):
        raise InvalidArgumentError(
            "give PROGRAM or --stablehlo, or both with --diff to compare them"
        )


def _lowered_by(
    program: str | None, backend: str | None, stablehlo: Path | None, diff: bool
) -> "tuple[tuple[str, ...], Program | str]":
    """The runtimes that lower PROGRAM, in reverse order of display, and the program itself."""
    if not diff or stablehlo is not None:
        alone = stablehlo is not None and not diff
        return () if alone else (backend or "jax",), program or "matmul"
    from ..check.programs import find_case

    both = "matmul" if program in (None, "matmul") else find_case(str(program)).program
    return ("reactant", "jax"), both  # a missing Julia is found before JAX compiles


def _preflight_program(
    program: "Program | str",
    *,
    backend: str,
    topology: str,
    slices: int,
    side: int | None,
    size: Any,
    shapes: list[str],
    dtype: str,
    mesh: str | None,
    specs: list[Any],
    y_spec: str | None,
    out_spec: str | None,
    precision: str | None,
    common: dict[str, Any],
) -> "Preflight":
    from ..arrays.matmul import default_mesh
    from ..arrays.sharding import NamedSharding
    from ..base.slices.topology import topology as find_topology
    from ..fit.preflight.preflight import preflight as compile_program
    from ..fit.request import arguments_of

    found = find_topology(topology, slices)
    given = default_mesh(found.devices) if mesh is None else parse_mesh(mesh)
    y, out = (None if text is None else parse_spec(text) for text in (y_spec, out_spec))
    if program == "matmul":
        if shapes or len(specs) > 1:
            raise InvalidArgumentError(
                "--shape and more than one --spec are for other programs; matmul takes --size, or "
                "--m, --k and --n, with --spec and --y-spec"
            )
        return compile_program(
            program,
            topology=found,
            backend=backend,
            size=size,
            dtype=dtype,
            mesh=given,
            spec=specs[0],
            y_spec=y,
            out_spec=out,
            precision=precision,
            **common,
        )
    if (size is not None and side is None) or y is not None:
        raise InvalidArgumentError(
            "--m, --k, --n and --y-spec are for matmul; give --shape, or --size, and --spec"
        )
    if side is not None and shapes:
        raise InvalidArgumentError("give --shape for each argument, or --size for all, not both")
    wanted = [parse_shape(text) for text in shapes]
    if side is not None:
        from ..check.programs import find_case

        if side < 1:
            raise InvalidArgumentError(f"--size must be 1 or more, got {side}")
        wanted = [one.shape for one in find_case(program).inputs(side, dtype)]
    arguments = arguments_of(wanted, specs, dtype, given)
    return compile_program(
        program,
        *arguments,
        topology=found,
        backend=backend,
        precision=precision,
        out_sharding=None if out is None else NamedSharding(given, out),
        **common,
    )


def _print(reports: "list[Preflight]", as_json: bool, html: Path | None, overwrite: bool) -> None:
    """Print the report, or both side by side."""
    from ..fit.preflight.diff import Difference
    from .console import print_wrapped

    shown = reports[0] if len(reports) == 1 else Difference(*reports)
    if as_json:
        print(json.dumps(shown.to_dict(), indent=2, allow_nan=False))
    else:
        print_wrapped(shown.text())
    if html is not None:
        shown.to_html(html, overwrite=overwrite)


def _write(path: Path, report: "Preflight", overwrite: bool) -> None:
    if not report.hlo:
        raise InvalidArgumentError("--hlo: the compiler refused the program, so there is no HLO")
    write_output(report.hlo, path, overwrite=overwrite)
