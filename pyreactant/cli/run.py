"""`pyreactant run`: a program on every process, here or elsewhere; all end when one fails."""

import contextlib
import dataclasses
import itertools
import json
import os
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import ExitCode, InvalidArgumentError, PyReactantError, code_of_signal
from ..base.outputs import STDOUT, reserved_stdout, write_output
from ..base.say import say
from ..base.settings import JOB
from .command import App, Beside, duration, examples
from .declared import HERE, DeclaredCommand, Options, takes_settings

if TYPE_CHECKING:
    from ..runs.job import Job
    from ..runs.spec import RunSpec, What
    from ..runs.supervisor import RunOptions

_WORKER = ["-m", "pyreactant.runs.worker"]
"""Calls a function, FILE.py:NAME, that follows."""

app = App()


class RunCommand(DeclaredCommand):
    """The command with its usage errors, which end the other processes of the run, too."""

    is_here = False
    """Whether the words show that the run is here. The other places take time to import."""

    def places(self) -> Mapping[str, Options]:
        """The options of a run in the foreground here, and of each target if they are needed."""
        from ..runs.spec import RunSpec, options_of
        from ..runs.supervisor import RunOptions

        here = {HERE: options_of(RunOptions)}
        if self.is_here:
            return here
        from ..runs import targets

        kinds = {kind: targets.type_of(kind) for kind in targets.KINDS}
        spec = options_of(RunSpec)
        return here | {kind: {**spec, **options_of(target)} for kind, target in kinds.items()}

    def place(self, ctx: Any) -> str:
        """The target, or this machine."""
        on: str | None = ctx.params.get("on")
        return HERE if on in (None, "local") and not ctx.params.get("detach") else on or "local"

    def reads(self, variable: str, ctx: Any) -> bool:
        """A job's slices have a name of its own, so that no other run can have theirs."""
        return variable != "QR_ID" or not ctx.params.get("detach")

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse the command line."""
        self.is_here, self.params = True, self._own
        if extra.get("resilient_parsing") or not self._has_all(args):
            self.is_here, self.params = False, self._own
        try:
            return super().make_context(info_name, args, parent, **extra)
        except InvalidArgumentError as error:
            from ..runs.supervisor.unstarted import tell_others

            tell_others(error)
            raise

    def _has_all(self, args: Sequence[str]) -> bool:
        """Whether the options of a run here are all that the line has before its program."""
        known = {name for parameter in self.params for name in parameter.opts}
        words = itertools.takewhile(lambda word: word != "--", args)
        given = {word.partition("=")[0] for word in words if word.startswith("-")}
        return given <= known - {"--on", "--detach", "--help"}

    def check(self, ctx: Any) -> None:
        """As the other commands; all processes end if one is wrong."""
        from ..runs.supervisor.unstarted import others_told

        with others_told():
            if (on := ctx.params.get("on")) is not None:
                from ..runs import targets

                targets.type_of(on)
            super().check(ctx)


@app.command(
    cls=RunCommand,
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "pyreactant run --processes 2 --devices-per-process 4 -- train.py --steps 9",
        "pyreactant run --on slurm --nodes 2 --account proj01 -- train.py",
        "pyreactant run --on tpu --topology v6e-16 --dry-run -- train.py",
        "pyreactant run --on kubernetes --topology v6e-16 --image IMAGE -- train.py",
        "srun pyreactant run --out logs -- -m package.train",
    ),
)
@takes_settings
def run(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="-- PROGRAM [ARGUMENTS]",
            help="Python script, -m MODULE, a function as FILE.py:NAME, or any other command; then "
            "its arguments.",
        ),
    ],
    settings: dict[str, Any],
    module: Annotated[
        bool, typer.Option("-m", help="The program is a module, as with python -m.")
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(
            help="Where to run: local, slurm, tpu, ray or kubernetes.", show_default="local"
        ),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Run a copy of the code as a job, and return at once."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what would be started; start nothing."),
        Beside(excludes="--json"),
    ] = False,
    manifest: Annotated[
        Path | None,
        typer.Option(
            help="New file for the objects of a run on kubernetes, with its secrets; nothing is "
            "started.",
            rich_help_panel="Output",
        ),
        Beside(excludes="--json --dry-run --detach"),
    ] = None,
    require_burnin: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Start only with a burn-in's certificate of this machine in which nothing failed; "
            "in the foreground here only.",
        ),
        Beside(excludes="--detach --dry-run --manifest", enables="--burnin-age"),
    ] = None,
    burnin_age: Annotated[float, duration(help="How old that certificate may be.")] = 86400.0,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print the job, or the report at the end, as JSON; output of programs goes to "
            "standard error.",
        ),
    ] = False,
) -> None:
    """Run a program on every process; end all if one fails.

    On this machine, set the number of processes with --processes. With srun, mpirun or ssh, start
    this command once per process and omit --processes: each supervisor finds out its process
    index. Logs and the report are in the run's folder.

    With --detach, and at another place than local, a copy of the code runs as a job, which
    `pyreactant jobs` lists. Without --detach the command shows the output of process 0 and ends
    with the exit code of the run; Ctrl-C, SIGTERM, SIGHUP and SIGQUIT cancel the run. Slices of a
    TPU are made for the run, and deleted on success, failure and these signals. After SIGKILL,
    `pyreactant tpu gc` deletes them; otherwise they delete themselves when their lifetime is over.
    """
    words = ["-m", *program] if module else program
    if require_burnin is not None:
        if on not in (None, "local"):
            raise InvalidArgumentError(
                f"--require-burnin is for a run in the foreground here, also with srun, got --on "
                f"{on}; write it into the script that runs there"
            )
        _check_burnin(require_burnin, burnin_age, settings.get("platform"))
    if manifest is not None:
        from ..runs import submit

        spec = spec_of(on or "local", _what(words), settings, detach=True)
        name = submit.write_manifest(spec, manifest)
        say(f"{manifest} has secrets; start {name} with: kubectl create -f {manifest}")
        return
    if on in (None, "local") and not detach:
        code = _here(words, settings, dry_run=dry_run, as_json=as_json)
    else:
        spec = spec_of(on or "local", _what(words), settings, detach=detach)
        code = _elsewhere(spec, detach=detach, dry_run=dry_run, as_json=as_json)
    if code:
        raise typer.Exit(code)


def _check_burnin(path: Path, longest: float, platform: str | None) -> None:
    """Refuse to start without a certificate of this machine; all processes end."""
    from ..base.facts import gpu_serials
    from ..check.burnin.certificate import check_age, check_machine, read_certificate
    from ..runs.supervisor.unstarted import others_told

    with others_told():
        certificate = read_certificate(path)
        check_age(certificate, path, longest, time.time())
        serials = () if platform == "cpu" else gpu_serials()
        check_machine(certificate, path, socket.gethostname(), serials)


def _here(
    words: Sequence[str], settings: Mapping[str, Any], *, dry_run: bool, as_json: bool
) -> int:
    """Supervise the run in this process."""
    from ..runs.call import is_function, resolve
    from ..runs.spec import command_line
    from ..runs.supervisor import RunOptions, supervise
    from ..runs.supervisor.unstarted import others_told

    with others_told():
        if is_function(words):
            resolve(function := _function(words))
            words = [*_WORKER, function]
        options = RunOptions(program=words, **settings)
    if dry_run:
        folder = [] if options.folder is None else [f"--out={options.folder}"]
        print(f"# in {Path.cwd()}, not copied")
        print(shlex.join(["pyreactant", "run", *command_line(options), *folder, "--", *words]))
        return 0
    return _reported(options, supervise) if as_json else listed(options, supervise)


def _reported(options: "RunOptions", supervise: Callable[["RunOptions"], int]) -> int:
    """Supervise the run; process 0 prints its report as JSON, and nothing else to standard output.

    Raises:
        InvalidArgumentError: Another supervisor chooses the folder.
    """
    from ..process.group.group import env_int
    from ..process.group.resolvers import resolve
    from ..runs import keeper
    from ..runs.record import report_in
    from ..runs.supervisor.options import run_folder
    from ..runs.supervisor.unstarted import others_told

    alone = keeper.is_alone(options.processes)
    with others_told():
        if options.folder is None and not alone:
            raise InvalidArgumentError(
                "--json needs --out for one of several supervisors; give both"
            )
    folder = options.folder or keeper.new_folder()
    with reserved_stdout():
        code = listed(dataclasses.replace(options, folder=folder), supervise)
        if alone or resolve().process_index == 0:
            own = run_folder(folder, env_int("SLURM_RESTART_COUNT") or 0)
            _print_report(os.environ.get(JOB) if alone else None, folder, code, report_in(own))
    return code


def _print_report(
    job: str | None, folder: Path | None, code: int, report: Mapping[str, Any]
) -> None:
    """Print how a run ended as JSON, where standard output was before `reserved_stdout`."""
    document = {
        "id": job,
        "exit_code": code,
        "folder": folder and str(folder.absolute()),
        "report": report or None,
    }
    write_output(f"{json.dumps(document, indent=2)}\n", STDOUT, overwrite=True)


BURN_IN = ("-m", "pyreactant.check.burnin.member")
"""The program of a burn-in."""


def listed(options: "RunOptions", supervise: Callable[["RunOptions"], int]) -> int:
    """Supervise the run, with a record for `pyreactant jobs` if it is a job of its own."""
    from ..runs import keeper
    from ..runs.call import kind_of
    from ..runs.spec import Supervision, options_of

    if not keeper.is_alone(options.processes):
        return supervise(options)
    folder = options.folder or keeper.new_folder()
    words = _typed(options)
    fields = [field for _, field in options_of(Supervision).values()]
    given = {field.name: getattr(options, field.name) for field in fields}
    changed = {f.name: given[f.name] for f in fields if given[f.name] != f.default}
    return keeper.recorded(
        lambda: supervise(dataclasses.replace(options, folder=folder)),
        origin="run",
        what=shlex.join(words)[:80],
        target="local",
        settings={**changed, "processes": options.processes or 1},
        out=folder,
        program=list(words),
        kind=kind_of(words),
    )


def _typed(options: "RunOptions") -> Sequence[str]:
    """The program of a run; that of a command which starts such runs, as its user types it."""
    words = options.program
    if list(words[:2]) == _WORKER:
        return words[2:]
    if tuple(words[:2]) == BURN_IN:
        return ["burnin"]
    if list(words[:2]) != ["-m", "pyreactant.crosscheck"] or len(words) != 4:
        return words
    from ..check.request import read_request

    try:
        names = read_request(Path(words[2])).names
    except PyReactantError:
        return words  # the program itself says what is wrong
    return ["crosscheck", "--backends", options.backend or "auto", *names]


def _function(words: Sequence[str]) -> str:
    if len(words) > 1:
        raise InvalidArgumentError(
            f"a function is called without arguments here, got {' '.join(words[1:])}; pass them "
            "with pr.submit in Python"
        )
    return words[0]


def _what(words: Sequence[str]) -> "What":
    from ..runs.call import is_function

    return _function(words) if is_function(words) else words


def spec_of(on: str, what: "What", settings: Mapping[str, Any], *, detach: bool) -> "RunSpec":
    """The run that a command line asks for, by its settings of the run and of the place."""
    from ..runs import targets
    from ..runs.spec import RunSpec, options_of

    of_spec = {field.name for _, field in options_of(RunSpec).values()}
    target = targets.make(on, {k: v for k, v in settings.items() if k not in of_spec})
    given = {name: value for name, value in settings.items() if name in of_spec}
    if target.stays and not detach and settings.get("name"):
        given.setdefault("out", Path(f"pyreactant-{settings['name']}"))
    return RunSpec(what=what, on=target, **given)


def _elsewhere(spec: "RunSpec", *, detach: bool, dry_run: bool, as_json: bool) -> int:
    """Start the run as a job; without `detach`, stay with it until its end."""
    from ..runs import submit

    if dry_run:
        print(submit.plan(spec))
        return 0
    if detach:
        sent = submit.start(spec)
        print(
            json.dumps({"id": sent.id, "folder": str(sent.folder)})
            if as_json
            else f"submitted job {sent.id}; follow it with: pyreactant jobs attach {sent.id}"
        )
        return 0
    with reserved_stdout() if as_json else contextlib.nullcontext():
        started, code = watched(spec)
        if as_json:
            job, run = (started.id, started.record.run) if started else (None, None)
            _print_report(job, run, code, started.record.report() if started else {})
    return code


def watched(spec: "RunSpec") -> "tuple[Job | None, int]":
    """Start the run as a job, and stay with it until its end.

    Returns:
        The job, if it was started, and its exit code.
    """
    from ..runs.targets import Target

    assert isinstance(spec.on, Target)
    return _kept(spec) if spec.on.stays else _followed(spec)


def _kept(spec: "RunSpec") -> "tuple[Job, int]":
    """Start the run as a job that this process keeps until its end; the job and its exit code."""
    from ..runs import submit

    job = submit.start(spec, stay=True)
    return job, job.status().exit_code or 0


def _followed(spec: "RunSpec") -> "tuple[Job | None, int]":
    """Start the run as a job, show its output until its end, and cancel it if a signal comes.

    Returns:
        The job, if it was started, and its exit code.
    """
    from ..runs import submit
    from ..runs.queued.signals import Interrupted, interrupted_by_signals
    from .jobs import follow_to_end

    job = None
    try:
        with interrupted_by_signals():
            job = submit.start(spec)
            with submit.cancelled_by_interrupt(job):
                # As a run on this machine, it goes on if its reader is gone.
                follow_to_end(job, stay=True)
    except Interrupted as signalled:
        return job, code_of_signal(signalled.number)
    except typer.Exit as end:
        return job, end.exit_code
    return job, ExitCode.DONE
