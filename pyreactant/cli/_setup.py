"""`pyreactant setup`: install and compile Julia and Reactant, once."""

import json
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from ..setup._options import STAGES, State

if TYPE_CHECKING:
    from ..setup import Record


def setup(
    project: Annotated[
        Path | None, typer.Option(help="Folder of the Julia project; else the one in use.")
    ] = None,
    julia: Annotated[
        str | None,
        typer.Option(metavar="EXECUTABLE|VERSION", help="Julia, or a version to install, as 1.11."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="cuda|rocm|none", help="GPUs to have binaries for, here or not."),
    ] = None,
    gpu_version: Annotated[
        str | None, typer.Option(help="Of CUDA or ROCm; else 12.9 or 7.1.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Use what is installed; never the network.")
    ] = False,
    wait: Annotated[
        float | None, typer.Option(help="Seconds to wait for another setup; else 3600.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Install Julia and Reactant where they are not, compile them, and note where they are.

    Do it once, where there is network: it takes minutes and several GB. The processes of a run
    then start offline. Called again, it does what is not done yet, and nothing where all is.
    """
    from .._system.lock import WAIT
    from ..setup import Options
    from ..setup import setup as set_up

    options = Options(
        project=project,
        julia=julia,
        gpu=gpu,
        gpu_version=gpu_version,
        offline=offline,
        wait=WAIT if wait is None else wait,
    )
    with Show(sys.stderr) as show:
        record = set_up(options, show)
    if as_json:
        print(json.dumps(record.to_dict(), indent=2))
    else:
        print("\n".join(_lines(record)))


def _lines(record: "Record") -> list[str]:
    preferences = (f"{name} {value}" for name, value in record.preferences.items() if value)
    return [
        "set up" if record.ran else f"nothing to do: all was set up on {record.when}",
        f"  Julia        {record.julia}  {record.executable}",
        f"  project      {record.project}",
        f"  Reactant     {record.reactant}",
        f"  preferences  {', '.join(preferences)}",
    ]


if TYPE_CHECKING:
    from rich.status import Status

_WIDTH = max(map(len, STAGES.values()))


class Show:
    """Shows on a stream what a setup reports, while it is entered."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._status: Status | None = None
        self._since = time.monotonic()

    def __enter__(self) -> "Show":
        if self._stream.isatty():
            from rich.console import Console

            self._status = Console(file=self._stream).status("")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, stage: str, state: State, text: str) -> None:
        """Show one event."""
        if state == "waits":
            self._print(f"waiting for {text}")
        elif state == "starts":
            self._since = time.monotonic()
            self._now(stage, f"{text} ...")
        elif state == "done":
            took = time.monotonic() - self._since
            self._print(f"{STAGES[stage]:<{_WIDTH}}  {text} ({took:.1f} s)")
        elif self._status is not None:
            self._now(stage, text)

    def _now(self, stage: str, text: str) -> None:
        if self._status is None:
            self._print(f"{STAGES[stage]:<{_WIDTH}}  {text}")
            return
        from rich.text import Text

        seconds = time.monotonic() - self._since
        line = Text(f"{STAGES[stage]}  {seconds:.0f} s  {text}", overflow="ellipsis", no_wrap=True)
        self._status.update(line)

    def _print(self, line: str) -> None:
        if self._status is None:
            print(line, file=self._stream, flush=True)
        else:
            self._status.console.print(line, markup=False, highlight=False, soft_wrap=True)


app = typer.Typer(no_args_is_help=True, help="Preferences of Reactant, for the next start.")

Name = Annotated[str, typer.Argument(help="xla_runtime, gpu or gpu_version.")]
Project = Annotated[
    Path | None, typer.Option(help="Folder of the Julia project; else the one in use.")
]

# They override the preferences where Reactant's binaries are chosen.
_VARIABLES = {"gpu": "REACTANT_GPU", "gpu_version": "REACTANT_GPU_VERSION"}


@app.command()
def show(
    project: Project = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Print each preference as Julia will read it, and the file where it stands."""
    from .. import preferences
    from .._julia.preferences import NAMES

    found = {name: preferences.find(name, project=project) for name in NAMES}
    if as_json:
        said = {k: {"value": v.value, "file": v.file and str(v.file)} for k, v in found.items()}
        print(json.dumps(said, indent=2))
        return
    for name, preference in found.items():
        value = "not set" if preference.value is None else preference.value
        print(f"{name:<11}  {value:<7}  {preference.file or ''}".rstrip())
        variable = _VARIABLES.get(name, "")
        if os.environ.get(variable):
            print(f"  {variable}={os.environ[variable]} overrides it")


@app.command(name="set")
def set_(
    name: Name,
    value: Annotated[str, typer.Argument(help="PJRT or IFRT; none, cuda or rocm; as 12.9.")],
    project: Project = None,
) -> None:
    """Set a preference; what else stands in the file stays as it is."""
    from .. import preferences

    file = preferences.set(name, value, project=project)
    print(f"{name} is {value} in {file}; compile for it with: pyreactant setup")


@app.command()
def unset(name: Name, project: Project = None) -> None:
    """Take a preference out of the local preferences."""
    from .. import preferences

    file = preferences.unset(name, project=project)
    left = preferences.find(name, project=project)
    still = f"still {left.value}, as {left.file} says" if left.value else "not set"
    print(f"{name} is not in {file}, and {still}; compile for it with: pyreactant setup")
