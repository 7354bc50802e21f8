"""The steps of a job on the workers of ACTIVE slices: reach, copy, install, run and fetch."""

import dataclasses
import errno
import json
import secrets
import shlex
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ...base.counted import counted
from ...base.errors import DeadlineError, ExitCode, FileError, InvalidArgumentError, PyReactantError
from ...base.files import check_home, is_full, pack, state_folder, unpack, writing
from ...process.group.group import join_address
from ..supervisor import RunReport
from ..supervisor.program import find_program
from .job import Job, Listener, Phase, SliceSettings
from .lifecycle import Lease, scripts_folder
from .reach import Session, Sessions
from .request import Worker

_SCRIPTS = ("worker.sh", "requirements.txt", "uv.txt", "ray.txt")
RAY_PORT, RAY_CLIENT_PORT = 6379, 10001
"""Ports of a Ray cluster's head: for its nodes, and for drivers on other machines."""
_PORTS = range(20000, 30000)
"""Ports for worker 0's roll-call; each run takes one at random."""
ROOM = 3600.0
"""Seconds for which slices wait until the disk of this machine has room for their results."""
_UNPACK = 'mkdir -p "$1" && tar -xzf - -C "$1" && echo pyreactant-worker-done $?'
_HELLO = "echo pyreactant-worker-done 0"
REQUEST = "request.json"
_CROSSCHECK = ("-m", "pyreactant.crosscheck")
_INSTALL = 2400.0
"""Seconds for the installation."""


def check_program(program: Sequence[str], copies: Iterable[Path]) -> None:
    """Check that everything to copy exists below the working directory.

    Raises:
        FileError: A file does not exist.
        InvalidArgumentError: A path leads out of the working directory.
    """
    for path in (*_script(program), *copies):
        if not path.exists():
            raise FileError(f"there is no {str(path)!r} in {Path.cwd()}")
        if path.is_absolute() or ".." in path.parts:
            raise InvalidArgumentError(
                f"{str(path)!r} must be below the working directory, because workers get it under "
                "the same relative path"
            )


def _script(program: Sequence[str]) -> list[Path]:
    """The script that the workers need; none for a module or a command."""
    path = find_program(program).path if program else None
    return [] if path is None else [path]


def _write_archive(
    file: Path, program: Sequence[str], copies: Iterable[Path], request: Path | None
) -> None:
    """Write a .tar.gz with the code, the scripts and the cross-check's request.

    Raises:
        FileError: A file cannot be read, or the archive cannot be written.
    """
    try:
        # Level 6 takes 1.7 times as long, and saves a tenth of the size.
        with tarfile.open(file, "w:gz", compresslevel=3) as archive:
            add_package(archive)
            for name in _SCRIPTS:
                archive.add(scripts_folder() / name, name)
            if request is not None:
                archive.add(request, request.name)
            pack({f"code/{path}": path for path in (*_script(program), *copies)}, archive)
    except OSError as error:
        raise FileError(f"{error.filename or file}: {error.strerror or error}") from None


def add_package(archive: tarfile.TarFile) -> None:
    """Add pyreactant to an archive, in its folder "code"."""
    package = Path(__file__).resolve().parent.parent.parent
    names = [package.name]
    if (package.parent / "pyproject.toml").exists():  # a wheel has the folders inside
        names += ["julia", "slurm", "gcloud"]
    pack({f"code/{name}": package.parent / name for name in names}, archive)


def _extract(file: Path, folder: Path) -> None:
    """Extract a worker's archive; no file can land outside `folder`.

    Raises:
        FileError: The archive is damaged or unsafe.
    """
    try:
        with tarfile.open(file, "r:gz") as archive:
            unpack(archive, folder)
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        if getattr(error, "errno", None) is not None:
            raise FileError(f"{folder}: the results cannot be written ({error})") from error
        raise FileError(f"{file}: the worker's results are damaged ({error})") from None


class WorkerError(PyReactantError, RuntimeError):
    """A step failed on a worker, or the worker cannot be reached."""

    exit_code: int = ExitCode.LOST

    def __init__(self, step: str, session: Session, process: int) -> None:
        super().__init__(f"{session.worker} ({step}) {session.failure()}")
        self.worker, self.process, self.tail = session.worker, process, session.tail(10)


def on_workers(
    job: Job,
    workers: Sequence[Worker],
    lease: Lease,
    folder: Path,
    listener: Listener,
    request: Path | None,
) -> RunReport:
    """Copy the code, install, run each runtime in turn, and fetch logs and results.

    Args:
        workers: All VMs, by slice and index; the position is the process index.
        folder: Folder on this machine for logs and results.
        request: The cross-check's request, if the job has no program.

    Returns:
        The report of the run that failed first, or of the last run.

    Raises:
        WorkerError: A worker failed and its supervisor left no report.
        CloudError, PreemptedError: The slices are gone.
    """
    (folder / "logs").mkdir(exist_ok=True)
    commands = job.settings.ssh.commands(job.request, workers)
    steps = Steps(
        job.settings,
        commands,
        folder / "logs",
        remote=f"pyreactant-{lease.run}",
        check=lease.check,
        tell=listener.tell,
        show=lambda worker, line: listener.show(f"[{worker}] {line}"),
    )
    steps.prepare(job, job.backends, request)
    try:
        for backend in job.backends:
            listener.enter(Phase.RUNNING)
            program = job.program or [*_CROSSCHECK, f"../{REQUEST}", f"../results/{backend}"]
            report = steps.run(backend, program, folder, lambda: listener.enter(Phase.FETCHING))
            if report.exit_code:
                break
    except Exception:  # not Interrupted, after which nothing must delay the deletion
        listener.enter(Phase.FETCHING)
        steps.fetch(folder)
        raise
    steps.fetch(folder)
    return report


def start_ray(job: Job, workers: Sequence[Worker], lease: Lease) -> str:
    """Install Ray on the VMs of slices and start a cluster whose token only this user has.

    Its head is worker 0.

    Args:
        job: How the VMs are reached, and which Python they have.

    Returns:
        What to do to use the cluster, as lines of text.

    Raises:
        WorkerError: A step failed on a worker.
        CloudError, PreemptedError: The slices are gone.
        RequirementError: The token cannot be written.
    """
    request, token, head = job.request, secrets.token_hex(32), workers[0].internal
    file = state_folder() / "ray" / f"{request.project}-{request.zone}-{request.name}.token"
    with writing(file, "set XDG_STATE_HOME to a folder that you can write"):
        check_home(file)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        file.write_text(token)
    commands = job.settings.ssh.commands(request, workers)
    with tempfile.TemporaryDirectory(prefix="pyreactant-ray-") as logs:
        steps = Steps(
            job.settings, commands, Path(logs), "pyreactant-ray", lease.check, lease.deleter.tell
        )
        steps.prepare(job, ["jax", "ray"], None)

        def command(worker: Worker) -> list[str]:
            return steps.script("ray", str(RAY_PORT), str(workers.index(worker)), head)

        # The head first, because the others give up soon if it does not answer.
        for some in (workers[:1], workers[1:]):
            part = dataclasses.replace(steps, commands={w: commands[w] for w in some})
            part.everywhere("ray", command, 300, data=f"{token}\n".encode())
    slices = (
        f"--name {request.name} --project {request.project} --zone {request.zone} "
        f"--topology {request.accelerator_type}"
    )
    forward = f"-L{RAY_CLIENT_PORT}:{head}:{RAY_CLIENT_PORT}"
    return "\n".join(
        [
            f"Ray runs at {join_address(head, RAY_PORT)} in the slices' network. From this "
            "machine, keep a tunnel open:",
            f"  pyreactant tpu ssh {slices} --ssh-flag={forward}",
            "and in the shell of the driver:",
            "  export RAY_AUTH_MODE=token",
            f"  export RAY_AUTH_TOKEN_PATH={shlex.quote(str(file))}",
            f"  export RAY_ADDRESS=ray://127.0.0.1:{RAY_CLIENT_PORT}",
        ]
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """Steps on workers, each on all of them at the same time.

    Attributes:
        settings: How the slices are used.
        commands: For each worker the argument list that reaches it; the position is its index.
        logs: Folder for the output of each step.
        remote: The folder on the workers.
        check: Raises if the slices are no longer ACTIVE.
        tell: Prints a message for the user.
        show: Prints a line of a program's output.
    """

    settings: SliceSettings
    commands: Mapping[Worker, Sequence[str]]
    logs: Path
    remote: str
    check: Callable[[], None]
    tell: Callable[[str], None]
    show: Callable[[Worker, str], None] = lambda worker, line: None

    @property
    def workers(self) -> list[Worker]:
        return [*self.commands]

    def script(self, *arguments: str) -> list[str]:
        return ["bash", f"{self.remote}/worker.sh", self.remote, *arguments]

    def reach(self) -> None:
        """Wait until every worker accepts ssh; sshd and the key are ready only after ACTIVE."""
        deadline = time.monotonic() + self.settings.reach_timeout
        sessions = Sessions(self.commands, self.logs, self.show)
        while True:
            sessions.start("reach", lambda _: ["bash", "-c", _HELLO])
            failed = sessions.wait(30)
            if failed is None:
                return
            if time.monotonic() > deadline:
                raise self._error("reach", failed)
            self.check()
            time.sleep(1)

    def prepare(self, job: Job, wanted: Sequence[str], request: Path | None) -> None:
        """Copy pyreactant and the program, and install what is wanted."""
        self.reach()
        archive, python = self.logs / "code.tar.gz", self.settings.python
        _write_archive(archive, job.program, job.copies, request)
        unpack = ["bash", "-c", _UNPACK, "_", self.remote]
        self.everywhere("copy", lambda _: unpack, 600, data=archive)
        archive.unlink()
        install = self.script("install", " ".join(wanted), *([python] if python else []))
        self.everywhere("install", lambda _: install, _INSTALL)

    def everywhere(
        self,
        name: str,
        command: Callable[[Worker], list[str]],
        timeout: float,
        data: bytes | Path = b"",
    ) -> None:
        """Run one step on every worker.

        Raises:
            DeadlineError: A worker did not finish in time.
            WorkerError: A worker failed.
        """
        self.tell(f"{name} on {counted(len(self.workers), 'VM')}")
        sessions = Sessions(self.commands, self.logs, self.show)
        sessions.start(name, command, data)
        began = time.monotonic()
        failed = sessions.wait(timeout, check=self.check)
        if failed is not None:
            if time.monotonic() - began >= timeout:
                raise DeadlineError(f"{failed.worker} did not finish {name} within {timeout:.0f} s")
            self.check()  # a preemption explains the failure better
            raise self._error(name, failed)

    def run(
        self, backend: str, program: Sequence[str], folder: Path, ended: Callable[[], None]
    ) -> RunReport:
        """Run one runtime on all workers; returns the supervisors' report.

        Args:
            ended: Is called when the program has ended.
        """
        settings, began, workers = self.settings, time.monotonic(), self.workers
        self.tell(f"run {backend} on {counted(len(workers), 'VM')}")
        address = join_address(workers[0].internal, secrets.choice(_PORTS))
        secret = secrets.token_hex(32).encode() + b"\n"
        limits = (str(settings.devices_per_process or 0), f"{settings.stall_timeout:g}")

        def command(worker: Worker) -> list[str]:
            place = (str(workers.index(worker)), str(len(workers)))
            return self.script(
                "run", backend, settings.platform, *limits, *place, address, *program
            )

        name = f"run-{backend}"
        sessions = Sessions(self.commands, self.logs, self.show)
        sessions.start(name, command, secret, keep_open=True)
        failed = sessions.wait(settings.timeout, check=self.check)
        ended()
        report, since = self._fetch_report(backend, folder), time.monotonic()
        if report is None and is_full(folder):
            self.tell(f"the disk of {folder} is full; free some space: the slices wait, and cost")
        while report is None and is_full(folder) and time.monotonic() - since < ROOM:
            time.sleep(5)
            self.check()
            report = self._fetch_report(backend, folder)
        if failed is None and report is not None:
            return report
        self.check()  # a preemption explains the failure better
        if settings.timeout is not None and time.monotonic() - began >= settings.timeout:
            raise DeadlineError(f"{backend} did not finish within {settings.timeout:g} s")
        if report is not None and report.exit_code:
            return report
        if failed is None:
            raise FileError(f"{backend}: every worker succeeded, but worker 0 left no report")
        raise self._error(name, failed)

    def _fetch_report(self, backend: str, folder: Path) -> RunReport | None:
        """The supervisors' report on worker 0; None if it is missing or damaged."""
        file = folder / f"report-{backend}.json"
        command = ["cat", f"{self.remote}/runs/{backend}/report.json"]
        worker = self.workers[0]
        session = Sessions({worker: self.commands[worker]}, self.logs)
        session.start("report", lambda _: command, out=lambda _: file)
        session.wait(30)
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            data.pop("schema")
            return RunReport(**data)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def fetch(self, folder: Path) -> None:
        """Fetch logs and results from every worker that still answers.

        While the disk here is full, the slices keep them; after `ROOM` seconds they are lost.

        Raises:
            CloudError, PreemptedError: The slices are gone before there was room.
        """
        began, pause, told, left = time.monotonic(), 2.0, False, self.workers
        while left := self._fetch_from(left, folder):
            if time.monotonic() - began > ROOM:
                names = ", ".join(map(str, left))
                self.tell(f"no results from {names}: the disk of {folder} had no room for them")
                return
            if not told:
                told = True
                self.tell(
                    f"the disk of {folder} has no room for the results of "
                    f"{counted(len(left), 'VM')}; free some space: the slices keep "
                    f"them, and cost, for {ROOM / 60:.0f} min at most"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 60)
            self.check()

    def _fetch_from(
        self, workers: Sequence[Worker], folder: Path, again: bool = True
    ) -> list[Worker]:
        """Fetch from some workers; returns those whose results do not fit on the disk."""

        def file(worker: Worker) -> Path:
            return folder / f".{worker.node}-{worker.index}.tar.gz"

        sessions = Sessions({worker: self.commands[worker] for worker in workers}, self.logs)
        sessions.start("results", lambda _: self.script("results"), out=file)
        sessions.wait(300, grace=120)
        left, cut = [], []
        for session in sessions.running:
            worker = session.worker
            own = folder / f"{worker.node}-worker-{worker.index}"
            full = is_full(folder)  # a partial archive still takes the room
            try:
                _extract(file(worker), own)
            except FileError as error:
                full |= getattr(error.__cause__, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
                shutil.rmtree(own, ignore_errors=True)  # it is not whole
                if full:
                    left.append(worker)
                elif again and file(worker).stat().st_size:  # full until a moment ago, perhaps
                    cut.append(worker)
                else:
                    self.tell(f"no results from {worker}: {session.failure() or error}")
            file(worker).unlink(missing_ok=True)
        return left + self._fetch_from(cut, folder, again=False) if cut else left

    def _error(self, name: str, session: Session) -> WorkerError:
        return WorkerError(name, session, self.workers.index(session.worker))
