"""The verdict of a burn-in: a function of recorded numbers, which names what stands out."""

import itertools
import json
import math
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.base.errors import FileError
from pyreactant.base.files import write_text
from pyreactant.check.burnin.member import Book
from pyreactant.check.burnin.record import KEPT, Measure, Record, merged, read_record
from pyreactant.check.burnin.rounds import (
    COLLECTIVES,
    Round,
    What,
    along,
    halves,
    pairings,
    rounds_of,
)
from pyreactant.check.burnin.verdict import Finding, Kind, State, chance, judge, slow_ones

from .records import alone, member, pair, record

PAIRS = tuple(itertools.combinations(range(4), 2))


def devices() -> list[Measure]:
    return [alone(device) for device in range(4)]


def odd(of: Record) -> dict[str, Finding]:
    """What is not passed, by name."""
    return {f.name: f for f in judge(of) if f.state is not State.PASSED}


def links(slow: dict[tuple[int, ...], float], **more: int) -> Iterator[Measure]:
    for group in PAIRS:
        yield from pair(group, slow.get(group, 0.002), **more)


def test_all_that_is_right_passes() -> None:
    findings = judge(record([*devices(), *links({})], clocks=[(0, 0), (0.01, 0.002)] * 2))
    assert {finding.state for finding in findings} == {State.PASSED}
    kinds = [finding.kind for finding in findings]
    assert [kinds.count(k) for k in (Kind.DEVICE, Kind.PROCESS, Kind.LINK)] == [4, 4, 6]


def test_a_wrong_device_is_named_with_those_that_are_right() -> None:
    wrong = alone(2, wrong=4, where="3 rows, the first is 17")
    found = odd(record([*devices()[:2], wrong, devices()[3]]))
    assert list(found) == ["device 2 (process 2, host n2)"]
    assert found["device 2 (process 2, host n2)"].state is State.FAILED
    assert found["device 2 (process 2, host n2)"].reasons == (
        "products of float32: 4 of 100 are wrong (3 rows, the first is 17); the same inputs are "
        "right on 0, 1, 3",
    )


def test_bits_that_differ_are_the_minority_s() -> None:
    bits = [alone(d, "chains", digests={"a" if d != 3 else "b": 5}) for d in range(4)]
    found = odd(record(bits))
    assert [(f.name, f.state) for f in found.values()] == [
        ("device 3 (process 3, host n3)", State.FAILED)
    ]
    two = odd(record(bits[2:], processes=4))
    states = {f.device: f.state for f in two.values() if f.kind is Kind.DEVICE}
    assert states == dict.fromkeys((0, 1), State.UNTESTED) | dict.fromkeys((2, 3), State.SUSPICIOUS)
    changing = alone(1, "chains", digests={"a": 4, "c": 1})
    assert odd(record([bits[0], changing, bits[2]], processes=3)).popitem()[1].state is State.FAILED


def test_kinds_are_compared_within_themselves() -> None:
    base = record([alone(d, "chains", digests={"ab"[d % 2]: 5}) for d in range(4)])
    members = [
        member if p % 2 else type(member).from_dict(
            member.to_dict() | {"devices": [{**member.devices[0], "kind": "A100"}]}
        )
        for p, member in enumerate(base.members)
    ]  # fmt: skip
    assert odd(record(base.measures, members=tuple(members))) == {}


def slow(times: dict[int, list[float]]) -> list[int]:
    """Who is slow, by these times."""
    return [*slow_ones({d: alone(d, seconds=each) for d, each in times.items()})]


def spells(seconds: dict[int, float]) -> Iterator[Measure]:
    for process in range(4):
        times = (seconds.get(process, 0.03),) * 16
        yield Measure(str(What.HOST), process, None, (process,), seconds=times)


def test_a_slow_host_is_suspicious_and_its_links_are_not() -> None:
    slow = {group: 0.02 for group in PAIRS if 2 in group}
    found = odd(record([*devices(), *spells({2: 0.3}), *links(slow)]))
    assert {name: f.reasons for name, f in found.items()} == {
        "process 2 (host n2)": ("arithmetic on the host: 10.0 times as long as on its equals",)
    }


def test_hosts_of_two_kinds_and_their_links_are_compared_within_a_kind() -> None:
    """Hosts 4 and 5 have other GPUs and another processor, and all of theirs takes longer."""
    base = [member(p, [p]) for p in range(6)]
    other = [
        type(m).from_dict(
            m.to_dict() | {"processor": "Xeon", "devices": [{**m.devices[0], "kind": "A100"}]}
        )
        for m in base[4:]
    ]
    measures = [alone(p, seconds=(0.01 if p < 4 else 0.05,) * 20) for p in range(6)]
    for p in range(6):
        times = (0.03 if p < 4 else 0.3,) * 16
        measures.append(Measure(str(What.HOST), p, None, (p,), seconds=times))
    for group in itertools.combinations(range(6), 2):
        measures += pair(group, 0.002 if group[1] < 4 else 0.03)
    assert odd(record(measures, members=(*base[:4], *other))) == {}
    measures[1] = alone(1, seconds=(0.05,) * 20)
    assert list(odd(record(measures, members=(*base[:4], *other)))) == [
        "device 1 (process 1, host n1)"
    ]


def test_a_slow_device_is_suspicious() -> None:
    slow = alone(1, seconds=(0.05,) * 20)
    (found,) = odd(record([devices()[0], slow, *devices()[2:]])).values()
    assert (found.device, found.state) == (1, State.SUSPICIOUS)
    assert found.reasons == ("products of float32: 5.0 times as long as on its equals",)


@pytest.mark.parametrize("kind", ["noisy", "few", "unlucky", "loaded", "burst", "near"])
def test_times_that_say_little_raise_no_alarm(kind: str) -> None:
    draw = random.Random(3)
    times = {d: [0.01 * draw.lognormvariate(0, 1.5) for _ in range(9)] for d in range(8)}
    if kind == "few":
        times = {0: [0.01] * 7, 1: [0.5] * 7}
    if kind == "unlucky":  # a few of the calls of all are slow, and those of one are all so
        times = {d: [0.01] * 4 + [0.05] * (4 if d else 12) for d in range(4)}
    if kind == "loaded":  # one had less of a processor for a while
        times = {d: [0.017 + 0.001 * n for n in range(16)] for d in range(4)}
        times[0] = [0.023 + 0.006 * n for n in range(16)]
    if kind == "burst":  # a load came just when one had its turn, which was short
        times = {d: [0.003 if d == 2 else 0.0003] * 16 for d in range(4)}
    if kind == "near":
        times = {d: [0.01 + 0.0015 * d] * 20 for d in range(6)}
    assert slow(times) == []


def test_a_slow_one_may_have_a_few_quick_calls() -> None:
    """As a host with a quota of its processor, of which some calls use nothing."""
    times = {d: [0.0005 + 0.00001 * n for n in range(16)] for d in range(4)}
    times[2] = [0.0006, 0.0008, *(0.038 + 0.001 * n for n in range(14))]
    assert slow(times) == [2]
    times[2] = [0.0006, 0.0007, 0.0008, *(0.038 + 0.001 * n for n in range(13))]
    assert slow(times) == []


def test_the_chance_is_that_of_times_that_are_alike() -> None:
    """By drawing: in so many cases all of one's times are as late."""
    draw, late, cases = random.Random(7), 0, 4000
    every = [float(number) for number in range(12)]
    for _ in range(cases):
        own = draw.sample(every, 3)
        late += min(own) >= 5
    assert chance([5.0, 9.0, 11.0], every) == math.comb(7, 3) / math.comb(12, 3)
    assert late / cases == pytest.approx(chance([5.0, 9.0, 11.0], every), abs=0.03)


def test_one_slow_link_is_told_from_one_slow_process() -> None:
    found = odd(record([*devices(), *links({(1, 3): 0.02})]))
    assert list(found) == ["process 1 (host n1) - process 3 (host n3)"]
    assert found.popitem()[1].reasons == (
        "all-reduce of 1 MiB: 20 ms (50 MiB/s), 10.0 times the middle of 6 pairs",
    )
    slow = {group: 0.02 for group in PAIRS if 2 in group}
    found = odd(record([*devices(), *links(slow)]))
    assert list(found) == ["process 2 (host n2)"]
    assert found["process 2 (host n2)"].state is State.SUSPICIOUS


def test_one_lossy_link_is_told_from_one_lossy_process() -> None:
    def lossy(*bad: tuple[int, ...], calls: int = 6, lost: int = 40) -> list[Measure]:
        one = {"sent": 2000, "lost": 1, "lossy": 1}
        many = {"sent": 2000, "lost": lost, "lossy": calls}
        both = [m for g in PAIRS for m in pair(g, **(many if g in bad else one))]
        together: dict[tuple[object, ...], Measure] = {}
        merged(together, both)
        return [*together.values()]

    found = odd(record([*devices(), *lossy((1, 3))]))
    assert list(found) == ["process 1 (host n1) - process 3 (host n3)"]
    assert found.popitem()[1].reasons == (
        "all-reduce of 1 MiB: 2.0% of the TCP segments were lost, in 12 of 24 calls",
    )
    everywhere = [group for group in PAIRS if 2 in group]
    found = odd(record([*devices(), *lossy(*everywhere)]))
    assert {name: f.reasons for name, f in found.items()} == {
        "process 2 (host n2)": ("TCP segments to every other process were lost",)
    }
    assert odd(record([*devices(), *lossy(*PAIRS, lost=10)])) == {}  # few segments
    assert odd(record([*devices(), *lossy(*PAIRS, calls=1)])) == {}  # one burst at each end
    two = odd(record([*devices()[:2], *pair((0, 1), sent=200, lost=2, lossy=3)], processes=2))
    assert [f.kind for f in two.values()] == [Kind.LINK]


def test_wrong_collectives_are_the_link_s_or_the_process_s() -> None:
    def wrong(*bad: tuple[int, ...]) -> list[Measure]:
        return [m for g in PAIRS for m in pair(g, wrong=3 if g in bad else 0)]

    found = odd(record([*devices(), *wrong((0, 1))]))
    assert [(f.kind, f.state) for f in found.values()] == [(Kind.LINK, State.FAILED)]
    everywhere = [group for group in PAIRS if 3 in group]
    found = odd(record([*devices(), *wrong(*everywhere)]))
    states = [(f.kind, f.state, f.processes) for f in found.values()]
    assert states[0] == (Kind.PROCESS, State.FAILED, (3,))
    assert {(kind, state) for kind, state, _ in states[1:]} == {(Kind.LINK, State.UNTESTED)}
    # A device that is wrong alone explains the wrong results of its groups.
    found = odd(record([*devices()[:3], alone(3, wrong=1), *wrong(*everywhere)]))
    assert [f.name for f in found.values() if f.state is State.FAILED] == [
        "device 3 (process 3, host n3)"
    ]


def test_a_group_is_named_only_if_nothing_in_it_is_wrong() -> None:
    whole = [*pair((0, 1, 2, 3), wrong=2)]
    found = odd(record([*devices(), *links({}), *whole]))
    assert list(found) == ["processes 0, 1, 2, 3"]
    assert "one of these 4" in found["processes 0, 1, 2, 3"].reasons[0]
    found = odd(record([*devices(), *pair((0, 1), wrong=1), *whole]))
    assert list(found) == ["process 0 (host n0) - process 1 (host n1)"]


def test_clocks() -> None:
    ahead = record(devices(), clocks=[(0, 0), (0.01, 0.02), (-7.5, -7.4), (0.0, 0.5)])
    reasons = {f.processes[0]: f.reasons for f in odd(ahead).values()}
    assert reasons == {2: ("its clock is 7.4 s behind",), 3: ("its clock moved by 0.50 s",)}


def test_what_did_not_run_is_not_tested() -> None:
    found = odd(record(devices()[:3]))
    assert {f.state for f in found.values()} == {State.UNTESTED}
    assert [f.kind for f in found.values()] == [Kind.DEVICE, Kind.PROCESS]


def calls(run: Callable[[], object]) -> int:
    """How many functions are called, those of C too."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


class Passes(tuple[Measure, ...]):
    """Measures that count how often somebody goes through all of them."""

    passes = 0

    def __iter__(self) -> Iterator[Measure]:
        self.passes += 1
        return super().__iter__()


BAD: tuple[dict[str, int], ...] = ({}, {"wrong": 1, "sent": 99, "lost": 9, "lossy": 9})
HALF_WRONG: dict[str, Callable[[int], list[Measure]]] = {
    "devices": lambda n: [alone(d, wrong=d % 2, seconds=()) for d in range(n)],
    "links": lambda n: [
        measure
        for groups in (*pairings(n // 4), *halves(n // 4))
        for number, group in enumerate(groups)
        for measure in (*pair(group, seconds=0.01, wrong=number % 2, lossy=9 * (number % 2)),)[:1]
    ],
}


@pytest.mark.parametrize("of", HALF_WRONG)
def test_the_verdict_over_thousands_that_fail_is_linear(of: str) -> None:
    """By the calls for each measure of 4096 hosts (1024 in pairs) and of 256, and the passes."""

    def of_each(hosts: int) -> float:
        measures = Passes(HALF_WRONG[of](hosts))
        whole = replace(record((), processes=hosts), measures=measures)
        called = calls(lambda: judge(whole))
        assert measures.passes < 20
        return called / len(measures)

    assert of_each(4096) < 1.5 * of_each(256)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 16, 17, 64, 100, 4096])
def test_rounds(count: int) -> None:
    for groups in (*pairings(count), *halves(count)) if count > 1 else halves(count):
        members = [process for group in groups for process in group]
        assert len(set(members)) == len(members) <= count
    if count > 1:
        met = {frozenset(group) for groups in pairings(count) for group in groups}
        assert set().union(*met) == set(range(count))
        if count <= 16:
            assert len(met) == count * (count - 1) // 2
    # The number of rounds grows with the logarithm.
    assert len(rounds_of(count, "cpu")) < 90
    collective = [r for r in rounds_of(count, "gpu", 2) if r.groups]
    assert {r.what for r in collective} == {*COLLECTIVES}
    for each in collective:  # no host computes more than 256 MiB for a round
        assert 4 <= each.nbytes * 2 * max(map(len, each.groups)) <= 2**28 or each.nbytes == 4
    sizes = [r.nbytes for r in rounds_of(1, "gpu") if r.what is What.ALL_REDUCE]
    assert (sizes[0], sizes[-1]) == (2**12, 2**28)


def test_rounds_along_the_axes_of_a_mesh() -> None:
    """Four processes of two devices each."""
    mesh, homes = pr.Mesh((2, 4), ("data", "model")), [0, 0, 1, 1, 2, 2, 3, 3]
    rounds = [r for r in rounds_of(4, "cpu", 2, mesh=mesh, homes=homes) if r.mesh]
    assert {(r.name, r.groups) for r in rounds} == {
        (f"{what} of {size} along axis {axis}", groups)
        for what in ("all-reduce", "all-gather")
        for size in ("4 KiB", "4 MiB")
        for axis, groups in (("data", ((0, 2), (1, 3))), ("model", ((0, 1), (2, 3))))
    }
    assert along((4, 2), 0, homes) == ((0, 1, 2, 3),)
    assert along((8, 1), 1, homes) == ((0,), (1,), (2,), (3,))
    assert along((2, 3), 1, [0, 0, 1, 1, 2, 2]) == ((0, 1, 2),)
    many = along((64, 256), 1, [device // 4 for device in range(2**14)])
    assert many[0] == tuple(range(64))
    assert len(many) == 64


def test_a_slow_pair_along_an_axis_is_a_link_and_no_process() -> None:
    """Each process is in one such pair only."""
    slow = [m for g in ((0, 1), (2, 3), (4, 5)) for m in pair(g, 0.02 if g == (2, 3) else 0.002)]
    found = odd(record([*(alone(d) for d in range(6)), *slow], processes=6))
    assert list(found) == ["process 2 (host n2) - process 3 (host n3)"]


def test_memory_is_a_round_where_it_is_asked_for() -> None:
    def rounds(platform: str, share: float | None) -> set[What]:
        return {each.what for each in rounds_of(1, platform, memory=share)}

    for platform, share, tested in (
        ("cpu", None, False),
        ("cpu", 0.1, True),
        ("gpu", None, True),
        ("gpu", 0.0, False),
    ):
        assert (What.MEMORY in rounds(platform, share)) is tested


def test_measures_of_the_same_are_added_and_stay_few() -> None:
    kept: dict[tuple[object, ...], Measure] = {}
    for turn in range(2000):
        odd_one = {"wrong": int(turn == 7), "where": "x" * (turn == 7)}
        merged(kept, [alone(1, digests={"a": 1}, seconds=(0.01,) * 4, **odd_one)])
    (measure,) = kept.values()
    assert (measure.checked, measure.wrong, measure.where) == (200_000, 1, "x")
    assert measure.digests == {"a": 2000}
    assert (len(measure.seconds), measure.timed) == (KEPT, 8000)
    assert Measure.from_dict(measure.to_dict()) == measure


def test_process_0_knows_the_groups_that_others_do_not_tell() -> None:
    """What three processes tell of a round of pairs becomes one measure for each pair."""
    empty = record((), processes=3)
    book = Book(empty, None)
    job = Round(What.ALL_REDUCE, nbytes=64, groups=((0, 2),), pairs=True)
    told = [[0.5 * p, [m.told() for m in pair((0, 2)) if m.process == p]] for p in range(3)]
    for _ in range(2):
        book.enter(0, job, 1.0, json.loads(json.dumps(told)))
    alone_ = [[0.0, [alone(p, wrong=p).told()]] for p in range(3)]
    book.enter(1, Round(What.CHAINS), 1.0, json.loads(json.dumps(alone_)))
    whole = book.finish()
    assert whole.finished
    both, *single = whole.measures
    assert (both.group, both.checked, both.timed) == ((0, 2), 40, 48)
    assert [(m.device, m.group, m.wrong) for m in single] == [(p, (), p) for p in range(3)]
    assert whole.clocks == ((0.0,), (0.0,), (0.0,))
    assert {name: times for name, (times, _) in whole.ran.items()} == {job.name: 2, "chains": 1}


def test_times_of_the_whole_burn_in_are_kept() -> None:
    kept: dict[tuple[object, ...], Measure] = {}
    for turn in range(400):
        merged(kept, [alone(1, seconds=(float(turn),) * 4)])
    (measure,) = kept.values()
    assert min(measure.seconds) < 200 < max(measure.seconds)


def test_memory_of_process_0(tmp_path: Path) -> None:
    """By what Python allocates for each host of 4 devices, when all times were kept that are."""
    hosts = 32
    members = tuple(member(p, range(4 * p, 4 * p + 4)) for p in range(hosts))
    numbers: dict[str, Any] = {"checked": 5, "seconds": (0.01,) * 4}

    def told(job: Round, process: int) -> str:
        devices = [None] if job.groups else range(4 * process, 4 * process + 4)
        measures = [Measure(job.name, process, d, (), **numbers).told() for d in devices]
        return json.dumps([0.0, measures])

    rounds = rounds_of(hosts, "gpu", 4)
    texts = [[told(job, p) for p in range(hosts)] for job in rounds]
    book = Book(record((), members=members), tmp_path / "record.jsonl")
    tracemalloc.start()
    try:
        for _ in range(5):
            for number, job in enumerate(rounds):
                book.enter(number, job, 1.0, map(json.loads, texts[number]))
        book.finish()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak / hosts < 28 * 2**10


def test_a_record_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    bits = alone(1, "chains", digests={"a": 5}, seconds=())
    whole = record([alone(0), bits, *pair((0, 1))], clocks=[(0, 0.5)] * 4)
    write_text(whole.lines(), path)
    assert len(path.read_text().splitlines()) == 1 + 4 + 4
    assert read_record(path) == whole
    for text in ("", "{}", "[]", path.read_text()[:-9], path.read_text() + '{"other": 1}\n'):
        path.write_text(text)
        with pytest.raises(FileError, match=r"record\.jsonl: truncated or damaged, so not the rec"):
            read_record(path)
    with pytest.raises(FileError, match=r"absent: cannot be read \(No such file"):
        read_record(tmp_path / "absent")


def test_clocks_of_a_long_burn_in_are_kept_in_few_numbers() -> None:
    book = Book(record((), processes=2), None)
    for turn in range(1000):
        late = 0.001 * (turn % 7) + (0.0 if turn < 500 else 0.4)
        book.enter(0, Round(What.CHAINS), 0.1, [[0.0, []], [late, []]])
    first, second = book.finish().clocks[1]
    assert first == 0.0
    assert second == pytest.approx(0.4)
