"""One process of a burn-in: ``python -m pyreactant.check.burnin.member RECORD ASKED``.

`pyreactant burnin` starts it as the program of a run; at a place `burned_in` is the job's function.
The processes tell process 0 what they measured through the run's store, in which no device takes
part; process 0 writes the record after each round, so that it has what was finished however the run
ends. It only records: it exits with 0 even if something is wrong.
"""

import json
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.backend import AbstractBackend
from ...arrays.runtimes.agree import Agreement
from ...arrays.runtimes.runtime import current, initialize
from ...arrays.text import parse_mesh
from ...base.counted import counted
from ...base.errors import InvalidArgumentError, PyReactantError, RequirementError
from ...base.facts import gpu_serials, usable_cores
from ...base.files import write_text
from ...process import progress, supervised
from .host import TOOL, Gpus, processor, quoted, resources
from .record import Asked, Measure, Member, Record, merged
from .rounds import Round, rounds_of
from .work import Work

_ROUNDS_OF_A_CLOCK = 20
"""Rounds of each half of a burn-in, of which the quickest message tells where a clock is."""


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
    agreement, work = Agreement(current()), Work(backend, asked.size, asked.memory)
    rounds = rounds_of(
        backend.group.num_processes,
        backend.devices()[0].platform,
        max(Counter(homes).values()),
        asked.memory,
        mesh,
        homes,
    )
    told = _told(agreement, "the burn-in", member_of(backend, work.gpus).to_dict())
    members = tuple(map(Member.from_dict, told))
    # One process of each host runs the tool, before devices are busy.
    first = {member.host: member.process for member in reversed(members)}
    askers = agreement.publish("the burn-in", -1, lambda: sorted(first.values()))
    answer = quoted() if agreement.process in askers else None
    quotes = _told(agreement, " ".join(TOOL), answer)
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
    book, number = Book(record, path), 0
    while True:
        turn, place = divmod(number, len(rounds))
        job = rounds[place]
        sent = agreement.publish(job.name, number, partial(book.order, place))
        if sent is None:
            break
        ahead = time.time() - sent
        began = time.monotonic()
        measures = [measure.told() for measure in work.run(job, turn)]
        # As text, because process 0 hears thousands, and reads one after the other.
        told = _told(agreement, job.name, json.dumps([ahead, measures]))
        agreement.forget(number, number + 1)
        if told:
            book.enter(place, job, time.monotonic() - began, map(json.loads, told))
        number += 1
    return book.finish() if agreement.process == 0 else None


def _told(agreement: Agreement, what: str, mine: Any) -> list[Any]:
    """What each process tells, by process, in process 0; nothing in the others."""
    rows: list[Any] = []
    with progress.collective():  # counted, so that the supervisor tells who waits for whom
        agreement.round(what, lambda: mine, rows.extend)
    return rows


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

    def order(self, number: int) -> float | None:
        """When a round begins; None if it would not end in time, being as long as last time."""
        passed = time.monotonic() - self._began
        has_time = passed + self._last.get(number, 0.0) < self._record.asked
        return time.time() if has_time else None

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
