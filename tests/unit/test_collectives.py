"""Who waited for whom in collective operations."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pyreactant.base.document.parts import Lines, Picture, Table
from pyreactant.process.supervised import recorded
from pyreactant.runs.supervisor.collectives import page_parts, text_parts, waits_of
from pyreactant.runs.supervisor.timeline import Trace

BEGAN = 1_795_881_155_752_411_608
MS = 1_000_000


def trace(
    folder: Path,
    process: int,
    calls: Sequence[tuple[int, int, int]],
    *,
    began: int = 0,
    error: int = 0,
) -> Trace:
    """A process that was in an all-reduce: number of the call, begin and end in ms."""
    found = Trace(
        process, f"host{process}", folder / f"{process}.xplane.pb", BEGAN + began * MS, error
    )
    operations = [["jit_f", "all-reduce.1", run, 0, b * MS, e * MS] for run, b, e in calls]
    found.collectives.write_text(json.dumps(operations))
    return found


def row(traces: Sequence[Trace]) -> dict[str, Any]:
    waits, notes = waits_of(traces)
    assert notes == []
    (only,) = waits["rows"]
    return dict(only)


def test_the_last_one_is_named(tmp_path: Path) -> None:
    traces = [
        trace(tmp_path, 0, [(7, 0, 53), (8, 60, 91), (9, 100, 112)], began=1000),
        trace(tmp_path, 1, [(7, 1050, 1053), (8, 1090, 1091), (9, 1109, 1112)]),
        trace(tmp_path, 2, [(7, 1010, 1053), (8, 1070, 1091), (9, 1111, 1112)]),
    ]
    assert row(traces) == {
        "collective": "all-reduce.1",
        "program": "jit_f",
        "times": 3,
        "mean_seconds": pytest.approx((50 + 40 + 30 + 20 + 11 + 2) / 6e3),
        "worst_seconds": 0.05,
        "waiting": 0,
        "last": 1,
        "last_times": 2,
        "last_host": "host1",
    }
    drawn = waits_of(traces)[0]["drawn"]
    assert drawn["processes"] == [
        [0, 0.0, 0.053],
        [2, 0.01, 0.053],
        [1, 0.05, 0.053],
    ]


def test_a_group_does_not_wait_for_those_that_come_after_it(tmp_path: Path) -> None:
    """The processes of another row of the mesh take part in the same operation of XLA."""
    traces = [
        trace(tmp_path, 0, [(7, 0, 10)]),
        trace(tmp_path, 1, [(7, 8, 10)]),
        trace(tmp_path, 2, [(7, 500, 520)]),
        trace(tmp_path, 3, [(7, 515, 520)]),
    ]
    found = row(traces)
    assert (found["worst_seconds"], found["waiting"], found["last"]) == (0.015, 2, 3)
    assert found["mean_seconds"] == pytest.approx((8 + 15) / 3e3)


def test_a_wait_within_the_error_of_the_clocks_is_none(tmp_path: Path) -> None:
    calls = [(7, 0, 10)], [(7, 4, 10)]
    first, second = (trace(tmp_path, i, c, error=2 * MS) for i, c in enumerate(calls))
    found = row([first, second])
    assert (found["times"], found["worst_seconds"], found["last"]) == (1, 0.0, None)
    lines = text_parts({"rows": [found]})[0].parts[0]
    assert isinstance(lines, Lines)
    assert "-" in lines.text.splitlines()[2].split()
    second = trace(tmp_path, 1, [(7, 5, 10)], error=2 * MS)
    assert row([first, second])["last"] == 1


def test_what_only_one_process_did_is_left_out(tmp_path: Path) -> None:
    traces = [trace(tmp_path, 0, [(1, 0, 5)]), trace(tmp_path, 1, [(2, 0, 5)])]
    waits, notes = waits_of(traces)
    assert (waits, notes) == ({"rows": [], "drawn": None}, [])
    assert text_parts(waits) == page_parts(waits) == text_parts({}) == page_parts({}) == []


@pytest.mark.parametrize("text", [None, "", "7", "[[1, 2]]", '[["f", "o", 1, 0, "a", 2]]'])
def test_a_process_whose_collectives_cannot_be_read(tmp_path: Path, text: str | None) -> None:
    traces = [trace(tmp_path, index, [(7, index, 5)]) for index in range(3)]
    if text is None:
        traces[1].collectives.unlink()
    else:
        traces[1].collectives.write_text(text)
    waits, (note,) = waits_of(traces)
    assert note.startswith("the collectives of process 1 cannot be read: ")
    assert waits["rows"][0]["last"] == 2


def test_a_picture_of_many_processes_has_the_first_and_the_last(tmp_path: Path) -> None:
    traces = [trace(tmp_path, i, [(7, i, 200)]) for i in range(100)]
    waits, _ = waits_of(traces)
    shown = [process for process, _, _ in waits["drawn"]["processes"]]
    assert (shown[0], shown[-1], len(shown), waits["drawn"]["left_out"]) == (0, 99, 32, 68)
    table, picture, _ = page_parts(waits)
    assert isinstance(table, Table)
    assert isinstance(picture, Picture)
    assert "68 processes between them are not drawn" in picture.detail
    assert len(table.rows) == 1


# What is read of a profile.


@dataclass
class Event:
    name: str
    start_ns: float
    duration_ns: float
    stats: list[tuple[str, Any]] = field(default_factory=list)


@dataclass
class Line:
    events: list[Event]
    name: str = ""


@dataclass
class Plane:
    name: str
    lines: list[Line] = field(default_factory=list)
    stats: list[tuple[str, Any]] = field(default_factory=list)


@dataclass
class Data:
    planes: list[Plane]


def event(name: str, begin: float, length: float, run: int, device: int) -> Event:
    stats = [("hlo_op", name), ("hlo_module", "jit_f"), ("run_id", run), ("device_ordinal", device)]
    return Event(name, begin, length, stats)


def test_a_process_comes_when_the_last_of_its_devices_does() -> None:
    lines = [
        Line([event("all-reduce.1", 10, 90, 5, 0), event("all-reduce.1", 210, 5, 5, 0)]),
        Line([event("all-reduce.1", 30, 60, 5, 1), event("all-reduce.1", 200, 30, 5, 1)]),
    ]
    assert recorded.collectives(Data([Plane("/host:CPU", lines)])) == [
        ("jit_f", "all-reduce.1", 5, 0, 30, 100),
        ("jit_f", "all-reduce.1", 5, 1, 210, 230),
    ]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("all-reduce.2", True),
        ("all-reduce-start", True),
        ("all_gather.3", True),
        ("reduce_scatter.7", True),
        ("reduce-scatter", True),
        ("all-to-all", True),
        ("ragged-all-to-all.1", True),
        ("ppermute.3", True),
        ("collective-permute.1", True),
        ("psum_invariant.1", True),
        ("end: all-reduce.2", False),
        ("reduce.1", False),
        ("wrapped_reduce", False),
        ("PythonRefManager::CollectGarbage", False),
    ],
)
def test_names_of_collectives(name: str, is_one: bool) -> None:
    data = Data([Plane("/host:CPU", [Line([event(name, 0, 1, 5, 0)])])])
    assert bool(recorded.collectives(data)) == is_one


def test_an_operation_without_a_number_of_its_call_is_left_out() -> None:
    events = [Event("all-reduce.1", 0, 1, [("hlo_op", "all-reduce.1")])]
    assert recorded.collectives(Data([Plane("/device:TPU:0", [Line(events)])])) == []


def test_when_a_profile_began() -> None:
    planes = [Plane("/host:CPU"), Plane("Task Environment", stats=[("profile_start_time", BEGAN)])]
    assert recorded.began_ns(Data(planes)) == BEGAN
    assert recorded.began_ns(Data(planes[:1])) == 0
