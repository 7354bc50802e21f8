"""One process of a burn-in: ``python -m pyreactant.check.burnin.member RECORD SECONDS SIZE``.

`pyreactant burnin` starts it as the program of a run. The processes tell process 0 what they
measured through the run's store, which no device takes part in; process 0 writes the record after
each round, so that it has what was finished however the run ends. It only records: it exits with 0
even if something is wrong.
"""

import json
import platform
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...arrays.backend import AbstractBackend
from ...arrays.runtimes.runtime import current, initialize
from ...base.errors import InvalidArgumentError, RequirementError
from ...base.facts import ROOT, facts, gpu_serials, usable_cores
from ...base.files import write_json
from .record import Measure, Member, Record, merged
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
        if self.first:
            self._store.put(f"burnin/order/{key}", json.dumps(value))
            return value
        return json.loads(self._waited(f"burnin/order/{key}"))

    def told(self, key: str, mine: Any) -> list[Any]:
        """What each process tells, by process; only process 0 gets it, the others []."""
        if self._store is None:
            return [mine]
        if not self.first:
            self._store.put(f"burnin/told/{key}/{self._group.process_index}", json.dumps(mine))
            return []
        others = range(1, self._group.num_processes)
        texts = [self._waited(f"burnin/told/{key}/{process}") for process in others]
        self._store.delete(f"burnin/told/{key}")
        return [mine, *map(json.loads, texts)]

    def _waited(self, key: str) -> str:
        assert self._store is not None
        text = self._store.get(key, _WAIT)
        if text is None:
            raise RequirementError(f"a process of the burn-in must answer within {_WAIT:.0f} s")
        return text


def main(words: Sequence[str]) -> None:
    """Run rounds until the time is over; the environment has the settings of the run."""
    if len(words) != 3:
        raise InvalidArgumentError(
            "usage: python -m pyreactant.check.burnin.member RECORD SECONDS SIZE, under pyreactant "
            "run"
        )
    initialize()
    running = current()
    if running.backend.name != "jax":
        raise RequirementError(
            f"a burn-in needs the runtime jax, got {running.backend.name}; choose --backend jax"
        )
    burn_in(running.backend, Path(words[0]), seconds=float(words[1]), size=int(words[2]) or None)


def burn_in(backend: AbstractBackend, path: Path, *, seconds: float, size: int | None) -> None:
    """Run rounds, turn after turn, and write the record. Collective."""
    meeting, work = Meeting(backend), Work(backend, size)
    rounds = rounds_of(backend.group.num_processes, backend.devices()[0].platform)
    members = meeting.told("member", member_of(backend).to_dict())
    now = time.time()
    record = Record(
        began=now,
        ended=now,
        asked=seconds,
        finished=False,
        runtime=backend.versions(),
        members=tuple(map(Member.from_dict, members)),
        rounds=tuple(dict.fromkeys(job.name for job in rounds)),
        ran={},
        measures=(),
        clocks=(),
    )
    book = _Book(record, path if meeting.first else None)
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
        told = meeting.told(str(number), [ahead, [measure.to_dict() for measure in measures]])
        book.enter(number % len(rounds), job, time.monotonic() - began, told)
        number += 1
    book.finish()


class _Book:
    """The record of process 0; the other processes have none."""

    def __init__(self, record: Record, path: Path | None) -> None:
        self._record, self._path = record, path
        self._measures: dict[tuple[Any, ...], Measure] = {}
        self._ahead: list[list[float]] = []
        self._last: dict[int, float] = {}  # seconds of each round, when it ran last
        self._began = time.monotonic()

    def has_time_for(self, number: int) -> bool:
        """Whether a round begins, and, if it is as long as last time, ends in time."""
        passed = time.monotonic() - self._began
        return passed + self._last.get(number, 0.0) < self._record.asked

    def enter(self, number: int, job: Round, seconds: float, told: Sequence[Any]) -> None:
        """Add what all processes told of a round, and write the record."""
        if self._path is None:
            return
        self._last[number] = seconds
        for _, measures in told:
            merged(self._measures, map(Measure.from_dict, measures))
        self._ahead.append([ahead for ahead, _ in told])
        ran = dict(self._record.ran)
        times, before = ran.get(job.name, (0, 0.0))
        ran[job.name] = (times + 1, before + seconds)
        self._record = replace(self._record, ran=ran, ended=time.time())
        self._write()

    def finish(self) -> None:
        """The time is over."""
        self._record = replace(self._record, finished=True)
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        middle = len(self._ahead) // 2
        parts = [self._ahead[:middle], self._ahead[middle:]]
        if middle < _ROUNDS_OF_A_CLOCK:
            parts = [self._ahead]
        clocks = [tuple(map(min, zip(*part, strict=True))) for part in parts]
        self._record = replace(
            self._record,
            measures=tuple(self._measures.values()),
            clocks=tuple(zip(*clocks, strict=True)),
        )
        write_json(self._record.to_dict(), self._path, indent=None)


def member_of(backend: AbstractBackend) -> Member:
    """This process and its machine."""
    mine = [d for d in backend.devices() if d.position in backend.local_positions]
    return Member(
        process=backend.group.process_index,
        host=socket.gethostname(),
        devices=tuple(
            {"position": d.position, "id": d.id, "kind": d.kind, "platform": d.platform}
            for d in mine
        ),
        processor=processor(),
        cores=usable_cores(),
        serials=gpu_serials(),
        facts=facts(),
    )


def processor(root: Path = ROOT) -> str:
    """Model of the processor, by which results of CPU devices can differ."""
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


if __name__ == "__main__":
    main(sys.argv[1:])
