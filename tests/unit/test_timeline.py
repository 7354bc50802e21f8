"""The archive of all traces of a run, and the clocks of its hosts."""

import errno
import gzip
import json
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyreactant.process.events import ClockAsked, ClockCompared, Event
from pyreactant.runs.supervisor import timeline
from pyreactant.runs.supervisor.timeline import EXCHANGES, Comparison, make_timeline
from tests.perfetto import opened

BEGAN = 1_795_881_155_752_411_608


def row(folder: Path, index: int, began: int = BEGAN, **changes: Any) -> dict[str, Any]:
    """A process of the report, with its trace."""
    session = folder / "profile" / "plugins" / "profile" / "steps-1"
    session.mkdir(parents=True, exist_ok=True)
    trace = {"displayTimeUnit": "ns", "traceEvents": [{"ph": "X", "name": f"of {index}"}]}
    name = f"host-process-{index}"
    (session / f"{name}.trace.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    profile = {
        "file": str(session / f"{name}.xplane.pb"),
        "note": "",
        "began_ns": began,
        "clock_offset_ns": 0,
        "clock_error_ns": 0,
    }
    return {"index": index, "host": f"host{index}", "profile": profile | changes}


def trace_of(row: dict[str, Any]) -> Path:
    return Path(row["profile"]["file"].replace(".xplane.pb", ".trace.json.gz"))


def test_the_traces_are_on_one_clock(tmp_path: Path) -> None:
    rows = [
        row(tmp_path, 0, BEGAN + 5),
        row(tmp_path, 1, BEGAN + 3_000_000_000, clock_offset_ns=-3_000_000_000),
        row(tmp_path, 2, BEGAN, clock_offset_ns=7, clock_error_ns=41_000),
    ]
    _, (note,) = make_timeline(tmp_path, rows)
    path = tmp_path / "profile" / "timeline.tar"
    assert note == (
        f"timeline of 3 processes: {path}, for https://ui.perfetto.dev; "
        "the clocks agree within 41 us"
    )
    entries, traces = opened(path)
    assert [trace["traceEvents"][0]["name"] for trace in traces.values()] == [
        "of 0",
        "of 1",
        "of 2",
    ]
    first = {"file": "process-1.json"}  # the earliest, on the clock of process 0
    assert [entry.get("clocks") for entry in entries.values()] == [
        {"sync_to": first, "offset_ns": 5},
        None,
        {"sync_to": first, "offset_ns": 7},
    ]
    assert entries["process-2.json"]["machine"]["name"] == "process 2 on host2"


def _no_clock(row: dict[str, Any]) -> None:
    row["profile"]["clock_offset_ns"] = None


def _no_start(row: dict[str, Any]) -> None:
    row["profile"]["began_ns"] = 0


def _elsewhere(row: dict[str, Any]) -> None:
    trace_of(row).unlink()


def _damaged(row: dict[str, Any]) -> None:
    packed = trace_of(row).read_bytes()
    trace_of(row).write_bytes(packed[:-12])


def _foreign(row: dict[str, Any]) -> None:
    trace_of(row).write_bytes(b"no gzip")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_no_clock, "the clock of its host was not compared with that of process 0"),
        (_no_start, "the profile does not say when it began"),
        (_elsewhere, "its trace is not on the machine of process 0; hosts that share no disk"),
        (_damaged, "its trace cannot be read (Compressed file ended before"),
        (_foreign, "its trace cannot be read (Not a gzipped file"),
    ],
)
def test_a_part_that_is_missing(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    rows = [row(tmp_path, 0), row(tmp_path, 1)]
    change(rows[1])
    _, (note, missing) = make_timeline(tmp_path, rows)
    assert note.startswith("timeline of 1 of 2 processes: ")
    assert missing.startswith(f"the timeline is without process 1: {why}")
    entries, _ = opened(tmp_path / "profile" / "timeline.tar")
    assert [*entries] == ["process-0.json"]


def test_without_any_part_there_is_no_archive(tmp_path: Path) -> None:
    rows = [row(tmp_path, 0)]
    _damaged(rows[0])
    _, (missing,) = make_timeline(tmp_path, rows)
    assert missing.startswith("the timeline is without process 0: its trace cannot be read")
    assert not (tmp_path / "profile" / "timeline.tar").exists()
    assert make_timeline(tmp_path, [{**rows[0], "profile": None}]) == ([], [])


def test_an_earlier_archive_is_kept_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file that is written may be the one for which there is no room."""
    rows = [row(tmp_path, 0), row(tmp_path, 1)]
    path = tmp_path / "profile" / "timeline.tar"
    make_timeline(tmp_path, rows)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for owner, name in [(timeline.shutil, "copyfileobj"), (tarfile.TarFile, "addfile")]:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, full)
            assert make_timeline(tmp_path, rows)[1] == [
                f"no timeline: {path} cannot be written (No space left on device)"
            ]
        assert path.read_bytes() == before
        assert sorted(p.name for p in path.parent.iterdir()) == ["plugins", "timeline.tar"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    rows = [row(tmp_path, 0)]
    (tmp_path / "profile" / "timeline.tar").mkdir()
    _, (note,) = make_timeline(tmp_path, rows)
    assert note.startswith("no timeline: ")
    assert "cannot be written" in note


def compared(
    monkeypatch: pytest.MonkeyPatch, ways: list[tuple[int, int]], skew: int
) -> ClockCompared:
    """The result of a comparison with answers that take these times to and from process 0."""
    now = BEGAN
    emitted: list[Event] = []
    monkeypatch.setattr(time, "time_ns", lambda: now)
    comparison = Comparison(3, emitted.append)
    comparison.begin()
    for there, back in ways:
        asked = emitted[-1]
        assert isinstance(asked, ClockAsked)
        told = now + there + skew
        now += there + back
        comparison.take(asked.sent_ns, told)
    result = emitted[-1]
    assert isinstance(result, ClockCompared)
    assert len(emitted) == EXCHANGES + 1
    return result


def test_the_shortest_way_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = [(9_000, 1_000)] * 7 + [(300, 100)] + [(1_000, 90_000)] * 8
    result = compared(monkeypatch, ways, skew=-3_000_000_000)
    assert result == ClockCompared(-3_000_000_000 + 100, 200, process=3)
    assert abs(result.offset_ns + 3_000_000_000) <= result.error_ns


def test_a_clock_that_is_set_back_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = [(0, -10_000), *[(500, 500)] * 15]
    assert compared(monkeypatch, ways, skew=40) == ClockCompared(40, 500, process=3)
