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
from typing import TYPE_CHECKING

from ...base.child import output_of
from ...base.counted import counted
from ...base.errors import InvalidArgumentError, RequirementError, argument
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
                f"{argument('reach')} must be gcloud or ssh, got {self.method!r}"
            )
        if self.user is not None and not re.fullmatch(r"[A-Za-z_][-.\w]{0,63}", self.user):
            raise InvalidArgumentError(
                f"{argument('user')} must be a login name, got {self.user!r}"
            )
        wrong = [flag for flag in self.flags if not flag.startswith("-")]
        if wrong:
            raise InvalidArgumentError(
                f"{argument('ssh_flags')} must begin with -, got {wrong[0]!r}"
            )

    def check(self) -> None:
        """Check that the tools and the key are usable, before anything costs money.

        Raises:
            RequirementError: Something is missing; the message has the command to run.
        """
        for tool in ("gcloud", "ssh") if self.method == "gcloud" else ("ssh",):
            if shutil.which(tool) is None:
                source = {"gcloud": "https://cloud.google.com/sdk/docs/install", "ssh": "OpenSSH"}
                raise RequirementError(f"{tool} is not in PATH; install it: {source[tool]}")
        if self.method == "gcloud":
            _check_key()

    def commands(self, request: SliceRequest, workers: Sequence[Worker]) -> dict[Worker, list[str]]:
        """For each worker the argument list to which a remote command is appended.

        Raises:
            CloudError: gcloud failed, or lists other workers than the API.
        """
        if self.method == "gcloud":
            return self._gcloud_commands(request, workers)
        return {worker: self._ssh_command(request, worker) for worker in workers}

    def _ssh_command(self, request: SliceRequest, worker: Worker) -> list[str]:
        address = worker.internal if request.internal_ips else worker.external or worker.internal
        user = [f"-l{self.user}"] if self.user else []
        # Other VMs get the same addresses later; a node's number is never reused.
        alias = f"-oHostKeyAlias=tpu.{worker.node_id}-{worker.index}"
        host = ["-oStrictHostKeyChecking=accept-new", alias, *user, "--", address]
        return ["ssh", "-T", *_SSH_OPTIONS, *self.flags, *host]

    def _gcloud_commands(
        self, request: SliceRequest, workers: Sequence[Worker]
    ) -> dict[Worker, list[str]]:
        commands = {}
        for node in dict.fromkeys(worker.node for worker in workers):
            base = [
                *("gcloud", "compute", "tpus", "tpu-vm", "ssh"),
                f"{self.user}@{node}" if self.user else node,
                *(f"--project={request.project}", f"--zone={request.zone}", "--quiet"),
                *(["--internal-ip"] if request.internal_ips else []),
                *(f"--ssh-flag={flag}" for flag in self.flags),
            ]
            # The first call copies the key into the node's metadata. It may fail, because the guest
            # agent of the VM may not have read the key yet.
            _gcloud([*base, "--worker=0", "--command=true"], may_fail=True)
            output = _gcloud([*base, "--worker=all", "--dry-run", f"--command={_PLACEHOLDER}"])
            lines = [line for line in output.splitlines() if line.endswith(f"-- {_PLACEHOLDER}")]
            of_node = [worker for worker in workers if worker.node == node]
            if len(lines) != len(of_node):
                raise CloudError(
                    f"gcloud lists {counted(len(lines), 'worker')} of {node}, but the API lists "
                    f"{len(of_node)}: {output}"
                )
            for worker, line in zip(of_node, lines, strict=True):
                program, *arguments = shlex.split(line)[:-1]
                commands[worker] = [program, *_SSH_OPTIONS, *arguments]
        return commands


def command_on(
    client: "Client",
    request: SliceRequest,
    ssh: SshOptions,
    index: int,
    *,
    command: Sequence[str] = (),
    terminal: bool = False,
) -> list[str]:
    """The argument list that runs a command, or a shell, on one worker.

    Args:
        index: Index of the worker over all slices, from 0.

    Raises:
        CloudError: The slices or the worker do not exist.
    """
    workers = client.workers(request)
    if not workers:
        resource = client.get(request.path)
        if resource is None:
            raise CloudError(
                f"there are no slices {request.name} in {request.zone} of project "
                f"{request.project}; see which there are: pyreactant tpu list"
            )
        raise CloudError(
            f"{request.name} is {resource.state} and has no VM that is ready; wait for it: "
            "pyreactant tpu wait"
        )
    if not 0 <= index < len(workers):
        raise CloudError(
            f"there is no worker {index}: {request.name} has {counted(len(workers), 'worker')}, "
            "counted from 0"
        )
    worker = workers[index]
    argv = ssh.commands(request, [w for w in workers if w.node == worker.node])[worker]
    if terminal:
        argv = [argv[0], "-t", *(part for part in argv[1:] if part != "-T")]
    return [*argv, *([shlex.join(command)] if command else [])]


def _check_key() -> None:
    """Raise RequirementError if gcloud's key has a passphrase and no agent holds the key."""
    key = Path.home() / ".ssh" / "google_compute_engine"
    if not key.exists():
        return  # gcloud creates it
    checks = (["ssh-keygen", "-y", "-P", "", "-f", str(key)], ["ssh-add", "-T", f"{key}.pub"])
    if all(output_of(argv, timeout=20).returncode for argv in checks):
        raise RequirementError(
            f"the ssh key {key} has a passphrase and no agent holds it; run: "
            f"eval $(ssh-agent) && ssh-add {shlex.quote(str(key))}"
        )


def _gcloud(argv: list[str], *, may_fail: bool = False) -> str:
    try:
        done = output_of(argv, timeout=_GCLOUD_TIMEOUT, start_new_session=True)
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
    """A command on one worker; its output is read, logged and shown in a thread.

    Attributes:
        worker: The worker.
        process: The ssh process on this machine.
        log: File with the output.
        show: Called with the worker and each line of the output.
        code: Exit status of ssh; None while it runs.
        reported: Exit status that worker.sh reported; None if it reported none.
    """

    worker: Worker
    process: subprocess.Popen[bytes]
    log: Path
    show: Callable[[Worker, str], None]
    code: int | None = None
    reported: int | None = None
    _reader: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stream = self.process.stdout or self.process.stderr
        assert stream is not None
        with contextlib.suppress(ValueError, OSError):  # the stream was closed by `end`
            for line in stream:
                text = line.decode(errors="replace").rstrip("\n")
                done = text.startswith(f"{_DONE} ")
                with contextlib.suppress(OSError):  # the disk is full: read on, or ssh would wait
                    with self.log.open("ab") as log:
                        log.write(line)
                    if not done:
                        self.show(self.worker, text)
                if done:
                    with contextlib.suppress(ValueError):
                        self.reported = int(text.split()[1])

    def has_ended(self) -> bool:
        """Whether ssh has ended, and its last lines are read."""
        if self.code is None and self.process.poll() is not None:
            self._reader.join(timeout=5)
            self.code = self.process.returncode
        return self.code is not None

    def signal(self, number: int) -> None:
        """Send a signal to ssh; worker.sh ends because its input closes."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, number)

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
    """The sessions of one step on all workers."""

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
        data: bytes | Path = b"",
        *,
        keep_open: bool = False,
        out: Callable[[Worker], Path | None] = lambda _: None,
    ) -> None:
        """Start a command on every worker.

        Args:
            name: Name of the step and of its logs.
            command: The remote argument list for a worker.
            data: Standard input of the command: at most a page of bytes, or a file.
            keep_open: Whether standard input stays open after `data`; its end then tells the
                command that this process is gone.
            out: File for the command's standard output; only errors are logged then. None
                logs both.
        """
        self.running = []
        for worker, reach in self._commands.items():
            remote = shlex.join(command(worker))  # the remote side is a shell
            file = out(worker)
            with contextlib.ExitStack() as files:
                process = subprocess.Popen(
                    [*reach, remote],
                    stdin=files.enter_context(data.open("rb"))
                    if isinstance(data, Path)
                    else subprocess.PIPE,
                    stdout=subprocess.PIPE
                    if file is None
                    else files.enter_context(file.open("wb")),
                    stderr=subprocess.STDOUT if file is None else subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C must reach this process only; `end` ends ssh
                )
            if isinstance(data, bytes) and process.stdin is not None:
                with contextlib.suppress(OSError):  # ssh has ended
                    process.stdin.write(data)
                    process.stdin.flush()
                    if not keep_open:
                        process.stdin.close()
            log = self._folder / f"{name}-{worker.node}-{worker.index}.log"
            self.running.append(Session(worker, process, log, self._show))

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
            while waiting := [session for session in self.running if session.code is None]:
                now = time.monotonic()
                for session in waiting:
                    if session.has_ended() and first is None and session.failure():
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

    def end(self) -> None:
        """End every ssh that still runs."""
        left = [session for session in self.running if not session.has_ended()]
        for session in left:
            session.signal(signal.SIGTERM)
        for session in left:
            try:
                session.process.wait(timeout=3)
            except subprocess.TimeoutExpired:
                session.signal(signal.SIGKILL)
                session.process.wait()
            session.has_ended()
