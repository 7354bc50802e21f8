"""One command on every worker at the same time, each with a log, an exit status and a verdict."""

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ._resource import Worker

SSH_FAILED = 255
_DONE = "pyreactant-worker-done"
"""What worker.sh prints last; a session without this line has run nothing, or not all."""


@dataclass(slots=True)
class Session:
    """A command on one worker.

    Attributes:
        worker: Where.
        process: ssh, on this machine.
        log: What it printed.
        code: Exit status, None while it runs.
        done: The status that worker.sh said it ends with, None where it said nothing.
        ended: When it ended, by the monotonic clock.
    """

    worker: Worker
    process: subprocess.Popen[bytes]
    log: Path
    code: int | None = None
    done: int | None = None
    ended: float | None = None
    threads: list[threading.Thread] = field(default_factory=list)

    def tail(self, lines: int = 3) -> str:
        """Its last words."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return ""
        said = [line for line in text.splitlines() if line.strip() and _DONE not in line]
        return " | ".join(said[-lines:])

    def trouble(self) -> str | None:
        """What is wrong with a session that has ended; None where nothing is."""
        if self.code == 0 and self.done == 0:
            return None
        if self.done is not None:
            return f"ended with exit code {self.done}: {self.tail()}"
        if self.code == SSH_FAILED:
            return f"cannot be reached, or the connection broke: {self.tail()}"
        if self.code == 0:
            return f"ran nothing: the connection ended well but without a result: {self.tail()}"
        return f"was cut short (ssh ended with {self.code}): {self.tail()}"


class Sessions:
    """The sessions of one step on all workers.

    Args:
        commands: How each worker is reached.
        folder: For the logs.
        show: Gets each line that a worker prints, with its name.
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
        given: Callable[[Worker], bytes | Path | None] = lambda _: None,
        *,
        held: bool = False,
        out: Callable[[Worker], Path | None] = lambda _: None,
    ) -> list[Session]:
        """Start it everywhere.

        Args:
            name: Of the step, and of its logs.
            command: The remote argument list for a worker.
            given: What the command reads first: bytes, or a file.
            held: Whether its standard input stays open afterwards, so that it sees by the end
                of it when we are gone.
            out: File for its standard output; its errors are logged. None logs both.
        """
        self.running = [
            self._one(name, worker, command(worker), given(worker), held, out(worker))
            for worker in self.commands
        ]
        return self.running

    def _one(
        self,
        name: str,
        worker: Worker,
        command: Sequence[str],
        given: bytes | Path | None,
        held: bool,
        out: Path | None,
    ) -> Session:
        log = self._folder / f"{name}-{worker.node}-{worker.index}.log"
        argv = [*self.commands[worker], shlex.join(command)]  # ssh has a shell at the other end
        target: IO[bytes] | int = subprocess.PIPE if out is None else out.open("wb")
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=target,
            stderr=subprocess.STDOUT if out is None else subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us; we end them
        )
        if not isinstance(target, int):
            target.close()
        session = Session(worker, process, log)
        stream = process.stdout if out is None else process.stderr
        for work in (
            lambda: self._read(session, stream),
            lambda: _feed(process.stdin, given, held),
        ):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            session.threads.append(thread)
        return session

    def _read(self, session: Session, stream: IO[bytes] | None) -> None:
        assert stream is not None
        with session.log.open("ab") as log, contextlib.suppress(ValueError, OSError):
            for line in stream:
                log.write(line)
                log.flush()
                text = line.decode(errors="replace").rstrip("\n")
                if text.startswith(f"{_DONE} "):
                    with contextlib.suppress(ValueError):
                        session.done = int(text.split()[1])
                else:
                    self._show(session.worker, text)

    def wait(
        self,
        timeout: float | None,
        grace: float = 5.0,
        look: Callable[[], None] = lambda: None,
        every: float = 10.0,
    ) -> Session | None:
        """Wait for all; once one is in trouble the others get `grace` seconds to end.

        Args:
            timeout: Seconds for all of it; None for any.
            grace: Seconds that supervisors get to find out by themselves, since they know more.
            look: Called every now and then; what it raises ends the step.
            every: Seconds between two looks.

        Returns:
            The first session in trouble, by time; None where all is well.
        """
        start = looked = time.monotonic()
        first: Session | None = None
        try:
            while any(session.code is None for session in self.running):
                now = time.monotonic()
                for session in self.running:
                    if session.code is None and session.process.poll() is not None:
                        self._ended(session, now)
                        if first is None and session.trouble():
                            first = session
                if first is not None and first.ended is not None and now - first.ended > grace:
                    break
                if timeout is not None and now - start > timeout:
                    break
                if now - looked > every:
                    look()
                    looked = time.monotonic()
                time.sleep(0.05)
        finally:
            self.end()
        return first or next((s for s in self.running if s.trouble()), None)

    def _ended(self, session: Session, now: float) -> None:
        session.code, session.ended = session.process.returncode, now
        session.threads[0].join(timeout=5)  # its last lines

    def end(self) -> None:
        """End what still runs on this machine; worker.sh sees its input close, and ends too."""
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
            self._ended(session, time.monotonic())


def _feed(stream: IO[bytes] | None, given: bytes | Path | None, held: bool) -> None:
    assert stream is not None
    with contextlib.suppress(OSError, ValueError):  # the other end has gone
        if isinstance(given, Path):
            with given.open("rb") as file:
                while chunk := file.read(1 << 20):
                    stream.write(chunk)
        elif given is not None:
            stream.write(given)
        stream.flush()
    if not held:
        with contextlib.suppress(OSError, ValueError):
            stream.close()
