"""How workers are reached: gcloud's ssh commands, and one command on every worker at the same time.

`gcloud compute tpus tpu-vm ssh --dry-run` prints them. Run directly, each has its own exit status,
log and standard input. With gcloud's ``--worker=all`` none has, and a command that exits with 255
runs up to ten times.
"""

import contextlib
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...base.errors import InvalidArgumentError, RequirementError
from .request import CloudError, SliceRequest, Worker

if TYPE_CHECKING:
    from .client import Client

_PLACEHOLDER = "pyreactant-command"
_SSH_OPTIONS = (
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=3",
    "-oServerAliveCountMax=2",
    "-oLogLevel=ERROR",
)
_GCLOUD_TIMEOUT = 180.0  # seconds


@dataclass(frozen=True, slots=True)
class SshOptions:
    """How to reach workers.

    Attributes:
        method: "gcloud" (it creates a key and copies it to the VMs), or "ssh" (the user's own key
            and configuration).
        user: User on the workers; None for the default of gcloud or ssh.
        flags: Further options of ssh, such as "-p2222".
    """

    method: str = "gcloud"
    user: str | None = None
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.method not in ("gcloud", "ssh"):
            raise InvalidArgumentError(
                f"workers are reached with 'gcloud' or 'ssh', got {self.method!r}"
            )
        if self.user is not None and not re.fullmatch(r"[A-Za-z_][-.\w]{0,63}", self.user):
            raise InvalidArgumentError(f"the user must be a login name, got {self.user!r}")
        wrong = [flag for flag in self.flags if not flag.startswith("-")]
        if wrong:
            raise InvalidArgumentError(f"an ssh flag must start with '-', got {wrong[0]!r}")

    def check(self, environ: Mapping[str, str] = os.environ) -> None:
        """Check that the tools and the key are usable, before anything costs money.

        Raises:
            RequirementError: Something is missing; the message has the command to run.
        """
        for tool in ("gcloud", "ssh") if self.method == "gcloud" else ("ssh",):
            if shutil.which(tool, path=environ.get("PATH")) is None:
                source = {"gcloud": "https://cloud.google.com/sdk/docs/install", "ssh": "OpenSSH"}
                raise RequirementError(f"{tool} is not in PATH; install it: {source[tool]}")
        if self.method == "gcloud":
            _check_key(environ)

    def commands(
        self,
        request: SliceRequest,
        workers: Sequence[Worker],
        environ: Mapping[str, str] = os.environ,
    ) -> dict[Worker, list[str]]:
        """For each worker the argument list to which a remote command is appended.

        Raises:
            CloudError: gcloud failed, or lists other workers than the API.
        """
        if self.method == "gcloud":
            return _gcloud_commands(self, request, workers, environ)
        return {worker: self._ssh_command(request, worker) for worker in workers}

    def _ssh_command(self, request: SliceRequest, worker: Worker) -> list[str]:
        address = worker.internal if request.internal_ips else worker.external or worker.internal
        user = [f"-l{self.user}"] if self.user else []
        # Other VMs get the same addresses later; a node's number is never reused.
        alias = f"-oHostKeyAlias=tpu.{worker.node_id}-{worker.index}"
        host = ["-oStrictHostKeyChecking=accept-new", alias, *user, "--", address]
        return ["ssh", "-T", *_SSH_OPTIONS, *self.flags, *host]


def command_on(
    client: "Client",
    request: SliceRequest,
    ssh: SshOptions,
    index: int,
    *,
    command: Sequence[str] = (),
    terminal: bool = False,
) -> list[str]:
    """The argument list that runs a command on one worker.

    Args:
        client: Client of the API.
        request: The slices, which must be ACTIVE.
        ssh: How workers are reached.
        index: Index of the worker over all slices, from 0.
        command: Argument list of the command; () for a shell.
        terminal: Whether to request a terminal.

    Raises:
        CloudError: The worker does not exist.
    """
    workers = client.workers(request)
    if not 0 <= index < len(workers):
        raise CloudError(
            f"there is no worker {index}: {request.name} has {len(workers)} workers, counted from 0"
        )
    worker = workers[index]
    argv = ssh.commands(request, [w for w in workers if w.node == worker.node])[worker]
    if terminal:
        argv = [argv[0], "-t", *(part for part in argv[1:] if part != "-T")]
    return [*argv, *([shlex.join(command)] if command else [])]


def _check_key(environ: Mapping[str, str]) -> None:
    """Raise RequirementError if gcloud's key has a passphrase and no agent holds the key."""
    key = os.path.join(environ.get("HOME", ""), ".ssh", "google_compute_engine")  # noqa: PTH118
    if not os.path.exists(key):  # noqa: PTH110 - gcloud creates it
        return
    opened = _succeeds(["ssh-keygen", "-y", "-P", "", "-f", key], environ)
    if not opened and not _succeeds(["ssh-add", "-T", f"{key}.pub"], environ):
        raise RequirementError(
            f"the ssh key {key} has a passphrase and no agent holds it; run: "
            f"eval $(ssh-agent) && ssh-add {shlex.quote(key)}"
        )


def _succeeds(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether a command ends with exit code 0."""
    done = subprocess.run(
        argv, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=20
    )
    return done.returncode == 0


def _gcloud_commands(
    ssh: SshOptions, request: SliceRequest, workers: Sequence[Worker], environ: Mapping[str, str]
) -> dict[Worker, list[str]]:
    commands = {}
    for node in dict.fromkeys(worker.node for worker in workers):
        base = [
            *("gcloud", "compute", "tpus", "tpu-vm", "ssh"),
            f"{ssh.user}@{node}" if ssh.user else node,
            *(f"--project={request.project}", f"--zone={request.zone}", "--quiet"),
            *(["--internal-ip"] if request.internal_ips else []),
            *(f"--ssh-flag={flag}" for flag in ssh.flags),
        ]
        # The first call copies the key into the node's metadata. It may fail, because the guest
        # agent of the VM may not have read the key yet.
        _gcloud([*base, "--worker=0", "--command=true"], environ, may_fail=True)
        every = [*base, "--worker=all", "--dry-run", f"--command={_PLACEHOLDER}"]
        output = _gcloud(every, environ)
        lines = [line for line in output.splitlines() if line.endswith(f"-- {_PLACEHOLDER}")]
        of_node = [worker for worker in workers if worker.node == node]
        if len(lines) != len(of_node):
            raise CloudError(
                f"gcloud lists {len(lines)} workers of {node}, but the API lists {len(of_node)}: "
                f"{output}"
            )
        for worker, line in zip(of_node, lines, strict=True):
            program, *arguments = shlex.split(line)[:-1]
            commands[worker] = [program, *_SSH_OPTIONS, *arguments]
    return commands


def _gcloud(argv: list[str], environ: Mapping[str, str], *, may_fail: bool = False) -> str:
    try:
        done = subprocess.run(
            argv,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GCLOUD_TIMEOUT,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        if may_fail:
            return ""
        raise CloudError(
            f"gcloud did not answer within {_GCLOUD_TIMEOUT:.0f} s: {shlex.join(argv)}"
        ) from None
    if done.returncode and not may_fail:
        last = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        raise CloudError(f"{shlex.join(argv)} failed: {' '.join(last)}")
    return done.stdout


_DONE = "pyreactant-worker-done"
"""Start of the last line of worker.sh; without that line the command did not run to its end."""


_SSH_FAILED = 255
"""ssh's own exit code, if it did not run the command or lost the connection."""


@dataclass(slots=True)
class Session:
    """A command on one worker.

    Attributes:
        worker: The worker.
        process: The ssh process on this machine.
        log: File with the output.
        code: Exit status of ssh; None while it runs.
        reported: Exit status that worker.sh reported; None if it reported none.
        threads: The reader of the output, and the writer of the input.
    """

    worker: Worker
    process: subprocess.Popen[bytes]
    log: Path
    code: int | None = None
    reported: int | None = None
    threads: list[threading.Thread] = field(default_factory=list)

    def tail(self, lines: int = 3) -> str:
        """The last lines of the output."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return ""
        printed = [line for line in text.splitlines() if line.strip() and _DONE not in line]
        return " | ".join(printed[-lines:])

    def failure(self) -> str | None:
        """Why an ended session failed; None if it succeeded."""
        if self.code == 0 and self.reported == 0:
            return None
        if self.reported is not None:
            return f"ended with exit code {self.reported}: {self.tail()}"
        if self.code == _SSH_FAILED:
            return f"cannot be reached, or the connection broke: {self.tail()}"
        if self.code == 0:
            return f"ran nothing: ssh succeeded, but the command reported no status: {self.tail()}"
        return f"was interrupted (ssh ended with exit code {self.code}): {self.tail()}"


class Sessions:
    """The sessions of one step on all workers.

    Args:
        commands: For each worker the argument list that reaches it.
        folder: Folder for the logs.
        show: Called with a worker and each line of its output.
    """

    def __init__(
        self,
        commands: Mapping[Worker, Sequence[str]],
        folder: Path,
        show: Callable[[Worker, str], None] = lambda worker, line: None,
    ) -> None:
        self._commands, self._folder, self._show = commands, folder, show
        self.running: list[Session] = []

    def start(
        self,
        name: str,
        command: Callable[[Worker], Sequence[str]],
        data: bytes | Path | None = None,
        *,
        keep_open: bool = False,
        out: Callable[[Worker], Path | None] = lambda _: None,
    ) -> None:
        """Start a command on every worker.

        Args:
            name: Name of the step and of its logs.
            command: The remote argument list for a worker.
            data: Standard input of the command: bytes, or a file.
            keep_open: Whether standard input stays open after `data`; its end then tells the
                command that this process is gone.
            out: File for the command's standard output; only errors are logged then. None
                logs both.
        """
        self.running = []
        for worker in self._commands:
            log = self._folder / f"{name}-{worker.node}-{worker.index}.log"
            remote = shlex.join(command(worker))  # the remote side is a shell
            file = out(worker)
            target: IO[bytes] | int = subprocess.PIPE if file is None else file.open("wb")
            process = subprocess.Popen(
                [*self._commands[worker], remote],
                stdin=subprocess.PIPE,
                stdout=target,
                stderr=subprocess.STDOUT if file is None else subprocess.PIPE,
                start_new_session=True,  # Ctrl-C must reach this process only; `end` ends ssh
            )
            if not isinstance(target, int):
                target.close()
            session = Session(worker, process, log)
            stream = process.stdout if file is None else process.stderr
            _start_thread(session, self._read_output, session, stream)
            _start_thread(session, _write_input, process.stdin, data, keep_open)
            self.running.append(session)

    def _read_output(self, session: Session, stream: IO[bytes]) -> None:
        with contextlib.suppress(ValueError, OSError):  # the stream was closed by `end`
            for line in stream:
                text = line.decode(errors="replace").rstrip("\n")
                with contextlib.suppress(OSError):  # the disk is full: read on, or ssh would wait
                    with session.log.open("ab") as log:
                        log.write(line)
                    if not text.startswith(f"{_DONE} "):
                        self._show(session.worker, text)
                if text.startswith(f"{_DONE} "):
                    with contextlib.suppress(ValueError):
                        session.reported = int(text.split()[1])

    def wait(
        self, timeout: float | None, grace: float = 5.0, check: Callable[[], None] = lambda: None
    ) -> Session | None:
        """Wait for all sessions; then end those that still run.

        Args:
            timeout: Seconds for the whole step; None for no limit.
            grace: Seconds to wait for the others after the first failure, because the
                supervisors' own report says more about it.
            check: Called every ten seconds; an exception from it ends the step.

        Returns:
            The session that failed first; None if all succeeded.
        """
        checked = time.monotonic()
        end = math.inf if timeout is None else checked + timeout
        first: Session | None = None
        try:
            while any(session.code is None for session in self.running):
                now = time.monotonic()
                for session in self.running:
                    if session.code is None and session.process.poll() is not None:
                        self._finish(session)
                        if first is None and session.failure():
                            first, end = session, min(end, now + grace)
                if now > end:
                    break
                if now - checked > 10:
                    check()
                    checked = time.monotonic()
                time.sleep(0.05)
        finally:
            self.end()
        return first or next((s for s in self.running if s.failure()), None)

    def _finish(self, session: Session) -> None:
        session.code = session.process.returncode
        session.threads[0].join(timeout=5)  # until the last lines are read

    def end(self) -> None:
        """End every ssh that still runs; worker.sh then ends because its input closes."""
        left = [session for session in self.running if session.code is None]
        for session in left:
            with contextlib.suppress(ProcessLookupError, OSError):
                os.killpg(session.process.pid, signal.SIGTERM)
        for session in left:
            try:
                session.process.wait(timeout=3)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(session.process.pid, signal.SIGKILL)
                session.process.wait()
            self._finish(session)


def _start_thread(session: Session, target: Callable[..., None], *arguments: Any) -> None:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    session.threads.append(thread)


def _write_input(stream: IO[bytes], data: bytes | Path | None, keep_open: bool) -> None:
    with contextlib.suppress(OSError, ValueError):  # the remote side closed it
        if isinstance(data, Path):
            with data.open("rb") as file:
                shutil.copyfileobj(file, stream, 1 << 20)
        elif data is not None:
            stream.write(data)
        stream.flush()
    if not keep_open:
        with contextlib.suppress(OSError, ValueError):
            stream.close()
