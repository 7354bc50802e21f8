"""`pyreactant matmul`: multiply two sharded matrices and check the result."""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..arrays.text import SPEC_HELP, parse_mesh, parse_sizes, parse_spec, seconds_text, spec_text
from ..base.counted import counted
from ..base.errors import ExitCode, InvalidArgumentError
from ..base.files import plain_json
from ..base.outputs import check_outputs, write_output
from .command import App, AsJson, Beside, DType, MeshText, Overwrite, Platform, ReportFile, examples

if TYPE_CHECKING:
    from rich.console import Console

    from ..arrays.sharding import Device
    from ..base.document.parts import Cell, Table
    from ..check.product.report import MatmulReport

app = App()


@app.command(
    epilog=examples(
        "pyreactant matmul --size 1024 --devices-per-process 8",
        "pyreactant matmul --m 512 --k 256 --n 1024 --mesh 2x4 --spec x,y --json",
    )
)
def matmul(
    size: Annotated[int | None, typer.Option(help="Side of square matrices.")] = None,
    m: Annotated[int | None, typer.Option("--m", help="Number of rows of x.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="Columns of x and rows of y.")] = None,
    n: Annotated[int | None, typer.Option("--n", help="Number of columns of y.")] = None,
    dtype: DType = None,
    mesh: MeshText = None,
    device_ids: Annotated[
        str | None,
        typer.Option(help="Devices of the mesh in row-major order, such as 0,1,2,3."),
    ] = None,
    spec: Annotated[
        str, typer.Option(help=f"Partition spec of x, and of y without --y-spec: {SPEC_HELP}.")
    ] = "x,y",
    y_spec: Annotated[
        str | None, typer.Option(help="Partition spec of y.", show_default="as --spec")
    ] = None,
    out_spec: Annotated[
        str | None,
        typer.Option(help="Partition spec of the product.", show_default="x's rows, y's columns"),
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="Runtime: jax or reactant.", show_default="jax")
    ] = None,
    platform: Platform = None,
    devices_per_process: Annotated[
        int | None,
        typer.Option(
            "--devices-per-process",
            help="Number of CPU devices of this process.",
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="Precision of the product: default, high or highest.",
            show_default="the runtime's default",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the random operands.", show_default="0")
    ] = None,
    repeat: Annotated[int, typer.Option(help="Number of timed calls.")] = 5,
    check: Annotated[
        str | None,
        typer.Option(
            help="Where to check a large product: device or host.",
            show_default="device on GPU and TPU",
        ),
    ] = None,
    x: Annotated[
        Path | None,
        typer.Option("--x", help="Left operand, a .npy file."),
        Beside(excludes="--seed"),
    ] = None,
    y: Annotated[Path | None, typer.Option("--y", help="Right operand, a .npy file.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the product to this .npy file.", readable=False),
        Beside(enables="--overwrite"),
    ] = None,
    report_file: ReportFile = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Multiply two sharded matrices, and check the product.

    Without sizes and files, the reference case runs: 1 to 64 as an 8x8 matrix, squared.
    """
    # Parse the text first, so that a typing error does not wait for the runtime.
    ids = None if device_ids is None else _numbers(device_ids)
    if devices_per_process is not None and platform not in (None, "cpu"):
        raise InvalidArgumentError(
            f"--devices-per-process is for the devices of a CPU, got --platform {platform}; leave "
            "it out"
        )
    mesh_given = None if mesh is None else parse_mesh(mesh, ids)
    specs = [None if text is None else parse_spec(text) for text in (spec, y_spec, out_spec)]
    sizes, files = parse_sizes(size, m, k, n), _files(x, y)
    if seed is not None and sizes is None and files is None:
        raise InvalidArgumentError(
            "--seed is for random operands, and the reference case has none; give --size, or --m, "
            "--k and --n, or leave --seed out"
        )
    check_outputs({"out": out, "report": report_file}, overwrite=overwrite)

    from ..arrays.runtimes.runtime import initialize, process_index
    from ..check.product.report import run_matmul
    from .console import output, working

    with working("starting the runtime"):
        initialize(backend, platform=platform, num_cpu_devices=devices_per_process)
        report = run_matmul(
            size=sizes,
            files=files,
            dtype=dtype,
            seed=seed or 0,
            mesh=mesh_given,
            spec=specs[0] or (),
            y_spec=specs[1],
            out_spec=specs[2],
            precision=precision,
            repeat=repeat,
            check=check,
            out=out,
            overwrite=overwrite,
        )
    if process_index() == 0:
        if report_file is not None:
            write_output(plain_json(report.to_dict()), report_file, overwrite=overwrite)
        if as_json:
            print(plain_json(report.to_dict()), end="")
        else:
            _show(output(), report, out)
    if not report.check.passed:
        raise typer.Exit(ExitCode.MISMATCH)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidArgumentError(f"--device-ids must look like 0,1,2,3, got {text!r}") from None


def _files(x: Path | None, y: Path | None) -> tuple[Path, Path] | None:
    if x is None and y is None:
        return None
    if x is None or y is None:
        raise InvalidArgumentError("give --x and --y together")
    return x, y


def _show(console: "Console", report: "MatmulReport", out: Path | None) -> None:
    """Print the operands, the placement of each block, and whether the product is right."""
    from ..arrays.draw import Drawing
    from ..arrays.runtimes.runtime import backend_name, current, devices, num_processes
    from ..base.document.terminal import printed

    c, (x, y) = report.c, report.shardings
    (m, n), k = c.shape, report.inner
    console.print(f"matmul ({m}, {k}) @ ({k}, {n}) {c.dtype.name}, {report.operands}")
    console.print(
        f"{_runtime(backend_name(), current().backend.versions())} on {_devices(devices())}, "
        f"{counted(num_processes(), 'process')}"
    )
    console.print(
        f"x sharded by {spec_text(x.axes(2))}, y by {spec_text(y.axes(2))}, product by "
        f"{spec_text(c.sharding.axes(2))} on {c.sharding.mesh!r}; blocks of the product:"
    )
    console.print(Drawing(c.sharding, c.shape, devices()))
    for line in printed([_facts(report, out)]):
        console.print(line)


def _facts(report: "MatmulReport", out: Path | None) -> "Table":
    """The check and the times."""
    from ..base.document.parts import Cell, facts

    check, seconds, call = report.check, report.seconds, ""
    worst = ", ".join(f"{key} {value}" for key, value in (check.worst or {}).items())
    if seconds:
        call = (
            f"{seconds_text(statistics.median(seconds))} median of {len(seconds)} "
            f"({seconds_text(min(seconds))} to {seconds_text(max(seconds))})"
        )
    written = "" if out is None else f"written to {out}" if check.passed else "not written"
    return facts(
        "The product",
        [
            ("check", _verdict(report)),
            ("", check.note),
            ("wrong at", Cell(worst, "bad") if worst else ""),
            ("compile", seconds_text(report.compile_seconds)),
            ("per call", call),
            ("speed", "" if report.gflops is None else f"{report.gflops:.3g} GFLOP/s"),
            ("product", written),
        ],
    )


def _verdict(report: "MatmulReport") -> "Cell":
    from ..base.document.parts import Cell

    check = report.check
    method = f"{check.method}, {seconds_text(report.check_seconds)}"
    if not check.passed:
        kind = "rows" if check.by_rows else "elements"
        return Cell(f"WRONG: {check.wrong} {kind} beyond the tolerance ({method})", "bad")
    text = f"right: error {check.error:.2e}, allowed {check.allowed:.2e} there ({method})"
    return Cell(text, "good")


def _runtime(name: str, versions: Mapping[str, str]) -> str:
    """Such as "jax 0.12.0.1 (jaxlib 0.12.0.1)"."""
    own = [version for part, version in versions.items() if part.lower() == name]
    parts = [f"{part} {version}" for part, version in versions.items() if part.lower() != name]
    return " ".join([name, *own, *([f"({', '.join(parts)})"] if parts else [])])


def _devices(devices: "tuple[Device, ...]") -> str:
    first = devices[0]
    kind = f" ({first.kind})" if first.kind != first.platform else ""
    return f"{counted(len(devices), f'{first.platform} device')}{kind}"
