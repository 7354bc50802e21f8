"""What a burn-in measured, as plain data: process 0 writes it after each round."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..records.plain import Plain

SCHEMA = 1

_KEPT, _LEAST_KEPT = 400, 24
"""Times that are kept of each round and device or group; then each second one."""

_IN_ALL = 25_600
"""Times that are kept of a round in all, if there are more processes than this over `_KEPT`."""


@dataclass(frozen=True, slots=True)
class Asked(Plain):
    """What a burn-in is asked to do.

    Attributes:
        seconds: How long to test.
        size: Side of the products; None for that of the platform.
        memory: Share of each device's free memory to test; None for that of the platform.
    """

    seconds: float
    size: int | None = None
    memory: float | None = None


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
        facts: Versions and settings.
        resources: NUMA nodes, free memory and free disk.
    """

    process: int
    host: str
    devices: tuple[Mapping[str, Any], ...]
    processor: str
    cores: int
    serials: tuple[str, ...]
    facts: Mapping[str, Any]
    resources: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Measure(Plain):
    """What one process measured in a round, on a device alone or in a group of processes.

    Attributes:
        round: Name of the round.
        process: The process that measured.
        device: Position of the device; None for a group.
        group: The processes that took part; only its own for a device.
        checked: Number of results that were checked.
        wrong: Number of those that were wrong.
        where: What was wrong first.
        digests: How often results had which bits, where there is no reference.
        seconds: Times of single calls.
        nbytes: Bytes that each call moved; 0 where it computed.
    """

    round: str
    process: int
    device: int | None
    group: tuple[int, ...]
    checked: int = 0
    wrong: int = 0
    where: str = ""
    digests: Mapping[str, int] = field(default_factory=dict)
    seconds: tuple[float, ...] = ()
    nbytes: int = 0

    def told(self) -> dict[str, Any]:
        """Plain data for process 0, which knows the groups: thousands of copies would be large."""
        return {**self.to_dict(), "group": ()}

    @classmethod
    def heard(cls, data: Mapping[str, Any], process: int, group: tuple[int, ...]) -> "Measure":
        """What a process told, in a round in which it had this group."""
        measure = cls.from_dict(data)
        return replace(measure, group=group if measure.device is None else (process,))

    @property
    def key(self) -> tuple[Any, ...]:
        """What a later measure of the same is added to."""
        return self.round, self.device, self.group

    def with_later(self, later: "Measure", kept: int) -> "Measure":
        """Both together, with so many times at most."""
        digests = dict(self.digests)
        for digest, count in later.digests.items():
            digests[digest] = digests.get(digest, 0) + count
        seconds = self.seconds + later.seconds
        return replace(
            later,
            checked=self.checked + later.checked,
            wrong=self.wrong + later.wrong,
            where=self.where or later.where,
            digests=digests,
            seconds=seconds if len(seconds) <= kept else seconds[::2],
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


def merged(
    earlier: dict[tuple[Any, ...], Measure], later: Iterable[Measure], processes: int = 1
) -> None:
    """Add measures to those of before; those of a group, of all its processes, become one."""
    kept = max(_LEAST_KEPT, min(_KEPT, _IN_ALL // processes))
    for measure in later:
        before = earlier.get(measure.key)
        earlier[measure.key] = measure if before is None else before.with_later(measure, kept)
