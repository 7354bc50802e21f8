"""Messages between the library and this process: 64-bit numbers and byte strings in order."""

import socket
import struct


class Message:
    """A message that is read from its start to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def number(self) -> int:
        (value,) = struct.unpack_from("<q", self._data, self._at)
        self._at += 8
        return int(value)

    def numbers(self) -> list[int]:
        count = self.number()
        values = struct.unpack_from(f"<{count}q", self._data, self._at)
        self._at += 8 * count
        return list(values)

    def bytes(self) -> memoryview:
        size = self.number()
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]

    def text(self) -> str:
        return str(self.bytes(), "utf-8")


class Answer:
    """The parts of a message to send, in order."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []

    def number(self, value: int) -> "Answer":
        self._parts.append(struct.pack("<q", value))
        return self

    def numbers(self, values: list[int]) -> "Answer":
        self._parts.append(struct.pack(f"<{1 + len(values)}q", len(values), *values))
        return self

    def bytes(self, data: bytes | memoryview) -> "Answer":
        self.number(len(data))
        self._parts.append(data)
        return self

    def text(self, value: str) -> "Answer":
        return self.bytes(value.encode("utf-8"))

    def joined(self) -> bytes:
        return b"".join(self._parts)


def receive(connection: socket.socket) -> Message | None:
    """The next message, or None after the last one."""
    size = _exactly(connection, 8)
    if size is None:
        return None
    data = _exactly(connection, struct.unpack("<q", size)[0])
    return None if data is None else Message(data)


def send(connection: socket.socket, answer: Answer) -> None:
    data = answer.joined()
    connection.sendall(struct.pack("<q", len(data)))
    connection.sendall(data)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view = memoryview(data)
    at = 0
    while at < size:
        got = connection.recv_into(view[at:])
        if got == 0:
            return None
        at += got
    return bytes(data)
