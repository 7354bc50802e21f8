"""A connection that the roll-call accepted.

It does without asyncio's streams and transports, which would take most of the time of a head with
ten thousand members.
"""

import asyncio
import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from .._system.lines import LineCodec, LineError, encode

_CHUNK = 1 << 16


class Member:
    """One connection: a stranger's until it is admitted.

    Attributes:
        process: Index of the process; -1 for a stranger.
        peer: Its network address.
        last_heard: When it was accepted or last sent a valid line, in monotonic seconds.

    Args:
        connection: The accepted socket.
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

    def send(self, message: Mapping[str, Any]) -> None:
        """Send an order; a broken connection is detected by the reader.

        Raises:
            LineError: The message is longer than the limit.
        """
        self.send_text(encode(message))

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
