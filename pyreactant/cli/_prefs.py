"""`pyreactant prefs`: the preferences of Reactant, beside the Julia project in use."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

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
    from ..setup._preferences import NAMES

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
