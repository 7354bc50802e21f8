"""`pyreactant setup`, `prefs`, `doctor` and `explain`: this machine, and this process of a run."""

import json
import os
import signal
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..arrays.text import hanging
from ..base.errors import InvalidArgumentError, argument, code_of_signal
from .command import App, AsJson, duration, examples

if TYPE_CHECKING:
    from rich.console import Console

    from ..doctor import Check, Diagnosis
    from ..julia.setup.record import Record
    from ..process.group import ProcessGroup
    from ..process.group.group import Resolution
    from ..process.group.resolvers import Explanation

Project = Annotated[
    Path | None, typer.Option(help="Folder of the Julia project; by default the one in use.")
]

app = App()


@app.command(
    epilog=examples(
        "pyreactant setup", "pyreactant setup --gpu cuda --gpu-version 12.9 --project julia_project"
    )
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
        float | None, duration(help="How long to wait for another setup.", show_default="1h")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Install Julia and Reactant, and compile them.

    Run it once, on a machine with network: it takes minutes and several GB. The processes of a
    run then start offline. It is idempotent: a second call finishes what is missing.
    """
    from ..base.files import LOCK_WAIT
    from ..julia.setup.install import setup as set_up
    from ..julia.setup.options import Options

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
    from .console import working

    with working("setting up Julia and Reactant"):
        record = set_up(options)
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


prefs = App(
    name="prefs",
    no_args_is_help=True,
    help="Reactant's preferences, which take effect at the next start.",
    epilog=examples("pyreactant prefs show", "pyreactant prefs set xla_runtime IFRT"),
)
app.add_typer(prefs)

Name = Annotated[
    str, typer.Argument(metavar="PREFERENCE", help="One of xla_runtime, gpu and gpu_version.")
]

# These variables override the preferences when Reactant's binaries are chosen.
_VARIABLES = {"gpu": "REACTANT_GPU", "gpu_version": "REACTANT_GPU_VERSION"}


@prefs.command(epilog=examples("pyreactant prefs show --json"))
def show(
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Print each preference as Julia reads it, and the file that sets it."""
    from .. import preferences
    from ..julia.preferences import NAMES

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


@prefs.command(
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
    as_json: AsJson = False,
) -> None:
    """Set a preference; the rest of its file does not change."""
    from .. import preferences

    file = preferences.set(name, value, project=project)
    if as_json:
        print(json.dumps({"name": name, "value": value, "file": str(file)}))
        return
    print(f"{name} is {value} in {file}; to compile Reactant for it: pyreactant setup")


@prefs.command(epilog=examples("pyreactant prefs unset gpu_version"))
def unset(
    name: Name,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Remove a preference from the local preferences."""
    from .. import preferences

    file = preferences.unset(name, project=project)
    rest = preferences.find(name, project=project)
    if as_json:
        print(json.dumps({"name": name, "value": rest.value, "file": str(file)}))
        return
    result = f"is still {rest.value} because of {rest.file}" if rest.value else "is not set"
    print(
        f"{name} is no longer in {file}, and {result}; to compile Reactant for it: pyreactant setup"
    )


_STYLES = {"pass": "green", "warn": "yellow", "fail": "bold red"}
_LABELS = {"pass": "pass", "warn": "warn", "fail": "FAIL"}  # distinct without colors too


@app.command(
    epilog=examples(
        "pyreactant doctor --backend jax", "pyreactant doctor --deep --json > doctor.json"
    )
)
def doctor(
    as_json: AsJson = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also multiply matrices on every runtime.")
    ] = False,
    backend: Annotated[
        str | None, typer.Option(help="Runtime that must work: jax or reactant.")
    ] = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Also check the cluster of the current context.")
    ] = False,
    accelerator_type: Annotated[
        str | None,
        typer.Option("--topology", help="With --kubernetes: are there nodes for this slice?"),
    ] = None,
    slices: Annotated[int, typer.Option(help="How many slices of --topology.")] = 1,
    nodes: Annotated[int, typer.Option(help="How many nodes with --gpus-per-node.")] = 1,
    gpus_per_node: Annotated[
        int | None, typer.Option(help="With --kubernetes: are there nodes with so many GPUs?")
    ] = None,
    timeout: Annotated[float, duration(help="How long each runtime may take to start.")] = 60.0,
) -> None:
    """Check this machine; print the commands that fix it.

    The runtimes start in child processes, which are ended after the timeout. The exit code is 3
    if a required check fails.
    """
    from ..doctor import diagnose
    from ..runs.targets import Kubernetes
    from .console import output, working

    job = Kubernetes(
        accelerator_type=accelerator_type, slices=slices, nodes=nodes, gpus_per_node=gpus_per_node
    )
    job.check_settings()
    if (asked := [*job.settings()]) and not kubernetes:
        raise InvalidArgumentError(
            f"{argument(asked[0])} is about the nodes of a cluster; pass --kubernetes, too"
        )
    cluster: bool | Kubernetes = job if asked else kubernetes
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(code_of_signal(signal.SIGTERM))
    )  # ends the children on the way
    with working("checking this machine") as tell:
        diagnosis = diagnose(backend, deep=deep, cluster=cluster, timeout=timeout, tell=tell)
    if as_json:
        print(json.dumps(diagnosis.to_dict(), indent=2))
    else:
        _print_table(output(80, soft_wrap=True), diagnosis)
    if diagnosis.exit_code:
        raise typer.Exit(diagnosis.exit_code)


def _print_table(console: "Console", diagnosis: "Diagnosis") -> None:
    width = max(len(check.name) for check in diagnosis.checks)
    group = None
    for check in diagnosis.checks:
        if check.group != group:
            console.print(f"{'' if group is None else chr(10)}{check.group}", style="bold")
            group = check.group
        _print_row(console, check, width)
    counts = (f"{diagnosis.count(status)} {status}" for status in ("pass", "warn", "fail"))
    console.print(f"\n{', '.join(counts)}, in {diagnosis.seconds:.1f} s")
    if diagnosis.missing:
        names = ", ".join(check.name for check in diagnosis.missing)
        console.print(f"required and missing: {names}", style=_STYLES["fail"])


def _print_row(console: "Console", check: "Check", width: int) -> None:
    """The status, what was found, and the command on a line of its own, for copying."""
    from rich.text import Text

    start = f"  {_LABELS[check.status]}  {check.name:<{width}}  "
    text = Text(hanging(start, check.found, console.width))
    text.stylize(_STYLES[check.status], 2, 6)
    if check.mend:
        text.append("\n        fix: ").append(check.mend, "cyan")
    console.print(text)


_WIDTH = 100


@app.command(epilog=examples("pyreactant explain", "srun --nodes 2 pyreactant explain --json"))
def explain(
    as_json: AsJson = False,
) -> None:
    """Print this process's index, and what decided it.

    Start this command as you start your program, for instance with srun. It starts no runtime.
    """
    from ..arrays.runtimes.known import check_variables
    from ..process.group.resolvers import explain as resolve_all

    check_variables({}, os.environ)
    explanation = resolve_all()
    if as_json:
        print(json.dumps(explanation.to_dict(), indent=2))
    else:
        print("\n".join(_explained(explanation)))
    if explanation.decider.error is not None:
        raise explanation.decider.error


def _explained(explanation: "Explanation") -> Iterator[str]:
    yield "the first of these that applies decides:"
    for resolution in explanation.resolutions:
        yield from _resolution(resolution, decides=resolution is explanation.decider)
    group = explanation.decider.group
    yield ""
    if group is None:
        yield f"{explanation.decider.name} decides, and the launch cannot work"
    else:
        yield from _group(group)
    for note in explanation.notes:
        yield from _wrapped("note: ", note)


def _resolution(resolution: "Resolution", *, decides: bool) -> Iterator[str]:
    from ..process.group.group import printable

    mark = ">" if decides else " "
    yield f"{mark} {resolution.name:<18}  {resolution.reason}"
    for name, value in resolution.evidence.items():
        yield from _wrapped(f"    {name}=", printable(value))
    error = resolution.error
    if error is not None and not decides:
        command = getattr(error, "command", None)
        problem = getattr(error, "problem", str(error))
        yield from _wrapped("    would be an error: ", problem + ":" * bool(command))
        if command:  # on a line of its own, for copying
            yield f"      {command}"


def _group(group: "ProcessGroup") -> Iterator[str]:
    yield f"process {group.process_index} of {group.num_processes}, decided by {group.source}"
    if group.coordinator_address:
        yield f"  coordinator    {group.coordinator_address}"
    if group.hosts:
        yield from _wrapped("  hosts          ", ", ".join(group.hosts))
    if group.run_id:
        yield f"  run            {group.run_id}"
    ids = group.local_device_ids
    yield f"  local devices  {'all visible' if ids is None else ', '.join(map(str, ids))}"


def _wrapped(start: str, text: str) -> list[str]:
    """Text wrapped at 100 characters, with the later lines indented below the text of the first."""
    indent = " " * min(len(start), 20)
    return textwrap.wrap(
        start + text,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
