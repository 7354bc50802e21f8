"""The roll-call: process 0's supervisor listens; the others connect with the run's secret."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .._errors import PyReactantError, RendezvousError
from .._system.lines import (
    HANDSHAKE,
    LINE_LIMIT,
    LineCodec,
    LineError,
    Message,
    RefusedError,
    encode,
    strangers_kept,
)
from ..process_group._coordinator import is_loopback
from ..process_group._group import split_address
from ..process_group._secret import SAME_SECRET

CONVERSATION = "roll-call"
"""Name of the conversation, which its lines are bound to."""

_HANDSHAKES = 400
"""Handshakes of a second, if very many processes come at once."""

_BEATS = 1024
"""Heartbeats of a second, from all members together."""

_HANG_UP = 5.0
"""Seconds to wait at the end while no member hangs up."""


def heartbeat_period(timeout: float, members: int) -> float:
    """Seconds between heartbeats.

    Args:
        timeout: Seconds without a heartbeat after which a supervisor is lost.
        members: Number of processes of the run.
    """
    return min(max(1.0, members / _BEATS), timeout / 4)


@dataclass(slots=True)
class Member:
    """An admitted process, as process 0 sees it; `last_heard` is in monotonic seconds."""

    process: int
    writer: asyncio.StreamWriter
    codec: LineCodec
    last_heard: float

    def send(self, message: Mapping[str, Any]) -> None:
        """Send an order; a broken connection is detected by the reader."""
        self.write(encode(message))

    def write(self, text: bytes) -> None:
        """The same with the order's text."""
        with contextlib.suppress(OSError, RuntimeError):
            self.writer.write(self.codec.pack_text(text))


class RollCall:
    """Process 0's end: admits peers that have the secret, and passes on their messages.

    Args:
        secret: The run's secret.
        admit: Called with the first message of a peer that has the secret; returns why the peer
            is refused, or None.
        receive: Called with every later message.
        lose: Called with the process index and the reason when a member is lost.
        heartbeat_timeout: Seconds without a message after which a member is lost.
        welcome: Called with the first message of a peer that has the secret; returns what a new
            member is told.
        refusal_code: Exit code of the processes that are refused; None if their own decides.
    """

    def __init__(
        self,
        secret: bytes,
        admit: Callable[[Message], str | None],
        receive: Callable[[Message], None],
        lose: Callable[[int, str], None],
        *,
        heartbeat_timeout: float,
        welcome: Callable[[Message], Message] = lambda _: {},
        refusal_code: int | None = None,
    ) -> None:
        self.members: dict[int, Member] = {}
        self.refused: list[str] = []
        self._secret = secret
        self._admit, self._receive, self._lose = admit, receive, lose
        self._welcome, self._refusal_code = welcome, refusal_code
        self._heartbeat_timeout = heartbeat_timeout
        self._unauthenticated: dict[asyncio.StreamWriter, None] = {}
        self._max_unauthenticated = strangers_kept(0)
        self._handshake, self._period = HANDSHAKE, 1.0
        self._server: asyncio.Server | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self._closing = False
        self._left = asyncio.Event()

    async def listen(self, address: str, expected: int) -> None:
        """Start to listen on the address's port.

        Args:
            address: Address of process 0, HOST:PORT.
            expected: Number of processes of the run.

        Raises:
            RendezvousError: The port is in use, or the host does not resolve.
        """
        host, port = split_address(address)
        self._max_unauthenticated = strangers_kept(expected)
        self._handshake = HANDSHAKE + expected / _HANDSHAKES
        self._period = heartbeat_period(self._heartbeat_timeout, expected)
        bind = host if is_loopback(address) else None
        try:
            self._server = await asyncio.start_server(
                self._serve, bind, port, limit=LINE_LIMIT, backlog=self._max_unauthenticated
            )
        except socket.gaierror as error:
            raise RendezvousError(
                f"process 0 must listen at {address}, but {host!r} does not resolve here "
                f"({error.strerror}); set PYREACTANT_COORDINATOR_ADDRESS to an address of this "
                "machine, the same on every process"
            ) from None
        except OSError as error:
            raise RendezvousError(
                f"process 0 must listen on port {port} of this machine for the roll-call, but "
                f"it cannot be bound ({os.strerror(error.errno or 0)}); choose another port in "
                "PYREACTANT_COORDINATOR_ADDRESS, the same on every process"
            ) from None
        self._heartbeat = asyncio.create_task(self._exchange_heartbeats())

    def broadcast(self, message: Mapping[str, Any]) -> None:
        """Send an order to every member."""
        text = encode(message)
        for member in list(self.members.values()):
            member.write(text)

    async def close(self) -> None:
        """Stop listening, and close each connection once its member has hung up.

        A connection that is closed while words of the member lie unread is reset, and the member
        may then never read its last order.
        """
        self._closing = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self._server is not None:
            self._server.close()
        for writer in self._unauthenticated:
            writer.transport.abort()
        for member in list(self.members.values()):
            with contextlib.suppress(OSError, RuntimeError):
                member.writer.write_eof()
        with contextlib.suppress(TimeoutError):
            while self.members:
                self._left.clear()
                async with asyncio.timeout(_HANG_UP):
                    await self._left.wait()
        for member in list(self.members.values()):
            member.writer.transport.abort()
        self.members.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        member: Member | None = None
        why = "its connection closed"
        try:
            member = await self._authenticate(reader, writer)
            while member is not None and (line := await reader.readline()):
                member.last_heard = time.monotonic()
                message = member.codec.unpack(line)
                if message["type"] != "alive":
                    # A member can report events of its own process only.
                    self._receive({**message, "process": member.process})
        except (OSError, ValueError, LineError) as error:
            why = f"its connection broke ({error})"
        except asyncio.CancelledError:
            pass  # the run is over; asyncio's streams would print a traceback
        finally:
            writer.close()
            if member is not None and self.members.get(member.process) is member:
                del self.members[member.process]
                self._left.set()
                if not self._closing:
                    self._lose(member.process, why)

    async def _authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Member | None:
        """The new member behind a connection, or None if it is refused."""
        codec = LineCodec(self._secret, CONVERSATION, server=True)
        self._unauthenticated[writer] = None
        if len(self._unauthenticated) > self._max_unauthenticated:
            oldest = next(iter(self._unauthenticated))
            del self._unauthenticated[oldest]
            oldest.transport.abort()
        try:
            writer.write(codec.greeting())
            async with asyncio.timeout(self._handshake):
                hello = codec.unpack(await reader.readline())
        except TimeoutError:
            # It may be a member on a busy machine: it hears nothing about the secret, and retries.
            self._note_refused(writer, f"sent nothing within {self._handshake:.0f} s")
            return None
        except (OSError, ValueError, LineError) as error:
            self._note_refused(writer, str(error))
            with contextlib.suppress(OSError, RuntimeError):
                writer.write(codec.refusal())
            return None
        finally:
            self._unauthenticated.pop(writer, None)
        try:
            welcome = self._welcome(hello)
            refused = self._admit(hello)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            refused = f"its first message is malformed ({error})"
        if refused is not None:
            answer = {"type": "refused", "why": refused, "exit_code": self._refusal_code}
            writer.write(codec.pack(answer))
            return None
        member = Member(int(hello["process"]), writer, codec, time.monotonic())
        self.members[member.process] = member
        member.send({**welcome, "type": "admitted"})
        return member

    def _note_refused(self, writer: asyncio.StreamWriter, why: str) -> None:
        peer = (writer.get_extra_info("peername") or ("unknown",))[0]
        if len(self.refused) < 20:
            self.refused.append(f"a connection from {peer}: {why}")

    async def _exchange_heartbeats(self) -> None:
        """Send heartbeats to the members, and drop those that are silent for too long."""
        period = self._period
        before = time.monotonic()
        while True:
            await asyncio.sleep(period)
            now = time.monotonic()
            suspended = max(0.0, now - before - 2 * period)  # this process, not the members
            before = now
            self.broadcast({"type": "alive"})
            for member in list(self.members.values()):
                member.last_heard += suspended
                silence = now - member.last_heard
                if silence > self._heartbeat_timeout:
                    del self.members[member.process]
                    member.writer.transport.abort()
                    self._lose(
                        member.process,
                        f"no heartbeat for {silence:.0f} s; its machine or the network to it is "
                        "down",
                    )


class CannotStartError(PyReactantError):
    """Process 0 cannot start its program; `exit_code` is its own."""

    def __init__(self, why: str, exit_code: int) -> None:
        super().__init__(why)
        self.exit_code = exit_code


class _GoneError(RendezvousError):
    """The connection to process 0 is closed or broken."""


class Uplink:
    """Every other process's end of the roll-call.

    Attributes:
        welcome: What process 0 answered to the first message.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, codec: LineCodec
    ) -> None:
        self.welcome: Message = {}
        self._reader, self._writer, self._codec = reader, writer, codec

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to process 0; a broken connection is detected by `receive`."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(self._codec.pack(dict(message)))

    async def receive(self, timeout: float) -> Message:
        """The next order.

        Raises:
            RendezvousError: Process 0 is gone, or silent for `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                line = await self._reader.readline()
        except TimeoutError:
            raise RendezvousError(
                f"no heartbeat from process 0 for {timeout:g} s; its machine or the network to it "
                "is down"
            ) from None
        except (OSError, ValueError) as error:
            raise _GoneError(f"the connection to process 0 broke ({error})") from None
        if not line:
            raise _GoneError("process 0 closed the connection")
        try:
            return self._codec.unpack(line)
        except RefusedError:
            raise RendezvousError(
                "process 0 refused this process: the run's secret differs between the two; "
                f"{SAME_SECRET}"
            ) from None

    def close(self) -> None:
        """Close the connection; what was sent before still goes out."""
        self._writer.close()


async def join(
    address: str,
    secret: bytes,
    hello: Mapping[str, Any],
    *,
    timeout: float,
    progress: Callable[[str], None],
) -> Uplink:
    """Connect to process 0, which may not listen yet, and join the roll-call.

    Args:
        address: Address of process 0, HOST:PORT.
        secret: The run's secret.
        hello: The first message: index, count, host, pid and facts.
        timeout: Seconds to try for.
        progress: Called after each failed attempt with the reason.

    Raises:
        RendezvousError: Process 0 was not reached in time, or refused this process.
        CannotStartError: Process 0 cannot start its program.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return await _enter(address, secret, hello, max(5.0, timeout))
        except socket.gaierror as error:
            host, _ = split_address(address)
            why = f"the host {host!r} does not resolve here ({error.strerror})"
        except TimeoutError:
            why = "no answer"
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
        except (ValueError, _GreetingError, _GoneError) as error:
            why = str(error)
        if time.monotonic() > deadline:
            raise RendezvousError(
                f"process {hello['process']} could not reach process 0 at {address} within "
                f"{timeout:g} s: {why}; check that process 0 runs on that host and that no "
                "firewall blocks the port"
            )
        progress(why)
        await asyncio.sleep(0.1)


class _GreetingError(RendezvousError):
    """The listener is not the roll-call of this version of pyreactant."""


async def _enter(address: str, secret: bytes, hello: Mapping[str, Any], timeout: float) -> Uplink:
    """Try once to connect and join."""
    host, port = split_address(address)
    codec = LineCodec(secret, CONVERSATION, server=False)
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(host, port, limit=LINE_LIMIT)
    uplink = Uplink(reader, writer, codec)
    try:
        async with asyncio.timeout(timeout):
            greeting = await reader.readline()
        try:
            codec.read_greeting(greeting)
        except LineError as error:
            raise _GreetingError(str(error)) from None
        uplink.send(hello)
        try:
            answer = await uplink.receive(timeout)
        except _GoneError:
            raise _GoneError("process 0 ended the handshake, which took too long") from None
        if answer["type"] == "refused" and answer["exit_code"] is not None:
            raise CannotStartError(answer["why"], int(answer["exit_code"]))
        if answer["type"] == "refused":
            raise RendezvousError(f"process 0 refused this process: {answer['why']}")
        uplink.welcome = answer
    except BaseException:
        uplink.close()
        raise
    return uplink
