"""What goes over the roll-call's connections: JSON lines, each with a code that proves the secret.

The server speaks first and gives a nonce; the client's first line gives its own. Both make
one key of the secret and the two nonces, and every line carries HMAC-SHA256 under that key over
its direction, its number and its text. So a peer without the secret is refused before
anything it said is parsed, nothing can be replayed, and each end knows that the other has the
secret. Nothing is encrypted: what is said (host names, versions, tracebacks) is no secret.
"""

import hashlib
import hmac
import json
import os
from typing import Any

from .._errors import RendezvousError

GREETING = b"pyreactant roll-call 1 "
LINE_LIMIT = 1 << 18
"""Longest line, in bytes; senders cut long texts so that even escaped they fit."""

_NONCE = 32


class WireError(RendezvousError):
    """A line that is not what this protocol says, or whose sender lacks the secret."""


class Wire:
    """One end of a connection, without the connection: makes lines and reads them."""

    def __init__(self, secret: bytes, server: bool) -> None:
        self._secret = secret
        self._out, self._in = (b"s", b"c") if server else (b"c", b"s")
        self._nonce = os.urandom(_NONCE).hex().encode()
        self._key: bytes | None = None
        self._sent = self._received = 0

    def greeting(self) -> bytes:
        """The server's first line."""
        return GREETING + self._nonce + b"\n"

    def read_greeting(self, line: bytes) -> None:
        """Take the server's first line.

        Raises:
            WireError: It is another kind of server, or another version.
        """
        nonce = line.removeprefix(GREETING).rstrip(b"\n")
        if not line.startswith(GREETING) or not _is_nonce(nonce):
            raise WireError("what listens there is not the roll-call of this version of pyreactant")
        self._agree(nonce, self._nonce)

    def pack(self, message: dict[str, Any]) -> bytes:
        """A line for the other end; the client's first one brings its nonce along."""
        text = json.dumps(message, separators=(",", ":")).encode()
        first = self._out == b"c" and self._sent == 0
        line = self._code(self._out, self._sent, text) + b" " + text + b"\n"
        line = self._nonce + b" " + line if first else line
        if len(line) > LINE_LIMIT:
            raise WireError(f"a message of {len(line)} bytes is longer than {LINE_LIMIT}")
        self._sent += 1  # what is too long is not sent, and the next one takes its number
        return line

    def unpack(self, line: bytes) -> dict[str, Any]:
        """The message in a line of the other end.

        Raises:
            WireError: The sender lacks the secret, or the line is no message.
        """
        if not line.endswith(b"\n"):
            raise WireError("the connection ended within a line")
        line = line[:-1]
        if self._in == b"c" and self._received == 0:
            nonce, _, line = line.partition(b" ")
            if not _is_nonce(nonce):
                raise WireError("its first line has no nonce")
            self._agree(self._nonce, nonce)
        code, _, text = line.partition(b" ")
        if not hmac.compare_digest(code, self._code(self._in, self._received, text)):
            raise WireError("it does not have this run's secret")
        self._received += 1
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            raise WireError("its message is not JSON") from None
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            raise WireError("its message has no type")
        return message

    def _agree(self, server_nonce: bytes, client_nonce: bytes) -> None:
        data = GREETING + server_nonce + client_nonce
        self._key = hmac.digest(self._secret, data, hashlib.sha256)

    def _code(self, direction: bytes, number: int, text: bytes) -> bytes:
        assert self._key is not None, "greeting first"
        data = b"%s %d %s" % (direction, number, text)
        return hmac.digest(self._key, data, hashlib.sha256).hex().encode()


def _is_nonce(text: bytes) -> bool:
    return len(text) == 2 * _NONCE and all(c in b"0123456789abcdef" for c in text)
