"""Options of a supervised run, its folder, and the device settings of its processes."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...arrays.runtimes.known import (
    BACKEND,
    CPU_DEVICES,
    MOST_CPU_DEVICES,
    PLATFORM,
    check_backend,
    check_platform,
    check_variables,
)
from ...base import facts
from ...base.counted import counted
from ...base.errors import FileError, InvalidArgumentError, argument
from ...base.outputs import check_outputs
from ...base.settings import LOCAL_DEVICES, REPLAY_EVERY
from ...process.group import ProcessGroup
from ...process.supervised.profiling import steps_of
from ..spec import Supervision, option
from . import metrics
from .program import check_program, find_program

MOST_PROCESSES = 4096
"""Processes on one machine: more could not join within any `start_timeout`."""

_MOST_CALLS = 10**9

_CLAIM = ".running"
"""A file in the folder of a run while it goes on."""

PROFILES = "profile"
"""Folder, in that of a run, of its profiles."""

RUNS = "pyreactant-runs"
"""Folder, in the current one, of the runs whose user names no folder."""


@dataclass(frozen=True)
class RunOptions(Supervision):
    """What to run and how: `Supervision`, and what only a run in the foreground has.

    Attributes:
        program: A Python script and its arguments; "-m", a module and its arguments; either with
            "python" before it; or any other command and its arguments.
        folder: Folder for logs and report; None makes one below ``pyreactant-runs``.
        html: File for a page of the report; None writes none.
        overwrite: Whether `html` may replace a file that is no report of pyreactant.
        all_output: Show the output of every process, not only that of process 0.
        replay_every: At every call of this number a compiled program of pyreactant runs twice, and
            its results are compared by their bits; None for never.
        quiet: Do not print progress messages.
    """

    program: Sequence[str]
    folder: Path | None = option(
        None,
        "Folder for logs and report, new or empty.",
        "Output",
        name="--out",
        shown="in pyreactant-runs",
    )
    html: Path | None = option(
        None,
        "Write the report as a page to this file; - is standard output.",
        "Output",
        enables="--overwrite",
    )
    overwrite: bool = option(
        False, "Replace the file of --html, also one that is no report.", "Output"
    )
    all_output: bool = option(
        False, "Show the output of every process, not only of process 0.", "Output"
    )
    replay_every: int | None = option(
        None,
        "Call each compiled program of pyreactant twice at every Nth call, and compare the bits.",
        "Options",
    )
    quiet: bool = option(False, "Print no progress.", "Output", letter="-q")

    def __post_init__(self) -> None:
        if self.backend is not None:
            check_backend(self.backend)
        check_outputs({"html": self.html}, overwrite=self.overwrite)
        if self.platform is not None:
            check_platform(self.platform)
        chosen = {
            BACKEND: self.backend,
            PLATFORM: self.platform,
            CPU_DEVICES: self.devices_per_process,
        }
        check_variables(chosen, os.environ)
        if self.profile is not None:
            self._check_profile(self.profile)
        if self.tensorboard:
            metrics.check_tensorboard()
        for name, least, most in (
            ("processes", 1, MOST_PROCESSES),
            ("devices_per_process", 1, MOST_CPU_DEVICES),
            ("max_restarts", 0, MOST_PROCESSES),
            ("replay_every", 1, _MOST_CALLS),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise InvalidArgumentError(
                    f"{argument(name)} must be {least} to {most}, got {value}"
                )
        if self.min_processes is not None:
            self._check_min_processes()
        if self.platform == "tpu" and self.devices_per_process is not None:
            raise InvalidArgumentError(
                "on TPU a process has all devices of its machine; leave out "
                f"{argument('devices_per_process')}"
            )
        for name in ("start_timeout", "stall_timeout", "heartbeat_timeout", "grace", "timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidArgumentError(
                    f"{argument(name)} must be positive seconds, got {value}"
                )
        check_program(find_program(self.program), self.program)

    def _check_profile(self, steps: str) -> None:
        steps_of(steps)
        kind = find_program(self.program).kind
        if kind != "python":
            raise InvalidArgumentError(
                f"{argument('profile', steps)} is for Python programs with JAX, got a {kind}; "
                "leave it out"
            )

    def _check_min_processes(self) -> None:
        least = argument("min_processes")
        if self.min_processes is not None and self.min_processes < 1:
            raise InvalidArgumentError(f"{least} must be 1 or more, got {self.min_processes}")
        if not self.max_restarts:
            raise InvalidArgumentError(
                f"{least} says how many processes are enough for a restart; add "
                f"{argument('max_restarts', 1)}"
            )
        if self.processes is not None:
            raise InvalidArgumentError(
                f"{least} is for runs on several machines, of which one may be lost; with "
                f"{argument('processes', self.processes)} all processes are on this one"
            )
        if self.platform == "tpu":
            raise InvalidArgumentError(
                f"{least} is not for TPUs: a slice without one of its machines does not work; "
                "start the run again on a whole slice"
            )


def fresh_folder(folder: Path | None, name: str, restart: int) -> Path:
    """Make the folder of a run; a requeued job gets a subfolder for each restart.

    Of several runs that ask for one folder at the same time, the first gets it: it has made a file
    there, which `release` deletes.

    Raises:
        FileError: The folder is not empty, is a file, or cannot be made.
    """
    chosen = run_folder(folder or Path(RUNS, name), restart)
    try:
        taken = chosen.exists() and (not chosen.is_dir() or any(chosen.iterdir()))
        if not taken:
            chosen.mkdir(parents=True, exist_ok=True)
            if folder is None:
                _keep_from_git(Path(RUNS))
            (chosen / _CLAIM).touch(exist_ok=False)
    except FileExistsError:
        taken = True
    except OSError as error:
        raise FileError(
            f"the run's folder {str(chosen)!r} cannot be made ({error.strerror}); name another "
            f"with {argument('folder')}"
        ) from None
    if taken:
        why = "exists and is not empty" if chosen.is_dir() else "is not a folder"
        raise FileError(
            f"the run's folder {str(chosen)!r} {why}; name another with {argument('folder')}"
        )
    return chosen.resolve()


def run_folder(folder: Path, restart: int) -> Path:
    """The folder with logs and report of one start of a job, which may be a requeued one."""
    return folder / f"restart-{restart}" if restart else folder


def release(folder: Path) -> None:
    """Give the folder of a run back: it is over, and what it wrote keeps others from the folder."""
    with contextlib.suppress(OSError):
        (folder / _CLAIM).unlink()


def _keep_from_git(folder: Path) -> None:
    with contextlib.suppress(FileExistsError), (folder / ".gitignore").open("x") as file:
        file.write("*\n")


def platform_note(options: RunOptions, environ: Mapping[str, str] = os.environ) -> str:
    """That the option counts, and JAX's variable does not; "" unless they name two platforms."""
    said = environ.get("JAX_PLATFORMS", "")
    first = said.partition(",")[0]
    first = "gpu" if first in ("cuda", "rocm") else first
    if not said or options.platform in (None, first):
        return ""
    return f"JAX_PLATFORMS={said} does not count beside {argument('platform', options.platform)}"


def device_settings(
    options: RunOptions, group: ProcessGroup, processes: int
) -> list[dict[str, str]]:
    """The ``PYREACTANT_*`` variables of each process that this supervisor starts.

    Raises:
        InvalidArgumentError: This machine has fewer GPUs than requested.
    """
    common = {}
    if options.backend is not None:
        common["PYREACTANT_BACKEND"] = options.backend
    if options.platform is not None:
        common["PYREACTANT_PLATFORM"] = options.platform
    if options.replay_every is not None:
        common[REPLAY_EVERY] = str(options.replay_every)
    each = options.devices_per_process
    gpus = 0 if options.platform in ("cpu", "tpu") else facts.usable_gpus()
    if options.platform == "tpu" and processes > 1:
        raise InvalidArgumentError(
            f"one process drives all TPU chips of a machine; omit {argument('processes')}"
        )
    if not gpus and options.platform != "gpu":
        named = any(
            os.environ.get(name) for name in ("PYREACTANT_NUM_CPU_DEVICES", "JAX_NUM_CPU_DEVICES")
        )
        count = each or (1 if processes > 1 and not named else None)
        if count is not None:
            common["PYREACTANT_NUM_CPU_DEVICES"] = str(count)
        return [common] * processes
    own = group.local_device_ids
    if processes == 1 and own is not None:
        return [{**common, LOCAL_DEVICES: _listed(own)}]
    if processes == 1 and each is None:
        return [common]
    ids = tuple(range(gpus)) if own is None else own
    return [{**common, **gpu} for gpu in _gpus_of_each(ids, processes, each, own is not None)]


SHARING = "NCCL_MULTI_RANK_GPU_ENABLE"
"""With 1, NCCL 2.30 and later accept several processes on one GPU (NCCL's documentation)."""

_MEMORY_OF_USER = (*facts.MEMORY_FRACTIONS, *facts.PREALLOCATION, "XLA_PYTHON_CLIENT_ALLOCATOR")


def _gpus_of_each(
    ids: Sequence[int], processes: int, each: int | None, named: bool
) -> list[dict[str, str]]:
    """The variables that give each process its GPUs, or its share of one.

    Args:
        ids: GPUs of this supervisor's processes.
        processes: Their number.
        each: GPUs of each process; None for as many as there are.
        named: Whether the user named the GPUs.
    """
    sharing = os.environ.get(SHARING) == "1"
    if sharing and ids and each in (None, 1) and len(ids) < processes:
        memory = {}
        if not any(os.environ.get(name) for name in _MEMORY_OF_USER):
            most = -(-processes // len(ids))  # on one GPU
            of_each = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_REACTANT_GPU_MEM_FRACTION")
            memory = dict.fromkeys(of_each, f"{0.75 / most:.3f}")
        return [{LOCAL_DEVICES: str(ids[i % len(ids)]), **memory} for i in range(processes)]
    each = each or len(ids) // processes
    if each and each * processes <= len(ids):
        return [{LOCAL_DEVICES: _listed(ids[i * each : (i + 1) * each])} for i in range(processes)]
    here = "machine has" if facts.visible_gpus(os.environ) is None else "process sees"
    there = f"{LOCAL_DEVICES} names" if named else f"this {here}"
    share = f"; or let them share a GPU, with NCCL 2.30 or newer and {SHARING}=1" if ids else ""
    raise InvalidArgumentError(
        f"{counted(processes, 'process')} with {counted(each or 1, 'GPU')} each "
        f"{'was' if processes == 1 else 'were'} requested, "
        f"but {there} {len(ids)}; use fewer, or {argument('platform', 'cpu')}{share}"
    )


def _listed(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))
