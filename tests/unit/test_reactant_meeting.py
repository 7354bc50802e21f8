"""The meeting of a run's processes, without Julia; each process is a thread."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.reactant import meeting as meeting_module
from pyreactant.arrays.runtimes.reactant.meeting import CONVERSATION, Meeting, meet
from pyreactant.base.lines import LineCodec, LineSocket, RefusedError
from pyreactant.process.group import ProcessGroup
from pyreactant.process.group.coordinator import MEETING_SECRET
from tests.harness import free_port

KEY = "a secret of this test's own"


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEETING_SECRET, KEY)


def _group(count: int, index: int, address: str) -> ProcessGroup:
    return ProcessGroup(count, index, address)


def _together(
    address: str, places: list[tuple[int, int]], timeout: float, then: Callable[[Meeting, int], Any]
) -> list[Any]:
    """Run one thread per (count, index); return the results of `then`, or the errors."""
    found: list[Any] = [None] * len(places)

    def run(number: int, count: int, index: int) -> None:
        try:
            meeting = meet(_group(count, index, address), timeout, 30)
            try:
                found[number] = then(meeting, index)
            finally:
                meeting.close()
        except pr.PyReactantError as error:
            found[number] = error

    threads = [
        threading.Thread(target=run, args=(number, *one)) for number, one in enumerate(places)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"


def test_barriers_and_exchange(address: str) -> None:
    def then(meeting: Meeting, index: int) -> Any:
        times = []
        for number in range(3):
            time.sleep(0.05 * index)
            came = time.monotonic()
            meeting.barrier(f"b{number}", 20)
            times.append((came, time.monotonic()))
        return times, meeting.exchange("ids", [index, "é"], 20)

    found = _together(address, [(4, i) for i in (2, 0, 3, 1)], 20, then)
    for number in range(3):
        assert max(f[0][number][0] for f in found) <= min(f[0][number][1] for f in found)
    assert all(f[1] == [[i, "é"] for i in range(4)] for f in found)


def test_port_is_free_when_all_have_come(address: str) -> None:
    """The runtime listens on the port next, while the connections stay open."""

    def then(meeting: Meeting, index: int) -> str:
        if index == 0:
            with socket.create_server(("127.0.0.1", int(address.split(":")[1]))):
                meeting.barrier("listening", 20)
        else:
            meeting.barrier("listening", 20)
        return "ok"

    assert _together(address, [(2, 0), (2, 1)], 20, then) == ["ok", "ok"]


@pytest.mark.parametrize(
    ("places", "messages"),
    [
        ([(3, 0), (3, 1)], ["not all 3 processes came within 5 s (process 2 did not)"] * 2),
        ([(2, 0), (3, 1)], ["process 0 was started with num_processes=2, but process 1 on"] * 2),
        ([(3, 0), (2, 1)], ["not all 3 processes came", "not all 3 processes came"]),
        ([(2, 0), (3, 2)], ["not all 2 processes came", "process 2 of 3 was refused by the run"]),
    ],
)
def test_disagreements(address: str, places: list[tuple[int, int]], messages: list[str]) -> None:
    found = _together(address, places, 5.0, lambda m, i: None)
    for error, message in zip(found, messages, strict=True):
        assert isinstance(error, pr.RendezvousError)
        assert message in str(error)


def test_one_index_twice(address: str) -> None:
    found = _together(address, [(3, 0), (3, 1), (3, 1)], 5.0, lambda m, i: None)
    texts = sorted(str(error) for error in found)
    assert "no two processes have one process_index" in "".join(texts)
    assert sum("process 2 did not" in text for text in texts) == 2


def test_nobody_at_the_barrier(address: str) -> None:
    def then(meeting: Meeting, index: int) -> float:
        started = time.monotonic()
        if index == 1:
            with pytest.raises(
                pr.DeadlineError, match=r"barrier 'a' within 0.3 s.*process 0 did n"
            ):
                meeting.barrier("a", 0.3)
        if index == 0:
            time.sleep(1)  # process 1 has left the barrier, which must not let this one pass
            with pytest.raises(pr.DeadlineError, match=r"within 0.3 s.*: process 1 did not come"):
                meeting.barrier("a", 0.3)
        meeting.barrier("both", 20)
        return time.monotonic() - started

    found = _together(address, [(2, 0), (2, 1)], 20, then)
    assert all(isinstance(f, float) for f in found), found


@pytest.mark.parametrize("lost", [0, 1])
def test_lost_process_is_named_at_once(address: str, lost: int) -> None:
    def then(meeting: Meeting, index: int) -> Any:
        if index == lost:
            return None
        started = time.monotonic()
        with pytest.raises(pr.DeadlineError, match=f"process {lost} ended or was cut off"):
            meeting.barrier("a", 60)
        return time.monotonic() - started < 10

    found = _together(address, [(2, 0), (2, 1)], 20, then)
    assert found == [None if i == lost else True for i in range(2)]


def test_what_listens_is_no_run(address: str) -> None:
    """The meeting fails if a server answers nothing, and if it hangs up."""
    host, port = address.split(":")
    with socket.create_server((host, int(port))) as server:
        with pytest.raises(pr.RendezvousError, match=r"not all 2 processes came within 0.5 s"):
            meet(_group(2, 1, address), 0.5, 30)

        def hang_up() -> None:
            for _ in range(4):  # the connection that waited above, the probe, and the caller
                server.accept()[0].close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        with pytest.raises(pr.RendezvousError, match="what listens there closed the connection"):
            meet(_group(2, 1, address), 5, 30)


def _connected(address: str) -> socket.socket:
    """Connect to a process that is about to listen on this port."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            return socket.create_connection((host, int(port)), 5)
        except OSError:
            time.sleep(0.01)


def _client(address: str, secret: bytes) -> LineSocket:
    connection = _connected(address)
    return LineSocket(connection, secret, CONVERSATION, server=False)


def _hello(index: int, count: int) -> dict[str, Any]:
    return {"type": "hello", "process_index": index, "num_processes": count, "host": "test"}


def test_a_peer_without_the_secret_gets_no_seat(address: str) -> None:
    """It gets the reason, and the run continues to wait for the right process."""
    refused = []

    def intrude() -> None:
        client = _client(address, b"another secret")
        client.send(_hello(1, 2))
        with contextlib.suppress(RefusedError):
            while not client.receive():
                pass
            return
        refused.append(True)
        client.close()

    intruder = threading.Thread(target=intrude)
    intruder.start()
    (error,) = _together(address, [(2, 0)], 5.0, lambda meeting, index: None)
    intruder.join(20)
    assert refused
    assert isinstance(error, pr.RendezvousError)
    assert "process 1 did not" in str(error)


def test_processes_with_different_secrets(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter([KEY, "another one"])
    monkeypatch.setattr(meeting_module, "programs_secret", lambda group: next(keys).encode())
    found = _together(address, [(2, 0), (2, 1)], 6.0, lambda meeting, index: None)
    texts = sorted(str(error) for error in found)
    assert "has another secret than the run at" in texts[0]
    assert "set PYREACTANT_SECRET or PYREACTANT_SECRET_FILE to the same" in texts[0]
    assert "not all 2 processes came" in texts[1]


def test_what_listens_must_know_the_secret_too(address: str) -> None:
    """A process sends nothing to a coordinator that cannot prove that it belongs to this run."""
    host, _, port = address.rpartition(":")
    server = socket.create_server((host, int(port)))

    def pretend() -> None:
        probe, _ = server.accept()  # the process tries the address first
        probe.close()
        connection, _ = server.accept()
        with connection, connection.makefile() as lines:
            connection.sendall(LineCodec(b"guessed", CONVERSATION, server=True).greeting())
            lines.readline()
            connection.sendall(b"0" * 64 + b' {"type":"complete"}\n')
            lines.readline()

    thread = threading.Thread(target=pretend, daemon=True)
    thread.start()
    (error,) = _together(address, [(2, 1)], 5.0, lambda meeting, index: None)
    server.close()
    assert isinstance(error, pr.RendezvousError)
    assert "has another secret" in str(error)
