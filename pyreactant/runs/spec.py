"""A run as data: what runs, with what, and where; and the options of everything that starts one.

An option is a field that is declared once, by `option`: its type, its default, its help and its
panel. A place takes the fields of `Processes` or `Supervision` by inheritance, so does the
supervisor, and the command line makes its options from the same declarations.
"""

import dataclasses
import functools
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from ..base.duration import seconds_word

What = Callable[..., Any] | str | Sequence[str]
"""A function, its name as "FILE.py:NAME" or "MODULE:NAME", or a program as a list of words."""
Env = Mapping[str, str] | Iterable[str] | None
"""Variables with their values, or names of variables whose values are taken from here."""


@dataclass(frozen=True, slots=True)
class Option:
    """How a command line shows a field.

    Attributes:
        help: One sentence.
        panel: The part of a help in which it stands.
        name: The option, such as "--sbatch"; "" for the name of the field.
        letter: A short form, such as "-n"; "" for none.
        variable: Environment variable that a command line takes the value from; "" for none.
        shown: The default that a help shows; "" for the field's own.
        enables: Options that would be void without it.
        unit: The unit of the field if the option takes a duration, "s" or "h"; else "". A number
            alone is seconds, and refused where the field is in hours.
    """

    help: str
    panel: str
    name: str = ""
    letter: str = ""
    variable: str = ""
    shown: str = ""
    enables: str = ""
    unit: str = ""


def option(default: Any, help: str, panel: str, **more: str) -> Any:
    """A field of a dataclass that is an option of the command line."""
    metadata = {"option": Option(help, panel, **more)}
    return dataclasses.field(default=default, kw_only=True, metadata=metadata)


def options_of(kind: type) -> dict[str, tuple[Option, dataclasses.Field[Any]]]:
    """The options of a dataclass by their names; a subclass may declare another default alone."""
    options = {}
    for field in dataclasses.fields(kind):
        bases = (getattr(base, "__dataclass_fields__", {}).get(field.name) for base in kind.__mro__)
        declared = [base.metadata["option"] for base in bases if base and "option" in base.metadata]
        if declared:
            options[declared[0].name or f"--{field.name.replace('_', '-')}"] = declared[0], field
    return options


def command_line(settings: Any, leave_out: Iterable[str] = ()) -> list[str]:
    """The options of ``pyreactant run`` that say what differs from the defaults there.

    Args:
        settings: An instance with fields of `Supervision`.
        leave_out: Names of fields that are said otherwise.
    """
    words = []
    for name, (_, field) in options_of(Supervision).items():
        value = getattr(settings, field.name, field.default)
        if field.name in leave_out or value is None or value == field.default:
            continue
        shown = seconds_word(value) if isinstance(value, float) else str(value)
        words.append(name if value is True else f"{name}={shown}")
    return words


@dataclass(frozen=True, kw_only=True)
class Processes:
    """What every place says of the processes of a run.

    Attributes:
        devices_per_process: CPU devices, or GPUs, of each process.
        backend: Runtime, "jax" or "reactant"; None leaves it to the program.
        platform: "cpu", "gpu" or "tpu"; None for the best available.
        timeout: Limit of the whole run in seconds; None for no limit.
        stall_timeout: Seconds without a pulse after which a process counts as stalled. Compiling
            in Julia may hold Python's lock, and with it the pulse, for minutes. Also the seconds
            after which a process without progress is reported: the stack of its main thread stays
            the same and it uses no CPU.
        max_restarts: Maximum number of restarts: of the programs after a failure; on Slurm and on
            TPU slices in a new allocation, after a preemption.
    """

    devices_per_process: int | None = option(
        None, "CPU devices, or GPUs, of each process.", "Devices"
    )
    backend: str | None = option(
        None, "Runtime: jax or reactant; on tpu also jax,reactant, one after the other.", "Devices"
    )
    platform: str | None = option(None, "Platform: cpu, gpu or tpu.", "Devices")
    timeout: float | None = option(None, "Time limit of the run.", "Time limits", unit="s")
    stall_timeout: float = option(
        300.0,
        "Time without a pulse or progress until a process is stalled.",
        "Time limits",
        unit="s",
    )
    max_restarts: int = option(
        0,
        "Maximum number of restarts: after a failure; on slurm and tpu after a preemption.",
        "Time limits",
    )


MIN_PROCESSES = (
    None,
    "Go on with this many processes, or more, if a machine is lost.",
    "Time limits",
)
"""The option of places whose runs have several machines, of which one may be lost."""

STORE = (
    None,
    "Folder of Cloud Storage, such as gs://mine/jobs, for the value; on kubernetes for code and "
    "values that are too large.",
    "Output",
)
"""The option of places from which a value may come back through a bucket."""


@dataclass(frozen=True, kw_only=True)
class Supervision(Processes):
    """What a supervisor says beyond that.

    Attributes:
        processes: Number of processes to start on this machine; None for one process, or for
            those that the launcher started.
        min_processes: With how many processes the run goes on if a machine is lost and does not
            come back within `start_timeout`; None ends the run.
        start_timeout: Seconds within which every process must join the roll-call, and then begin.
        end_stalled: End a run that has a process without progress.
        heartbeat_timeout: Seconds without a heartbeat after which a supervisor counts as lost.
        grace: Seconds between SIGTERM (or Ctrl-C) and SIGKILL.
        profile: Steps to profile on every process, as "STEP:COUNT"; None for none.
        tensorboard: Write TensorBoard event files of the metrics, too.
        allow_different_environments: Do not compare the processes' versions and settings.
        no_mtls: Do not make certificates for the run; its coordinator accepts whoever reaches it.
    """

    processes: int | None = option(
        None, "Number of processes to start on this machine.", "Devices", letter="-n"
    )
    min_processes: int | None = option(*MIN_PROCESSES)
    start_timeout: float = option(
        120.0,
        "How long to wait until every process has joined.",
        "Time limits",
        shown="2m, on kubernetes 10m",
        unit="s",
    )
    end_stalled: bool = option(
        False, "End the run if a process makes no progress; else report it only.", "Time limits"
    )
    heartbeat_timeout: float = option(
        15.0, "Time without a heartbeat until a machine counts as lost.", "Time limits", unit="s"
    )
    grace: float = option(30.0, "Time between SIGTERM and SIGKILL.", "Time limits", unit="s")
    profile: str | None = option(
        None, "Profile COUNT steps of every process, from STEP on.", "Output"
    )
    tensorboard: bool = option(
        False, "Write TensorBoard event files of the metrics, too.", "Output"
    )
    allow_different_environments: bool = option(
        False, "Allow different versions and settings on the processes.", "Options"
    )
    no_mtls: bool = option(
        False, "Make no certificates: JAX's coordinator accepts whoever reaches it.", "Options"
    )


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A run: what runs, with what, and where.

    Attributes:
        what: A function, its name as "FILE.py:NAME" or "MODULE:NAME", or a program: a script, a
            module, a Julia script or a command, as a list of words.
        on: The place: a target; None for one process on this machine.
        arguments: Arguments of a function by position.
        named: Arguments of a function by name.
        copies: Further files and folders that the run needs, relative to the working directory.
        requirements: A file for ``pip install -r``, installed where the run is.
        env: Variables that the run gets: names to take from here, or a dict.
        out: Folder for logs and report; None for one of the run's record.
    """

    what: What
    on: Processes | None = None
    arguments: Sequence[Any] = ()
    named: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    copies: Iterable[str | Path] = option(
        (), "A further file or folder to copy; repeatable.", "Program", name="--copy"
    )
    requirements: str | Path | None = option(
        None, "A file for pip install -r, installed where the run is.", "Program"
    )
    env: Env = option(None, "A variable that the run gets from here; repeatable.", "Program")
    out: Path | None = option(
        None, "Folder for logs and report, new or empty.", "Output", shown="in pyreactant-runs"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "copies", tuple(self.copies))  # a generator gives them once


_WORDS = {
    bool: "True or False",
    int: "a whole number (int)",
    float: "a finite number (float)",
    str: "text",
    tuple: "a list of texts",
    types.NoneType: "None",
}


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value has an annotated type; int is a float, bool is not a number."""
    return any(_is(value, kind) for kind in _kinds(annotation))


def words(annotation: Any) -> str:
    """An annotated type for a message, such as "text or None"."""
    return " or ".join(_WORDS[kind] for kind in _kinds(annotation))


def is_made_of(kind: type, data: Mapping[str, Any]) -> bool:
    """Whether a dataclass takes these values of some of its fields, each with its type."""
    annotations = _annotations(kind)
    return all(
        name in annotations and fits(value, annotations[name]) for name, value in data.items()
    )


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    if kind is tuple:
        return isinstance(value, tuple) and all(isinstance(part, str) for part in value)
    return isinstance(value, kind)


@functools.cache
def _kinds(annotation: Any) -> tuple[type, ...]:
    parts = get_args(annotation) if isinstance(annotation, types.UnionType) else [annotation]
    return tuple(get_origin(part) or part for part in parts)


@functools.cache
def _annotations(kind: type) -> dict[str, Any]:
    return {field.name: field.type for field in dataclasses.fields(kind)}
