"""What a burn-in measured, as plain data: process 0 writes it after each round, line by line."""

import json
import random
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...base.errors import FileError
from ..records.plain import Plain

SCHEMA = 1

KEPT = 16
"""Times that are kept of each round and device or group: a sample of all."""

_DRAW = random.Random(1)  # noqa: S311 - which times are kept is no secret
_NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Asked(Plain):
    """What a burn-in is asked to do.

    Attributes:
        seconds: How long to test.
        size: Side of the products; None for that of the platform.
        memory: Share of each device's free memory to test; None for that of the platform.
        mesh: A mesh of all devices, whose axes are tested one by one; "" for none.
    """

    seconds: float
    size: int | None = None
    memory: float | None = None
    mesh: str = ""


@dataclass(frozen=True, slots=True)
class Member(Plain):
    """A process of the burn-in, and its machine.

    Attributes:
        process: Its index.
        host: Name of the machine.
        devices: Position, kind, platform and the runtime's id of each of its devices, and who else
            uses it.
        processor: Model of the machine's processor.
        cores: Cores that the process may use.
        serials: Serial numbers (UUIDs) of the machine's GPUs.
        resources: NUMA nodes, free memory and free disk.
    """

    process: int
    host: str
    devices: tuple[Mapping[str, Any], ...]
    processor: str
    cores: int
    serials: tuple[str, ...]
    resources: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Measure(Plain):
    """What one process measured in a round, on a device alone or in a group of processes.

    Process 0 holds hundreds of thousands, so equal parts are held once, and times as numbers.

    Attributes:
        round: Name of the round.
        process: The process that measured.
        device: Position of the device; None for a group.
        group: The processes that took part; () for a device.
        checked: Number of results that were checked.
        wrong: Number of those that were wrong.
        where: What was wrong first.
        digests: How often results had which bits, where there is no reference.
        seconds: Times of single calls: all, or a sample of `KEPT`.
        timed: Number of calls that were timed.
        nbytes: Bytes that each call moved; 0 where it computed.
        sent: TCP segments that the process sent in the timed calls of a group.
        lost: Those of them that were lost.
        lossy: Number of timed calls in which some were.
    """

    round: str
    process: int
    device: int | None
    group: tuple[int, ...]
    checked: int = 0
    wrong: int = 0
    where: str = ""
    digests: Mapping[str, int] = field(default_factory=dict)
    seconds: Sequence[float] = ()
    timed: int = 0
    nbytes: int = 0
    sent: int = 0
    lost: int = 0
    lossy: int = 0

    def __post_init__(self) -> None:
        seconds = array("d", self.seconds)
        for name, value in (
            ("round", sys.intern(self.round)),
            ("digests", self.digests or _NOTHING),
            ("seconds", seconds),
            ("timed", max(self.timed, len(seconds))),
        ):
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; four digits of a time are enough."""
        seconds = [float(f"{time:.4g}") for time in self.seconds]
        return {**Plain.to_dict(self), "seconds": seconds}

    def told(self) -> dict[str, Any]:
        """Plain data for process 0, which knows the groups: thousands of copies would be large."""
        return {**self.to_dict(), "group": ()}

    @classmethod
    def heard(cls, data: Mapping[str, Any], group: tuple[int, ...]) -> "Measure":
        """What a process told, in a round in which it had this group."""
        measure = cls.from_dict(data)
        return measure if measure.device is not None else replace(measure, group=group)

    @property
    def key(self) -> tuple[Any, ...]:
        """What a later measure of the same is added to."""
        return self.round, self.device, self.group

    def with_later(self, later: "Measure") -> "Measure":
        """Both together; each time has the same chance to be kept (J. Vitter, TOMS 11, 1985)."""
        digests = dict(self.digests)
        for digest, count in later.digests.items():
            digests[digest] = digests.get(digest, 0) + count
        seconds = [*self.seconds]
        for number, time in enumerate(later.seconds, self.timed):
            if len(seconds) < KEPT:
                seconds.append(time)
            elif (place := _DRAW.randrange(number + 1)) < KEPT:
                seconds[place] = time
        return replace(
            later,
            checked=self.checked + later.checked,
            wrong=self.wrong + later.wrong,
            where=self.where or later.where,
            digests=digests,
            seconds=seconds,
            timed=self.timed + later.timed,
            sent=self.sent + later.sent,
            lost=self.lost + later.lost,
            lossy=self.lossy + later.lossy,
        )


@dataclass(frozen=True, slots=True)
class Record(Plain):
    """All that a burn-in measured so far.

    Attributes:
        schema: `SCHEMA` of the version that wrote it.
        began: Seconds since 1970, by the clock of process 0.
        ended: The same of the last round.
        asked: Seconds that were asked for.
        finished: Whether it ended by itself, when its time was over.
        runtime: Versions of the runtime, by name.
        members: The processes.
        rounds: Names of the rounds of one turn.
        ran: How often each round ran, and its seconds in all.
        measures: What was measured.
        clocks: For each process, how far its clock was ahead of process 0's by the quickest
            message; of a long burn-in in the first half, and in the second.
        quotes: What NVIDIA's own checker said on each host that has it.
    """

    began: float
    ended: float
    asked: float
    finished: bool
    runtime: Mapping[str, str]
    members: tuple[Member, ...]
    rounds: tuple[str, ...]
    ran: Mapping[str, tuple[float, ...]]
    measures: tuple[Measure, ...]
    clocks: tuple[tuple[float, ...], ...]
    quotes: tuple[Mapping[str, Any], ...] = ()
    schema: int = SCHEMA

    def lines(self) -> Iterator[str]:
        """Lines of JSON: all but the members and measures, then a line for each of these."""
        yield json.dumps(replace(self, members=(), measures=()).to_dict()) + "\n"
        for name, parts in (("member", self.members), ("measure", self.measures)):
            for part in parts:
                yield json.dumps({name: part.to_dict()}) + "\n"

    @classmethod
    def of_lines(cls, lines: Iterable[str]) -> "Record":
        """The record that has these lines.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: They are of none.
        """
        parsed = map(json.loads, lines)
        head = cls.from_dict(next(parsed, {}))
        members, measures = [], []
        for data in parsed:
            if "member" in data:
                members.append(Member.from_dict(data["member"]))
            else:
                measures.append(Measure.from_dict(data["measure"]))
        return replace(head, members=tuple(members), measures=tuple(measures))


def read_record(path: Path) -> Record:
    """The record in a file.

    Raises:
        FileError: It cannot be read, or is no record.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            return Record.of_lines(lines)
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise FileError(
            f"{path}: truncated or damaged, so not the record of a burn-in; run it again"
        ) from None


def merged(earlier: dict[tuple[Any, ...], Measure], later: Iterable[Measure]) -> None:
    """Add measures to those of before; those of a group, of all its processes, become one."""
    for measure in later:
        before = earlier.get(measure.key)
        earlier[measure.key] = measure if before is None else before.with_later(measure)
