"""`pyreactant setup` and `pyreactant prefs`: install Julia and Reactant; set preferences."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..setup._options import STAGES, Event
from ._command import App, examples

if TYPE_CHECKING:
    from ..setup import Record


Project = Annotated[
    Path | None, typer.Option(help="Folder of the Julia project; by default the one in use.")
]

SETUP_EXAMPLES = examples(
    "pyreactant setup", "pyreactant setup --gpu cuda --gpu-version 12.9 --project julia_project"
)


def setup(
    project: Project = None,
    julia: Annotated[
        str | None,
        typer.Option(
            metavar="EXECUTABLE|VERSION",
            help="Julia executable, or version of Julia to use, such as 1.11.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="cuda|rocm|none", help="GPUs of the binaries; this machine may have none."
        ),
    ] = None,
    gpu_version: Annotated[
        str | None, typer.Option(help="Version of CUDA or ROCm; by default 12.9 or 7.1.")
    ] = None,
    any_version: Annotated[
        bool | None,
        typer.Option(
            "--any-version/--pinned-version",
            help="Accept every version of Reactant, or only the one that pyreactant requires.",
            show_default=False,
        ),
    ] = None,
    tpu: Annotated[
        bool | None,
        typer.Option(
            "--tpu/--no-tpu",
            help="Whether to choose libtpu for Reactant; by default on a machine with a TPU.",
            show_default=False,
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Use only what is installed, never the network.")
    ] = False,
    wait: Annotated[
        float | None, typer.Option(help="Seconds to wait for another setup; by default 3600.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Install Julia and Reactant, and compile them.

    Run it once, on a machine with network: it takes minutes and several GB. The processes of a
    run then start offline. It is idempotent: a second call finishes what is missing.
    """
    from .._system.files import LOCK_WAIT
    from ..setup import Options
    from ..setup import setup as set_up

    options = Options(
        project=project,
        julia=julia,
        gpu=gpu,
        gpu_version=gpu_version,
        any_version=any_version,
        tpu=tpu,
        offline=offline,
        wait=LOCK_WAIT if wait is None else wait,
    )
    from ._console import working

    with working("setting up Julia and Reactant") as tell:
        record = set_up(options, lambda *event: tell(_shown(*event)))
    if as_json:
        print(json.dumps(record.to_dict(), indent=2))
    else:
        print("\n".join(_lines(record)))


def _lines(record: "Record") -> list[str]:
    preferences = (f"{name} {value}" for name, value in record.preferences.items() if value)
    return [
        "set up" if record.ran else f"nothing to do: set up on {record.when}",
        f"  Julia        {record.julia}  {record.executable}",
        f"  project      {record.project}",
        f"  Reactant     {record.reactant}{' (any version is accepted)' * record.any_version}",
        *([] if record.libtpu is None else [f"  libtpu       {_libtpu(record.libtpu)}"]),
        f"  preferences  {', '.join(preferences)}",
    ]


def _libtpu(chosen: Mapping[str, str | None]) -> str:
    return f"{chosen['version'] or 'unknown version'}  {chosen['path']}"


def _shown(stage: str, event: Event, text: str) -> str:
    """What is being done, as the event of a setup says it."""
    if event == "waits":
        return f"waiting for {text}"
    return f"{STAGES[stage]}: {text}"


app = App(
    no_args_is_help=True,
    help="Reactant's preferences, which take effect at the next start.",
    epilog=examples("pyreactant prefs show", "pyreactant prefs set xla_runtime IFRT"),
)

Name = Annotated[str, typer.Argument(help="Preference: xla_runtime, gpu or gpu_version.")]

# These variables override the preferences when Reactant's binaries are chosen.
_VARIABLES = {"gpu": "REACTANT_GPU", "gpu_version": "REACTANT_GPU_VERSION"}


@app.command(epilog=examples("pyreactant prefs show --json"))
def show(
    project: Project = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print each preference as Julia reads it, and the file that sets it."""
    from .. import preferences
    from .._julia.preferences import NAMES

    found = {name: preferences.find(name, project=project) for name in NAMES}
    if as_json:
        values = {k: {"value": v.value, "file": v.file and str(v.file)} for k, v in found.items()}
        print(json.dumps(values, indent=2))
        return
    for name, preference in found.items():
        value = "not set" if preference.value is None else preference.value
        print(f"{name:<11}  {value:<7}  {preference.file or ''}".rstrip())
        variable = _VARIABLES.get(name, "")
        if os.environ.get(variable):
            print(f"  {variable}={os.environ[variable]} overrides it")


@app.command(
    name="set",
    epilog=examples(
        "pyreactant prefs set xla_runtime IFRT", "pyreactant prefs set gpu_version 12.9"
    ),
)
def set_(
    name: Name,
    value: Annotated[
        str,
        typer.Argument(
            help="PJRT or IFRT for xla_runtime; none, cuda or rocm for gpu; a version such as 12.9 "
            "for gpu_version."
        ),
    ],
    project: Project = None,
) -> None:
    """Set a preference; the rest of its file does not change."""
    from .. import preferences

    file = preferences.set(name, value, project=project)
    print(f"{name} is {value} in {file}; to compile Reactant for it: pyreactant setup")


@app.command(epilog=examples("pyreactant prefs unset gpu_version"))
def unset(name: Name, project: Project = None) -> None:
    """Remove a preference from the local preferences."""
    from .. import preferences

    file = preferences.unset(name, project=project)
    rest = preferences.find(name, project=project)
    result = f"is still {rest.value} because of {rest.file}" if rest.value else "is not set"
    print(
        f"{name} is no longer in {file}, and {result}; to compile Reactant for it: pyreactant setup"
    )
