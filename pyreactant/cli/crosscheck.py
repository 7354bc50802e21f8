"""`pyreactant crosscheck` and `pyreactant compare`: check and compare runtimes."""

import contextlib
import json
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arrays.runtimes.known import BACKENDS
from ..arrays.text import SPEC_HELP, hanging, width_of
from ..base import steps
from ..base.errors import ExitCode, InvalidArgumentError
from ..base.outputs import STDOUT, check_outputs, reserved_stdout, target_of, write_output
from ..base.steps import Level
from .command import (
    App,
    AsJson,
    Beside,
    Html,
    MeshText,
    Overwrite,
    Platform,
    ReportFile,
    duration,
    examples,
)
from .declared import HERE, DeclaredCommand, Options, chosen, takes_settings

if TYPE_CHECKING:
    from ..check.report.report import Report

app = App()

REPORT = "report.json"
"""The report of a cross-check, in its folder."""

_ELSEWHERE = {
    "slurm": "PROGRAM --all --backends --platform --size --mesh --spec --dtype --out",
    "tpu": "--backends --platform --devices-per-process --size --timeout --out",
}
"""The options of a cross-check that each place has; the rest are of a check on this machine."""


class CrosscheckCommand(DeclaredCommand):
    """The command with the options of a Slurm job and of TPU slices."""

    def places(self) -> Mapping[str, Options]:
        """The options of each place, besides those of every cross-check."""
        from ..runs.places.slurm import ASKED
        from ..runs.spec import options_of
        from ..runs.targets import type_of

        slurm, slices = (options_of(type_of(kind)) for kind in _ELSEWHERE)
        slices = {
            name: pair for name, pair in slices.items() if name not in ("--backend", "--store")
        }
        return {
            HERE: {},
            "slurm": chosen(slurm, [*ASKED, "options", "max_restarts"]),
            "tpu": slices,
        }

    def place(self, ctx: Any) -> str:
        """The target, or this machine."""
        return ctx.params.get("on") or HERE

    def check(self, ctx: Any) -> None:
        """As the others; refuse what a cross-check at a place does not have."""
        place = self.place(ctx)
        if place != HERE and place not in _ELSEWHERE:
            raise InvalidArgumentError(
                f"--on must be {' or '.join(_ELSEWHERE)} for a cross-check, got {place!r}; leave "
                "it out for one on this machine"
            )
        super().check(ctx)
        own = {*_ELSEWHERE.get(place, "").split(), *self.places()[place], "--on", "--dry-run"}
        own |= {"--quiet", "--verbose", "--json"}
        for name in self.given(ctx):
            if place != HERE and name not in own:
                raise InvalidArgumentError(
                    f"{name} is an option of a cross-check on this machine, and not of --on "
                    f"{place}; leave it out"
                )


@app.command(
    cls=CrosscheckCommand,
    epilog=examples(
        "pyreactant crosscheck matmul softmax --platform cpu",
        "pyreactant crosscheck --all --backends jax,reactant --out check",
        "pyreactant crosscheck --on slurm --nodes 4 --account proj01 --size 16384",
        "pyreactant crosscheck --on tpu --topology v6e-16 --dry-run",
    ),
)
@takes_settings
def crosscheck(
    settings: dict[str, Any],
    programs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROGRAM ...]",
            help="Built-in programs, package.module:object or FILE.py:object.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Run all built-in programs."), Beside(excludes="PROGRAM")
    ] = False,
    list_them: Annotated[
        bool,
        typer.Option("--list", help="List the built-in programs and exit."),
        Beside(
            excludes="PROGRAM --all --backends --processes --devices-per-process --mesh --spec "
            "--size --dtype --seed --platform --repeat --typical --check --quick --thorough "
            "--gradients --no-gradients --modules --timeout --out --html --request --overwrite"
        ),
    ] = False,
    backends: Annotated[
        str, typer.Option(help="Runtimes, such as jax,reactant; auto means all available ones.")
    ] = "auto",
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes", "-n", help="Processes of each run.", show_default="2 on CPU, otherwise 1"
        ),
    ] = None,
    devices_per_process: Annotated[
        int | None,
        typer.Option(help="Devices of each process.", show_default="4 on CPU, otherwise all"),
    ] = None,
    mesh: MeshText = None,
    spec: Annotated[
        str | None,
        typer.Option(
            help=f"Partition spec of the first input: {SPEC_HELP}; separate inputs by ;.",
            show_default="the program's default",
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="The n of the programs' shapes.", show_default="the program's default"),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Element type.", show_default="the program's default")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    platform: Platform = None,
    repeat: Annotated[int, typer.Option(help="Number of timed calls.")] = 5,
    typical: Annotated[
        float,
        typer.Option(
            help="Standard deviations of rounding that a result of your program may be off; 0 for "
            "no such limit."
        ),
    ] = 8.0,
    check: Annotated[
        str | None,
        typer.Option(
            help="Where to check large products: device or host.",
            show_default="device on GPU and TPU",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Only ordinary inputs, in one layout and element type."),
        Beside(excludes="--thorough"),
    ] = False,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="All layouts and element types of each program.")
    ] = False,
    gradients: Annotated[
        bool | None,
        typer.Option(
            help="Compare gradients of Julia bodies, by Enzyme inside JAX, with jax.grad.",
            show_default="if enzyme-ad is installed and both runtimes run",
        ),
        Beside(enables="--modules"),
    ] = None,
    modules: Annotated[
        Path | None,
        typer.Option(help="Folder of lowered modules, NAME.mlir, for --gradients without Julia."),
    ] = None,
    timeout: Annotated[float | None, duration(help="Time limit of each run.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for records, blocks, logs and reports.",
            show_default="in pyreactant-crosschecks",
            readable=False,
        ),
    ] = None,
    html: Html = None,
    as_json: AsJson = False,
    request: Annotated[
        Path | None,
        typer.Option(
            help="Only write the request to this file, for processes that another launcher starts.",
            readable=False,
        ),
        Beside(
            excludes="--backends --processes --devices-per-process --platform --gradients "
            "--no-gradients --modules --timeout --out --html --json",
            enables="--overwrite",
        ),
    ] = None,
    overwrite: Overwrite = False,
    on: Annotated[
        str | None,
        typer.Option(help="Where to check: slurm or tpu.", show_default="this machine"),
        Beside(enables="--dry-run"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what --on would start; start nothing."),
        Beside(excludes="--json"),
    ] = False,
) -> None:
    """Check programs on each runtime, and compare runtimes.

    The runtimes run one after the other, each in its own processes. Without PROGRAM, the matrix
    product runs.

    With --on slurm the check is a job of slurm/main.sbatch, which this submits. With --on tpu it is
    the matrix product on new slices, which are deleted before the results are compared.
    """
    if on == "slurm":
        checked = {
            "backends": None if backends == "auto" else backends,
            "programs": "--all" if every else " ".join(programs or ()),
            "platform": platform,
            "size": size,
            "mesh": mesh,
            "spec": spec,
            "dtype": dtype,
            "output": out,
        }
        _on_slurm(settings, checked, dry_run=dry_run, as_json=as_json)
        return
    if on == "tpu":
        settings["backend"] = ",".join(BACKENDS) if backends == "auto" else backends
        side = 4096 if size is None else size
        _on_tpu(settings, side, out, dry_run=dry_run, as_json=as_json)
        return
    if list_them:
        _list(as_json)
        return
    coverage = "quick" if quick else "thorough" if thorough else "usual"
    check_outputs({"html": html, "request": request}, overwrite=overwrite)
    if html is not None and out is not None and target_of(html) == target_of(out / REPORT):
        raise InvalidArgumentError(
            f"--html {html}: the report as JSON goes to the same file; name another one"
        )
    from ..check import run
    from ..check.programs import find_case
    from ..check.request import write_request

    # A program's module may lie in the current folder; the runs inherit the import path.
    sys.path.append(str(Path.cwd()))
    selection = "all" if every else programs or "matmul"
    if request is not None:
        written = run.request_of(
            selection,
            coverage=coverage,
            size=size,
            dtype=dtype,
            seed=seed,
            mesh=mesh,
            spec=spec,
            repeat=repeat,
            typical=typical,
            check=check,
        )
        for program in written.programs:
            find_case(program)
        write_request(written, request, overwrite=overwrite)
        return
    folder = out or Path("pyreactant-crosschecks", f"{datetime.now():%Y-%m-%dT%H%M%S}")
    from .console import working

    try:
        # What an oracle prints is no part of the report.
        apart = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
        with working("the programs are being checked"), apart:
            report = run.crosscheck(
                selection,
                backends=backends,
                processes=processes,
                devices_per_process=devices_per_process,
                mesh=mesh,
                spec=spec,
                size=size,
                dtype=dtype,
                seed=seed,
                platform=platform,
                repeat=repeat,
                typical=typical,
                check=check,
                coverage=coverage,
                gradients=modules or gradients,
                out=folder,
                timeout=timeout,
                progress=steps.level is not Level.QUIET,
            )
    except KeyboardInterrupt:
        _tell_interrupted(folder, html, overwrite)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    page = html or folder / "report.html"
    _show(report, page, as_json=as_json, folder=folder, overwrite=overwrite)


def _on_slurm(
    place: dict[str, Any], checked: Mapping[str, object], *, dry_run: bool, as_json: bool
) -> None:
    """Submit a cross-check to Slurm."""
    from ..check import places
    from ..runs.keeper import submitted_to_slurm

    restarts = place.pop("max_restarts", None)
    settings = {name: value for name, value in checked.items() if value}
    if checked["size"] is not None:
        settings["size"] = checked["size"]
    if restarts is not None:
        settings["max_requeues"] = restarts
    command = places.slurm_command(place, settings)
    if dry_run:
        print(command)
        return
    job = submitted_to_slurm("cross-check", place, lambda: places.on_slurm(command))
    print(
        json.dumps({"job": str(job)})
        if as_json
        else f"submitted job {job}; follow it with: pyreactant jobs logs {job} --follow"
    )


def _on_tpu(
    settings: Mapping[str, Any], size: int, out: Path | None, *, dry_run: bool, as_json: bool
) -> None:
    """Cross-check the sharded matmul on new slices of Cloud TPU."""
    from ..check.places import on_slices
    from ..runs.keeper import recorded
    from ..runs.queued.job import Job, check_size, plan_text
    from .tpu_options import connect, target_of, telling

    target = target_of(settings)
    target.check_settings()
    request = target.request()
    folder = out or Path(f"pyreactant-{request.name}")
    job = Job(settings=target, request=request, out=folder, size=size)
    check_size(job)
    if dry_run:
        print(plan_text(job))
        return
    client = connect(target.transport)

    def work() -> int:
        with telling(f"running on {request.name}") as told:
            report = on_slices(job, client, told)
        text = json.dumps(report.to_dict(), indent=2) + "\n" if as_json else report.to_text()
        write_output(text, STDOUT, overwrite=True)
        return report.exit_code

    with reserved_stdout() if as_json else contextlib.nullcontext():
        code = recorded(
            work,
            origin="crosscheck",
            what="matmul",
            target="tpu",
            settings=target.settings(),
            out=folder,
            kind="module",
            program=["-m", "pyreactant.crosscheck"],
        )
    raise typer.Exit(code)


def _tell_interrupted(folder: Path, html: Path | None, overwrite: bool) -> None:
    """Write the report on the finished programs, and say in one line where it is."""
    from ..check.run import so_far

    report, finished = so_far(folder)
    where = f"; logs: {folder}" if folder.exists() else ""
    if report is not None:
        report.to_json(folder / REPORT)
        report.to_html(html or folder / "report.html", overwrite=overwrite)
        where = f"; report and records: {folder}"
    runs = (f"finished on {name}: {', '.join(done)}" for name, done in finished.items() if done)
    print(f"interrupted; {'; '.join(runs) or 'no program has finished'}{where}", file=sys.stderr)


@app.command(epilog=examples("pyreactant compare check/jax check/reactant --html report.html"))
def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR ...", help="Folders of finished runs, such as OUT/jax."),
    ],
    html: Html = None,
    report_file: ReportFile = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compare finished runs of a cross-check.

    Their folders may be copied from other machines.
    """
    check_outputs({"html": html, "report": report_file}, overwrite=overwrite)
    from ..check.run import compare as compare_runs

    report = compare_runs(*folders)
    if report_file is not None:
        report.to_json(report_file, overwrite=overwrite)
    _show(report, html, as_json=as_json, folder=None, overwrite=overwrite)


def _list(as_json: bool) -> None:
    from ..check.programs import CASES

    if as_json:
        rows = [
            {"name": name, "summary": case.summary, "dtypes": list(case.dtypes)}
            for name, case in CASES.items()
        ]
        print(json.dumps(rows, indent=2))
        return
    width, columns = max(map(len, CASES)), width_of(sys.stdout)
    for name, case in CASES.items():
        print(hanging(f"{name:{width}}  ", f"{case.summary}; {', '.join(case.dtypes)}", columns))


def _show(
    report: "Report",
    page: Path | None,
    *,
    as_json: bool,
    folder: Path | None,
    overwrite: bool,
) -> None:
    from .console import output

    if page is not None:
        report.to_html(page, overwrite=overwrite)
    if folder is not None:
        report.to_json(folder / REPORT)
    if as_json:
        print(report.to_json(), end="")
    else:
        output().print(report)
        # A line each, so that a narrow terminal breaks neither.
        if page is not None:
            print(f"page: {page}")
        if folder is not None:
            print(f"files: {folder}")
    if not report.passed:
        raise typer.Exit(report.exit_code)
