"""`pyreactant burnin`: test devices and links before a run, and check the certificate."""

import contextlib
import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arrays.text import MESH_HELP, parse_mesh
from ..base import steps
from ..base.errors import ExitCode, InvalidArgumentError, argument
from ..base.files import plain_json
from ..base.outputs import check_outputs, reserved_stdout, write_output
from ..base.say import say
from ..base.steps import Level
from .command import App, AsJson, Beside, Group, Html, Overwrite, duration, examples
from .declared import HERE, Options, chosen, takes_settings
from .run import BURN_IN, RunCommand, listed, spec_of, watched

if TYPE_CHECKING:
    from ..check.burnin.certificate import Certificate
    from ..check.burnin.record import Asked, Record
    from ..runs.spec import RunSpec

MOST_MINUTES = 10_000.0
MOST_SIZE = 65536
MOST_MEMORY = 0.9

RECORD = "burnin-record.jsonl"
"""What process 0 writes after each round, in the run's folder."""

_RUN = "run"


class _WithDefault(Group):
    """A group whose command `run` needs no name."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words of the command line."""
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [_RUN, *args])


app = App(
    name="burnin",
    cls=_WithDefault,
    help="Test devices and links before a run; without a command: run.",
    epilog=examples(
        "pyreactant burnin --minutes 2 --html burnin.html",
        "srun pyreactant burnin --minutes 10",
        "pyreactant burnin --on tpu --topology v6e-16 --dry-run",
        "pyreactant burnin check burnin.json --max-age 24h",
    ),
)


class BurninCommand(RunCommand):
    """The command with the options of each place that a burn-in has."""

    def places(self) -> Mapping[str, Options]:
        """The options of each place, besides those of every burn-in."""
        places = super().places()
        return {
            place: chosen(options, _HERE)
            if place == HERE
            else {name: pair for name, pair in options.items() if pair[1].name not in _NOT_THERE}
            for place, options in places.items()
            if place != "local"
        }


_HERE = ("processes", "devices_per_process", "platform")
_NOT_THERE = ("out", "backend", "stall_timeout", "min_processes", "max_restarts")
"""Options of a run elsewhere that a burn-in decides, or has itself."""


@app.command(
    cls=BurninCommand,
    epilog=examples(
        "pyreactant burnin --processes 2 --devices-per-process 4",
        "pyreactant burnin --on slurm --nodes 16 --gpus-per-node 8 --minutes 10",
    ),
)
@takes_settings
def run(
    settings: dict[str, Any],
    minutes: Annotated[float, typer.Option(help="How long to test.")] = 2.0,
    size: Annotated[
        int | None,
        typer.Option(help="Side of the products.", show_default="256 on CPU, otherwise 8192"),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            help="Share of each device's free memory to test; 0 for none.",
            show_default="0 on CPU, otherwise 0.5",
        ),
    ] = None,
    mesh: Annotated[
        str | None,
        typer.Option(help=f"Test along each axis of this mesh, too: {MESH_HELP}."),
    ] = None,
    stall_timeout: Annotated[
        float, duration(help="Time without progress until a process is stalled.")
    ] = 120.0,
    on: Annotated[
        str | None,
        typer.Option(
            help="Where to test: slurm, tpu, ray or kubernetes.", show_default="this machine"
        ),
        Beside(enables="--dry-run"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what --on would start; start nothing."),
        Beside(excludes="--json"),
    ] = False,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Write the certificate to this file.", readable=False),
        Beside(enables="--overwrite"),
    ] = Path("burnin.json"),
    html: Html = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Test each device alone, then transfers and links, and write a certificate.

    With srun, start it once per process and omit --processes. With --on the burn-in is a job, and
    the certificate comes back to this folder. The runtime is JAX. Ends with 5 if something failed.
    After Ctrl-C, or if a process is lost, the certificate has what was finished.
    """
    for name, value, least, most in (
        ("size", size, 8, MOST_SIZE),
        ("memory", memory, 0, MOST_MEMORY),
    ):
        if value is not None and not least <= value <= most:
            raise InvalidArgumentError(
                f"{argument(name)} must be {least} to {most}, got {value:g}; leave it out"
            )
    if not 0 < minutes <= MOST_MINUTES:
        raise InvalidArgumentError(
            f"{argument('minutes')} must be above 0 and at most {MOST_MINUTES:g}, got {minutes:g}"
        )
    from ..check.burnin.record import Asked

    if mesh is not None:
        parse_mesh(mesh)
    asked = Asked(60 * minutes, size, memory, mesh or "")
    settings["stall_timeout"] = stall_timeout
    there = None if on in (None, "local") else on
    if there is not None and dry_run:
        from ..runs import submit

        print(submit.plan(_spec(there, asked, settings, Path("FOLDER").absolute())))
        return
    check_outputs({"out": out, "html": html}, overwrite=overwrite)
    with reserved_stdout() if as_json else contextlib.nullcontext():
        if there is None:
            record, why, code = _here(asked, settings)
        else:
            record, why, code = _elsewhere(there, asked, settings)
    if record is not None:
        from ..check.burnin.certificate import certify

        certificate = certify(record, why)
        try:
            write_output(plain_json(certificate.data()), out, overwrite=overwrite)
            if html is not None:
                certificate.to_html(html, overwrite=overwrite)
        finally:  # also on a full disk
            _print(certificate, as_json)
        code = certificate.exit_code or code
    if code:
        raise typer.Exit(code)


def _here(asked: "Asked", settings: Mapping[str, Any]) -> "tuple[Record | None, str, int]":
    """The record of a burn-in on this machine, why it is not whole, and the exit code."""
    from ..process.group.resolvers import resolve
    from ..runs import keeper
    from ..runs.supervisor import RunOptions, supervise
    from ..runs.supervisor.unstarted import others_told

    with others_told():
        first = settings.get("processes") is not None or resolve().process_index == 0
        # The other supervisors take the folder of process 0, which alone keeps the record.
        folder = keeper.new_folder().absolute() if first else None
        path = "-" if folder is None else str(folder / RECORD)
        options = RunOptions(
            program=[*BURN_IN, path, json.dumps(asked.to_dict())],
            backend="jax",
            end_stalled=True,
            folder=folder,
            quiet=steps.level is Level.QUIET,
            **settings,
        )
    code = listed(options, supervise)
    return (None, "", code) if folder is None else (*_so_far(folder, code), code)


def _elsewhere(
    on: str, asked: "Asked", settings: Mapping[str, Any]
) -> "tuple[Record | None, str, int]":
    """The same of a burn-in at a place; its value there is the record."""
    from ..check.burnin.record import Record
    from ..runs import keeper

    folder = keeper.new_folder().absolute()
    job, code = watched(_spec(on, asked, settings, folder))
    if job is not None and code == 0:
        return Record.of_lines(job.result().splitlines()), "", code
    return (*_so_far(folder, code), code)


def _spec(on: str, asked: "Asked", settings: Mapping[str, Any], folder: Path) -> "RunSpec":
    """The run of a burn-in at a place.

    A place does not end a run whose process hangs, so the run has a time limit.
    """
    limit = asked.seconds + 2 * settings["stall_timeout"] + _TO_START
    of_run = {"timeout": limit, **settings, "out": folder, "backend": "jax"}
    spec = spec_of(on, _FUNCTION, of_run, detach=False)
    # The nodes of Slurm share this folder, so that an interrupted burn-in leaves its record there.
    record = str(folder / RECORD) if on == "slurm" else "-"
    return dataclasses.replace(spec, arguments=(record, asked.to_dict()))


_FUNCTION = "pyreactant.check.burnin.member:burned_in"
_TO_START = 300.0
"""Seconds that the processes of a burn-in have to start, and to end."""


def _so_far(folder: Path, code: int) -> "tuple[Record | None, str]":
    """The record in a run's folder, None if no round was finished, and why it is not whole."""
    from ..base.files import is_full
    from ..check.burnin.record import read_record
    from ..runs.record import report_in

    path = folder / RECORD
    unsaid = "no space is left on the run's disk" if is_full(folder) else "it was interrupted"
    why = str(report_in(folder).get("summary", unsaid)) if code else ""
    if not path.exists():
        say("no round was finished, so there is no certificate")
        return None, why
    return read_record(path), why


def _print(certificate: "Certificate", as_json: bool) -> None:
    from .console import output

    if as_json:
        print(plain_json(certificate.data()), end="")
        return
    output().print(certificate)
    if not certificate.hmac:
        print("burnin: there is no key here, so the seal is a digest that anyone can make")


@app.command(
    epilog=examples("pyreactant burnin check burnin.json --max-age 24h --exclude-file exclude")
)
def check(
    certificate: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate.")],
    max_age: Annotated[float, duration(help="How old it may be.")] = 86400.0,
    exclude_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the hosts that failed to this file, as sbatch --exclude takes them.",
            readable=False,
        ),
        Beside(enables="--overwrite"),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Check a certificate: its seal, its age, and whether something failed.

    Ends with 5 if something failed; with --exclude-file only if no host is left, or if a link
    failed.
    """
    check_outputs({"exclude_file": exclude_file}, overwrite=overwrite)
    from ..check.burnin.certificate import check_age, read_certificate

    read = read_certificate(certificate)
    check_age(read, certificate, max_age, time.time())
    bad = read.bad_hosts
    if exclude_file is not None:
        write_output(f"{','.join(bad)}\n", exclude_file, overwrite=overwrite)
    _print(read, as_json)
    hosts = {host["host"] for host in read.hosts}
    excluded = exclude_file is not None and hosts - {*bad} and read.only_hosts_failed
    if read.failed and not excluded:
        raise typer.Exit(ExitCode.MISMATCH)
