"""Logs and the terminal: no failure of a disk or a reader stops the run."""

import contextlib
import itertools
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from pyreactant.runs.supervisor import output
from pyreactant.runs.supervisor.output import TAIL, Log, Merged, Part, Prefixed, Terminal


def test_a_log_is_whole_and_its_end_is_kept(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    for i in range(3000):
        log.write(f"line {i}\n".encode())
    log.close()
    whole = "".join(f"line {i}\n" for i in range(3000))
    assert log.path.read_text() == whole
    assert log.tail() == whole[-TAIL:]
    assert log.error is None


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    """A restart of the programs appends to the log."""
    for text in (b"one\n", b"two\n"):
        log = Log(tmp_path / "log")
        log.write(text)
        log.close()
    assert log.path.read_bytes() == b"one\ntwo\n"
    assert log.tail() == "two\n"


def test_tails_cut_within_a_character_are_text(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.write("€".encode() * TAIL + b"\xff")
    assert log.tail().endswith("€\ufffd")
    log.close()


def test_a_full_disk() -> None:
    log = Log(Path("/dev/full"))
    assert log.error is None
    log.write(b"first")
    assert log.error == "No space left on device"
    log.write(b" second")
    assert log.tail() == "first second"
    log.close()


def test_a_log_that_cannot_be_opened_and_one_that_is_closed(tmp_path: Path) -> None:
    log = Log(tmp_path / "no" / "log")
    assert log.error == "No such file or directory"
    log.write(b"x")
    log.close()
    closed = Log(tmp_path / "log")
    closed.close()
    closed.write(b"x")
    assert (log.tail(), closed.tail()) == ("x", "x")
    assert closed.path.read_bytes() == b""


class Screen(Terminal):
    """A terminal that records what it would write."""

    def __init__(self) -> None:
        super().__init__(None)
        self.finish()
        self.got = b""

    def _send(self, data: bytes) -> None:
        self.got += data


def shown(*chunks: bytes, prefix: str = "[3] ", whole_lines: bool = False) -> str:
    screen = Screen()
    prefixed = Prefixed(screen, prefix, whole_lines=whole_lines)
    for chunk in chunks:
        prefixed.write(chunk)
    prefixed.end()
    return screen.got.decode()


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"a\nb\n"], "[3] a\n[3] b\n"),
        ([b"a", b"b\n", b"c\n"], "[3] ab\n[3] c\n"),
        ([b"a\n", b"\n"], "[3] a\n[3] \n"),
        (["€\n".encode()[:1], "€\n".encode()[1:]], "[3] €\n"),
        ([b"no end"], "[3] no end\n"),
        ([b"cut \xe2\x82"], "[3] cut \ufffd\n"),
        ([b"\xe2\x82"], "[3] \ufffd\n"),
        ([b"\x00\xff\n"], "[3] \x00\ufffd\n"),
        ([b"10%\r20%\n"], "[3] 10%\r20%\n"),
        ([], ""),
        ([b""], ""),
    ],
)
def test_prefixes(chunks: list[bytes], expected: str) -> None:
    assert shown(*chunks) == expected
    assert shown(*chunks, whole_lines=True) == expected


def test_lines_of_several_programs_stay_whole() -> None:
    """Python writes the text of one print() in parts."""
    screen = Screen()
    one, two = (Prefixed(screen, f"[{i}] ", whole_lines=True) for i in range(2))
    for part in (b"first", b" of", b" 0\n10%\r"):
        one.write(part)
        two.write(part.replace(b"0", b"1"))
    two.end()
    one.end()
    assert screen.got == b"[0] first of 0\n[0] 10%\r\n[1] first of 1\n[1] 11%\r\n"
    one.write(b"x" * 100_000)  # a line without an end does not grow without limit
    assert len(screen.got) > 100_000


def test_an_unfinished_line_is_ended_before_another_writer() -> None:
    screen = Screen()
    out, err = Prefixed(screen, "[0] "), Prefixed(screen, "[0] ")
    out.write(b"pro")
    out.write(b"cess")
    screen.say(b"pyreactant: hello\n")
    out.write(b" 0\n")
    err.write(b"10%\r")
    out.write(b"more")
    for stream in (out, err):
        stream.end()
    assert screen.got.decode().split("\n") == [
        "[0] process",
        "pyreactant: hello",
        "[0]  0",
        "[0] 10%\r",
        "[0] more",
        "",
    ]


@hypothesis.given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_prefixes_do_not_depend_on_how_it_is_cut(data: bytes, cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(data)]
    chunks = [data[a:b] for a, b in itertools.pairwise(ends)]
    assert shown(*chunks) == shown(data) == shown(*chunks, whole_lines=True)
    text = data.decode(errors="replace")
    assert shown(data, prefix="") == (text if text.endswith("\n") or not text else text + "\n")


@pytest.fixture
def pipe() -> Iterator[tuple[int, Terminal]]:
    """The read end of a pipe, and a terminal that writes into it."""
    reading, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        yield reading, Terminal(stream)


def read(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := os.read(descriptor, count - len(data))):
        data += more
    return data


def end(terminal: Terminal) -> None:
    terminal.finish()
    assert terminal.join(60)


CHUNK = b"x" * (1 << 16)


def test_a_slow_reader_gets_all(pipe: tuple[int, Terminal]) -> None:
    reader, terminal = pipe
    sent = 0
    while not terminal.full:
        terminal.show(CHUNK)
        sent += 1
    assert read(reader, sent * len(CHUNK)) == CHUNK * sent
    terminal.drain(60)
    assert not terminal.full
    end(terminal)
    os.close(reader)


def test_who_does_not_read_holds_up_nobody_and_is_told_what_is_left_out(
    pipe: tuple[int, Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor's own lines are never left out."""
    reader, terminal = pipe
    monkeypatch.setattr(output, "_READS", 0.0)  # it counts at once as one who does not read
    lines = [f"line {i}\n".encode() for i in range(200)]
    for line in lines:
        terminal.show(line + CHUNK + b"\n")
        assert not terminal.full
    terminal.say(b"the report\n")
    terminal.finish()
    data = b""
    while not terminal.join(0):
        data += os.read(reader, 1 << 16)
    os.set_blocking(reader, False)
    with contextlib.suppress(BlockingIOError):
        while more := os.read(reader, 1 << 16):
            data += more
    os.close(reader)
    shown = sum(line in data for line in lines)
    assert 60 < shown < 200
    notes = re.findall(rb"^pyreactant: (\d+) lines of the programs are left out", data, re.M)
    assert sum(map(int, notes)) == 2 * (len(lines) - shown)
    assert data.endswith(b"\nthe report\n")


def test_a_reader_that_has_gone(pipe: tuple[int, Terminal]) -> None:
    reader, terminal = pipe
    os.close(reader)
    for _ in range(1000):
        terminal.show(b"x")
    terminal.drain(60)
    assert not terminal.full
    end(terminal)


def test_a_pipe_that_does_not_block(pipe: tuple[int, Terminal]) -> None:
    """The parent may make its end non-blocking, which applies to our end too."""
    reader, terminal = pipe
    assert terminal._descriptor is not None
    os.set_blocking(terminal._descriptor, False)
    data = bytes(range(256)) * 4096
    terminal.show(data)
    assert read(reader, len(data)) == data
    end(terminal)
    os.close(reader)


def test_no_terminal_at_all() -> None:
    terminal = Terminal(None)
    for _ in range(1000):
        terminal.show(b"x")
    assert not terminal.full
    end(terminal)


def test_a_reader_that_catches_up_while_a_line_comes_gets_it(
    pipe: tuple[int, Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is full at the first look, and empty at any later one."""
    reader, terminal = pipe
    sizes = itertools.chain([1 << 10], itertools.repeat(0))
    monkeypatch.setattr(terminal._queue, "qsize", lambda: next(sizes))
    terminal.show(b"a line\n")
    end(terminal)
    assert os.read(reader, 1 << 16) == b"a line\n"
    os.close(reader)


@pytest.mark.parametrize("idle", [0.0, 2.5])
def test_a_burst_of_lines_is_shown_to_a_reader_that_reads(idle: float) -> None:
    """Merged lines come one at a time, so one piece of a log is more than the queue holds."""
    source, sink = os.pipe()
    shown = bytearray()

    def read() -> None:
        while data := os.read(source, 1 << 16):
            shown.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(sink, "w") as stream:
        terminal = Terminal(stream)
        merged = Merged(terminal, 2, lambda _seconds, _call: None)
        parts = [Part(terminal, merged, index) for index in range(2)]
        time.sleep(idle)  # nothing to read is no reader that does not read
        for part in parts:
            part.write(b"".join(b"step %d\n" % step for step in range(3000)))
        for part in parts:
            part.end()
        terminal.finish()
        assert terminal.join(60)
    reader.join()
    os.close(source)
    lines = [line.split("] ") for line in shown.decode().splitlines()]
    for process in "01":  # on a busy machine not every line is merged
        steps = [step for processes, step in lines if process in processes]
        assert steps == [f"step {step}" for step in range(3000)]
