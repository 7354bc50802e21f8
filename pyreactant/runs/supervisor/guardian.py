"""Find and kill what a run's programs leave behind; also if their supervisor is killed.

`python -I -S guardian.py TOKEN` is a child of the supervisor in a session of its own. It reads
the programs' pids from standard input, which ends with the supervisor. Programs that still run then
were not ended by the supervisor, so it was killed: the guardian kills them and all that they
started, and ends. Every run starts one, so it imports little: with typing, pathlib, contextlib and
ctypes it takes twice as long to start.

Linux only: elsewhere nothing is found.
"""

import os
import select
import signal
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

TOKEN = "PYREACTANT_RUN"  # noqa: S105 - names the run, not a secret
"""Set in every program of a run, so that processes left behind can be found."""

_PATIENCE = 2.0
"""Seconds to wait until killed processes are gone."""

_STEP = 0.005
_PERIOD = 5.0
"""Seconds between looks at the processes, or more if a look takes long."""

_SHARE = 200
"""A look takes at most this part of the time."""

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""What Slurm may send to every process of a step."""


class Process(namedtuple("Process", ("pid", "parent", "session", "started", "ended"))):
    """A process as the kernel shows it; its pid and start time together are unique."""

    __slots__ = ()

    def command(self) -> str:
        """Its command line, for a message."""
        try:
            words = _read(f"/proc/{self.pid}/cmdline").split(b"\0")
        except OSError:
            words = []
        text = b" ".join(words).decode(errors="replace").strip()
        return f"{text[:200] or 'a process without a command line'} (pid {self.pid})"

    def variable(self, name: str) -> str | None:
        """A variable of its environment; None if it has none, or is another user's."""
        mark = f"{name}=".encode()
        try:
            settings = _read(f"/proc/{self.pid}/environ").split(b"\0")
        except OSError:
            return None
        return next((s[len(mark) :].decode() for s in settings if s.startswith(mark)), None)


def adopt(yes: bool) -> None:
    """Become the parent of all descendants whose own parents end, or no longer."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SUBREAPER, int(yes))


def _read(path: str) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY), "rb") as file:
        return file.read()


def _names(folder: str) -> list[str]:
    """What a folder has; nothing if it is absent."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


def process(pid: int) -> Process | None:
    """The process with this pid, if there is one."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    state, parent, _, session, *more = text.rpartition(b")")[2].split()
    return Process(pid, int(parent), int(session), int(more[15]), state in b"ZX")


def processes() -> dict[int, Process]:
    """All processes of this machine, by pid."""
    pids = (int(name) for name in _names("/proc") if name.isdecimal())
    return {pid: entry for pid in pids if (entry := process(pid))}


def children(pid: int) -> Iterator[Process]:
    """The children of a process; none on a kernel that does not list them."""
    for task in _names(f"/proc/{pid}/task"):
        try:
            numbers = _read(f"/proc/{pid}/task/{task}/children").split()
        except OSError:
            continue
        for child in numbers:
            if entry := process(int(child)):
                yield entry


def descendants(roots: Collection[int], among: Mapping[int, Process]) -> Iterator[Process]:
    """The children of these processes, their children, and so on."""
    below: dict[int, list[Process]] = {}
    for each in among.values():
        below.setdefault(each.parent, []).append(each)
    ahead = [child for root in roots for child in below.get(root, ())]
    while ahead:
        each = ahead.pop()
        yield each
        ahead += below.get(each.pid, ())


def kill_all(
    find: Callable[[Mapping[int, Process]], Iterable[Process]],
    note: Callable[[Process], None] = lambda _: None,
) -> list[Process]:
    """Kill what `find` finds among all processes, until it finds nothing.

    Args:
        find: Called again until all is gone, because a process may start another one.
        note: Called once with each process before it is killed.
    """
    killed: dict[tuple[int, int], Process] = {}
    deadline = time.monotonic() + _PATIENCE
    while left := [p for p in find(processes()) if not p.ended]:
        for each in left:
            if (each.pid, each.started) not in killed:
                note(each)
                killed[each.pid, each.started] = each
            try:
                os.kill(each.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        if time.monotonic() > deadline:
            break
        time.sleep(_STEP)
    return list(killed.values())


def started_by_programs(
    supervisor: int, others: Collection[int], among: Mapping[int, Process]
) -> list[Process]:
    """What programs of a supervisor started: they are in other sessions than it.

    Args:
        others: Its children that are no programs and that no program started.
    """
    own = among[supervisor].session if supervisor in among else -1
    below = [p for p in among.values() if p.parent == supervisor and p.pid not in others]
    below += descendants({p.pid for p in below}, among)
    return [p for p in below if p.session != own]


def marked(token: str, among: Mapping[int, Process]) -> list[Process]:
    """What has a run's token in its environment."""
    return [p for p in among.values() if p.variable(TOKEN) == token] if token else []


def _guard(token: str) -> None:
    """Read what the supervisor says until it ends, then kill what it has left."""
    for number in WARNINGS:
        signal.signal(number, signal.SIG_IGN)
    supervisor, me = os.getppid(), os.getpid()
    programs: set[int] = set()
    known: set[Process] = set()
    buffer, pause = b"", _PERIOD
    while True:
        if not select.select([0], [], [], pause)[0]:
            began = time.monotonic()
            known = set(started_by_programs(supervisor, {me}, processes()))
            pause = max(_PERIOD, _SHARE * (time.monotonic() - began))
            continue
        data = os.read(0, 1 << 16)
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            word, _, pid = line.partition(b" ")
            (programs.add if word == b"started" else programs.discard)(int(pid))
        if not data:
            break
    if programs:
        kill_all(lambda among: _left(programs, known, token, among))


def _left(
    programs: Collection[int], known: Collection[Process], token: str, among: Mapping[int, Process]
) -> list[Process]:
    """Programs, all of their sessions, what was seen below them, what is marked, and all below."""
    again = {(p.pid, p.started) for p in known}
    left = [
        p for p in among.values() if p.session in programs or (p.pid, p.started) in again
    ] + marked(token, among)
    below = descendants({p.pid for p in left}, among)
    return [p for p in {*left, *below} if p.pid != os.getpid()]


if __name__ == "__main__":
    _guard(sys.argv[1])
