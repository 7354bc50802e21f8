"""What programs leave behind in this supervisor's run: named in the report, and killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...base.settings import INDEX
from . import guardian

_GUARDIAN_ENDS = 5.0
"""Seconds until a guardian that does not end is killed."""

_REAP = 5.0
"""Seconds between looks for ended orphans."""


class Leftovers:
    """Knows the programs of this supervisor and finds what they started; see `guardian`."""

    def __init__(self) -> None:
        self._programs: set[int] = set()
        self._others: set[int] = set()
        self._told: set[tuple[int, int]] = set()  # pid and start time
        self._token = ""
        self._guardian: subprocess.Popen[bytes] | None = None
        self._reaped = time.monotonic()

    def begin(self, token: str) -> None:
        """Call it before programs start that have this token in their environment."""
        self._token = token
        if self._guardian is None and sys.platform == "linux":
            self._others = {child.pid for child in guardian.children(os.getpid())}
            guardian.adopt(True)
            # A warning that comes before the guardian ignores it must not end it.
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, guardian.WARNINGS)
            try:
                self._guardian = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(Path(guardian.__file__)), token],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C ends the supervisor first
                    bufsize=0,
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            self._others.add(self._guardian.pid)

    def started(self, pid: int) -> None:
        """Note a program, which leads a session of its own."""
        self._programs.add(pid)
        self._tell("started", pid)

    def ended(self, pid: int) -> None:
        """Note that a program has ended, and that its process group is killed."""
        self._programs.discard(pid)
        self._tell("ended", pid)

    def of_session(self, program: int) -> list[str]:
        """Command lines of what an ended program has left in its session."""
        left = [
            child
            for child in guardian.children(os.getpid())
            if child.session == program and child.pid != program and not child.ended
        ]
        self._told.update((child.pid, child.started) for child in left)
        return [child.command() for child in left]

    def kill(self, index: int) -> dict[int, list[str]]:
        """Kill whatever programs have left, in other sessions too; call it when all have ended.

        Args:
            index: Process index of what has none in its environment.

        Returns:
            The command lines of what was killed, by process index, without those of `of_session`,
            of which some may not have ended yet.
        """
        if sys.platform != "linux" or not self._token:
            return {}
        killed: dict[int, list[str]] = {}

        def note(each: guardian.Process) -> None:
            if (each.pid, each.started) in self._told:
                return
            own = each.variable(INDEX) or ""
            text = each.command()
            if not own.isdecimal():  # its environment is empty, so any program may have started it
                own, text = str(index), f"{text} without a process index"
            killed.setdefault(int(own), []).append(text)

        for each in guardian.kill_all(self._find, note):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(each.pid, os.WNOHANG)
        return killed

    def reap(self) -> None:
        """Reap orphans that have ended; to be called often."""
        if self._guardian is None or (now := time.monotonic()) - self._reaped < _REAP:
            return
        self._reaped = now
        own, known = os.getsid(0), self._programs | self._others
        for child in guardian.children(os.getpid()):
            if child.ended and child.session != own and child.pid not in known:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)

    def close(self) -> None:
        """End the guardian."""
        if self._guardian is None:
            return
        assert self._guardian.stdin is not None
        self._guardian.stdin.close()
        try:
            self._guardian.wait(_GUARDIAN_ENDS)
        except subprocess.TimeoutExpired:
            self._guardian.kill()
            self._guardian.wait()
        self._guardian = None
        guardian.adopt(False)

    def _find(self, among: Mapping[int, guardian.Process]) -> Iterator[guardian.Process]:
        yield from guardian.started_by_programs(os.getpid(), self._others, among)
        yield from guardian.marked(self._token, among)

    def _tell(self, word: str, pid: int) -> None:
        if self._guardian is not None:
            assert self._guardian.stdin is not None
            with contextlib.suppress(OSError):  # somebody killed the guardian
                self._guardian.stdin.write(f"{word} {pid}\n".encode())
