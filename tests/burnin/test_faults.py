"""The rounds on real devices, with faults put into what they compute; and what is named."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.runtime import current
from pyreactant.check.burnin.member import member_of
from pyreactant.check.burnin.record import Measure, merged
from pyreactant.check.burnin.rounds import ALONG_AXES, COLLECTIVES, Round, What, rounds_of
from pyreactant.check.burnin.verdict import Finding, Kind, State, judge
from pyreactant.check.burnin.work import Work
from pyreactant.fit.hlo.parse import collectives

from . import hook
from .hook import Fault
from .records import record

pytestmark = pytest.mark.slow

PRODUCTS = [Round(What.PRODUCTS, dtype="float32")]


@pytest.fixture(scope="module")
def work(backend: str) -> Iterator[Work]:
    """The rounds of this process, whose programs have the hook."""
    if backend != "jax":
        pytest.skip("a burn-in needs the runtime jax")
    remove = hook.install()
    yield Work(current().backend, size=48)
    remove()


@pytest.fixture(autouse=True)
def right_again() -> Iterator[None]:
    yield
    hook.set_fault(None)


def found(work: Work, rounds: list[Round], turns: int = 3) -> list[Finding]:
    """The findings after some turns of rounds."""
    measures: dict[Any, Measure] = {}
    for turn in range(turns):
        for job in rounds:
            merged(measures, work.run(job, turn))
    listed = measures.values()
    return judge(record(listed, members=(member_of(current().backend, work.gpus),)))


def odd(findings: list[Finding]) -> dict[int | None, Finding]:
    return {f.device: f for f in findings if f.state is not State.PASSED}


def test_right_devices_pass_every_round(work: Work) -> None:
    small = [replace(job, nbytes=min(job.nbytes, 4096)) for job in rounds_of(1, "cpu")]
    findings = found(work, small, turns=2)
    assert [f.name for f in findings if f.state is State.FAILED] == []
    devices = [f for f in findings if f.kind is Kind.DEVICE]
    assert len(devices) == 8


@pytest.mark.parametrize(
    "fault",
    [
        Fault("flip", device=5),
        Fault("flip", device=2, every=7),
        Fault("nan", device=7, every=4),
        Fault("column", device=0, every=6),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.every}",
)
def test_a_device_that_computes_wrongly_is_named(work: Work, fault: Fault) -> None:
    hook.set_fault(fault)
    wrong = odd(found(work, PRODUCTS))
    failed = [device for device, f in wrong.items() if f.state is State.FAILED]
    assert failed == [fault.device]
    (reason,) = [r for r in wrong[fault.device].reasons if "are wrong" in r]
    assert "products of float32: " in reason
    assert "the same inputs are right on " in reason


def test_one_result_in_many_is_seen(work: Work) -> None:
    hook.set_fault(Fault("flip", device=3, after=33, every=1000))
    assert odd(found(work, PRODUCTS, turns=1)) == {}
    hook.set_fault(Fault("flip", device=3, after=18, every=1))
    (finding,) = odd(found(work, PRODUCTS, turns=1)).values()
    assert finding.reasons[0].startswith("products of float32: 1 of 17 are wrong (other bits than")


def test_floats_without_a_reference_are_compared_with_other_devices(work: Work) -> None:
    hook.set_fault(Fault("flip", device=4))
    (finding,) = odd(found(work, [Round(What.CHAINS)], turns=1)).values()
    assert (finding.device, finding.state) == (4, State.FAILED)
    assert finding.reasons == ("other bits than most devices of this kind have",)


@pytest.mark.parametrize("what", COLLECTIVES)
def test_a_wrong_collective_is_seen(work: Work, what: What) -> None:
    ndim = 1 if what in (What.ALL_REDUCE, What.REDUCE_SCATTER) else 2
    hook.set_fault(Fault("flip", device=1, dtype="int32", ndim=ndim, every=2))
    job = Round(what, nbytes=4096, groups=((0,),))
    (finding,) = (f for f in found(work, [job], turns=1) if f.state is State.FAILED)
    assert finding.kind is Kind.PROCESS
    assert "among its own devices" in finding.reasons[0]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("what", ALONG_AXES)
def test_a_wrong_collective_along_an_axis_is_seen(work: Work, what: What, axis: int) -> None:
    mesh = pr.Mesh((2, 4), ("data", "model"))
    job = Round(what, nbytes=4096, groups=((0,),), mesh=mesh, axis=axis)
    assert [f.name for f in found(work, [job], turns=1) if f.state is State.FAILED] == []
    hook.set_fault(Fault("flip", device=6, dtype="int32", ndim=2 if what == "all-reduce" else 3))
    (finding,) = (f for f in found(work, [job], turns=1) if f.state is State.FAILED)
    assert finding.name.startswith("process 0 ")


AXES = (((0, 4), (1, 5), (2, 6), (3, 7)), ((0, 1, 2, 3), (4, 5, 6, 7)))
"""Devices along each axis of a mesh of 2 x 4."""


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("what", ALONG_AXES)
def test_only_devices_along_an_axis_meet(
    work: Work, what: What, axis: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Round(what, nbytes=4096, groups=((0,),), mesh=pr.Mesh((2, 4), ("a", "b")), axis=axis)
    made = collectives(compiled(job, monkeypatch), 8)
    assert {(each.op, each.groups) for each in made} == {(what, AXES[axis])}


@pytest.mark.parametrize("what", COLLECTIVES)
def test_collectives_are_what_xla_calls_so(
    work: Work, what: What, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = compiled(Round(what, nbytes=4096, groups=((0,),)), monkeypatch)
    operation = "collective-permute" if what is What.PERMUTE else str(what)
    assert f" {operation}(" in text or f" {operation}-start(" in text


def compiled(job: Round, monkeypatch: pytest.MonkeyPatch) -> str:
    """The HLO of a round's one program."""
    backend = current().backend
    texts: list[str] = []
    lower = type(backend).lower

    def noted(self: Any, call: Any) -> Any:
        lowered = lower(self, call)
        texts.append(lowered.compile().text("hlo"))
        return lowered

    monkeypatch.setattr(type(backend), "lower", noted)
    Work(backend, size=48).run(job, 0)
    (text,) = texts
    return text


def test_a_word_of_memory_that_changes_is_named(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit that flips in a pattern while it waits: the second read of one block differs."""
    monkeypatch.setattr("pyreactant.check.burnin.work._BLOCK", 4096)
    monkeypatch.setattr("pyreactant.check.burnin.work.available_memory", lambda: 8 * 4 * 3 * 4096)
    memory = Work(current().backend, size=48, memory=1.0)
    for turn in range(4):
        right = [*memory.run(Round(What.MEMORY), turn)]
        assert {(m.checked, m.wrong) for m in right} == {(2 * 3 * 4096, 0)}
    hook.set_fault(Fault("flip", device=6, dtype="uint32", ndim=1, after=1, every=1))
    measures = memory.run(Round(What.MEMORY), 0)
    assert [m.device for m in measures if m.wrong] == [6]
    (wrong,) = (m for m in measures if m.wrong)
    assert wrong.where == "word 7 of block 1 of 3"


class Clock:
    """A clock that goes on by a millisecond at each look, whatever else the machine does."""

    now = 0.0

    def perf_counter(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_arithmetic_on_the_host(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand pieces take a second by this clock, on the average of each spell."""
    monkeypatch.setattr("pyreactant.check.burnin.work.time", Clock())
    (measure,) = work.run(Round(What.HOST), 0)
    assert (measure.device, measure.group, len(measure.seconds)) == (None, (0,), 16)
    assert measure.seconds == pytest.approx([1.0] * 16, rel=0.05)


def test_a_slow_device_is_suspicious(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("pyreactant.check.burnin.work.time", clock)
    monkeypatch.setattr(hook, "sleep", clock.sleep)
    hook.set_fault(Fault("slow", device=6))
    (device,) = (f for f in found(work, PRODUCTS) if f.state is State.SUSPICIOUS)
    assert device.device == 6
    assert device.reasons == ("products of float32: 51.0 times as long as on its equals",)
