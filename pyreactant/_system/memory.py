"""Processes that the kernel killed for lack of memory; SIGKILL alone does not tell why."""

import time
from collections.abc import Callable
from pathlib import Path

_PERIOD = 1.0
"""Seconds between samples; a kill counts as recent for one to two of them."""


class MemoryKills:
    """Whether processes were killed for lack of memory just now.

    The kernel counts the kills of a whole cgroup or machine, so an old one says nothing about a
    process that ends now.

    Args:
        count: Returns the number of kills until now.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, count: Callable[[], int] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count, self._clock = count or out_of_memory_kills, clock
        self._at = clock()
        self._older = self._newer = self._count()

    def sample(self) -> None:
        """Take a sample if one is due; to be called often."""
        if (now := self._clock()) - self._at >= _PERIOD:
            self._older, self._newer, self._at = self._newer, self._count(), now

    def is_recent(self) -> bool:
        """Whether there was a kill in the last second or two."""
        return self._count() > self._older


def out_of_memory_kills() -> int:
    """Number of kills for lack of memory in this process's cgroup, otherwise on the machine.

    From ``memory.events`` (cgroup v2), ``memory.oom_control`` (v1) or ``/proc/vmstat``, whose
    line ``oom_kill`` is described in the kernel's Documentation/admin-guide/cgroup-v2.rst.
    """
    for path in [*_cgroup_files(), Path("/proc/vmstat")]:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return 0


def _cgroup_files() -> list[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, folder = line.split(":", 2)
        if not controllers:
            found.append(Path("/sys/fs/cgroup", folder.lstrip("/"), "memory.events"))
        elif "memory" in controllers.split(","):
            found.append(Path("/sys/fs/cgroup/memory", folder.lstrip("/"), "memory.oom_control"))
    return found
