"""What pods have written, brought into a record: whole, and each line once."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyreactant.runs import record as _record
from pyreactant.runs.places.kubernetes import brought
from pyreactant.runs.record import Record
from pyreactant.runs.supervisor.metrics import FILE


class Pod:
    """A pod's log, as the API gives it."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, bytes]] = []

    def log(self, _: str, since: str = "", *, follow: bool = False) -> Iterator[list[bytes]]:
        assert not since or (len(since) == 20 and since.endswith("Z")), since
        there = [at.encode() + b" " + text for at, text in self.lines if at[:19] >= since[:19]]
        yield []
        yield [line for line in there if line.endswith(b"\n")]


def pod(name: str = "pod-0", attempt: int = 0) -> Any:
    labels = {"jobset.sigs.k8s.io/restart-attempt": str(attempt)}
    return {"metadata": {"name": name, "labels": labels}}


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = _record.create("train.py", "kubernetes", {})
    _record.release(made)
    return made


def test_each_line_comes_once(record: Record) -> None:
    """Also of several with the same time, and after a process that was killed while it wrote."""
    draw, there, count = random.Random(49), Pod(), 0
    for step in range(60):
        for _ in range(draw.randrange(5) + (step % 7 == 1)):
            tick = count // 3
            at = f"2026-11-28T10:00:{tick // 10:02}.{tick % 10}00000000Z"
            there.lines.append((at, b"[2] line %d\n" % count))
            count += 1
        at = f"2026-11-28T10:00:{count // 30:02}.{count // 3 % 10}00000000Z"
        there.lines.append((at, b"[2] not who"))  # its end comes later
        file = brought.bring_log(there, record, 2, pod())
        there.lines.pop()
        whole = b"".join(b"line %d\n" % number for number in range(count))
        assert (file.read_bytes() if count else b"") == whole, step
        if count and step % 7 == 0:
            with file.open("ab") as opened:
                opened.write((b"line %d\n" % count)[:5])
    assert count > 60
    assert file == record.run / "process-2.log"


def test_a_later_attempt_has_its_own_folder(record: Record) -> None:
    there = Pod()
    there.lines = [("2026-11-28T10:00:00.000000000Z", b"[0] first\n")]
    brought.bring_log(there, record, 0, pod("a"))
    there.lines = [("2026-11-28T10:00:00.000000000Z", b"pip says\n")]
    file = brought.bring_log(there, record, 0, pod("b", 1))
    assert file.read_text() == "pip says\n"
    assert file == record.log(0) == record.run / "restart-1" / "process-0.log"
    assert (record.run / "process-0.log").read_text() == "first\n"


def sent(record: Record, folder: Path, lines: list[bytes]) -> bool:
    there = Pod()
    at = "2026-11-28T10:00:00.000000000Z"
    there.lines = [(at, b"[0] hello\n"), *((at, line) for line in lines)]
    file = brought.bring_log(there, record, 0, pod())
    assert file.read_text() == "hello\n", "the end is no line of the log"
    return brought.unpack_end(record, 0)


def test_the_end_comes_whole(record: Record, tmp_path: Path) -> None:
    (tmp_path / "value").mkdir()
    (tmp_path / "value" / "tree.json").write_bytes(random.Random(1).randbytes(50_000))
    (tmp_path / FILE).write_text("{}\n")
    names = ("value", FILE, "absent")
    lines = brought.sent({name: tmp_path / name for name in names})
    assert len(lines) > 5
    assert all(len(line) < 8192 and line.startswith(brought.MARK) for line in lines)
    assert sent(record, tmp_path, lines)
    value = record.out / "value" / "tree.json"
    assert value.read_bytes() == (tmp_path / "value" / "tree.json").read_bytes()
    assert (record.run / FILE).read_text() == "{}\n"
    assert brought.unpack_end(record, 0), "a second time changes nothing"


@pytest.mark.parametrize("drop", [0, 3, -1])
def test_an_end_that_is_cut_is_none(record: Record, tmp_path: Path, drop: int) -> None:
    (tmp_path / "value").mkdir()
    (tmp_path / "value" / "x").write_bytes(random.Random(1).randbytes(30_000))
    lines = brought.sent({"value": tmp_path / "value"})
    del lines[drop]
    assert not sent(record, tmp_path, lines)
    assert not record.out.exists()


def test_what_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(random.Random(1).randbytes(3 << 19))
    with pytest.raises(brought.TooLargeError, match=r"1\.5 MiB"):
        brought.sent({"value": tmp_path / "value"})
