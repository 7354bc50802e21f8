"""JSON lines over a socket, each with a code that proves that its sender knows a secret.

The server speaks first and gives a nonce; the client's first line gives its own. Both derive one
key from the secret, the name of the conversation and the two nonces. Every line carries
HMAC-SHA256 under that key over its direction, its number and its text. So a peer without the
secret is refused before its messages are parsed, no line can be replayed in the same or another
conversation, and each end knows that the other has the secret. Nothing is encrypted: the messages
(host names, versions, tracebacks) are not secret.

A server also limits what strangers can cost it: the length of a first line, the seconds until it
comes, and the number of connections that have not sent one.
"""

import contextlib
import hmac
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from .errors import RendezvousError

Message = dict[str, Any]

LINE_LIMIT = 1 << 18
"""Longest line, in bytes, unless a conversation sets another limit."""

FIRST_LIMIT = 1 << 16
"""Longest line of a peer that has not shown the secret."""

HANDSHAKE = 10.0
"""Seconds within which a new connection must show the secret."""

HANDSHAKES = 400
"""Handshakes of a second, if very many processes come at once and the machines are busy."""

_STRANGERS = 128  # unauthenticated connections that a server keeps, if it may open so many files
_DEPTH = 32  # of a message: lists and objects within each other
_VERSION = 2  # of this protocol; increment it with every change
_NONCE = 32
_REFUSED = b"REFUSED "
_TIMEOUT = 10.0


def encode(message: Mapping[str, Any]) -> bytes:
    """The text of a message."""
    return json.dumps(message, separators=(",", ":")).encode()


class LineError(RendezvousError):
    """A line that breaks the protocol."""


class SecretError(LineError):
    """The other end does not have the secret."""


class RefusedError(LineError):
    """The other end reports that this end does not have its secret."""


def strangers_kept(expected: int) -> int:
    """Number of unauthenticated connections that a server keeps; then it closes the oldest.

    They take at most a quarter of the files that this process may open beside the expected ones.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = max(_STRANGERS, 2 * expected)
    if files == resource.RLIM_INFINITY:
        return most
    return max(8, min(most, (files - expected) // 4))


Connection = TypeVar("Connection", bound=Hashable)


class Strangers(Generic[Connection]):
    """A server's connections that have not shown the secret, and how long it keeps them.

    Args:
        expected: Number of processes of the run, which may all connect at once.
    """

    def __init__(self, expected: int, close: Callable[[Connection, str], None]) -> None:
        self._most = strangers_kept(expected)
        self._seconds = HANDSHAKE + expected / HANDSHAKES
        # If very many come at once, they are accepted sooner than they can answer, and each that is
        # closed comes again. So a stranger keeps its place for as long as all of them may need.
        self._keeps_place = self._most / HANDSHAKES
        self._close = close
        self._since: dict[Connection, float] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._since

    def add(self, connection: Connection) -> None:
        """Count the seconds of a new connection."""
        self._since[connection] = time.monotonic()

    def discard(self, connection: Connection) -> None:
        """Forget a connection that has shown the secret, or is closed."""
        self._since.pop(connection, None)

    def make_room(self, absent: int) -> bool:
        """Whether there is room for another; the oldest gives way after its time.

        Args:
            absent: Number of processes that may all be among the strangers.
        """
        if len(self._since) < max(self._most, absent):
            return True
        since = next(iter(self._since.values()))
        if time.monotonic() - since < self._keeps_place:
            return False
        self.close_oldest("too many strangers")
        return True

    def expire(self) -> float | None:
        """Close those that have shown no secret in time.

        Returns:
            Seconds until the time of the next one is over; None if there is none.
        """
        while self._since:
            left = next(iter(self._since.values())) + self._seconds - time.monotonic()
            if left > 0:
                return left
            # It may be a process on a busy machine: it hears nothing about the secret, and retries.
            self.close_oldest(f"sent nothing within {self._seconds:.0f} s")
        return None

    def close_all(self, why: str) -> None:
        """Close all of them."""
        while self._since:
            self.close_oldest(why)

    def close_oldest(self, why: str) -> None:
        """Close the one that came first, if there is one."""
        if oldest := next(iter(self._since), None):
            del self._since[oldest]
            self._close(oldest, why)


class LineCodec:
    """Writes and reads the lines of one end of a connection; it does no input or output.

    Args:
        secret: Both ends must have the same.
        conversation: Such as "roll-call". A line of one conversation is invalid in any other.
        server: Whether this end accepted the connection.
    """

    def __init__(
        self, secret: bytes, conversation: str, *, server: bool, limit: int = LINE_LIMIT
    ) -> None:
        self.limit = limit
        self._secret = secret
        self._conversation = conversation
        self._greeting = f"pyreactant {conversation} {_VERSION} ".encode()
        self._out, self._in = (b"s", b"c") if server else (b"c", b"s")
        self._nonce = os.urandom(_NONCE).hex().encode()
        self._keyed: hmac.HMAC | None = None
        self._sent = self._received = 0

    @property
    def is_ready(self) -> bool:
        """Whether this end has the other's nonce, without which it cannot write."""
        return self._keyed is not None

    @property
    def line_limit(self) -> int:
        """Longest line that the other end may send now, in bytes."""
        authenticated = self._received > 0 or self._in == b"s"
        return self.limit if authenticated else min(self.limit, FIRST_LIMIT)

    def greeting(self) -> bytes:
        """The server's first line."""
        return self._greeting + self._nonce + b"\n"

    def refusal(self) -> bytes:
        """The server's answer to a client without the secret, instead of any message."""
        return _REFUSED + b"this connection has not shown the run's secret\n"

    def read_greeting(self, line: bytes) -> None:
        """Read the server's first line.

        Raises:
            LineError: It is another kind of server, or another version.
        """
        nonce = line.removeprefix(self._greeting).rstrip(b"\n")
        if not line.startswith(self._greeting) or not _is_nonce(nonce):
            raise LineError(
                f"the server is not the {self._conversation} of this version of pyreactant"
            )
        self._derive_key(nonce, self._nonce)

    def pack(self, message: Message) -> bytes:
        """A line for the other end; the client's first one also brings its nonce.

        Raises:
            LineError: The line is longer than the limit.
        """
        return self.pack_text(encode(message))

    def pack_text(self, text: bytes) -> bytes:
        """The same for a message's text, which several connections may share.

        Raises:
            LineError: The line is longer than the limit.
        """
        first = self._out == b"c" and self._sent == 0
        line = self._code(self._out, self._sent, text) + b" " + text + b"\n"
        line = self._nonce + b" " + line if first else line
        limit = min(self.limit, FIRST_LIMIT) if first else self.limit
        if len(line) > limit:
            raise LineError(f"a message of {len(line)} bytes is longer than {limit}")
        self._sent += 1  # a message that is too long is not sent; the next one takes its number
        return line

    def unpack(self, line: bytes) -> Message:
        """The message in a line from the other end.

        Raises:
            SecretError: The sender does not have the secret.
            RefusedError: The server reports that this client does not have the secret.
            LineError: The line is not a message.
        """
        if not line.endswith(b"\n"):
            raise LineError("the connection ended within a line")
        return parse(self.authenticate(line[:-1]))

    def authenticate(self, line: bytes) -> bytes:
        """The text of a message in a line without its end, once its code is seen to be right.

        Raises:
            SecretError, RefusedError, LineError: As `unpack`.
        """
        if len(line) >= self.line_limit:
            raise LineError(f"its line is longer than {self.line_limit} bytes")
        if self._received == 0 and self._in == b"s" and line.startswith(_REFUSED):
            raise RefusedError("the other end has another secret")
        if self._received == 0 and self._in == b"c":
            nonce, _, line = line.partition(b" ")
            if not _is_nonce(nonce):
                raise SecretError("its first line has no nonce")
            self._derive_key(self._nonce, nonce)
        code, _, text = line.partition(b" ")
        if not hmac.compare_digest(code, self._code(self._in, self._received, text)):
            raise SecretError("it does not have this run's secret")
        self._received += 1
        return text

    def _derive_key(self, server_nonce: bytes, client_nonce: bytes) -> None:
        data = self._greeting + server_nonce + client_nonce
        key = hmac.digest(self._secret, data, "sha256")
        self._keyed = hmac.new(key, digestmod="sha256")  # a copy costs half of a new one

    def _code(self, direction: bytes, number: int, text: bytes) -> bytes:
        assert self._keyed is not None, "greeting first"
        keyed = self._keyed.copy()
        keyed.update(b"%s %d %s" % (direction, number, text))
        return keyed.hexdigest().encode()


def _is_nonce(text: bytes) -> bool:
    return len(text) == 2 * _NONCE and not text.strip(b"0123456789abcdef")


def parse(text: bytes) -> Message:
    """The message in the text of an authentic line.

    Raises:
        LineError: The text is not a message.
    """
    try:
        message = json.loads(text.decode())
    except (ValueError, RecursionError):
        raise LineError("its message is not JSON") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise LineError("its message has no type")
    deep = text.count(b"{") + text.count(b"[") > _DEPTH
    if deep and not _is_flat(message, _DEPTH):
        raise LineError(f"its message is nested deeper than {_DEPTH} levels")
    return message


def _is_flat(message: Any, depth: int) -> bool:
    """Whether a message's lists and objects are nested at most so deep; that needs no recursion."""
    level = [message]
    for _ in range(depth):
        containers = [value for value in level if isinstance(value, dict | list)]
        if not containers:
            return True
        level = [x for c in containers for x in (c.values() if isinstance(c, dict) else c)]
    return not any(isinstance(value, dict | list) for value in level)


class LineSocket:
    """A connected socket that carries such lines, for code that waits with `selectors`.

    Any thread may send, one receives.
    A server's end sends its greeting at once. A client's end sends its first messages when the
    greeting has come.
    """

    def __init__(
        self,
        connection: socket.socket,
        secret: bytes,
        conversation: str,
        *,
        server: bool,
        limit: int = LINE_LIMIT,
    ) -> None:
        self.connection = connection
        self._codec = LineCodec(secret, conversation, server=server, limit=limit)
        self._greeted = server
        self._unsent: list[Message] = []
        self._buffer = b""
        self._sending = threading.RLock()
        if server:
            self._write(self._codec.greeting())

    def send(self, message: Message) -> None:
        """Send a message; a broken connection is detected by the reader.

        Raises:
            LineError: The message is longer than the limit.
        """
        with self._sending:
            if self._codec.is_ready:
                self._write(self._codec.pack(message))
            else:
                self._unsent.append(message)

    def refuse(self) -> None:
        """Tell the client that it does not have the secret."""
        self._write(self._codec.refusal())

    def receive(self) -> list[Message]:
        """The messages that have arrived; to be called when the socket is readable.

        Raises:
            OSError: The connection is closed or broken.
            LineError: As `LineCodec.unpack`, or a line is longer than the limit.
        """
        self.connection.settimeout(_TIMEOUT)
        data = self.connection.recv(1 << 16)
        if not data:
            raise ConnectionError("the other end closed the connection")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        messages = []
        for line in lines:
            if self._greeted:
                messages.append(self._codec.unpack(line + b"\n"))
                continue
            self._codec.read_greeting(line + b"\n")
            self._greeted = True
            while self._unsent:
                self.send(self._unsent.pop(0))
        if len(self._buffer) > self._codec.line_limit:
            raise LineError(f"its line is longer than {self._codec.line_limit} bytes")
        return messages

    def detect_silence(self, seconds: float) -> None:
        """Have the kernel break the connection to a machine that is silent for so long.

        Nobody closes the connection of a machine that loses power or its network.
        """
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            third = max(1, round(seconds / 3))
            for option, value in (
                (socket.TCP_KEEPIDLE, third),
                (socket.TCP_KEEPINTVL, third),
                (socket.TCP_KEEPCNT, 3),
                (socket.TCP_USER_TIMEOUT, max(1000, round(seconds * 1000))),
            ):
                self.connection.setsockopt(socket.IPPROTO_TCP, option, value)

    def shut_down(self) -> None:
        """Let the readers of both ends see the end of the connection."""
        with self._sending, contextlib.suppress(OSError):  # it is closed already
            self.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _write(self, line: bytes) -> None:
        try:
            self.connection.settimeout(_TIMEOUT)
            self.connection.sendall(line)
        except OSError:
            self.shut_down()  # after part of a line, nothing that follows is valid
