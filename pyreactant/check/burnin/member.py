"""One process of a burn-in: ``python -m pyreactant.check.burnin.member RECORD ASKED``.

`pyreactant burnin` starts it as the program of a run; at a place `burned_in` is the job's function.
The processes tell process 0 what they measured through the run's store, which no device takes part
in; process 0 writes the record after each round, so that it has what was finished however the run
ends. It only records: it exits with 0 even if something is wrong.
"""

import itertools
import json
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.backend import AbstractBackend
from ...arrays.runtimes.runtime import current, initialize
from ...arrays.text import parse_mesh
from ...base.counted import counted
from ...base.errors import InvalidArgumentError, PyReactantError, RequirementError
from ...base.facts import gpu_serials, usable_cores
from ...base.files import write_text
from ...process import progress, supervised
from .host import Gpus, processor, quoted, resources
from .record import Asked, Measure, Member, Record, merged
from .rounds import Round, rounds_of
from .work import Work

_ROUNDS_OF_A_CLOCK = 20
"""Rounds of each half of a burn-in, of which the quickest message tells where a clock is."""

_WAIT = 3600.0  # the supervisor ends a run whose process hangs, long before


class Meeting:
    """Texts between process 0 and the others."""

    def __init__(self, backend: AbstractBackend) -> None:
        self._store, self._group = backend.store(), backend.group
        self.first = self._group.process_index == 0

    def order(self, key: str, value: Any = None) -> Any:
        """What process 0 says; it gives the value."""
        if self._store is None:
            return value
        with progress.collective():  # counted, so that the supervisor tells who waits for whom
            if not self.first:
                return json.loads(self._waited(f"burnin/order/{key}"))
            self._store.put(f"burnin/order/{key}", json.dumps(value))
        return value

    def told(self, key: str, mine: Any) -> Iterable[Any]:
        """What each process tells, by process; only process 0 gets it, the others nothing."""
        if self._store is None:
            return [mine]
        with progress.collective():
            if not self.first:
                index = self._group.process_index
                self._store.put(f"burnin/told/{key}/{index}", json.dumps(mine))
                return []
            others = range(1, self._group.num_processes)
            texts = [self._waited(f"burnin/told/{key}/{process}") for process in others]
        self._store.delete(f"burnin/told/{key}")
        return itertools.chain([mine], map(json.loads, texts))

    def _waited(self, key: str) -> str:
        assert self._store is not None
        text = self._store.get(key, _WAIT)
        if text is None:
            raise RequirementError(f"a process of the burn-in must answer within {_WAIT:.0f} s")
        return text


def burned_in(record: str, asked: Mapping[str, Any]) -> str:
    """Run rounds until the time is over. Collective.

    Args:
        record: Process 0 writes the record to this file after each round; "-" for none.
        asked: Describes an `Asked`.

    Returns:
        The record's lines on process 0, and "" on the others.
    """
    initialize()
    running = current()
    if running.backend.name != "jax":
        raise RequirementError(
            f"a burn-in needs the runtime jax, got {running.backend.name}; choose --backend jax"
        )
    path = None if record == "-" else Path(record)
    made = burn_in(running.backend, path, Asked.from_dict(asked))
    return "" if made is None else "".join(made.lines())


def burn_in(backend: AbstractBackend, path: Path | None, asked: Asked) -> Record | None:
    """Run rounds, turn after turn, and write the record. Collective.

    Returns:
        The record on process 0; None on the others.
    """
    homes = [device.process_index for device in backend.devices()]
    mesh = parse_mesh(asked.mesh) if asked.mesh else None
    if mesh is not None and mesh.size != len(homes):
        raise InvalidArgumentError(
            f"--mesh must be of all {counted(len(homes), 'device')} of the burn-in, and "
            f"{asked.mesh} has {mesh.size}"
        )
    meeting, work = Meeting(backend), Work(backend, asked.size, asked.memory)
    rounds = rounds_of(
        backend.group.num_processes,
        backend.devices()[0].platform,
        max(Counter(homes).values()),
        asked.memory,
        mesh,
        homes,
    )
    told = meeting.told("member", member_of(backend, work.gpus).to_dict())
    members = tuple(map(Member.from_dict, told))
    # One process of each host runs the tool, before devices are busy.
    first = {member.host: member.process for member in reversed(members)}
    askers = meeting.order("tools", sorted(first.values()))
    answer = quoted() if backend.group.process_index in askers else None
    quotes = meeting.told("tools", answer)
    now = time.time()
    record = Record(
        began=now,
        ended=now,
        asked=asked.seconds,
        finished=False,
        runtime=backend.versions(),
        members=members,
        rounds=tuple(dict.fromkeys(job.name for job in rounds)),
        ran={},
        measures=(),
        clocks=(),
        quotes=tuple(
            {"host": member.host, **quote}
            for member, quote in zip(members, quotes, strict=False)
            if quote is not None
        ),
    )
    book = Book(record, path)
    number = 0
    while True:
        job, turn = rounds[number % len(rounds)], number // len(rounds)
        go = book.has_time_for(number % len(rounds))
        sent = meeting.order(str(number), time.time() if go else None)
        if sent is None:
            break
        ahead = time.time() - sent
        began = time.monotonic()
        measures = work.run(job, turn)
        told = meeting.told(str(number), [ahead, [measure.told() for measure in measures]])
        if meeting.first:
            book.enter(number % len(rounds), job, time.monotonic() - began, told)
        number += 1
    return book.finish() if meeting.first else None


class Book:
    """The record of process 0.

    Args:
        record: What is known before the first round.
        path: The record is written there; None for nowhere.
    """

    def __init__(self, record: Record, path: Path | None) -> None:
        self._record, self._path = record, path
        self._measures: dict[tuple[Any, ...], Measure] = {}
        self._clocks = _Clocks()
        self._last: dict[int, float] = {}  # seconds of each round, when it ran last
        self._began = time.monotonic()
        self._next_write = 0.0

    def has_time_for(self, number: int) -> bool:
        """Whether a round begins, and, if it is as long as last time, ends in time."""
        passed = time.monotonic() - self._began
        return passed + self._last.get(number, 0.0) < self._record.asked

    def enter(self, number: int, job: Round, seconds: float, told: Iterable[Any]) -> None:
        """Add what all processes told of a round, and write the record."""
        self._last[number] = seconds
        groups = {process: group for group in job.groups for process in group}
        clocks = []
        for process, (ahead, measures) in enumerate(told):
            group = groups.get(process, (process,))
            merged(self._measures, (Measure.heard(measure, group) for measure in measures))
            clocks.append(ahead)
        self._clocks.enter(clocks)
        ran = dict(self._record.ran)
        times, before = ran.get(job.name, (0, 0.0))
        ran[job.name] = (times + 1, before + seconds)
        self._record = replace(self._record, ran=ran, ended=time.time())
        # The record of thousands of processes takes seconds.
        if self._path is not None and time.monotonic() >= self._next_write:
            began = time.monotonic()
            write_text(self._whole().lines(), self._path)
            self._next_write = time.monotonic() + 10 * (time.monotonic() - began)

    def finish(self) -> Record:
        """The time is over."""
        self._record = replace(self._whole(), finished=True)
        if self._path is not None:
            write_text(self._record.lines(), self._path)
        return self._record

    def _whole(self) -> Record:
        measures, clocks = tuple(self._measures.values()), self._clocks.ahead()
        return replace(self._record, measures=measures, clocks=clocks)


class _Clocks:
    """How far the clocks are ahead by the quickest message; in few numbers, however long it is."""

    def __init__(self) -> None:
        self._ahead: list[np.ndarray] = []
        self._rounds = 0

    def enter(self, ahead: list[float]) -> None:
        """Add how late each process got the order of a round."""
        self._rounds += 1
        self._ahead.append(np.array(ahead))
        if len(self._ahead) >= 4 * _ROUNDS_OF_A_CLOCK:
            both = zip(self._ahead[::2], self._ahead[1::2], strict=True)
            self._ahead = [np.minimum(*two) for two in both]

    def ahead(self) -> tuple[tuple[float, ...], ...]:
        """For each process, of the first half of the rounds and of the second, or of all."""
        middle = len(self._ahead) // 2
        parts = [self._ahead[:middle], self._ahead[middle:]]
        if self._rounds < 2 * _ROUNDS_OF_A_CLOCK:
            parts = [self._ahead]
        if not self._ahead:
            return ()
        least = [np.min(part, axis=0).tolist() for part in parts]
        return tuple(zip(*least, strict=True))


def member_of(backend: AbstractBackend, gpus: Gpus) -> Member:
    """This process and its machine."""
    mine = [d for d in backend.devices() if d.position in backend.local_positions]
    return Member(
        process=backend.group.process_index,
        host=socket.gethostname(),
        devices=tuple(
            {
                "position": d.position,
                "id": d.id,
                "kind": d.kind,
                "platform": d.platform,
                "others": gpus.others(d.position),
            }
            for d in mine
        ),
        processor=processor(),
        cores=usable_cores(),
        serials=gpu_serials(),
        resources=resources(),
    )


if __name__ == "__main__":
    # A wait in the runtime would not notice Python's handler, and the record is always whole.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        burned_in(sys.argv[1], json.loads(sys.argv[2]))
    except PyReactantError as error:
        supervised.end_with(error)
