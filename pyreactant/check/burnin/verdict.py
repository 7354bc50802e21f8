"""What a burn-in found, by the numbers that it recorded and nothing else.

A wrong result of a device alone is the device's. A wrong result of a group is explained by a device
or process in it that is wrong by itself; else by the process that is in every wrong pair; else
by the link; a larger group is named only if nothing smaller in it is wrong.

Times are compared among equals. One is slow if its median is more than `FACTOR` times the middle of
all, and its quick calls, too, because load lengthens some calls and not all; an eighth may be
quicker, because a quota lets some pass. Its median must be
further from the middle than `RANKS` robust standard deviations of the medians: 1.4826 times the
median absolute deviation (F. Hampel, JASA 69, 1974). And its calls must be so late among those of
all that, if all were alike, this would happen to any of them in less than `CHANCE` of the cases,
however their times are distributed.
Together its calls must take longer than a burst of load, `BURST`.
"""

import bisect
import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from ...arrays.text import bytes_text, seconds_text
from ..records.plain import Plain
from .record import Measure, Member, Record
from .rounds import What

K = TypeVar("K")
T = TypeVar("T")

FACTOR = 2.0
RANKS = 6.0
CHANCE = 1e-5
BURST = 0.1
"""Seconds; at a load of 25 a process on two cores waits about so long for its turn."""
_ROBUST = 1.4826

_PAIRS = 3
"""Pairs that a comparison of links needs."""

_FEW = 4
"""Devices that are named as right, at most."""

LEAST_FREE = 2**28
"""Bytes of memory, and of the disk, that must be free."""

CLOCK = 1.0
"""Seconds that a clock may be ahead of the others, or behind."""
DRIFT = 0.25
"""Seconds that it may move against them within a burn-in."""


LOST, LEAST_LOSSY = 1 / 200, 3
"""Share of the segments that are lost, and calls with lost ones, from which on a link is lossy."""


class State(StrEnum):
    """What is known of a device, a host or a link."""

    PASSED = "passed"
    FAILED = "failed"
    SUSPICIOUS = "suspicious"
    UNTESTED = "not tested"


class Kind(StrEnum):
    """What a finding is about."""

    DEVICE = "device"
    PROCESS = "process"
    LINK = "link"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Finding(Plain):
    """What is known of one device, process, link or group.

    Attributes:
        kind: What it is.
        name: Such as "device 11 (host n3)".
        state: The verdict.
        reasons: Why, if it is not passed.
        processes: The processes that it belongs to.
        device: Position of the device; None for the others.
    """

    kind: Kind
    name: str
    state: State
    reasons: tuple[str, ...]
    processes: tuple[int, ...]
    device: int | None = None


def judge(record: Record) -> list[Finding]:
    """Everything that was tested, or should have been, with its state."""
    devices = _devices(record)
    failed = {f.processes[0] for f in devices if f.state is State.FAILED}
    guilty, groups, explained = _wrong_groups(record, failed)
    slow, links = _links(record)
    tested = {p for measure in record.measures for p in (measure.process, *measure.group)}
    ahead = _ahead(record)
    processes = [
        _process(member, guilty, slow, ahead, tested=member.process in tested)
        for member in record.members
    ]
    hosts = {member.process: member.host for member in record.members}
    pairs = [
        _link(hosts, pair, groups, explained, links) for pair in sorted({*links, *_pairs(record)})
    ]
    larger = [
        Finding(
            Kind.GROUP,
            f"processes {_listed(group)}",
            State.FAILED,
            (f"{wrong}, and nothing smaller in it is: one of these {len(group)}",),
            group,
        )
        for group, wrong in groups.items()
        if len(group) != 2
    ]
    return [*devices, *processes, *pairs, *larger]


def slow_ones(measures: Mapping[K, Measure]) -> dict[K, float]:
    """Those that are much slower than their equals, each with its median over the middle's.

    Args:
        measures: What was measured of each, of the same work.
    """
    times = {name: measure.seconds for name, measure in measures.items() if measure.seconds}
    medians = {name: statistics.median(each) for name, each in times.items()}
    if len(medians) < 2:
        return {}
    middle = statistics.median_low(medians.values())
    among = statistics.median_low(abs(value - middle) for value in medians.values())
    quick = statistics.median_low(_quick(times[name]) for name in medians)
    every = sorted(itertools.chain.from_iterable(times.values()))
    return {
        name: value / middle
        for name, value in medians.items()
        if value > FACTOR * middle
        and _quick(times[name]) > FACTOR * quick
        and value - middle > RANKS * _ROBUST * among
        and value * measures[name].timed > BURST
        and len(medians) * chance(times[name], every) < CHANCE
    }


def _median(measure: Measure) -> float:
    return statistics.median(measure.seconds)


def _quick(times: Sequence[float]) -> float:
    """The time that an eighth of the calls are quicker than."""
    return sorted(times)[len(times) // 8]


def chance(own: Sequence[float], every: Sequence[float]) -> float:
    """How likely one's calls are as late as they are among all, if they are like all.

    Then each choice of so many of all is as likely as another. This is the share of the choices of
    which no more than an eighth are among the calls that are quicker than its `_quick` one.
    """
    quicker = bisect.bisect_left(every, _quick(own))
    ways = (
        math.comb(quicker, few) * math.comb(len(every) - quicker, len(own) - few)
        for few in range(len(own) // 8 + 1)
    )
    return sum(ways) / math.comb(len(every), len(own))


def robust_deviation(times: Sequence[float]) -> float:
    """A standard deviation that single times do not move: of the median absolute deviation.

    Examples:
        >>> robust_deviation([1.0, 2.0, 3.0, 4.0, 90.0])
        1.4826
    """
    middle = statistics.median(times)
    return _ROBUST * statistics.median(abs(time - middle) for time in times)


def _devices(record: Record) -> list[Finding]:
    """The devices, by what they computed alone."""
    reasons: dict[int, list[tuple[State, str]]] = defaultdict(list)
    of_round: dict[str, dict[int, Measure]] = defaultdict(dict)
    for measure in record.measures:
        if measure.device is not None:
            of_round[measure.round][measure.device] = measure
    for by_device in of_round.values():
        for position, text in _wrong(by_device):
            reasons[position].append((State.FAILED, text))
    for device in (device for member in record.members for device in member.devices):
        if others := device.get("others"):
            shared = (State.SUSPICIOUS, f"in use by others: {others}")
            reasons[device["position"]].append(shared)
    kinds = _kinds_of_devices(record)
    for name, by_device in of_round.items():
        for equals in _alike(by_device, kinds.__getitem__):
            for position, found in _other_bits(equals):
                reasons[position].append(found)
            for position, ratio in slow_ones(equals).items():
                text = f"{name}: {ratio:.1f} times as long as on its equals"
                reasons[position].append((State.SUSPICIOUS, text))
    tested = {position for by_device in of_round.values() for position in by_device}
    return [
        Finding(
            Kind.DEVICE,
            _name(device["position"], member),
            _state(reasons[device["position"]], tested=device["position"] in tested),
            tuple(text for _, text in reasons[device["position"]]),
            (member.process,),
            device["position"],
        )
        for member in record.members
        for device in member.devices
    ]


def _wrong(by_device: Mapping[int, Measure]) -> Iterator[tuple[int, str]]:
    """Devices that computed a round wrongly, with a few that computed the same rightly."""
    right = itertools.islice((d for d, measure in by_device.items() if not measure.wrong), _FEW)
    few = ", ".join(map(str, right))
    for device, measure in by_device.items():
        if measure.wrong:
            beside = f"; the same inputs are right on {few}" if few else ""
            yield (
                device,
                f"{measure.round}: {measure.wrong} of {measure.checked} are wrong "
                f"({measure.where}){beside}",
            )


def _other_bits(equals: Mapping[int, Measure]) -> list[tuple[int, tuple[State, str]]]:
    """Devices of a kind whose bits are not those of the others, or change."""
    found: list[tuple[int, tuple[State, str]]] = []
    bits: dict[str, list[int]] = defaultdict(list)
    for device, measure in equals.items():
        if len(measure.digests) > 1:
            several = f"{measure.round}: {len(measure.digests)} different results of the same"
            found.append((device, (State.FAILED, several)))
        elif measure.digests:
            bits[next(iter(measure.digests))].append(device)
    most = max(bits.values(), key=len, default=[])
    for devices in bits.values():
        if devices is most or len(bits) < 2:
            continue
        clear = 2 * len(most) > sum(map(len, bits.values()))
        state = State.FAILED if clear else State.SUSPICIOUS
        text = "other bits than most devices of this kind have"
        if not clear:
            text = f"other bits than device {most[0]} has; no majority says which is right"
        found += [(device, (state, text)) for device in devices]
        if not clear:
            found += [(device, (state, "other bits than a device of its kind")) for device in most]
    return found


def _wrong_groups(
    record: Record, failed: set[int]
) -> tuple[dict[int, str], dict[tuple[int, ...], str], set[tuple[int, ...]]]:
    """Processes that make collective operations wrong, the wrong groups that are left, and others.

    Returns:
        Processes with the reason; groups that nothing smaller explains, with what is wrong; groups
        that something smaller explains.
    """
    counts: dict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0])
    for measure in record.measures:
        if measure.device is None:
            counts[measure.group][0] += measure.wrong
            counts[measure.group][1] += measure.checked
    wrong = {group for group, (bad, _) in counts.items() if bad}
    explained = {group for group in wrong if failed & set(group)}
    left = wrong - explained
    guilty = {}
    alone = {group for group in left if len(group) == 1}
    for (process,) in alone:
        guilty[process] = "collective operations among its own devices are wrong"
    right_in: dict[int, list[bool]] = defaultdict(list)
    for group in counts:
        for process in group if len(group) == 2 else ():
            right_in[process].append(group not in left)
    for process, right in sorted(right_in.items()):
        if len(right) > 1 and not any(right):
            guilty[process] = "collective operations with every other process are wrong"
    if len(guilty) == len(record.members) > 1:
        guilty = {}  # all with all: nobody stands out
    explained |= {group for group in left if guilty.keys() & set(group)}
    groups: dict[tuple[int, ...], str] = {}
    named: dict[int, list[tuple[int, ...]]] = defaultdict(list)  # those that a process is in
    for group in sorted(left - explained, key=lambda group: (len(group), group)):
        here = Counter(smaller for process in group for smaller in named[process])
        if any(times == len(smaller) for smaller, times in here.items()):
            explained.add(group)
            continue
        bad, checked = counts[group]
        groups[group] = f"{bad} of {checked} results of collective operations are wrong"
        for process in group:
            named[process].append(group)
    return guilty, groups, explained


def _slow_hosts(record: Record) -> dict[int, str]:
    """Processes whose host computes slowly, among those of the same processor."""
    processors = {member.process: member.processor for member in record.members}
    of_host = {m.process: m for m in record.measures if m.round == What.HOST}
    return {
        process: f"{What.HOST}: {ratio:.1f} times as long as on its equals"
        for equals in _alike(of_host, processors.__getitem__)
        for process, ratio in slow_ones(equals).items()
    }


def _links(
    record: Record,
) -> tuple[dict[int, str], dict[tuple[int, ...], list[str]]]:
    """Slow or lossy processes and links.

    A process is slow if its host is, or even its best link; the others are compared without its
    links. Hosts of one kind are equals, and so are links between the same kinds.
    """
    slow = _slow_hosts(record)
    kinds = _kinds_of_processes(record)
    links: dict[tuple[int, ...], list[str]] = defaultdict(list)
    pairs = [m for m in record.measures if m.device is None and m.seconds and len(m.group) == 2]
    for name in sorted({m.round for m in pairs}):
        times = {m.group: m for m in pairs if m.round == name}
        nbytes = max(m.nbytes for m in pairs if m.round == name)
        if len(times) < _PAIRS:
            continue  # each process would stand for its one link
        several = Counter(process for pair in times for process in pair)
        best: dict[int, Measure] = {}
        for pair, each in times.items():
            for process in (p for p in pair if several[p] > 1):
                best[process] = min(best.get(process, each), each, key=_median)
        for equals in _alike(best, kinds.__getitem__):
            for process, ratio in slow_ones(equals).items():
                said = f"{name}: {ratio:.1f} times as long with every other process"
                slow.setdefault(process, said)
        rest = {pair: each for pair, each in times.items() if not slow.keys() & set(pair)}
        for same in _alike(rest, lambda pair: frozenset(kinds[p] for p in pair)):
            for pair, ratio in slow_ones(same).items() if len(same) >= _PAIRS else ():
                middle = _median(same[pair])
                links[pair].append(
                    f"{name}: {seconds_text(middle)} ({bytes_text(nbytes / middle)}/s), "
                    f"{ratio:.1f} times the middle of {len(same)} pairs"
                )
    lossy = _lossy(record)
    own = Counter(process for pair in {m.group for m in pairs} for process in pair)
    bad = Counter(process for pair in lossy for process in pair)
    for process, count in bad.items():
        if count == own[process] > 1:
            slow.setdefault(process, "TCP segments to every other process were lost")
    for pair, text in lossy.items():
        if not slow.keys() & set(pair):
            links[pair].append(text)
    return slow, links


def _lossy(record: Record) -> dict[tuple[int, ...], str]:
    """Links that lose segments again and again."""
    return {
        m.group: f"{m.round}: {m.lost / m.sent:.1%} of the TCP segments were lost, in {m.lossy} of "
        f"{m.timed} calls"
        for m in record.measures
        if len(m.group) == 2 and m.lossy >= LEAST_LOSSY and m.lost > LOST * m.sent
    }


def _process(
    member: Member,
    guilty: Mapping[int, str],
    slow: Mapping[int, str],
    ahead: Mapping[int, tuple[float, float]],
    *,
    tested: bool,
) -> Finding:
    reasons: list[tuple[State, str]] = [
        (State.SUSPICIOUS, f"{name}: only {bytes_text(free)}")
        for name, free in member.resources.items()
        if name.startswith("free") and free < LEAST_FREE
    ]
    if member.process in guilty:
        reasons.append((State.FAILED, guilty[member.process]))
    if member.process in slow:
        reasons.append((State.SUSPICIOUS, slow[member.process]))
    if member.process in ahead:
        offset, drift = ahead[member.process]
        if abs(offset) > CLOCK:
            away = f"its clock is {abs(offset):.1f} s {'ahead' if offset > 0 else 'behind'}"
            reasons.append((State.SUSPICIOUS, away))
        elif abs(drift) > DRIFT:
            reasons.append((State.SUSPICIOUS, f"its clock moved by {drift:.2f} s"))
    return Finding(
        Kind.PROCESS,
        f"process {member.process} (host {member.host})",
        _state(reasons, tested=tested),
        tuple(text for _, text in reasons),
        (member.process,),
    )


def _ahead(record: Record) -> dict[int, tuple[float, float]]:
    """How far each clock is ahead of the middle one, and how far it moved against it."""
    if len(record.clocks) < 2:
        return {}
    halves = list(zip(*record.clocks, strict=True))
    middles = [statistics.median_low(half) for half in halves]
    offsets = [[a - m for a, m in zip(each, middles, strict=True)] for each in record.clocks]
    return {
        process: (min(each, key=abs), each[-1] - each[0] if len(each) > 1 else 0.0)
        for process, each in enumerate(offsets)
    }


def _link(
    hosts: Mapping[int, str],
    pair: tuple[int, ...],
    groups: Mapping[tuple[int, ...], str],
    explained: set[tuple[int, ...]],
    links: Mapping[tuple[int, ...], list[str]],
) -> Finding:
    first, second = (f"process {process} (host {hosts[process]})" for process in pair)
    if pair in explained:
        state, reasons = State.UNTESTED, ["wrong, which one of its ends explains"]
    elif pair in groups:
        state, reasons = State.FAILED, [groups[pair]]
    else:
        reasons = links.get(pair, [])
        state = State.SUSPICIOUS if reasons else State.PASSED
    return Finding(Kind.LINK, f"{first} - {second}", state, tuple(reasons), pair)


def _listed(group: Sequence[int]) -> str:
    return ", ".join(map(str, group)) if len(group) <= 8 else f"{group[0]} to {group[-1]}"


def _pairs(record: Record) -> set[tuple[int, ...]]:
    return {m.group for m in record.measures if m.device is None and len(m.group) == 2}


def _state(reasons: Sequence[tuple[State, str]], *, tested: bool) -> State:
    states = [state for state, _ in reasons]
    if State.FAILED in states:
        return State.FAILED
    if State.SUSPICIOUS in states:
        return State.SUSPICIOUS
    return State.PASSED if tested else State.UNTESTED


def _name(position: int, member: Member) -> str:
    return f"device {position} (process {member.process}, host {member.host})"


def _alike(values: Mapping[K, T], kind: Callable[[K], Any]) -> Iterable[dict[K, T]]:
    """The values of each kind."""
    alike: dict[Any, dict[K, T]] = defaultdict(dict)
    for name, value in values.items():
        alike[kind(name)][name] = value
    return alike.values()


def _kinds_of_processes(record: Record) -> dict[int, tuple[str, ...]]:
    """The kind of each process: the processor of its host, and its devices."""
    return {
        member.process: (member.processor, *sorted({d["kind"] for d in member.devices}))
        for member in record.members
    }


def _kinds_of_devices(record: Record) -> dict[int, tuple[str, ...]]:
    """The kind of each device; results and times of a kind should be alike."""
    return {
        device["position"]: (
            device["platform"],
            device["kind"],
            member.processor if device["platform"] == "cpu" else "",
        )
        for member in record.members
        for device in member.devices
    }
