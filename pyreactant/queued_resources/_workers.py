"""What is done on the workers of a slice that is ACTIVE, step by step on all at once."""

import dataclasses
import json
import secrets
import tarfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from .._errors import DeadlineError, FileError, InvalidArgumentError, PyReactantError
from ..launch import RunReport
from ..process_group._group import join_address
from ._lifecycle import scripts_folder
from ._resource import Worker
from ._session import Session, Sessions

_SCRIPTS = ("worker.sh", "requirements.txt", "uv.txt")
_LEFT_OUT = ("__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".hypothesis")


def check_program(program: Sequence[str], copies: Iterable[Path]) -> None:
    """Look whether what is to be copied is here.

    Raises:
        FileError: A file is not.
        InvalidArgumentError: A path leads out of the working directory.
    """
    script = [] if not program or program[0] == "-m" else [Path(program[0])]
    for path in (*script, *copies):
        if not path.exists():
            raise FileError(f"there is no {str(path)!r} in {Path.cwd()}")
        if path.is_absolute() or ".." in path.parts:
            raise InvalidArgumentError(
                f"{str(path)!r} must be below the working directory, since workers get it under "
                "the same name"
            )


def write_archive(
    file: Path, program: Sequence[str], copies: Iterable[Path], request: Path | None
) -> None:
    """Write a .tar.gz with a folder "code"; beside it scripts and the cross-check's request.

    Raises:
        FileError: Something cannot be read, or the archive not be written.
    """
    package = Path(__file__).resolve().parent.parent
    script = [] if not program or program[0] == "-m" else [Path(program[0])]
    try:
        with tarfile.open(file, "w:gz", compresslevel=6) as archive:
            _add(archive, package, f"code/{package.name}")
            for beside in ("julia", "slurm", "gcloud"):  # of a checkout; a wheel has them within
                if (package.parent / beside).is_dir() and (
                    package.parent / "pyproject.toml"
                ).exists():
                    _add(archive, package.parent / beside, f"code/{beside}")
            for name in _SCRIPTS:
                archive.add(scripts_folder() / name, name)
            if request is not None:
                archive.add(request, request.name)
            for path in (*script, *copies):
                _add(archive, path, f"code/{path}")
    except OSError as error:
        raise FileError(f"{error.filename or file}: {error.strerror or error}") from None


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    def keep(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return None if Path(info.name).name in _LEFT_OUT else info

    archive.add(path, name, filter=keep)


def unpack(file: Path, folder: Path) -> None:
    """Unpack what a worker sent; nothing lands outside of `folder`.

    Raises:
        FileError: It is damaged, or holds what must not be unpacked.
    """
    try:
        with tarfile.open(file, "r:gz") as archive:
            archive.extractall(folder, filter="data")
    except (OSError, tarfile.TarError, EOFError) as error:
        raise FileError(f"{file}: the worker's results are damaged ({error})") from None


if TYPE_CHECKING:
    from ._job import Job

_PORTS = range(20000, 30000)
"""Of the roll-call on worker 0, one for each run; runtimes get ports of their own from it."""
_UNPACK = 'mkdir -p "$1" && tar -xzf - -C "$1" && echo pyreactant-worker-done $?'
_HELLO = "echo pyreactant-worker-done 0"


class WorkerError(PyReactantError, RuntimeError):
    """A worker failed, could not be reached, or ran nothing."""

    exit_code: ClassVar[int] = 6

    def __init__(self, step: str, session: Session, process: int) -> None:
        super().__init__(f"{session.worker} ({step}) {session.trouble()}")
        self.worker, self.process, self.tail = session.worker, process, session.tail(10)


def on_workers(
    job: "Job",
    workers: Sequence[Worker],
    run: str,
    folder: Path,
    look: Callable[[], None],
    tell: Callable[[str], None],
    show: Callable[[str], None],
) -> RunReport:
    """Copy, install, run each runtime in turn, bring everything back.

    Args:
        job: What to run.
        workers: All VMs, by slice and index; a worker's place is its process index.
        run: Names the folder on the workers.
        folder: For logs and results here.
        look: Raises where the slice is no longer there.
        tell: Says a sentence of ours.
        show: Gets each line of output, with the worker's name.

    Returns:
        The report of the run that failed first, or of the last one.

    Raises:
        WorkerError: A worker is to blame, and no supervisor had more to say.
        CloudError, PreemptedError: The slice is gone.
    """
    (folder / "logs").mkdir(exist_ok=True)
    commands = job.way.commands(job.request, workers)
    sessions = Sessions(commands, folder / "logs", lambda w, text: show(f"[{w}] {text}"))
    step = _Steps(job, sessions, list(workers), f"pyreactant-{run}", look, tell)
    step.reach()
    archive = folder / "code.tar.gz"
    request = None if job.program else write_request(job, folder)
    write_archive(archive, job.program, job.copies, request)
    step.everywhere("copy", ["bash", "-c", _UNPACK, "_", step.remote], 600, given=archive)
    archive.unlink()
    backends, python = " ".join(job.backends), [job.python] if job.python else []
    step.everywhere("install", step.script("install", backends, *python), job.install)
    try:
        for backend in job.backends:
            report = step.run(backend, folder)
            if report.exit_code:
                break
    except Exception:  # but not when we are to end: then nothing is waited for
        step.fetch(folder)
        raise
    step.fetch(folder)
    return report


@dataclasses.dataclass(slots=True)
class _Steps:
    job: "Job"
    sessions: Sessions
    workers: list[Worker]
    remote: str
    look: Callable[[], None]
    tell: Callable[[str], None]

    def script(self, *arguments: str) -> list[str]:
        return ["bash", f"{self.remote}/worker.sh", self.remote, *arguments]

    def reach(self) -> None:
        """Wait until all answer: sshd comes up, and sees the key, some time after ACTIVE."""
        deadline = time.monotonic() + self.job.reach
        while True:
            self.sessions.start("reach", lambda _: ["bash", "-c", _HELLO])
            wrong = self.sessions.wait(30)
            if wrong is None:
                return
            if time.monotonic() > deadline:
                raise self._error("reach", wrong)
            self.look()
            time.sleep(1)

    def everywhere(
        self, name: str, command: list[str], timeout: float, given: Path | None = None
    ) -> None:
        self.tell(f"{name} on {len(self.workers)} VMs")
        self.sessions.start(name, lambda _: command, lambda _: given)
        began = time.monotonic()
        wrong = self.sessions.wait(timeout, look=self.look)
        if wrong is not None:
            if time.monotonic() - began >= timeout:
                raise DeadlineError(f"{wrong.worker} did not finish {name} within {timeout:.0f} s")
            self.look()  # a slice that was taken away is nobody's fault
            raise self._error(name, wrong)

    def run(self, backend: str, folder: Path) -> RunReport:
        """One runtime on all workers; the supervisors' own report where there is one."""
        job, began = self.job, time.monotonic()
        self.tell(f"run {backend} on {len(self.workers)} VMs")
        address = join_address(self.workers[0].internal, secrets.choice(_PORTS))
        secret = secrets.token_hex(32).encode() + b"\n"
        program = [*job.program] or member(backend)

        def command(worker: Worker) -> list[str]:
            index = self.workers.index(worker)
            numbers = (str(job.devices), f"{job.stall:g}", str(index), str(len(self.workers)))
            return self.script("run", backend, job.platform, *numbers, address, *program)

        name = f"run-{backend}"
        self.sessions.start(name, command, lambda _: secret, held=True)
        wrong = self.sessions.wait(job.timeout, look=self.look)
        ended = list(self.sessions.running)
        report = self._report(backend, folder)
        if wrong is None and report is not None:
            return report
        self.look()  # a slice that was taken away is no failed program
        if job.timeout is not None and time.monotonic() - began >= job.timeout:
            raise DeadlineError(f"{backend} was not done within {job.timeout:g} s")
        if report is not None and report.exit_code:
            return report
        if wrong is None:
            raise FileError(f"{backend}: every worker ended well, but worker 0 has no report")
        raise self._error(name, next((s for s in ended if s is wrong), wrong))

    def _report(self, backend: str, folder: Path) -> RunReport | None:
        file = folder / f"report-{backend}.json"
        command = ["cat", f"{self.remote}/runs/{backend}/report.json"]
        first = Sessions(
            {self.workers[0]: self.sessions.commands[self.workers[0]]},
            folder / "logs",
            lambda *_: None,
        )
        first.start("report", lambda _: command, out=lambda _: file)
        first.wait(30)
        return read_report(file)

    def fetch(self, folder: Path) -> None:
        """Bring logs and results back, as far as the workers still answer."""

        def file(worker: Worker) -> Path:
            return folder / f".{worker.node}-{worker.index}.tar.gz"

        self.sessions.start("results", lambda _: self.script("results"), out=file)
        self.sessions.wait(300, grace=120)
        for session in self.sessions.running:
            worker = session.worker
            try:
                unpack(file(worker), folder / f"{worker.node}-worker-{worker.index}")
            except FileError as error:
                self.tell(f"no results from {worker}: {session.trouble() or error}")
            file(worker).unlink(missing_ok=True)

    def _error(self, name: str, session: Session) -> WorkerError:
        return WorkerError(name, session, self.workers.index(session.worker))


def read_report(file: Path) -> RunReport | None:
    """A supervisor's report as it came back from a worker; None where there is none."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        data.pop("schema")
        return RunReport(**data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


_REQUEST = "request.json"


def write_request(job: "Job", folder: Path) -> Path:
    """The request for the sharded matmul, alike for all runtimes; the file."""
    from ..crosscheck._request import Request
    from ..crosscheck._request import write_request as write

    file = folder / _REQUEST
    write(Request(("matmul",), size=job.size), file)
    return file


def member(backend: str) -> list[str]:
    """The program of each process, for ``pyreactant run`` in the workers' folder "code"."""
    return ["-m", "pyreactant.crosscheck", f"../{_REQUEST}", f"../results/{backend}"]
