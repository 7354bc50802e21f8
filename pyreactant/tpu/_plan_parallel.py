"""Run jobs that start child processes, as many at once as this machine has memory for."""

import os
import queue
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

_MARGIN = 1.25
"""Of memory: children differ, and what they have not taken yet is not seen."""


@dataclass(slots=True)
class Pool(Generic[T]):
    """Jobs on threads; each waits for a child process of its own.

    The first runs alone. What it took at its peak, as the kernel counts it for ended children,
    then says how many fit beside each other.

    Attributes:
        workers: How many at once at most; None is one for each processor.
        available: Bytes that children may take together; None asks the machine.
        at_once: How many there were at once, at most.
    """

    workers: int | None = None
    available: int | None = None
    at_once: int = 0
    _results: "queue.SimpleQueue[tuple[int, T | BaseException]]" = field(
        default_factory=queue.SimpleQueue
    )

    def run(self, jobs: Sequence[Callable[[], T]]) -> Iterator[tuple[int, T]]:
        """Results with the number of their job, as they come.

        A job's exception is raised here. Whoever stops asking leaves the running jobs to
        themselves: their threads are daemons.
        """
        available = available_memory() if self.available is None else self.available
        waiting = list(enumerate(jobs))[::-1]
        running = 0
        while waiting or running:
            while waiting and running < self._most(available):
                number, job = waiting.pop()
                threading.Thread(target=self._work, args=(number, job), daemon=True).start()
                running += 1
                self.at_once = max(self.at_once, running)
            number, result = self._results.get()
            running -= 1
            if isinstance(result, BaseException):
                raise result
            yield number, result

    def _work(self, number: int, job: Callable[[], T]) -> None:
        try:
            self._results.put((number, job()))
        except BaseException as error:
            self._results.put((number, error))

    def _most(self, available: int | None) -> int:
        peak = peak_of_children()
        if not peak or available is None:
            return 1
        wanted = self.workers or len(os.sched_getaffinity(0))
        return max(1, min(wanted, int(available / (_MARGIN * peak))))


def peak_of_children() -> int:
    """Bytes that the largest child process had at its peak, of those that have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def available_memory() -> int | None:
    """Bytes that can still be taken, by the machine and by this process's cgroup."""
    found = [_machine(), *_cgroup()]
    return min((number for number in found if number is not None), default=None)


def _machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return sizes[0] if sizes else None


def _cgroup() -> Iterator[int]:
    """What limits of cgroups (version 2, and version 1) leave; nothing where there are none."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            texts = [Path(path).read_text().strip() for path in (limit, used)]
        except OSError:
            continue
        if all(text.isdigit() for text in texts):
            yield max(0, int(texts[0]) - int(texts[1]))
