"""The store of a run on Reactant, over the connections of the processes' meeting.

A thread of process 0 holds the values and serves the others; each of these has a thread that reads
process 0's answers. Both are an `arrays.backend.Store`.
"""

import itertools
import json
import selectors
import threading
from collections.abc import Mapping
from typing import NamedTuple

from ....base.errors import DeadlineError, PeerLostError
from ....base.lines import LineError, LineSocket, Message


class HeldStore:
    """The store in process 0, which holds the values.

    Args:
        lines: The connection to each other process.
        limit: Longest line, in bytes.
    """

    def __init__(self, lines: Mapping[int, LineSocket], limit: int) -> None:
        self._lines = {index: _Line(line) for index, line in lines.items()}
        self._limit = limit
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()  # of the values, the requests and `lost`
        self._requests: dict[str, dict[tuple[int, int], bool]] = {}  # see `_answer`
        self._closed = False
        self.lost: set[int] = set()
        self._thread = threading.Thread(target=self._serve, name="pyreactant store", daemon=True)
        self._thread.start()

    def put(self, key: str, value: str) -> None:
        """See `Store`."""
        size = len(json.dumps([key, value]))
        if size > self._limit - 200:  # of the rest of a line
            raise LineError(f"a value of {size} bytes is longer than {self._limit}")
        with self._changed:
            requests = self._requests.pop(key, {})
            if not any(requests.values()):
                self._values[key] = value
                self._changed.notify_all()
        for index, number in requests:
            self._lines[index].send({"type": "value", "number": number, "value": value})

    def get(self, key: str, timeout: float) -> str | None:
        """See `Store`."""
        with self._changed:
            self._changed.wait_for(
                lambda: key in self._values or self.lost or self._closed, timeout
            )
            if key not in self._values:
                _check_nobody_lost(self.lost, self._closed)
            return self._values.get(key)

    def peek(self, key: str) -> str | None:
        """See `Store`."""
        with self._changed:
            return self._values.get(key)

    def delete(self, prefix: str) -> None:
        """See `Store`."""
        with self._changed:
            for key in [k for k in self._values if k == prefix or k.startswith(f"{prefix}/")]:
                del self._values[key]

    def missing(self, keys: Mapping[int, str], timeout: float) -> set[int]:
        """Wait until every process's key has a value, or a process without one is lost.

        Returns:
            The processes whose key has no value; if some are lost, only these.
        """

        def absent() -> set[int]:
            return {index for index, key in keys.items() if key not in self._values}

        with self._changed:
            self._changed.wait_for(lambda: not absent() or absent() & self.lost, timeout)
            found = absent()
            return found & self.lost or found

    def close(self) -> None:
        """Close the connections; the other processes see this one as lost."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for line in self._lines.values():
            line.shut_down()
        self._thread.join(1)
        for line in self._lines.values():
            line.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            for index, line in self._lines.items():
                selector.register(line.socket.connection, selectors.EVENT_READ, index)
            while selector.get_map():
                for key, _ in selector.select():
                    index = key.data
                    try:
                        for message in self._lines[index].socket.receive():
                            self._handle(index, message)
                    except (OSError, LineError):
                        selector.unregister(key.fileobj)
                        self._lose(index)

    def _handle(self, index: int, message: Message) -> None:
        match message:
            case {"type": "put", "key": str(key), "value": str(value)}:
                self.put(key, value)
            case {"type": "get", "key": str(key), "number": int(number), "take": bool(take)}:
                self._answer(index, number, key, take)
            case {"type": "peek", "key": str(key), "number": int(number)}:
                answer = {"type": "value", "number": number, "value": self.peek(key)}
                self._lines[index].send(answer)
            case {"type": "cancel", "key": str(key), "number": int(number)}:
                with self._changed:
                    self._requests.get(key, {}).pop((index, number), None)
                    if not self._requests.get(key, True):
                        del self._requests[key]
            case {"type": "delete", "prefix": str(prefix)}:
                self.delete(prefix)

    def _answer(self, index: int, number: int, key: str, take: bool) -> None:
        """Send a value to a process, now or when it is there; with `take` delete it then."""
        with self._changed:
            value = self._values.pop(key, None) if take else self._values.get(key)
            if value is None:
                self._requests.setdefault(key, {})[index, number] = take
        if value is not None:
            self._lines[index].send({"type": "value", "number": number, "value": value})

    def _lose(self, index: int) -> None:
        with self._changed:
            closed = self._closed
            self.lost.add(index)
            self._changed.notify_all()
        if not closed:
            for other, line in self._lines.items():
                if other not in self.lost:
                    line.send({"type": "lost", "process": index})


class RemoteStore:
    """The store in the other processes.

    Args:
        line: The connection to process 0.
    """

    def __init__(self, line: LineSocket) -> None:
        self._line = _Line(line)
        self._numbers = itertools.count()
        self._answers: dict[int, str | None] = {}
        self._waiting: set[int] = set()
        self._changed = threading.Condition()
        self._closed = False
        self.lost: set[int] = set()
        self._thread = threading.Thread(target=self._read, name="pyreactant store", daemon=True)
        self._thread.start()

    def put(self, key: str, value: str) -> None:
        """See `Store`."""
        _check_nobody_lost(self.lost & {0}, self._closed)
        self._line.send({"type": "put", "key": key, "value": value})

    def get(self, key: str, timeout: float) -> str | None:
        """See `Store`."""
        value = self.answer(self.ask(key), timeout, need_all=True)
        if value is None and self.lost:
            value = self.peek(key)  # process 0 may have it: a process was lost, not its values
        if value is None:
            _check_nobody_lost(self.lost, self._closed)
        return value

    def ask(self, key: str, *, take: bool = False) -> "Request":
        """Ask process 0 for a key's value, now or later.

        Process 0 answers what is asked before it closes, in the moment in which it has the value.

        Args:
            key: As in `get`.
            take: Delete the key then; nobody else may wait for it.
        """
        return self._ask("get", key, take=take)

    def answer(self, request: "Request", timeout: float, *, need_all: bool = False) -> str | None:
        """Wait for the value; None if the time is over or process 0 is lost.

        Args:
            request: What `ask` returned; asked once only.
            timeout: Seconds to wait.
            need_all: Stop waiting too if another process is lost.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over(request, need_all), timeout)
            self._waiting.discard(request.number)
            if request.number in self._answers:
                return self._answers.pop(request.number)
        self._line.send({"type": "cancel", "key": request.key, "number": request.number})
        return None

    def peek(self, key: str) -> str | None:
        """See `Store`."""
        request = self._ask("peek", key)
        with self._changed:
            self._changed.wait_for(lambda: self._is_over(request, False))
            self._waiting.discard(request.number)
            if request.number not in self._answers:
                _check_nobody_lost(self.lost, self._closed)
            return self._answers.pop(request.number)

    def delete(self, prefix: str) -> None:
        """See `Store`."""
        _check_nobody_lost(self.lost & {0}, self._closed)
        self._line.send({"type": "delete", "prefix": prefix})

    def close(self) -> None:
        """Close the connection; process 0 sees this process as lost."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._line.shut_down()
        self._thread.join(1)
        self._line.close()

    def _ask(self, kind: str, key: str, **more: bool) -> "Request":
        number = next(self._numbers)
        with self._changed:
            self._waiting.add(number)
        self._line.send({"type": kind, "key": key, "number": number, **more})
        return Request(number, key)

    def _is_over(self, request: "Request", need_all: bool) -> bool:
        gone = bool(self.lost) if need_all else 0 in self.lost
        return request.number in self._answers or gone or self._closed

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._line.socket.connection, selectors.EVENT_READ)
            while 0 not in self.lost:
                selector.select()
                try:
                    messages = self._line.socket.receive()
                except (OSError, LineError):
                    messages = [{"type": "lost", "process": 0}]
                for message in messages:
                    self._handle(message)

    def _handle(self, message: Message) -> None:
        with self._changed:
            match message:
                case {"type": "value", "number": int(number), "value": str() | None as value}:
                    if number in self._waiting:
                        self._answers[number] = value
                case {"type": "lost", "process": int(index)}:
                    self.lost.add(index)
            self._changed.notify_all()


class Request(NamedTuple):
    """A question to process 0."""

    number: int
    key: str


class _Line:
    """A connection to which any thread may send."""

    def __init__(self, socket: LineSocket) -> None:
        self.socket = socket
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        with self._lock:
            self.socket.send(message)

    def shut_down(self) -> None:
        """Let the readers of both ends see the end."""
        with self._lock:
            self.socket.shut_down()

    def close(self) -> None:
        self.socket.close()


def _check_nobody_lost(lost: set[int], closed: bool) -> None:
    if closed:
        raise DeadlineError("the connections of this run's processes were closed by shutdown")
    if lost:
        raise PeerLostError(
            f"{', '.join(f'process {i}' for i in sorted(lost))} ended or was cut off, so nothing "
            "more can be agreed with it; see the first error of the run"
        )
