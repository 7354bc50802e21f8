"""Options of a supervised run, its folder, and the device settings of its processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .._errors import FileError, InvalidArgumentError
from .._system import hardware
from ..process_group import ProcessGroup
from ..process_group._environment import LOCAL_DEVICES


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to run and how.

    Attributes:
        program: A script and its arguments, or "-m", a module and its arguments.
        processes: Number of processes to start on this machine; None for one process, or for
            those that the launcher started.
        devices_per_process: Number of CPU devices, or of this machine's GPUs, per process.
        backend: Runtime, "jax" or "reactant"; None leaves it to the program.
        platform: "cpu", "gpu" or "tpu"; None leaves it to the program.
        folder: Folder for logs and report; None makes one below ``pyreactant-runs``.
        all_output: Show the output of every process, not only that of process 0.
        quiet: Do not print progress messages.
        start_timeout: Seconds within which every process must join the roll-call.
        stall_timeout: Seconds without a pulse after which a process counts as stalled. Compiling
            in Julia may hold Python's lock, and with it the pulse, for minutes.
        heartbeat_timeout: Seconds without a heartbeat after which a supervisor counts as lost.
        grace: Seconds between SIGTERM (or Ctrl-C) and SIGKILL.
        timeout: Limit of the whole run in seconds; None for no limit.
        max_restarts: Maximum number of restarts of the programs after a failure.
        allow_different_environments: Do not compare the processes' versions and settings.
    """

    program: Sequence[str]
    processes: int | None = None
    devices_per_process: int | None = None
    backend: str | None = None
    platform: str | None = None
    folder: Path | None = None
    all_output: bool = False
    quiet: bool = False
    start_timeout: float = 120.0
    stall_timeout: float = 300.0
    heartbeat_timeout: float = 15.0
    grace: float = 30.0
    timeout: float | None = None
    max_restarts: int = 0
    allow_different_environments: bool = False

    def __post_init__(self) -> None:
        if not self.program or list(self.program) == ["-m"]:
            raise InvalidArgumentError(
                "name a program: pyreactant run -- SCRIPT [ARGUMENTS], or -- -m MODULE [ARGUMENTS]"
            )
        if self.program[0] != "-m":
            _check_script(Path(self.program[0]))
        for name, least in (("processes", 1), ("devices_per_process", 1), ("max_restarts", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidArgumentError(f"{name} must be {least} or more, got {value}")
        for name in ("start_timeout", "stall_timeout", "heartbeat_timeout", "grace", "timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidArgumentError(f"{name} must be positive seconds, got {value}")


def _check_script(script: Path) -> None:
    try:
        exists = script.exists()
        empty = script.is_dir() and not (script / "__main__.py").exists()
    except OSError as error:
        raise FileError(f"the script {str(script)!r} cannot be read ({error.strerror})") from None
    if not exists:
        raise FileError(f"the script {str(script)!r} does not exist in {Path.cwd()}")
    if empty:
        raise FileError(f"{str(script)!r} is a folder without __main__.py, not a script")


def fresh_folder(folder: Path | None, name: str, restart: int) -> Path:
    """Make the folder of a run; a requeued job gets a subfolder for each restart.

    Raises:
        FileError: The folder is not empty, or cannot be made.
    """
    chosen = folder or Path("pyreactant-runs", name)
    if restart:
        chosen = chosen / f"restart-{restart}"
    try:
        taken = chosen.exists() and (not chosen.is_dir() or any(chosen.iterdir()))
        if not taken:
            chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"the run's folder {str(chosen)!r} cannot be made ({error.strerror}); name another "
            "with --folder"
        ) from None
    if taken:
        raise FileError(
            f"the run's folder {str(chosen)!r} exists and is not empty; name another with --folder"
        )
    return chosen.resolve()


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
    each = options.devices_per_process
    gpus = 0 if options.platform in ("cpu", "tpu") else hardware.gpus()
    if options.platform == "tpu" and processes > 1:
        raise InvalidArgumentError(
            "one process drives all TPU chips of a machine; omit --processes"
        )
    if not gpus and options.platform != "gpu":
        count = each or (1 if processes > 1 else None)
        if count is not None:
            common["PYREACTANT_NUM_CPU_DEVICES"] = str(count)
        return [common] * processes
    if group.local_device_ids is not None:
        ids = ",".join(map(str, group.local_device_ids))
        return [{**common, LOCAL_DEVICES: ids}] * processes
    if processes == 1 and each is None:
        return [common]
    each = each or gpus // processes
    if each * processes > gpus or not each:
        raise InvalidArgumentError(
            f"{processes} processes with {each or 1} GPUs each were requested, but this machine "
            f"has {gpus}; use fewer, or --platform cpu"
        )
    return [
        {**common, LOCAL_DEVICES: ",".join(str(i * each + j) for j in range(each))}
        for i in range(processes)
    ]
