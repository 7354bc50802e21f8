"""The two ends of a connection of the roll-call: `Member` at process 0, `Uplink` at the other.

A `Member` does without asyncio's streams and transports, which would take most of the time of a
head with ten thousand members.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping

from ...base.errors import PyReactantError, RendezvousError
from ...base.lines import LINE_LIMIT, LineCodec, LineError, RefusedError, encode
from ...base.lines import Message as JsonMessage
from ...base.process import in_thread
from ...process.events import (
    Admitted,
    Alive,
    Event,
    HeadMessage,
    Join,
    Refused,
    read,
    write,
)
from ...process.group.coordinator import NAME_ERRORS, SAME_SECRET, NamePatience
from ...process.group.group import split_address

_CHUNK = 1 << 16
_SUSPENDED = 1.0
"""Seconds beyond a time limit that show that this process was stopped, or its machine asleep."""


class Member:
    """One connection: a stranger's until it is admitted.

    Attributes:
        process: Index of the process; -1 for a stranger.
        peer: Its network address.
        last_heard: When it was accepted or last sent a valid line, in monotonic seconds.

    Args:
        peer: As above.
        codec: Writes and reads its lines.
        take: Called with each authentic line's text; may raise LineError.
        ended: Called once, with the reason, when the connection is closed.
    """

    __slots__ = (
        "_closed",
        "_codec",
        "_ended",
        "_finishing",
        "_rest",
        "_socket",
        "_take",
        "_unsent",
        "last_heard",
        "peer",
        "process",
    )

    def __init__(
        self,
        connection: socket.socket,
        peer: str,
        codec: LineCodec,
        take: Callable[["Member", bytes], None],
        ended: Callable[["Member", str], None],
    ) -> None:
        self.process, self.peer, self.last_heard = -1, peer, time.monotonic()
        self._socket, self._codec, self._take, self._ended = connection, codec, take, ended
        self._rest, self._unsent = b"", deque[bytes]()
        self._closed = self._finishing = False
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # By number, since `selectors` prints a socket when it looks for one that it does not have.
        asyncio.get_running_loop().add_reader(connection.fileno(), self._read)
        self._write(codec.greeting())

    def send(self, message: HeadMessage) -> None:
        """Send an order; a broken connection is detected by the reader.

        Raises:
            LineError: The message is longer than the limit.
        """
        self.send_text(encode(write(message)))

    def send_text(self, text: bytes) -> None:
        """The same with the order's text, which many connections may share."""
        self._write(self._codec.pack_text(text))

    def refuse(self) -> None:
        """Tell the peer that it does not have the secret."""
        self._write(self._codec.refusal())

    def finish(self) -> None:
        """Send nothing after what was sent; the peer then hangs up."""
        self._finishing = True
        if not self._unsent and not self._closed:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def close(self, why: str) -> None:
        """Close the connection; only the first call has an effect."""
        if self._closed:
            return
        self._closed = True
        loop, number = asyncio.get_running_loop(), self._socket.fileno()
        loop.remove_reader(number)
        if self._unsent:
            loop.remove_writer(number)
        self._socket.close()
        self._unsent.clear()
        self._ended(self, why)

    def _read(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"its connection broke ({error})")
            return
        if not data:
            self.close("its connection closed")
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            for line in lines:
                self._take(self, self._codec.authenticate(line))
                if self._closed:
                    return
            if len(self._rest) > self._codec.line_limit:
                raise LineError(f"its line is longer than {self._codec.line_limit} bytes")
        except LineError as error:
            if self.process < 0:
                self.refuse()
            self.close(f"its connection broke ({error})" if self.process >= 0 else str(error))
            return
        if lines:
            self.last_heard = time.monotonic()

    def _write(self, line: bytes) -> None:
        if self._closed or self._finishing:
            return
        if not self._unsent:
            line = line[self._send(line) :]
            if line:
                asyncio.get_running_loop().add_writer(self._socket.fileno(), self._write_more)
        if line:
            self._unsent.append(line)

    def _send(self, line: bytes) -> int:
        """Send what the kernel takes now; `_read` notices a broken connection."""
        try:
            return self._socket.send(line)
        except BlockingIOError:
            return 0
        except OSError:
            return len(line)

    def _write_more(self) -> None:
        while self._unsent:
            line = self._unsent[0]
            sent = self._send(line)
            if sent < len(line):
                self._unsent[0] = line[sent:]
                return
            self._unsent.popleft()
        asyncio.get_running_loop().remove_writer(self._socket.fileno())
        if self._finishing:
            self.finish()


CONVERSATION = "roll-call"
"""Name of the conversation, which its lines are bound to."""

GREETING = 30.0
"""Seconds to wait for process 0's first line. If very many processes connect at once, its kernel
may drop a connection that this end takes for established."""


def hello(
    index: int,
    count: int,
    facts: Mapping[str, str],
    *,
    mtls: Mapping[str, str] | None = None,
    error: PyReactantError | None = None,
    own_name: str = "",
) -> Join:
    """The first message of a process.

    Args:
        mtls: Its public key, or why it has none.
        error: Why this process cannot start its program.
    """
    why, code = ("", 0) if error is None else (str(error), error.exit_code)
    host, pid = socket.gethostname(), os.getpid()
    return Join(index, count, host, pid, facts, mtls or {}, why, code, own_name)


def own_name() -> str:
    """What this machine's name resolves to on it; "" if that is not known within a second."""
    asking = in_thread(
        lambda: socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    )
    try:
        return str(asking.result(1.0)[0][4][0])
    except (OSError, UnicodeError):  # no such name, or a name server that does not answer
        return ""


class CannotStartError(PyReactantError):
    """Process 0 starts no program with this process; `exit_code` is the one that it gives."""

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
        self.welcome = Admitted()
        self._reader, self._writer, self._codec = reader, writer, codec

    def send(self, message: Event | Join | Alive) -> None:
        """Send a message to process 0; a broken connection is detected by `receive`."""
        if not self._writer.is_closing():  # asyncio would print that it cannot send
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.write(self._codec.pack(write(message)))

    async def receive(self, timeout: float) -> HeadMessage:
        """The next message that this version knows.

        Raises:
            RendezvousError: Process 0 is gone, or silent for `timeout` seconds.
        """
        while (message := read(HeadMessage, await self._receive(timeout))) is None:
            pass
        return message

    async def _receive(self, timeout: float) -> JsonMessage:
        before = time.monotonic()
        try:
            async with asyncio.timeout(timeout):
                line = await self._reader.readline()
        except TimeoutError:
            if time.monotonic() - before > timeout + _SUSPENDED:
                return await self._receive(timeout)  # what came meanwhile can be read now
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


async def resolve_host(address: str, timeout: float, progress: Callable[[str], None]) -> None:
    """Wait until the host of an address resolves.

    Args:
        progress: Called after each failed attempt with the reason.

    Raises:
        RequirementError: It does not.
    """
    host, port = split_address(address)
    patience = NamePatience(address, time.monotonic() + timeout)
    while True:
        try:
            await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return
        except NAME_ERRORS as error:
            progress(patience.after(error))
        await asyncio.sleep(0.1)


async def join(
    address: str,
    secret: bytes,
    hello: Join,
    *,
    timeout: float,
    progress: Callable[[str], None],
) -> Uplink:
    """Connect to process 0, which may not listen yet, and join the roll-call.

    Args:
        progress: Called after each failed attempt with the reason.

    Raises:
        RequirementError: The host of process 0 does not resolve.
        RendezvousError: Process 0 was not reached in time, or refused this process.
        CannotStartError: Process 0 cannot start its program, or the run goes on without this one.
    """
    deadline = time.monotonic() + timeout
    patience = NamePatience(address, deadline)
    while True:
        try:
            left = deadline - time.monotonic()
            return await _enter(address, secret, hello, max(5.0, left))
        except NAME_ERRORS as error:
            why = patience.after(error)
        except TimeoutError:
            why = "no answer"
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
        except (ValueError, _GreetingError, _GoneError) as error:
            why = str(error)
        if time.monotonic() > deadline:
            raise RendezvousError(
                f"process {hello.process} could not reach process 0 at {address} within "
                f"{timeout:g} s: {why}; check that process 0 runs on that host and that no "
                "firewall blocks the port"
            )
        progress(why)
        await asyncio.sleep(0.1)


class _GreetingError(RendezvousError):
    """The listener is not the roll-call of this version of pyreactant."""


async def _enter(address: str, secret: bytes, hello: Join, timeout: float) -> Uplink:
    """Try once to connect and join."""
    host, port = split_address(address)
    codec = LineCodec(secret, CONVERSATION, server=False)
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(host, port, limit=LINE_LIMIT)
    uplink = Uplink(reader, writer, codec)
    try:
        async with asyncio.timeout(min(timeout, GREETING)):
            greeting = await reader.readline()
        try:
            codec.read_greeting(greeting)
        except LineError as error:
            raise _GreetingError(str(error)) from None
        own, head = (writer.get_extra_info(end)[0] for end in ("sockname", "peername"))
        uplink.send(hello.but(address=own, head=head))
        try:
            answer = await uplink.receive(timeout)
        except _GoneError:
            raise _GoneError("process 0 ended the handshake, which took too long") from None
        match answer:
            case Admitted():
                uplink.welcome = answer
            case Refused(why, None):
                raise RendezvousError(f"process 0 refused this process: {why}")
            case Refused(why, int(code)):
                raise CannotStartError(why, code)
    except BaseException:
        uplink.close()
        raise
    return uplink
