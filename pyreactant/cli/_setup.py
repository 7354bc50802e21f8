"""`pyreactant setup`: install and compile Julia and Reactant, once."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    from ..setup import Options
    from ..setup import setup as set_up
    from ..setup._lock import WAIT
    from ._setup_show import Show

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
