"""The roll-call on real sockets: admission, strangers, and a thousand processes at once."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from pyreactant import RendezvousError, RequirementError
from pyreactant.base import lines
from pyreactant.base.lines import LINE_LIMIT, LineCodec
from pyreactant.process.events import (
    Alive,
    Event,
    HeadMessage,
    Join,
    Phase,
    Refused,
    Report,
    Stacks,
    StopAt,
    read,
    write,
)
from pyreactant.process.group import coordinator
from pyreactant.runs.supervisor import connection
from pyreactant.runs.supervisor.connection import CONVERSATION, Uplink, join
from pyreactant.runs.supervisor.rollcall import RollCall
from tests.harness import free_port

SECRET = b"0123456789abcdef0123456789abcdef"


class Heard:
    """Records what a roll-call reports."""

    def __init__(self) -> None:
        self.admitted: list[int] = []
        self.messages: list[Event] = []
        self.lost: dict[int, str] = {}

    def admit(self, hello: Join) -> Refused | None:
        self.admitted.append(hello.process)
        return None

    def lose(self, process: int, why: str) -> None:
        self.lost[process] = why


@contextlib.asynccontextmanager
async def listening(
    heard: Heard, heartbeat: float = 5.0, expected: int = 16
) -> AsyncIterator[tuple[RollCall, str]]:
    call = RollCall(
        SECRET, heard.admit, heard.messages.append, heard.lose, heartbeat_timeout=heartbeat
    )
    address = f"127.0.0.1:{free_port()}"
    await call.listen(address, expected)
    try:
        yield call, address
    finally:
        await call.close()


async def enter(
    address: str, process: int = 1, secret: bytes = SECRET, timeout: float = 60
) -> Uplink:
    return await join(address, secret, coming(process), timeout=timeout, progress=lambda _: None)


def coming(process: int) -> Join:
    """The first message of a process."""
    return Join(process, 2, "host", 1, {})


async def ordered(uplink: Uplink, timeout: float) -> HeadMessage:
    """The next order, after the heartbeats."""
    while isinstance(order := await uplink.receive(timeout), Alive):
        pass
    return order


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def stranger(address: str, data: bytes) -> bytes:
    """Send bytes and read the answer until the server closes the connection."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        received = b""
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while chunk := sock.recv(65536):
                received += chunk
    return received


def test_members_are_heard_and_their_end_is_noticed() -> None:
    async def scenario() -> None:
        heard = Heard()
        async with listening(heard) as (call, address):
            uplink = await enter(address)
            uplink.send(Phase("started", process=0))
            await until(lambda: heard.messages)
            # A member sends events for its own process only, whatever index they contain.
            assert heard.messages == [Phase("started", process=1)]
            call.members[1].send(StopAt(3))
            assert await ordered(uplink, 5) == StopAt(3)
            uplink.close()
            await until(lambda: 1 in heard.lost)

    asyncio.run(scenario())


def test_a_member_that_was_stopped_blames_nobody() -> None:
    async def scenario() -> None:
        async with listening(Heard(), heartbeat=60) as (call, address):
            uplink = await enter(address)
            waiting = asyncio.ensure_future(ordered(uplink, 1.0))
            await asyncio.sleep(0)
            time.sleep(3)  # as if stopped, at the wake-up of which the limit is over
            await asyncio.sleep(0)
            call.members[1].send(StopAt(3))
            assert await waiting == StopAt(3)
            uplink.close()

    asyncio.run(scenario())


def test_a_silent_member_is_lost() -> None:
    async def scenario() -> None:
        heard = Heard()
        async with listening(heard, heartbeat=0.5) as (_, address):
            uplink = await enter(address)
            await until(lambda: 1 in heard.lost)
            uplink.close()
            assert "its machine or the network to it is down" in heard.lost[1]

    asyncio.run(scenario())


def test_unread_words_do_not_cost_the_last_order() -> None:
    """A connection that is closed while words lie unread is reset, and its orders are lost."""
    members, words = 8, 200

    async def member(address: str, process: int) -> HeadMessage:
        uplink = await enter(address, process)
        for _ in range(words):
            uplink.send(Stacks("x" * 20_000))
        await asyncio.sleep(0.2)  # the answer is there long before it is read
        order = await ordered(uplink, 30)
        uplink.close()
        return order

    async def scenario() -> None:
        heard = Heard()
        async with listening(heard, heartbeat=30) as (call, address):
            uplinks = [asyncio.create_task(member(address, 1 + i)) for i in range(members)]
            await until(lambda: len(call.members) == members, 30)
            for one in call.members.values():
                one.send(Report(0, "done"))
            await call.close()
            assert await asyncio.gather(*uplinks) == [Report(0, "done")] * members
        assert len(heard.messages) == members * words
        assert not heard.lost

    asyncio.run(scenario())


def test_wrong_secret_is_refused_and_told() -> None:
    async def scenario() -> None:
        heard = Heard()
        async with listening(heard) as (call, address):
            with pytest.raises(RendezvousError, match="secret differs"):
                await enter(address, secret=b"another secret of some length")
            assert not heard.admitted
            assert call.refused == [
                "a connection from 127.0.0.1: it does not have this run's secret"
            ]

    asyncio.run(scenario())


def test_a_server_without_the_secret_is_not_obeyed() -> None:
    """A process ignores orders of an impostor that listens in place of process 0."""

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(LineCodec(b"guessed", CONVERSATION, server=True).greeting())
        await reader.readline()
        writer.write(b"0" * 64 + b' {"type":"admitted"}\n')
        await reader.read()
        writer.close()

    async def scenario() -> None:
        port = free_port()
        async with await asyncio.start_server(impostor, "127.0.0.1", port):
            with pytest.raises(RendezvousError, match="does not have this run's secret"):
                await enter(f"127.0.0.1:{port}")

    asyncio.run(scenario())


def test_another_service_on_the_port() -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def scenario() -> None:
        port = free_port()
        async with await asyncio.start_server(web, "127.0.0.1", port):
            with pytest.raises(RendezvousError, match="is not the roll-call of this version"):
                await enter(f"127.0.0.1:{port}", timeout=0.3)

    asyncio.run(scenario())


def test_nobody_listens_and_unresolvable_hosts() -> None:
    with pytest.raises(RendezvousError, match="Connection refused; check that process 0 runs"):
        asyncio.run(enter(f"127.0.0.1:{free_port()}", timeout=0.3))
    with pytest.raises(RequirementError, match=r"'no-such-host.invalid' does not resolve here"):
        asyncio.run(enter("no-such-host.invalid:4711", timeout=0.3))
    with pytest.raises(RequirementError, match=r"does not resolve here .*give a name or address"):
        asyncio.run(enter(f"{'a' * 99}.invalid:4711", timeout=0.3))


@pytest.mark.parametrize(
    ("kubernetes", "number"),
    [(True, socket.EAI_NONAME), (False, socket.EAI_NONAME), (False, socket.EAI_AGAIN)],
)
def test_a_name_that_comes_late(
    kubernetes: bool, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod's name exists once the pod runs; elsewhere a name is wrong, or its server is silent."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1" if kubernetes else "")
    monkeypatch.setattr(coordinator, "_NAME", 0.0)
    resolve = socket.getaddrinfo
    asked: list[str] = []
    said: list[str] = []

    def late(host: str, *args: Any, **options: Any) -> Any:
        if host != "pod-0.invalid":
            return resolve(host, *args, **options)
        asked.append(host)
        if len(asked) < 4:
            raise socket.gaierror(number, "Name or service not known")
        return resolve("127.0.0.1", *args, **options)

    async def scenario() -> None:
        async with listening(Heard()) as (_, address):
            port = address.rpartition(":")[2]
            hello, at = coming(1), f"pod-0.invalid:{port}"
            (await join(at, SECRET, hello, timeout=60, progress=said.append)).close()

    monkeypatch.setattr(socket, "getaddrinfo", late)
    comes = kubernetes or number == socket.EAI_AGAIN
    if comes:
        asyncio.run(scenario())
        late_there = "; in Kubernetes it may come late" if kubernetes else ""
        assert said[0].endswith(f"(Name or service not known){late_there}")
    else:
        with pytest.raises(RequirementError, match="does not resolve here"):
            asyncio.run(scenario())
    assert len(asked) == (4 if comes else 1)


def test_a_name_server_that_stays_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    with pytest.raises(RequirementError, match=r"\(Temporary .*name server answers, or give"):
        asyncio.run(enter("head.invalid:4711", timeout=0.3))


def test_taken_port() -> None:
    async def scenario() -> None:
        async with listening(Heard()) as (_, address):
            other = RollCall(SECRET, lambda _: None, print, print, heartbeat_timeout=5.0)
            with pytest.raises(RendezvousError, match="choose another port in PYREACTANT_"):
                await other.listen(address, 2)

    asyncio.run(scenario())


GARBAGE = st.one_of(
    st.binary(max_size=300),
    st.binary(max_size=200).map(lambda b: b + b"\n"),
    st.binary(max_size=100).map(lambda b: b"0" * 64 + b" " + b"f" * 64 + b" " + b + b"\n"),
    st.sampled_from(
        [
            b"",
            b"\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00" + b"\0" * 64,
            b"x" * (LINE_LIMIT + 10),
            b"x" * LINE_LIMIT + b"\n" * 3,
            b"[" * 100_000 + b"\n",
            b"0" * 64 + b" " + b"0" * 64 + b' {"type":"join","process":1}\n',
        ]
    ),
)


def test_strangers_cannot_stall_or_break_it() -> None:
    """Strangers send garbage of every kind, truncated anywhere; a member's events still arrive."""

    async def scenario() -> None:
        heard = Heard()
        async with listening(heard) as (call, address):
            uplink = await enter(address)
            beat = asyncio.create_task(_alive(uplink))

            @hypothesis.settings(max_examples=150, deadline=None, database=None)
            @hypothesis.given(GARBAGE)
            def throw(data: bytes) -> None:
                answer = stranger(address, data)
                assert answer.startswith(b"pyreactant roll-call ")
                assert b"admitted" not in answer

            await asyncio.to_thread(throw)
            uplink.send(Phase("started"))
            await until(lambda: heard.messages)
            beat.cancel()
            assert heard.admitted == [1]
            assert not heard.lost
            assert len(call.refused) == 20
            await until(lambda: not call._strangers)
            uplink.close()

    asyncio.run(scenario())


def test_the_end_of_a_run_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Members and strangers may be connected when the event loop ends."""

    async def scenario() -> None:
        call = RollCall(SECRET, lambda _: None, print, print, heartbeat_timeout=5.0)
        address = f"127.0.0.1:{free_port()}"
        await call.listen(address, 16)
        host, port = address.split(":")
        kept.append(await asyncio.to_thread(socket.create_connection, (host, int(port))))
        kept.append(await enter(address))
        await until(lambda: call.members and call._strangers)

    kept: list[Any] = []
    asyncio.run(scenario())
    assert "Traceback" not in caplog.text
    assert not caplog.records
    kept[0].close()


def test_half_open_connections_do_not_keep_members_out() -> None:
    async def scenario() -> None:
        heard = Heard()
        async with listening(heard) as (call, address):
            host, port = address.split(":")

            def connect() -> list[socket.socket]:
                return [socket.create_connection((host, int(port))) for _ in range(300)]

            idle = await asyncio.to_thread(connect)
            await until(lambda: len(call._strangers) >= 128)
            uplink = await enter(address)
            assert heard.admitted == [1]
            assert len(call._strangers) <= 16 + 128 + 1  # the oldest connections were closed
            uplink.close()
            for sock in idle:
                sock.close()

    asyncio.run(scenario())


def test_more_come_at_once_than_strangers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is sent away because others came after it, before it could answer."""
    monkeypatch.setattr(lines, "HANDSHAKES", 2)
    count = 300

    async def scenario() -> None:
        heard = Heard()
        async with listening(heard) as (_, address):
            host, port = address.split(":")
            some = [socket.create_connection((host, int(port))) for _ in range(count)]
            await asyncio.sleep(0.1)  # the head accepts what it has room for

            async def answer(process: int) -> bytes:
                reader, writer = await asyncio.open_connection(sock=some[process])
                codec = LineCodec(SECRET, CONVERSATION, server=False)
                codec.read_greeting(await reader.readline())
                writer.write(codec.pack(write(coming(process))))
                told = await reader.readline()
                writer.close()
                return told

            told = await asyncio.gather(*map(answer, range(count)))
            assert all(b"Admitted" in line for line in told)
            assert sorted(heard.admitted) == list(range(count))

    asyncio.run(scenario())


def test_a_connection_that_process_0_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel dropped it: nothing ever comes, and a member connects again."""
    monkeypatch.setattr(connection, "GREETING", 0.2)

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            entering = asyncio.create_task(enter(address, timeout=20))
            dropped, _ = await asyncio.to_thread(listener.accept)
            listener.settimeout(20)
            try:
                again, _ = await asyncio.to_thread(listener.accept)
            except TimeoutError:
                pytest.fail("the member did not connect again")
            finally:
                entering.cancel()
            for sock in (dropped, again):
                sock.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "hello",
    [
        {"type": "Join"},
        {"type": "Go", "process": 1},
        {**write(coming(1)), "process": "one"},
        {**write(coming(1)), "process": None},
        {**write(coming(1)), "process": [1]},
        {**write(coming(1)), "facts": 3},
        {**write(coming(1)), "mtls": "key"},
    ],
)
def test_members_with_strange_first_messages(hello: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with listening(Heard()) as (_, address):
            host, port = address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            codec = LineCodec(SECRET, CONVERSATION, server=False)
            codec.read_greeting(await reader.readline())
            writer.write(codec.pack(hello))
            answer = read(HeadMessage, codec.unpack(await reader.readline()))
            writer.close()
            assert isinstance(answer, Refused)
            assert "first message is malformed" in answer.why

    asyncio.run(scenario())


async def _alive(uplink: Uplink) -> None:
    while True:
        uplink.send(Alive())
        await asyncio.sleep(0.2)


def test_a_thousand_processes() -> None:
    """All join and all receive an order; `make bench` measures the time."""
    count = 1024 if os.environ.get("PYREACTANT_CI") else 256

    async def one(address: str, process: int) -> HeadMessage:
        uplink = await enter(address, process, timeout=60)
        order = await ordered(uplink, 60)
        uplink.close()
        return order

    async def scenario() -> None:
        heard = Heard()
        async with listening(heard, heartbeat=60, expected=count) as (call, address):
            tasks = [asyncio.create_task(one(address, i)) for i in range(1, count)]
            await until(lambda: len(call.members) == count - 1, 60)
            for member in call.members.values():
                member.send(StopAt(1))
            assert all(got == StopAt(1) for got in await asyncio.gather(*tasks))

    asyncio.run(scenario())
