"""The keeper of a job on this machine: a detached process that holds the lock until the end.

``python -m pyreactant.runs.keeper FOLDER`` inherits the descriptor of the lock, leaves the
process that started it, and calls `keep` of the target's file. The file ``cancel`` in the folder
asks it to end; it looks every tenth of a second, so that no signal can hit another process.

`pyreactant run` here, and cross-checks at a place, are listed as jobs; those in the foreground are
their own keepers.
"""

import contextlib
import fcntl
import hashlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..base.child import output_of
from ..base.errors import ExitCode, FileError, PyReactantError, RequirementError
from ..base.files import cache_folder
from ..base.say import say
from ..base.settings import JOB
from ..process.group import resolve
from .record import (
    CANCELLED,
    Record,
    Status,
    create,
    load,
    private_file,
    private_folder,
    release,
    written,
)

_TICK = 0.1
_ROOM = 600.0
"""Seconds for which a keeper waits until the disk has room for the job's last state."""
VAGUE = ("preempted", "interrupted", "lost")
"""Causes in a run's report of which the machine's own account may know more."""


def detach(record: Record, lock: int, environment: Mapping[str, str]) -> None:
    """Start the keeper of a job; once this returns it holds the lock.

    Args:
        record: The job.
        lock: Descriptor that holds the record's lock.
        environment: Environment of the keeper.

    Raises:
        RequirementError: The keeper did not start.
    """
    argv = [sys.executable, "-m", "pyreactant.runs.keeper", str(record.folder)]
    with private_file(record.folder / "keeper.log") as log:
        ran = subprocess.run(
            argv,
            env={**environment, JOB: record.id},
            cwd=record.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            start_new_session=True,
            check=False,
        )
    if ran.returncode:
        text = (record.folder / "keeper.log").read_text(errors="replace").strip()
        raise RequirementError(
            f"the keeper of the job {record.id} did not start: {text[-500:] or 'without output'}"
        )


def main() -> None:
    """Leave the process that started this one, and keep the job until its end."""
    folder = Path(sys.argv[1])
    if os.fork():
        os._exit(ExitCode.DONE)  # the lock's descriptor lives on in the child
    os.umask(0o077)
    keep(load(folder))


def keep(record: Record) -> Status:
    """Keep a job until its end, and write its last state.

    Returns:
        How it ended.
    """
    module = importlib.import_module(f".places.{record.target}", __package__)

    def kept() -> Status:
        # It may be ignored here, or blocked, as in all processes of Ray.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        with removal_of(record) as removed:
            with interrupted_when(lambda: record.cancelling or removed()):
                status: Status = module.keep(record)
            return status

    return finish(record, kept)


def finish(record: Record, work: Callable[[], Status]) -> Status:
    """Do the work of a keeper, and write how the job ended, whatever happens in it."""
    try:
        status = work()
    except KeyboardInterrupt:
        status = Status("cancelled", "cancelled before it ran", ExitCode.INTERRUPTED)
    except PyReactantError as error:
        status = Status("failed", str(error), error.exit_code)
    except BaseException as error:
        import traceback

        traceback.print_exc()
        why = f"the keeper failed: {type(error).__name__}: {error}"
        status = Status("failed", why, ExitCode.FAILED)
    if record.cancelling and status.state != "done":
        status = CANCELLED
    try:
        return _write_last(record, status)
    except FileError:  # the record was removed, and nobody asks any more
        if not (record.folder / "job.json").exists():
            shutil.rmtree(record.folder, ignore_errors=True)  # what the run has written since
        return status


def _write_last(record: Record, status: Status) -> Status:
    """Write the last state that the keeper knows, for which a full disk may need some time."""
    deadline = time.monotonic() + _ROOM
    noted = record.write_status(status)
    while status.ended and not record.status().ended and time.monotonic() < deadline:
        time.sleep(1)
        noted = record.write_status(status)
    return noted


def ended(record: Record, code: int) -> Status:
    """How a job ended by its run's report and exit code."""
    report = record.report()
    if not report and not code:
        return Status("done", "its report could not be written", ExitCode.DONE)
    if not report:
        log = record.folder / "keeper.log"
        see = f"; see {log}" if log.exists() else ""
        why = f"the run ended with exit code {code} and left no report{see}"
        return Status("failed", why, code)
    if report["exit_code"] == ExitCode.DONE:
        return Status("done", "; ".join(report.get("notes", ())), ExitCode.DONE)
    state = "preempted" if report["cause"] == "preempted" else "failed"
    why, code = f"{report['cause']}: {report['summary']}", int(report["exit_code"])
    return Status(state, why, code, cause=report["cause"])


def running_once(record: Record) -> contextlib.AbstractContextManager[None]:
    """Write the state "running" as soon as process 0 has a log, within the block."""
    log = record.run / "process-0.log"
    return _when(log.exists, lambda over: record.write_status(Status("running")))


def interrupted_when(condition: Callable[[], bool]) -> contextlib.AbstractContextManager[None]:
    """Send this process SIGINT once the condition is true, within the block."""

    def interrupt(over: threading.Event) -> None:
        time.sleep(_TICK)  # a supervisor that has just begun has its handlers by then
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    return _when(condition, interrupt)


@contextlib.contextmanager
def _when(
    condition: Callable[[], bool], act: Callable[[threading.Event], object]
) -> Iterator[None]:
    """Act in a thread once the condition is true, within the block, whose end sets the event."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_TICK):
            if condition():
                act(over)
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def removal_of(record: Record) -> Iterator[Callable[[], bool]]:
    """Whether the record's folder has been removed; one that was moved may come back."""
    folder = os.open(record.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield lambda: not os.fstat(folder).st_nlink
    finally:
        os.close(folder)


def install(record: Record) -> None:
    """Install the job's ``requirements=``, once on a machine, and let Python find them.

    Raises:
        RequirementError: pip cannot install them; its last lines are in the message.
    """
    file = record.work / "requirements.txt"
    if not file.exists():
        return
    digest = hashlib.sha256(f"{sys.version}\n".encode() + file.read_bytes()).hexdigest()[:16]
    folder = cache_folder() / "requirements" / digest
    with written(folder, "set XDG_CACHE_HOME to a folder that you can write"):
        private_folder(folder.parent)
        lock = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # jobs that start together install once
        if not folder.exists():
            record.write_status(Status("starting", "installing requirements"))
            _pip(file, folder)
    finally:
        os.close(lock)
    # An empty part would be the current folder.
    path = filter(None, (str(folder), os.environ.get("PYTHONPATH")))
    os.environ["PYTHONPATH"] = os.pathsep.join(path)


def _pip(file: Path, folder: Path) -> None:
    partial = folder.with_suffix(f".{os.getpid()}.partial")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    ran = output_of([*pip, "--target", str(partial), "-r", str(file)])
    if ran.returncode:
        last = " | ".join(line for line in ran.stderr.splitlines() if line.strip())[-500:]
        raise RequirementError(
            f"pip cannot install {file} ({last}); mend the file, and submit again"
        )
    partial.mkdir(exist_ok=True)  # nothing was required
    partial.rename(folder)


def recorded(
    work: Callable[[], int],
    *,
    origin: str,
    what: str,
    target: str,
    settings: Mapping[str, Any],
    out: Path,
    **spec: Any,
) -> int:
    """Do the work of a command that keeps its job itself, with a record for `pyreactant jobs`.

    Args:
        work: Runs the job; returns its exit code.
        origin: The command, such as "run".
        what: What runs, in a few words.
        target: Kind of the target.
        settings: Settings of the target.
        out: Folder in which the work writes report.json.
        spec: The rest of the run, as in `Record.spec`.

    Returns:
        The exit code; a record that cannot be written does not change it.
    """
    try:
        record = create(what, target, settings, origin=origin, out=str(out.absolute()), **spec)
    except PyReactantError as error:
        say(f"`pyreactant jobs` will not list this run: {error}")
        return work()
    os.environ[JOB] = record.id  # for its programs
    try:
        record.write_status(Status("running"))
        with interrupted_when(lambda: record.cancelling):
            code = work()
        _write_end(record, _end_of(record, code))
        return code
    except PyReactantError as error:
        _write_end(record, Status("failed", str(error), error.exit_code))
        raise
    except KeyboardInterrupt:
        _write_end(record, Status("cancelled", "interrupted", ExitCode.INTERRUPTED))
        raise
    finally:
        release(record)


def submitted_to_slurm(
    what: str, settings: Mapping[str, Any], submit: Callable[[], tuple[int, Path]]
) -> int:
    """Submit a job of `slurm/main.sbatch`, with a record for `pyreactant jobs`.

    Args:
        what: What runs, in a few words.
        settings: Settings of the target.
        submit: Submits; returns Slurm's number and the job's output folder.

    Returns:
        Slurm's number.
    """
    try:
        record = create(what, "slurm", settings, origin="crosscheck")
    except PyReactantError as error:
        say(f"`pyreactant jobs` will not list this job: {error}")
        return submit()[0]
    try:
        number, run = submit()
        record.write_handle({"slurm": number, "run": str(run)})
        return number
    except PyReactantError as error:
        _write_end(record, Status("failed", f"not started: {error}", error.exit_code))
        raise
    finally:
        release(record)


def is_alone(processes: int | None) -> bool:
    """Whether a run is a job of its own, not a part of another one or one of several supervisors.

    Args:
        processes: Number of processes that it starts here; None for what a launcher says.
    """
    if os.environ.get(JOB) or os.environ.get("SLURM_STEP_ID"):
        return False
    if processes is not None:
        return True
    try:
        return resolve().num_processes == 1
    except PyReactantError:
        return False  # the supervisor says what is wrong


def new_folder() -> Path:
    """A folder for a run without --out."""
    stamp = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime())
    return Path("pyreactant-runs", f"{stamp}-{os.urandom(2).hex()}")


def _end_of(record: Record, code: int) -> Status:
    if code == ExitCode.INTERRUPTED or record.cancelling:
        return Status("cancelled", "interrupted", ExitCode.INTERRUPTED)
    return ended(record, code)


def _write_end(record: Record, status: Status) -> None:
    # Whether its disk is full, or the record was removed: the run's end counts.
    with contextlib.suppress(OSError, FileError):
        record.write_status(status)


if __name__ == "__main__":
    main()
