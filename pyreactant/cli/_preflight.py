"""`pyreactant preflight`: compile a program for a TPU slice that is not here."""

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._core.text import MESH_HELP, SPEC_HELP, parse_mesh, parse_sizes, parse_spec
from .._errors import FileError, InvalidArgumentError

if TYPE_CHECKING:
    from .._core.program import Program
    from ..tpu._preflight.report import Preflight

DOES_NOT_FIT = 5


def preflight(
    topology: Annotated[str, typer.Option(help="The slice, as v6e-16, v5p-32 or v6e:4x4.")],
    program: Annotated[
        str | None,
        typer.Argument(
            help="matmul, another built-in program, or a function: package.module:function, "
            "or Module.function in Julia.",
            show_default="matmul",
        ),
    ] = None,
    num_slices: Annotated[int, typer.Option(help="How many of them.")] = 1,
    size: Annotated[int | None, typer.Option(help="Matmul: side of square matrices.")] = None,
    m: Annotated[int | None, typer.Option("--m", help="Matmul: rows of x.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="Matmul: columns of x, rows of y.")] = None,
    n: Annotated[int | None, typer.Option("--n", help="Matmul: columns of y.")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Of an argument of another program, as 1024x512; once for each."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="Element type.")] = "bfloat16",
    mesh: Annotated[str | None, typer.Option(help=f"Devices: {MESH_HELP}.")] = None,
    spec: Annotated[
        list[str] | None,
        typer.Option(
            help=f"How the arguments are cut, once for all or once for each shape: {SPEC_HELP}.",
            show_default="x,y",
        ),
    ] = None,
    y_spec: Annotated[str | None, typer.Option(help="Matmul: how y is cut, if not as x.")] = None,
    out_spec: Annotated[str | None, typer.Option(help="How the output is cut.")] = None,
    precision: Annotated[str | None, typer.Option(help="default, high or highest.")] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="What lowers it: jax, or reactant, in Julia.", show_default="jax"),
    ] = None,
    stablehlo: Annotated[
        Path | None,
        typer.Option(help="Compile this StableHLO module, such as Reactant's @code_hlo prints."),
    ] = None,
    column_major: Annotated[
        bool | None,
        typer.Option(
            "--column-major/--row-major",
            help="Whether its tensors have reversed dimensions.",
            show_default="by its name",
        ),
    ] = None,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff",
            help="Set PROGRAM by JAX and by Reactant side by side, or PROGRAM and --stablehlo.",
        ),
    ] = False,
    hlo: Annotated[Path | None, typer.Option(help="Write the optimised HLO to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Compile in any case.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that compiling may take.")] = 600.0,
) -> None:
    """Compile a program for a TPU slice that need not be there, and say what it would need.

    Bytes on each device, collectives, estimates of its time. Exit code 5: it does not fit.
    """
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    _check_choice(program, backend, stablehlo, diff, hlo)
    if hlo is not None and not hlo.absolute().parent.is_dir():
        raise FileError(f"--hlo {hlo}: its folder does not exist")
    common: dict[str, Any] = {"cache": not no_cache, "timeout": timeout}
    reports: list[Preflight] = []
    lowered_by, chosen = _lowered_by(program, backend, stablehlo, diff)
    specs = [parse_spec(text) for text in spec or ["x,y"]]
    for name in lowered_by:
        one = _look(
            name,
            chosen,
            topology,
            num_slices,
            parse_sizes(size, m, k, n),
            shape or [],
            dtype,
            mesh,
            specs,
            y_spec,
            out_spec,
            precision,
            common,
        )
        reports.insert(0, one)
    if stablehlo is not None:
        from ..tpu._preflight.stablehlo import preflight_stablehlo, read_text

        text = read_text(stablehlo)
        reports.append(
            preflight_stablehlo(
                text,
                topology=topology,
                num_slices=num_slices,
                column_major=column_major,
                mesh=None if mesh is None else parse_mesh(mesh),
                **common,
            )
        )
    if hlo is not None:
        _write(hlo, reports[0])
    _print(reports, as_json)
    if not all(report.fits for report in reports):
        raise typer.Exit(DOES_NOT_FIT)


def _check_choice(
    program: str | None, backend: str | None, stablehlo: Path | None, diff: bool, hlo: Path | None
) -> None:
    if diff and hlo is not None:
        raise InvalidArgumentError(
            "--diff sets two programs side by side; --hlo writes one of them, so ask for it "
            "without --diff"
        )
    if diff and stablehlo is None and backend is not None:
        raise InvalidArgumentError(
            "--diff without --stablehlo sets PROGRAM by JAX and by Reactant side by side; leave "
            "--backend out"
        )
    if stablehlo is not None and not diff and (program is not None or backend is not None):
        raise InvalidArgumentError(
            "give PROGRAM or --stablehlo, or both with --diff to set them side by side"
        )


def _lowered_by(
    program: str | None, backend: str | None, stablehlo: Path | None, diff: bool
) -> "tuple[tuple[str, ...], Program | str]":
    """The runtimes that lower PROGRAM, the last first, and the program itself."""
    if not diff or stablehlo is not None:
        alone = stablehlo is not None and not diff
        return () if alone else (backend or "jax",), program or "matmul"
    from ..programs import find_case

    both = "matmul" if program in (None, "matmul") else find_case(str(program)).program
    return ("reactant", "jax"), both  # where Julia is absent, nothing is compiled in vain


def _look(
    backend: str,
    program: "Program | str",
    topology: str,
    num_slices: int,
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
    from .._core.sharding import NamedSharding
    from .._matmul.matmul import default_mesh
    from ..tpu._preflight.preflight import preflight as look
    from ..tpu._request import arguments_of
    from ..tpu._topology import topology as find_topology

    found = find_topology(topology, num_slices)
    given = default_mesh(found.devices) if mesh is None else parse_mesh(mesh)
    y, out = (None if text is None else parse_spec(text) for text in (y_spec, out_spec))
    if program == "matmul":
        if shapes or len(specs) > 1:
            raise InvalidArgumentError(
                "--shape and more than one --spec are for other programs; matmul has --size, or "
                "--m, --k and --n, and --spec and --y-spec"
            )
        return look(
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
    if size is not None or y is not None:
        raise InvalidArgumentError("--size and --y-spec are for matmul; give --shape and --spec")
    arguments = arguments_of([_shape(text) for text in shapes], specs, dtype, given)
    return look(
        program,
        *arguments,
        topology=found,
        backend=backend,
        precision=precision,
        out_sharding=None if out is None else NamedSharding(given, out),
        **common,
    )


def _shape(text: str) -> tuple[Any, ...]:
    if text == "":
        return ()
    return tuple(int(n) if n.isdigit() else n for n in text.lower().split("x"))


def _print(reports: "list[Preflight]", as_json: bool) -> None:
    from ..tpu._preflight.diff import Difference

    shown = reports[0] if len(reports) == 1 else Difference(*reports)
    print(json.dumps(shown.to_dict(), indent=2, allow_nan=False) if as_json else shown.text())


def _write(path: Path, report: "Preflight") -> None:
    from .._system.files import write_text

    if not report.hlo:
        raise InvalidArgumentError("--hlo: the compiler refused the program, so there is no HLO")
    write_text(report.hlo, path)
