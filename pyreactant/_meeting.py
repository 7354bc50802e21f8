"""Where the processes of a run meet before the runtime's own rendezvous, and at its barriers.

Reactant's rendezvous can be neither given up nor asked who is missing, and it has no barrier with
a limit. So the processes first come together here: JSON lines over TCP, with process 0 in the
middle, at the coordinator's address. Its port is free again when the runtime is to listen there;
the connections stay open, and the barriers use them.
"""

import json
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from ._errors import DeadlineError
from .process_group import ProcessGroup

_LINE_BYTES = 1 << 20


class Line:
    """One connection: whole JSON lines in and out, never waiting beyond a deadline."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.host = "?"
        self.count = 0
        self.challenge = secrets.token_hex(16)  # ours, to whoever is at the other end
        self.answer = ""  # theirs to us
        self._buffer = b""

    def send(self, **message: Any) -> None:
        try:
            self.connection.settimeout(10)
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # it is gone, which whoever reads from it will see

    def arrived(self) -> list[dict[str, Any]] | None:
        """The messages that are here, or None where the other end is gone or no peer of ours."""
        try:
            self.connection.settimeout(10)
            data = self.connection.recv(_LINE_BYTES)
        except OSError:
            data = b""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if not data or len(self._buffer) > _LINE_BYTES:
            return None
        try:
            found = [json.loads(line) for line in lines]
        except ValueError:
            return None
        return found if all(isinstance(message, dict) for message in found) else None


class Meeting:
    """The connections of one process: to process 0, or process 0's to all others."""

    def __init__(self, group: ProcessGroup, lines: dict[int, Line]) -> None:
        self._group = group
        self._lines = lines
        self._lost: set[int] = set()
        self._came: set[tuple[int, str]] = set()
        self._answers: dict[str, list[int]] = {}
        self._told: dict[tuple[int, str], Any] = {}
        self._all: dict[str, list[Any]] = {}

    def watch(self, seconds: float) -> None:
        """Let the kernel find a machine that is cut off: nobody closes its connection."""
        for line in self._lines.values():
            line.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
                third = max(1, round(seconds / 3))
                for option, value in (
                    (socket.TCP_KEEPIDLE, third),
                    (socket.TCP_KEEPINTVL, third),
                    (socket.TCP_KEEPCNT, 3),
                    (socket.TCP_USER_TIMEOUT, max(1000, round(seconds * 1000))),
                ):
                    line.connection.setsockopt(socket.IPPROTO_TCP, option, value)

    def barrier(self, name: str, timeout: float) -> None:
        """Wait until every process has come to the barrier of this name. Collective.

        Args:
            name: Used once only.
            timeout: Seconds to wait.

        Raises:
            DeadlineError: Names the processes that did not come, or that are lost.
        """
        if self._group.process_index == 0:
            missing = self._wait(
                lambda: {i for i in self._lines if (i, name) not in self._came}, timeout
            )
            for index, line in self._lines.items():
                self._came.discard((index, name))
                line.send(barrier=name, missing=sorted(missing))
        else:
            self._lines[0].send(came=name)
            waited = self._wait(lambda: set() if name in self._answers else {0}, timeout)
            if waited:
                self._lines[0].send(left=name)
            missing = waited or set(self._answers.pop(name))
        if missing:
            raise DeadlineError(
                f"not every process came to barrier {name!r} within {timeout:g} s, or one was "
                f"lost: {self._who(missing)}"
            )

    def exchange(self, name: str, mine: Any, timeout: float) -> list[Any]:
        """Small plain data of every process, by process. Collective.

        Args:
            name: Used once only.
            mine: What `json.dumps` takes.
            timeout: Seconds to wait.

        Raises:
            DeadlineError: As `barrier`.
        """
        if self._group.process_index > 0:
            self._lines[0].send(told=name, data=mine)
        self.barrier(f"{name}, told", timeout)
        if self._group.process_index == 0:
            all_of_it = [mine, *(self._told.pop((i, name)) for i in sorted(self._lines))]
            for line in self._lines.values():
                line.send(all=name, data=all_of_it)
            return all_of_it
        missing = self._wait(lambda: set() if name in self._all else {0}, timeout)
        if missing:
            raise DeadlineError(f"process 0 did not tell what the others said of {name!r}")
        return self._all.pop(name)

    def _wait(self, missing: Callable[[], set[int]], timeout: float) -> set[int]:
        """Take messages until nobody is missing, somebody who is has been lost, or time is up."""
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for index, line in self._lines.items():
                if index not in self._lost:
                    selector.register(line.connection, selectors.EVENT_READ, index)
            while (absent := missing()) and not absent & self._lost:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                for key, _ in selector.select(left):
                    if not self._take(key.data):
                        selector.unregister(key.fileobj)
        return absent & self._lost or absent

    def _take(self, index: int) -> bool:
        messages = self._lines[index].arrived()
        if messages is None:
            self._lost.add(index)
            return False
        for message in messages:
            if "came" in message:
                self._came.add((index, message["came"]))
            elif "left" in message:
                self._came.discard((index, message["left"]))
            elif "barrier" in message:
                self._answers[message["barrier"]] = message["missing"]
            elif "told" in message:
                self._told[index, message["told"]] = message["data"]
            elif "all" in message:
                self._all[message["all"]] = message["data"]
        return True

    def _who(self, missing: set[int]) -> str:
        did_not = "did not come" if 0 not in missing else "did not say that all have come"
        return ", ".join(
            f"process {i} {'ended or was cut off' if i in self._lost else did_not}"
            for i in sorted(missing)
        )

    def close(self) -> None:
        """Leave; the others see it as a lost process if they come to another barrier."""
        for line in self._lines.values():
            line.connection.close()
