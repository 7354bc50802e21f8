"""Connections without the run's secret at the meeting and at the roll-call: many, slow, garbage."""

import contextlib
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from pyreactant.arrays.runtimes.reactant.meeting import CONVERSATION, meet
from pyreactant.base import lines
from pyreactant.base.lines import FIRST_LIMIT, LineCodec, strangers_kept
from pyreactant.process.group import ProcessGroup
from pyreactant.process.group.coordinator import MEETING_SECRET
from tests.harness import environment, free_port
from tests.launch.runs import RUN, script, task_environments

pytestmark = pytest.mark.slow

KEY = "a secret of this test's own"


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(MEETING_SECRET, KEY)
    return f"127.0.0.1:{free_port()}"


def connect(address: str) -> socket.socket:
    """Connect to a process that is about to listen on this port."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((host, int(port)), 60)
        except OSError:
            assert time.monotonic() < deadline, "nothing listens"
            time.sleep(0.02)


@contextlib.contextmanager
def process_0(address: str) -> Iterator[list[Any]]:
    """Process 0 of two, in a thread, waits for process 1; yields what became of it."""
    found: list[Any] = []

    def wait() -> None:
        try:
            meet(ProcessGroup(2, 0, address), 120, 30).close()
            found.append("met")
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield found
    finally:
        thread.join(150)


TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["hello", "put", "get", "complete", "refused", "x"])
MESSAGES = st.one_of(
    st.dictionaries(
        st.sampled_from(["process_index", "num_processes", "host", "key", "number"]), TEXTS
    ).flatmap(lambda rest: TYPES.map(lambda kind: {"type": kind, **rest})),
    TEXTS.map(lambda value: {"type": "hello", "process_index": value, "num_processes": value}),
    TEXTS,
).filter(  # which takes process 1's seat
    lambda message: not isinstance(message, dict) or message.get("process_index") != 1
)
NONCE = b"0" * 64
GARBAGE = st.one_of(
    st.binary(max_size=300),
    st.binary(max_size=100).map(lambda data: NONCE + b" " + b"f" * 64 + b" " + data + b"\n"),
    st.sampled_from(
        [
            b"",
            b"\n" * 1000,
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00" + b"\0" * 64,
            b"x" * (FIRST_LIMIT + 10),
            b"[" * 60_000 + b"\n",
            NONCE + b" " + "é".encode() * 32 + b' {"type":"hello"}\n',
        ]
    ),
)


def test_anything_at_the_meeting(address: str) -> None:
    """Bytes without the secret, and messages with it that make no sense; the run goes on."""
    with process_0(address) as found:

        def answer(data: bytes) -> bytes:
            with connect(address) as stranger, contextlib.suppress(OSError):
                greeting = stranger.recv(4096)
                stranger.sendall(data)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):  # until process 0 hangs up
                    pass
            return greeting

        @hypothesis.settings(max_examples=100, database=None)
        @hypothesis.given(GARBAGE)
        def throw(data: bytes) -> None:
            assert answer(data).startswith(b"pyreactant meeting ")

        @hypothesis.settings(max_examples=100, database=None)
        @hypothesis.given(MESSAGES)
        def speak(message: Any) -> None:
            with connect(address) as peer, peer.makefile("rb") as answers:
                codec = LineCodec(KEY.encode(), CONVERSATION, server=False)
                codec.read_greeting(answers.readline())
                with contextlib.suppress(OSError):
                    peer.sendall(codec.pack(message))
                    peer.shutdown(socket.SHUT_WR)
                    answers.read()

        throw()
        speak()
        assert found == []
        meet(ProcessGroup(2, 1, address), 60, 30).close()
    assert found == ["met"]


def test_who_says_nothing_is_closed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the meeting each connection has some seconds, however slowly it sends."""
    monkeypatch.setattr(lines, "HANDSHAKE", 0.5)
    with process_0(address) as found:
        with connect(address) as silent, connect(address) as slow:
            greeting = silent.recv(4096)
            slow.recv(4096)
            with contextlib.suppress(OSError):
                while True:  # until process 0 hangs up
                    slow.sendall(b"0")
                    time.sleep(0.05)
            assert greeting.startswith(b"pyreactant meeting ")
            assert silent.recv(4096) == b""
        meet(ProcessGroup(2, 1, address), 60, 30).close()
    assert found == ["met"]


FEW_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from pyreactant.arrays.runtimes.reactant.meeting import meet
from pyreactant.process.group import ProcessGroup
meet(ProcessGroup(2, 0, sys.argv[1]), 120, 30).close()
"""


@contextlib.contextmanager
def idle(address: str, count: int) -> Iterator[None]:
    """So many connections that say nothing."""
    with contextlib.ExitStack() as kept:
        for _ in range(count):
            kept.enter_context(connect(address))
        yield


def test_idle_connections_at_the_meeting(address: str) -> None:
    """More than process 0 may open files."""
    argv = [sys.executable, "-c", FEW_FILES, address]
    settings = environment(**{MEETING_SECRET: KEY})
    with subprocess.Popen(argv, env=settings, stderr=subprocess.PIPE, text=True) as process:
        try:
            with idle(address, 300):
                meet(ProcessGroup(2, 1, address), 60, 30).close()
            _, said = process.communicate(timeout=60)
            assert (process.returncode, said) == (0, "")
        finally:
            process.kill()


def test_idle_connections_at_the_roll_call(tmp_path: Path) -> None:
    """The supervisor of process 0 may open 256 files, and 300 strangers are connected."""
    argv = [*RUN, "--out", str(tmp_path / "run"), "--", script(tmp_path, "print('ran')")]
    few = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *argv]
    first, second = task_environments(tmp_path, 2)
    pipes: dict[str, Any] = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(few, env=first, **pipes) as head:
        try:
            with idle(first["PYREACTANT_COORDINATOR_ADDRESS"], 300):
                follower = subprocess.run(argv, env=second, timeout=60, **pipes)
            _, said = head.communicate(timeout=60)
        finally:
            head.kill()
    assert (head.returncode, follower.returncode) == (0, 0), said + follower.stderr
    assert "Traceback" not in said
    assert "socket.accept" not in said


def test_number_of_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, expected, kept in (
        (1024, 2, 128),
        (256, 2, 63),
        (20_000, 16_384, 904),
        (16, 2, 8),
        (1 << 20, 1000, 2000),
        (resource.RLIM_INFINITY, 2, 128),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert strangers_kept(expected) == kept
