"""Run one command on every worker at the same time, each with its own log and exit status."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ._request import Worker

SSH_FAILED = 255
_DONE = "pyreactant-worker-done"
"""Start of the last line of worker.sh; without that line the command did not run to its end."""


@dataclass(slots=True)
class Session:
    """A command on one worker.

    Attributes:
        worker: The worker.
        process: The ssh process on this machine.
        log: File with the output.
        code: Exit status of ssh; None while it runs.
        reported: Exit status that worker.sh reported; None if it reported none.
        ended: Time at which ssh ended, by the monotonic clock.
        threads: The reader of the output, and the writer of the input.
    """

    worker: Worker
    process: subprocess.Popen[bytes]
    log: Path
    code: int | None = None
    reported: int | None = None
    ended: float | None = None
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
        if self.code == SSH_FAILED:
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
        show: Callable[[Worker, str], None],
    ) -> None:
        self.commands, self._folder, self._show = commands, folder, show
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
        for worker in self.commands:
            session = self._start_one(name, worker, command(worker), out=out(worker))
            _start_thread(session, _write_input, session.process.stdin, data, keep_open)
            self.running.append(session)

    def _start_one(
        self, name: str, worker: Worker, command: Sequence[str], *, out: Path | None
    ) -> Session:
        log = self._folder / f"{name}-{worker.node}-{worker.index}.log"
        argv = [*self.commands[worker], shlex.join(command)]  # the remote side is a shell
        target: IO[bytes] | int = subprocess.PIPE if out is None else out.open("wb")
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=target,
            stderr=subprocess.STDOUT if out is None else subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must reach this process only; `end` ends ssh
        )
        if not isinstance(target, int):
            target.close()
        session = Session(worker, process, log)
        stream = process.stdout if out is None else process.stderr
        _start_thread(session, self._read_output, session, stream)
        return session

    def _read_output(self, session: Session, stream: IO[bytes] | None) -> None:
        assert stream is not None
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
        self,
        timeout: float | None,
        grace: float = 5.0,
        check: Callable[[], None] = lambda: None,
        interval: float = 10.0,
    ) -> Session | None:
        """Wait for all sessions; then end those that still run.

        Args:
            timeout: Seconds for the whole step; None for no limit.
            grace: Seconds to wait for the others after the first failure, because the
                supervisors' own report says more about it.
            check: Called every `interval` seconds; an exception from it ends the step.
            interval: Seconds between two checks.

        Returns:
            The session that failed first; None if all succeeded.
        """
        start = checked = time.monotonic()
        first: Session | None = None
        try:
            while any(session.code is None for session in self.running):
                now = time.monotonic()
                for session in self.running:
                    if session.code is None and session.process.poll() is not None:
                        self._finish(session, now)
                        if first is None and session.failure():
                            first = session
                if first is not None and first.ended is not None and now - first.ended > grace:
                    break
                if timeout is not None and now - start > timeout:
                    break
                if now - checked > interval:
                    check()
                    checked = time.monotonic()
                time.sleep(0.05)
        finally:
            self.end()
        return first or next((s for s in self.running if s.failure()), None)

    def _finish(self, session: Session, now: float) -> None:
        session.code, session.ended = session.process.returncode, now
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
            self._finish(session, time.monotonic())


def _start_thread(session: Session, target: Callable[..., None], *arguments: Any) -> None:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    session.threads.append(thread)


def _write_input(stream: IO[bytes] | None, data: bytes | Path | None, keep_open: bool) -> None:
    assert stream is not None
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
