"""A cross-check at a place: one run for each runtime, in one allocation.

On a Slurm cluster it is a job of slurm/main.sbatch; on Cloud TPU the slices are made for it, and
deleted before the results are compared.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arrays.runtimes.known import check_backend, check_platform
from ..base.errors import FileError
from ..runs.places.slurm import ASKED, Slurm
from ..runs.places.slurm_jobs import COMMENT, Command, check_once, check_possible, number_of
from ..runs.queued.job import Job, Listener, check_size
from .programs.find import find_case
from .request import USUAL, CheckRequest, write_request
from .run import compare, request_of

if TYPE_CHECKING:
    from ..runs.queued.client import Client
    from ..runs.supervisor import RunReport


class SlicesCheck:
    """A `runs.queued.job.Check` of the sharded matmul."""

    def write_request(self, job: Job, file: Path) -> None:
        """Write the cross-check's request for the sharded matmul."""
        write_request(CheckRequest(("matmul",), size=job.size), file)

    def judge(self, runs: Sequence[Path], folder: Path) -> tuple[int, str]:
        """Compare the runtimes, and write crosscheck.json and the page."""
        report = compare(*runs)
        report.to_json(folder / "crosscheck.json")
        report.to_html(folder / "crosscheck.html")
        return report.exit_code, report.verdict


def on_slices(job: Job, client: "Client", tell: Callable[[str], None]) -> "RunReport":
    """Cross-check the sharded matmul on new slices of Cloud TPU, and delete them."""
    from ..runs.queued.journal import Journal
    from ..runs.queued.run import run_job

    check_size(job)
    return run_job(job, client, Journal(), Listener(tell, print), SlicesCheck())


def batch_folder() -> Path:
    """The folder of main.sbatch: in the checkout, or in the installed package.

    Raises:
        FileError: main.sbatch is in neither.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package.parent / "slurm", package / "_slurm"):
        if (folder / "main.sbatch").exists():
            return folder
    raise FileError(
        f"slurm/main.sbatch is neither beside nor in {package}; install pyreactant again"
    )


def slurm_command(place: Mapping[str, object], settings: Mapping[str, Any]) -> Command:
    """The ``sbatch`` command of a cross-check.

    Args:
        place: Settings of the target Slurm; main.sbatch says the others.
        settings: ``PYREACTANT_*`` variables of main.sbatch, by the rest of their names.

    Raises:
        InvalidArgumentError: sbatch would not take an option, a runtime or platform is unknown, or
            a number, mesh, spec or element type cannot be read.
    """
    target = Slurm(**place)  # type: ignore[arg-type] # the command line has read each
    replace(target, options=()).check_settings()  # a cross-check may be an array
    asked = {name: getattr(target, field) for field, name in ASKED.items() if place.get(field)}
    check_once(asked, target.options)
    check_possible(target.options, array=True)
    variables = {f"PYREACTANT_{name.upper()}": str(value) for name, value in settings.items()}
    _check(settings)
    output = variables.get("PYREACTANT_OUTPUT")
    if output is not None:
        variables["PYREACTANT_OUTPUT"] = output = str(Path(output).absolute())
    script = batch_folder() / "main.sbatch"
    variables |= _python(script)
    chosen = [f"--{name}={value}" for name, value in asked.items()]
    comment = [] if output is None else [f"--comment={COMMENT}{output}"]
    if script.is_relative_to(Path.cwd()):
        script = script.relative_to(Path.cwd())
    export = _export(variables, target.options)
    argv = ["sbatch", "--parsable", *chosen, *comment, *target.options, *export, str(script)]
    return Command(argv, variables)


def _check(settings: Mapping[str, Any]) -> None:
    """Check here what main.sbatch would find wrong only after waiting in the queue."""
    for name in re.split("[, ]+", settings.get("backends", "jax").strip(", ")):
        check_backend(name)
    if (platform := settings.get("platform")) is not None:
        check_platform(platform)
    names = [name for name in settings.get("programs", "").split() if not name.startswith("-")]
    for name in names:
        if ":" not in name:  # others are imported where they run
            find_case(name)
    given = {name: settings.get(name) for name in ("size", "dtype", "mesh", "spec")}
    request_of(names or "matmul", coverage=USUAL, **given)


def _python(script: Path) -> dict[str, str]:
    """The variable that names this Python, if main.sbatch would not find it by itself.

    Its shell is a login shell, whose PATH is not that of this process.
    """
    beside = script.parent.parent / ".venv" / "bin"
    if os.environ.get("PYREACTANT_PYTHON") or Path(sys.executable).parent == beside:
        return {}
    return {"PYREACTANT_PYTHON": sys.executable}


def _export(variables: Mapping[str, str], more: Sequence[str]) -> list[str]:
    """The option that exports the variables to a job which does not get this whole environment.

    That is so with --export among the options of sbatch, or with SBATCH_EXPORT.
    """
    chosen = [text.removeprefix("--export=") for text in more if text.startswith("--export=")]
    names = (chosen or [os.environ.get("SBATCH_EXPORT", "ALL")])[-1].split(",")
    if not variables or "ALL" in names:
        return []
    kept = [name for name in names if name and name not in ("NONE", "NIL")]
    return [f"--export={','.join([*kept, *variables])}"]


def on_slurm(command: Command) -> tuple[int, Path]:
    """Submit a cross-check.

    Returns:
        Slurm's number of the job, and its output folder.
    """
    number = number_of(command.run())
    output = command.settings.get("PYREACTANT_OUTPUT") or os.environ.get("PYREACTANT_OUTPUT")
    return number, Path(output or f"pyreactant-runs/job-{number}").absolute()  # main.sbatch's
