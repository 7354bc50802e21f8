"""`pyreactant burnin`: test devices and links before a run, and check the certificate."""

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base import steps
from ..base.errors import ExitCode, InvalidArgumentError, argument
from ..base.files import plain_json
from ..base.outputs import check_outputs, reserved_stdout, write_output
from ..base.steps import Level
from .command import App, Beside, Group, Html, Overwrite, duration, examples
from .run import BURN_IN, listed

if TYPE_CHECKING:
    from ..check.burnin.certificate import Certificate

MOST_MINUTES = 10_000.0
MOST_SIZE = 65536

_RUN = "run"

AsJson = Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")]


class _WithDefault(Group):
    """A group whose command `run` needs no name."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words of the command line."""
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [_RUN, *args])


app = App(
    cls=_WithDefault,
    help="Test devices and links before a run; without a command: run.",
    epilog=examples(
        "pyreactant burnin --minutes 2 --html burnin.html",
        "srun pyreactant burnin --minutes 10",
        "pyreactant burnin check burnin.json --max-age 24h",
    ),
)


@app.command(epilog=examples("pyreactant burnin --processes 2 --devices-per-process 4"))
def run(
    minutes: Annotated[float, typer.Option(help="How long to test.")] = 2.0,
    processes: Annotated[
        int | None,
        typer.Option("--processes", "-n", help="Number of processes to start on this machine."),
    ] = None,
    devices_per_process: Annotated[
        int | None, typer.Option(help="CPU devices, or GPUs, of each process.")
    ] = None,
    platform: Annotated[
        str | None, typer.Option(help="Platform: cpu, gpu or tpu.", show_default="best available")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="Side of the products.", show_default="256 on CPU, otherwise 8192"),
    ] = None,
    stall_timeout: Annotated[
        float, duration(help="Time without progress until a process is stalled.")
    ] = 120.0,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Write the certificate to this file.", readable=False),
    ] = Path("burnin.json"),
    html: Html = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Test each device alone, then transfers and links, and write a certificate.

    With srun, start it once per process and omit --processes. The runtime is JAX. Ends with 5 if
    something failed. After Ctrl-C, or if a process is lost, the certificate has what was finished.
    """
    if not 0 < minutes <= MOST_MINUTES:
        raise InvalidArgumentError(
            f"{argument('minutes')} must be above 0 and at most {MOST_MINUTES:g}, got {minutes:g}"
        )
    if size is not None and not 8 <= size <= MOST_SIZE:
        raise InvalidArgumentError(
            f"{argument('size')} must be 8 to {MOST_SIZE}, got {size}; leave it out"
        )
    check_outputs({"out": out, "html": html}, overwrite=overwrite)
    from ..process.group.resolvers import resolve
    from ..runs import keeper
    from ..runs.record import report_in
    from ..runs.supervisor import RunOptions, supervise
    from ..runs.supervisor.unstarted import others_told

    with others_told():
        first = processes is not None or resolve().process_index == 0
        # The other supervisors take the folder of process 0, which alone keeps the record.
        folder = keeper.new_folder().absolute() if first else None
        record = "-" if folder is None else str(folder / "burnin-record.json")
        options = RunOptions(
            program=[*BURN_IN, record, f"{60 * minutes:g}", str(size or 0)],
            processes=processes,
            devices_per_process=devices_per_process,
            backend="jax",
            platform=platform,
            stall_timeout=stall_timeout,
            end_stalled=True,
            folder=folder,
            quiet=steps.level is Level.QUIET,
        )
    with reserved_stdout() if as_json else contextlib.nullcontext():
        code = listed(options, supervise)
    if folder is not None:
        why = report_in(folder).get("summary", "it was interrupted") if code else ""
        certificate = _certified(Path(record), why)
        if certificate is not None:
            write_output(plain_json(certificate.data()), out, overwrite=overwrite)
            if html is not None:
                certificate.to_html(html, overwrite=overwrite)
            _print(certificate, as_json)
            code = certificate.exit_code or code
    if code:
        raise typer.Exit(code)


def _certified(record: Path, why: str) -> "Certificate | None":
    """The certificate; None if no round was finished, of which the run's report says why."""
    if not record.exists():
        return None
    from ..base.files import read_json
    from ..check.burnin.certificate import certify
    from ..check.burnin.record import Record

    return certify(Record.from_dict(read_json(record, "the record of a burn-in")), why)


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
