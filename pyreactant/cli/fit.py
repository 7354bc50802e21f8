"""`pyreactant topology`, `preflight` and `plan`: Cloud TPU slices without a TPU."""

import contextlib
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arrays.text import SPEC_HELP, parse_mesh, parse_shape, parse_sizes, parse_spec, seconds_text
from ..base.counted import counted
from ..base.errors import ExitCode, InvalidArgumentError
from ..base.outputs import check_outputs, write_output
from ..base.steps import step
from .command import (
    App,
    Beside,
    DType,
    Html,
    MeshText,
    Overwrite,
    duration,
    examples,
    interruptible,
    tell_interrupted,
)

if TYPE_CHECKING:
    from ..arrays.mesh import Mesh
    from ..arrays.program import Program
    from ..base.document.parts import Part, Table
    from ..base.slices.topology import Topology
    from ..fit.plan.candidate import Candidate
    from ..fit.plan.plan import Progress
    from ..fit.preflight.report import Preflight

Slices = Annotated[int, typer.Option("--slices", help="Number of slices.")]
Size = Annotated[
    int | None,
    typer.Option(help="Matmul: side of square matrices. Others whose shapes are known: their n."),
]
M = Annotated[int | None, typer.Option("--m", help="Matmul: rows of x.")]
K = Annotated[int | None, typer.Option("--k", help="Matmul: columns of x, rows of y.")]
N = Annotated[int | None, typer.Option("--n", help="Matmul: columns of y.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option(help="Other programs: shape of an argument, as 1024x512; once for each."),
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="Precision of products: default, high or highest.",
        show_default="the runtime's default",
    ),
]
ReportAsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Do not use the cache of compilations.")]

app = App()


@app.command(
    epilog=examples(
        "pyreactant topology v6e-16",
        "pyreactant topology --all --json",
    )
)
def topology(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SLICE]", help="Such as v6e-16 or v5p-32, or by its shape as v6e:4x4."
        ),
    ] = None,
    slices: Slices = 1,
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
    shown = list(topologies()) if name is None else [find(name, slices)]
    if as_json:
        plain = [slice_.to_dict() for slice_ in shown]
        print(json.dumps(plain if name is None else plain[0], indent=2))
        return

    from ..base.document.terminal import printed
    from ..base.slices.topology import SlicePicture
    from .console import output

    console = output()
    for line in printed([_table(shown)] if name is None else _parts(shown[0])):
        console.print(line)
    if name is not None:
        console.print(SlicePicture(shown[0]))


def _parts(slice_: "Topology") -> "Iterator[Part]":
    from ..base.document.parts import Paragraph, facts
    from ..base.slices.topology import slices_text

    where = f"{counted(slice_.hosts, 'VM')}, {counted(slice_.devices, 'JAX device')}"
    yield Paragraph(f"{slices_text(slice_)}: {counted(slice_.chips, 'chip')} on {where}")
    yield facts("", _rows(slice_))
    yield from (Paragraph(f"note: {note}") for note in slice_.notes)
    each = slice_.hosts // slice_.num_slices
    more = f"; the next slice continues from {each}" if slice_.num_slices > 1 else ""
    yield Paragraph(f"\neach chip shows its VM's number, which is the process index{more}:")


def _rows(slice_: "Topology") -> list[tuple[str, str]]:
    from ..base.slices.generations import GIB, shape_text

    rings = [axis for axis, ring in zip("xyz", slice_.wraparound, strict=False) if ring]
    peaks = (f"{flops / 1e12:g} TFLOP/s {dtype}" for dtype, flops in slice_.peak_flops.items())
    ici = (
        f"{slice_.ici_bandwidth / 1e9:g} GB/s per chip over {slice_.ici_links} links, sum of both "
        "directions"
    )
    dcn = slice_.dcn_bandwidth
    return [
        (
            "ICI shape",
            f"{shape_text(slice_.shape)}{' of one slice' if slice_.num_slices > 1 else ''}, "
            + (f"rings along {', '.join(rings)}" if rings else "no rings"),
        ),
        ("TensorCores", str(slice_.cores)),
        (
            "each VM",
            f"{counted(slice_.chips_per_host, 'chip')}, "
            f"{counted(slice_.devices_per_process, 'local device')}",
        ),
        (
            "HBM",
            f"{slice_.hbm_bytes_per_chip / GIB:g} GiB per chip; the compiler uses up to "
            f"{slice_.hbm_bytes / GIB:.2f} GiB per device",
        ),
        ("HBM speed", f"{slice_.hbm_bandwidth / 1e9:g} GB/s per chip"),
        ("peak", ", ".join(peaks) + " per chip"),
        ("ICI speed", ici),
        ("between slices", f"{dcn / 1e9:g} GB/s per chip" if dcn else "not published"),
        ("accelerator type", slice_.accelerator_type),
        ("runtime version", slice_.runtime_version or "none"),
        ("GKE machine", slice_.machine_type or "none"),
        ("libtpu", slice_.libtpu_name),
    ]


def _columns(slice_: "Topology") -> dict[str, object]:
    from ..base.slices.generations import GIB, shape_text

    return {
        "slice": slice_.name,
        "ICI shape": shape_text(slice_.shape),
        "chips": slice_.chips,
        "cores": slice_.cores,
        "VMs": slice_.hosts,
        "chips\nper VM": slice_.chips_per_host,
        "JAX\ndevices": slice_.devices,
        "devices per\nprocess": slice_.devices_per_process,
        "HBM\nper chip": f"{slice_.hbm_bytes_per_chip / GIB:g} GiB",
        "bf16\nper chip": f"{slice_.peak_flops['bfloat16'] / 1e12:g} T",
        "runtime version": slice_.runtime_version or "-",
    }


def _table(slices: "list[Topology]") -> "Table":
    from ..base.document.parts import Table

    columns = [_columns(slice_) for slice_ in slices]
    words = ("slice", "ICI shape", "runtime version")
    numbers = [place for place, column in enumerate(columns[0]) if column not in words]
    rows = [[str(value) for value in row.values()] for row in columns]
    return Table("", list(columns[0]), rows, numbers)


@app.command(
    epilog=examples(
        "pyreactant preflight --topology v6e-16 --size 4096 --spec x,None",
        "pyreactant preflight softmax --topology v6e-8 --shape 4096x512 --spec x,None",
    )
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
    slices: Slices = 1,
    size: Size = None,
    m: M = None,
    k: K = None,
    n: N = None,
    shape: Shapes = None,
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
    precision: Precision = None,
    backend: Annotated[
        str | None,
        typer.Option(help="Runtime that lowers PROGRAM: jax or reactant.", show_default="jax"),
    ] = None,
    stablehlo: Annotated[
        Path | None,
        typer.Option(
            help="StableHLO module to compile, for instance from Reactant's @code_hlo, or HLO that "
            "XLA dumped."
        ),
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
        typer.Option(help="Write the optimised HLO to this file.", readable=False),
        Beside(enables="--overwrite"),
    ] = None,
    html: Html = None,
    overwrite: Overwrite = False,
    as_json: ReportAsJson = False,
    no_cache: NoCache = False,
    timeout: Annotated[float, duration(help="Time limit of lowering, and of compiling.")] = 600.0,
) -> None:
    """Compile a program for an absent TPU slice.

    The report has the bytes on each device, the collectives and estimates of the time.
    Exit code 5: the program does not fit.
    """
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    _check_choice(program, backend, stablehlo, diff=diff, hlo=hlo)
    of_program = (size, m, k, n, shape, dtype, spec, y_spec, out_spec, precision)
    if stablehlo is not None and not diff and any(value is not None for value in of_program):
        raise InvalidArgumentError(
            "a module has its own shapes, types, shardings and precision; give --stablehlo with "
            "--topology, --slices, --mesh and --column-major only"
        )
    check_outputs({"hlo": hlo, "html": html}, overwrite=overwrite)
    lowered_by, chosen = _lowered_by(program, backend, stablehlo, diff)
    sys.path.append(str(Path.cwd()))  # a program's module may lie there; as in a cross-check
    specs = [parse_spec(text) for text in spec or ["x,y"]]
    reports: list[Preflight] = []
    from .console import working

    with interruptible(not no_cache):
        try:
            with working(f"compiling for {topology}"):
                from ..base.slices.topology import topology as find_topology

                slice_ = find_topology(topology, slices)
                given = None if mesh is None else parse_mesh(mesh)
                common: dict[str, Any] = {
                    "topology": slice_,
                    "cache": not no_cache,
                    "timeout": timeout,
                }
                if lowered_by:
                    from ..fit.preflight.preflight import preflight as compile_program

                    args, options = _program_options(
                        chosen,
                        slice_,
                        side=size,
                        sizes=parse_sizes(size, m, k, n),
                        shapes=shape or [],
                        dtype="float32" if dtype is None else dtype,
                        mesh=given,
                        specs=specs,
                        y_spec=None if y_spec is None else parse_spec(y_spec),
                        out_spec=None if out_spec is None else parse_spec(out_spec),
                    )
                    options |= {"precision": precision, **common}
                total = len(lowered_by) + (stablehlo is not None)
                for number, name in enumerate(lowered_by, 1):
                    step(f"compiling for {topology}, lowered by {name}", number, total)
                    report = compile_program(chosen, *args, backend=name, **options)
                    reports.insert(0, report)
                    if report.interrupted:
                        raise KeyboardInterrupt
                if stablehlo is not None:
                    from ..fit.preflight.compile import preflight_stablehlo, read_text

                    step(f"compiling {stablehlo.name} for {topology}", total, total)
                    module = preflight_stablehlo(
                        read_text(stablehlo), mesh=given, column_major=column_major, **common
                    )
                    reports.append(module)
        except KeyboardInterrupt:
            if reports:  # what has finished, such as one of two programs
                _print_preflights(reports, as_json, html, overwrite)
            raise
    if hlo is not None:
        _write_hlo(hlo, reports[0], overwrite)
    _print_preflights(reports, as_json, html, overwrite)
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


def _program_options(
    program: "Program | str",
    topology: "Topology",
    *,
    side: int | None,
    sizes: tuple[int, int, int] | None,
    shapes: list[str],
    dtype: str,
    mesh: "Mesh | None",
    specs: list[Any],
    y_spec: Any,
    out_spec: Any,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments and options of a program for the function `preflight`."""
    from ..arrays.matmul import default_mesh
    from ..arrays.sharding import NamedSharding
    from ..fit.request import arguments_of

    mesh = mesh or default_mesh(topology.devices)
    if program == "matmul":
        if shapes or len(specs) > 1:
            raise InvalidArgumentError(
                "--shape and more than one --spec are for other programs; matmul takes --size, or "
                "--m, --k and --n, with --spec and --y-spec"
            )
        options = {"size": sizes, "dtype": dtype, "mesh": mesh, "spec": specs[0]}
        return (), {**options, "y_spec": y_spec, "out_spec": out_spec}
    if (sizes is not None and side is None) or y_spec is not None:
        raise InvalidArgumentError(
            "--m, --k, --n and --y-spec are for matmul; give --shape, or --size, and --spec"
        )
    wanted = _shapes_of(program, side, shapes, dtype)
    out_sharding = None if out_spec is None else NamedSharding(mesh, out_spec)
    return arguments_of(wanted, specs, dtype, mesh), {"out_sharding": out_sharding}


def _shapes_of(
    program: "Program | str", side: int | None, shapes: list[str], dtype: str
) -> list[tuple[int, ...]]:
    """The shapes of the arguments: as given, or those that the program states for its n."""
    if side is None:
        return [parse_shape(text) for text in shapes]
    if shapes:
        raise InvalidArgumentError("give --shape for each argument, or --size for all, not both")
    from ..arrays.inputs import Named, each
    from ..check.programs import NoShapesError, find_case

    if side < 1:
        raise InvalidArgumentError(f"--size must be 1 or more, got {side}")
    try:
        case = find_case(program)
    except NoShapesError as error:
        raise InvalidArgumentError(
            f"--size is for programs whose shapes are known, and {error}; give --shape, once "
            "for each argument"
        ) from None
    if any(isinstance(entry, Named) for entry in each(case.program.inputs)):
        raise InvalidArgumentError(
            f"program {case.name!r} has an argument that is a dict, and --size gives arrays "
            "only; name a function of arrays, or use pyreactant.preflight with trees of them"
        )
    return [array.shape for array in case.inputs(side, dtype)]


def _print_preflights(
    reports: "list[Preflight]", as_json: bool, html: Path | None, overwrite: bool
) -> None:
    """Print the report, or both side by side."""
    from ..fit.preflight.diff import Difference
    from .console import output

    shown = reports[0] if len(reports) == 1 else Difference(*reports)
    if as_json:
        print(json.dumps(shown.to_dict(), indent=2, allow_nan=False))
    else:
        output().print(shown, crop=False)
    if html is not None:
        shown.to_html(html, overwrite=overwrite)


def _write_hlo(path: Path, report: "Preflight", overwrite: bool) -> None:
    if not report.hlo:
        raise InvalidArgumentError("--hlo: the compiler refused the program, so there is no HLO")
    write_output(report.hlo, path, overwrite=overwrite)


@app.command(
    epilog=examples(
        "pyreactant plan --topology v6e-8 --size 4096",
        "pyreactant plan --platform cpu --devices 8 --size 2048",
    )
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
    slices: Slices = 1,
    platform: Annotated[
        str | None,
        typer.Option(help="Measure on devices of this machine, cpu or gpu, instead."),
        Beside(excludes="--slices --workers --no-cache"),
    ] = None,
    devices: Annotated[int | None, typer.Option(help="Number of devices of --platform.")] = None,
    size: Size = None,
    m: M = None,
    k: K = None,
    n: N = None,
    shape: Shapes = None,
    dtype: Annotated[str, typer.Option(help="Element type, such as bfloat16.")] = "float32",
    precision: Precision = None,
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
    as_json: ReportAsJson = False,
    no_cache: NoCache = False,
    timeout: Annotated[float, duration(help="Time limit of each candidate.")] = 600.0,
) -> None:
    """Find the fastest mesh and specs of a program.

    For a slice all times are estimates: nothing is run. Ctrl-C shows the best candidates so far;
    compilations that finished stay in the cache.
    Exit code 5: nothing fits.
    """
    check_outputs({"html": html}, overwrite=overwrite)
    sys.path.append(str(Path.cwd()))  # a program's module may lie there; as in a cross-check
    sizes = parse_sizes(size, m, k, n)
    if program in (None, "matmul"):
        shapes = [parse_shape(text) for text in shape or []]
    else:
        shapes = _shapes_of(str(program), size, shape or [], dtype)
        sizes = sizes if size is None else None
    cached = topology is not None and not no_cache
    with interruptible(cached), _progress("compiled" if topology else "measured") as progress:
        from ..fit.plan.plan import plan as find

        best_plan = find(
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
        print(json.dumps(best_plan.to_dict(), indent=2, allow_nan=False))
    else:
        from .console import output

        output().print(best_plan, crop=False)
    if html is not None:
        best_plan.to_html(html, overwrite=overwrite)
    if best_plan.interrupted:
        tell_interrupted(cached)
        raise typer.Exit(ExitCode.INTERRUPTED)
    if best_plan.best is None:
        raise typer.Exit(ExitCode.MISMATCH)


@contextlib.contextmanager
def _progress(verb: str) -> "Iterator[Progress]":
    from .console import working

    with working(f"layouts are being {verb}") as tell:

        def update(done: int, total: int, best: "Candidate | None") -> None:
            text = f"layouts {verb}, {done} of {total}"
            if best is not None and best.seconds is not None:
                text += f", best {seconds_text(best.seconds)}"
            tell(text)

        yield update
