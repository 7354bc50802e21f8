"""The roll-call: process 0 listens, every other process connects with the run's secret."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .._errors import RendezvousError
from .._system.lines import LINE_LIMIT, LineCodec, LineError, Message, RefusedError
from ..process_group._coordinator import is_loopback
from ..process_group._group import split_address
from ..process_group._secret import SAME_SECRET

CONVERSATION = "roll-call"
"""What the lines of a roll-call are bound to."""

_STRANGERS = 128
"""Connections that have not shown the secret yet, at least; more push out the oldest."""

_HANDSHAKE = 10.0
"""Seconds in which a stranger must show it."""


@dataclass(slots=True)
class Member:
    """A connected process, seen from process 0."""

    process: int
    writer: asyncio.StreamWriter
    codec: LineCodec
    heard: float

    def send(self, message: Mapping[str, Any]) -> None:
        """Send an order; what cannot be sent is noticed by who reads."""
        with contextlib.suppress(OSError, RuntimeError):
            self.writer.write(self.codec.pack(dict(message)))


class RollCall:
    """Process 0's end: admits who has the secret, and passes on what they say.

    Args:
        secret: The run's.
        admit: Gets the first message of a peer that has the secret; gives why it is refused,
            or nothing.
        hear: Gets every later message.
        lose: Gets the process and the reason when nothing more can come.
        heartbeat_timeout: Seconds without a word after which a member is lost.
    """

    def __init__(
        self,
        secret: bytes,
        admit: Callable[[Message], str | None],
        hear: Callable[[Message], None],
        lose: Callable[[int, str], None],
        heartbeat_timeout: float,
    ) -> None:
        self.members: dict[int, Member] = {}
        self.refused: list[str] = []
        self._secret = secret
        self._admit, self._hear, self._lose = admit, hear, lose
        self._heartbeat_timeout = heartbeat_timeout
        self._strangers: dict[asyncio.StreamWriter, None] = {}
        self._room = _STRANGERS
        self._server: asyncio.Server | None = None
        self._heartbeat: asyncio.Task[None] | None = None

    async def listen(self, address: str, expected: int) -> None:
        """Start to listen on the address's port.

        Raises:
            RendezvousError: The port is taken.
        """
        host, port = split_address(address)
        self._room = max(_STRANGERS, 2 * expected)
        bind = host if is_loopback(address) else None
        try:
            self._server = await asyncio.start_server(
                self._serve, bind, port, limit=LINE_LIMIT, backlog=self._room
            )
        except socket.gaierror as error:
            raise RendezvousError(
                f"process 0 must listen at {address}, but {host!r} does not resolve here "
                f"({error.strerror})"
            ) from None
        except OSError as error:
            raise RendezvousError(
                f"process 0 must listen on port {port} of this machine for the roll-call, but "
                f"it cannot be bound ({os.strerror(error.errno or 0)}); choose another port in "
                "PYREACTANT_COORDINATOR_ADDRESS, the same on every process"
            ) from None
        self._heartbeat = asyncio.create_task(self._beat())

    async def close(self) -> None:
        """Stop listening and say goodbye."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self._server is not None:
            self._server.close()
        writers = [m.writer for m in self.members.values()]
        self.members = {}
        for writer in [*writers, *self._strangers]:
            writer.close()
        for writer in writers:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        member: Member | None = None
        why = "its connection closed"
        try:
            member = await self._welcome(reader, writer)
            while member is not None and (line := await reader.readline()):
                member.heard = time.monotonic()
                message = member.codec.unpack(line)
                if message["type"] != "alive":
                    # Whatever it says of other processes, it speaks for its own only.
                    self._hear({**message, "process": member.process})
        except (OSError, ValueError, LineError) as error:
            why = f"its connection broke ({error})"
        except asyncio.CancelledError:
            pass  # the run is over; asyncio's streams would print a traceback for it
        finally:
            writer.close()
            if member is not None and self.members.get(member.process) is member:
                del self.members[member.process]
                self._lose(member.process, why)

    async def _welcome(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Member | None:
        """The member that a stranger turns out to be, or nothing."""
        codec = LineCodec(self._secret, CONVERSATION, server=True)
        self._strangers[writer] = None
        if len(self._strangers) > self._room:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        try:
            writer.write(codec.greeting())
            async with asyncio.timeout(_HANDSHAKE):
                hello = codec.unpack(await reader.readline())
        except (OSError, ValueError, LineError, TimeoutError) as error:
            why = "sent nothing" if isinstance(error, TimeoutError) else str(error)
            self._turn_away(writer, codec, why)
            return None
        finally:
            self._strangers.pop(writer, None)
        try:
            refused = self._admit(hello)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            refused = f"its first message lacks or mistakes {error}"
        if refused is not None:
            writer.write(codec.pack({"type": "refused", "why": refused}))
            return None
        member = Member(int(hello["process"]), writer, codec, time.monotonic())
        self.members[member.process] = member
        member.send({"type": "admitted"})
        return member

    def _turn_away(self, writer: asyncio.StreamWriter, codec: LineCodec, why: str) -> None:
        peer = (writer.get_extra_info("peername") or ("unknown",))[0]
        if len(self.refused) < 20:
            self.refused.append(f"a connection from {peer}: {why}")
        with contextlib.suppress(OSError, RuntimeError):
            writer.write(codec.refusal())

    async def _beat(self) -> None:
        """Tell the members that this process lives, and give up those that say nothing."""
        period = min(1.0, self._heartbeat_timeout / 4)
        before = time.monotonic()
        while True:
            await asyncio.sleep(period)
            now = time.monotonic()
            asleep = max(0.0, now - before - 2 * period)  # this process was, and not the members
            before = now
            for member in list(self.members.values()):
                member.heard += asleep
                member.send({"type": "alive"})
                if now - member.heard > self._heartbeat_timeout:
                    del self.members[member.process]
                    member.writer.transport.abort()
                    silent = f"nothing heard for {now - member.heard:.0f} s"
                    self._lose(
                        member.process, f"{silent}; its machine or the network to it is down"
                    )


class _GoneError(RendezvousError):
    """The connection to process 0 is no more."""


class Uplink:
    """Every other process's end of the roll-call."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, codec: LineCodec
    ) -> None:
        self._reader, self._writer, self._codec = reader, writer, codec

    def send(self, message: Mapping[str, Any]) -> None:
        """Tell process 0."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(self._codec.pack(dict(message)))

    async def receive(self, timeout: float) -> Message:
        """The next order.

        Raises:
            RendezvousError: Process 0 is gone, or says nothing for `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                line = await self._reader.readline()
        except TimeoutError:
            raise RendezvousError(
                f"nothing heard from process 0 for {timeout:g} s; its machine or the network to it "
                "is down"
            ) from None
        except (OSError, ValueError) as error:
            raise _GoneError(f"the connection to process 0 broke ({error})") from None
        if not line:
            raise _GoneError("process 0 has gone")
        try:
            return self._codec.unpack(line)
        except RefusedError:
            raise RendezvousError(
                "process 0 refused this process: the run's secret differs between the two; "
                f"{SAME_SECRET}"
            ) from None

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def join(
    address: str,
    secret: bytes,
    hello: Mapping[str, Any],
    timeout: float,
    progress: Callable[[str], None],
) -> Uplink:
    """Connect to process 0, which may not listen yet, and be admitted.

    Raises:
        RendezvousError: Not in time, or refused.
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
                "firewall closes the port"
            )
        progress(why)
        await asyncio.sleep(0.1)


class _GreetingError(RendezvousError):
    """What listens there is something else."""


async def _enter(address: str, secret: bytes, hello: Mapping[str, Any], timeout: float) -> Uplink:
    """One try to connect and to be admitted."""
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
        answer = await uplink.receive(timeout)
        if answer["type"] == "refused":
            raise RendezvousError(f"process 0 refused this process: {answer['why']}")
    except BaseException:
        uplink.close()
        raise
    return uplink
