"""Where the processes of a run meet before the runtime's own rendezvous, and what they share then.

Reactant's rendezvous cannot be interrupted, does not say which process is missing, and has no
barrier with a limit. So the processes first come together here, with process 0 in the middle, at
the coordinator's address. They speak authenticated lines (`base/lines.py`). The port is free
again when the runtime is to listen there. The connections stay open: process 0 holds the run's
store and decides barriers. (jaxlib has such a store, but two copies of XLA in a process crash.)
"""

import itertools
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ....base.errors import DeadlineError, PeerLostError, RendezvousError
from ....base.lines import (
    LineError,
    LineSocket,
    Message,
    RefusedError,
    SecretError,
    Strangers,
)
from ....process.group import ProcessGroup
from ....process.group.coordinator import SAME_SECRET, check_coordinator, listen, programs_secret
from ....process.group.group import split_address
from ...backend import Store

CONVERSATION = "meeting"
"""What the lines of a meeting are bound to."""

_LINE_LIMIT = 1 << 20  # bytes: process 0 sends the device ids of all processes in one line

_LOST = "ended or was cut off"
"""What has become of a process whose connection is closed."""

_FULL = 0.02
"""Seconds until the next connection is accepted if there is no room for it."""


class _Outcome(NamedTuple):
    """How an exchange ended: its values, by process, or who is missing and who of them is lost."""

    values: list[Any]
    missing: list[int]
    lost: list[int]


class Meeting(Store):
    """This process among those that have met: the run's store, barriers, and exchanges.

    It asks process 0's `_Registry`, over its connection or in process 0 itself. A thread reads the
    connections. The other methods may be called from any thread.

    Args:
        lines: The connection to process 0, or process 0's to each other process.
        num_processes: Number of processes.
    """

    def __init__(self, lines: Mapping[int, LineSocket], num_processes: int) -> None:
        self._lines = lines
        self._longest = (_LINE_LIMIT - 200) // num_processes  # of what one shares
        self._changed = threading.Condition()  # of everything that messages change
        self._lost: set[int] = set()
        self._closed = False
        self._numbers = itertools.count()
        self._answers: dict[int, Any] = {}
        self._asked: set[int] = set()
        if 0 in lines:
            self._send, self._handle = lines[0].send, self._take
        else:
            registry = _Registry({0: partial(self._take, 0), **{i: lines[i].send for i in lines}})
            self._send, self._handle = partial(registry.handle, 0), registry.handle
        self._thread = threading.Thread(target=self._serve, name="pyreactant meeting", daemon=True)
        self._thread.start()

    def put(self, key: str, value: str) -> None:
        self._check(self._lost & {0})
        size = len(json.dumps([key, value]))
        if size > _LINE_LIMIT - 200:  # of the rest of a line
            raise LineError(f"a value of {size} bytes is longer than {_LINE_LIMIT}")
        self._send({"type": "put", "key": key, "value": value})

    def get(self, key: str, timeout: float) -> str | None:
        value: str | None = self._ask("get", key, timeout)
        if value is None:
            self._check(self._lost)
        return value

    def delete(self, prefix: str) -> None:
        self._check(self._lost & {0})
        self._send({"type": "delete", "key": prefix})

    def barrier(self, name: str, timeout: float) -> None:
        """Wait until every process has come to the barrier of this name. Collective.

        Args:
            name: Used once only, also by exchanges.
            timeout: Seconds to wait.

        Raises:
            DeadlineError: Names the processes that did not come; PeerLostError those that are lost.
        """
        self.exchange(name, None, timeout)

    def exchange(self, name: str, mine: Any, timeout: float) -> list[Any]:
        """Small plain data of every process, by process. Collective.

        Args:
            name: Used once only, also by barriers.
            mine: What `json.dumps` takes.
            timeout: Seconds to wait.

        Raises:
            DeadlineError: As `barrier`.
        """
        size = len(json.dumps(mine))
        if size > self._longest:
            raise LineError(f"a share of {size} bytes is longer than {self._longest}")
        answer = self._ask("share", name, timeout, value=mine)
        values, missing, lost = answer or ([], [0], self._lost & {0})
        if missing:
            did_not = "did not come" if 0 not in missing else "did not say that all have come"
            ends = (f"process {i} {_LOST if i in lost else did_not}" for i in missing)
            raise (PeerLostError if lost else DeadlineError)(
                f"not every process came to barrier {name!r} within {timeout:g} s, or one was "
                f"lost: {', '.join(ends)}"
            )
        return values

    def close(self) -> None:
        """Close the connections. At another barrier, the others would report a lost process."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for line in self._lines.values():
            line.shut_down()
        self._thread.join(1)
        for line in self._lines.values():
            line.close()

    def _ask(self, kind: str, key: str, timeout: float, **more: Any) -> Any:
        """Process 0's answer to a request; None if it has none in time, or is lost."""
        number = next(self._numbers)
        with self._changed:
            self._asked.add(number)
        self._send({"type": kind, "key": key, "number": number, **more})
        with self._changed:
            self._changed.wait_for(
                lambda: number in self._answers or 0 in self._lost or self._closed, timeout
            )
            answered = number in self._answers
        if not answered:
            self._send({"type": "cancel", "key": key, "number": number})
        with self._changed:
            self._asked.discard(number)
            return self._answers.pop(number, None)

    def _check(self, lost: set[int]) -> None:
        """Raise if this meeting is closed, or these processes are lost."""
        if self._closed:
            raise DeadlineError("the connections of this run's processes were closed by shutdown")
        if lost:
            raise PeerLostError(
                f"{', '.join(f'process {i}' for i in sorted(lost))} {_LOST}, so nothing more can "
                "be agreed with it; see the first error of the run"
            )

    def _take(self, index: int, message: Message) -> None:
        """Take a message from process 0, or the end of the connection to it."""
        with self._changed:
            match message:
                case {"type": "answer", "number": int(number), "value": value}:
                    if number in self._asked:
                        self._answers[number] = value
                case {"type": "lost", "process": int(process)}:
                    self._lost.add(process)
            self._changed.notify_all()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            for index, line in self._lines.items():
                selector.register(line.connection, selectors.EVENT_READ, index)
            while selector.get_map():
                for key, _ in selector.select():
                    try:
                        for message in self._lines[key.data].receive():
                            self._handle(key.data, message)
                    except (OSError, LineError):
                        selector.unregister(key.fileobj)
                        if not self._closed:
                            self._handle(key.data, {"type": "lost", "process": key.data})


class _Registry:
    """What process 0 keeps for all: the values, and who has come to each exchange.

    It gets what sends a message to each process, to process 0 too.
    """

    def __init__(self, send: Mapping[int, Callable[[Message], None]]) -> None:
        self._send = send
        self._lock = threading.RLock()
        self._lost: set[int] = set()
        self._values: dict[str, str] = {}
        self._requests: dict[str, set[tuple[int, int]]] = {}  # for a value: process and number
        # Of each exchange, by process: the number of its request, and what it shares.
        self._shares: dict[str, dict[int, tuple[int, Any]]] = {}
        self._failed: dict[str, _Outcome] = {}

    def handle(self, index: int, message: Message) -> None:
        """Handle a message from a process, or the end of the connection to it."""
        with self._lock:
            match message:
                case {"type": "put", "key": str(key), "value": str(value)}:
                    self._values[key] = value
                    for process, number in sorted(self._requests.pop(key, ()), reverse=True):
                        self._answer(process, number, value)
                case {"type": "get", "key": str(key), "number": int(number)}:
                    if key in self._values or self._lost:
                        self._answer(index, number, self._values.get(key))
                    else:
                        self._requests.setdefault(key, set()).add((index, number))
                case {"type": "delete", "key": str(prefix)}:
                    for key in [*self._values]:
                        if key == prefix or key.startswith(f"{prefix}/"):
                            del self._values[key]
                case {"type": "share", "key": str(name), "number": int(number), "value": value}:
                    self._shares.setdefault(name, {})[index] = number, value
                    self._decide(name)
                case {"type": "cancel", "key": str(key), "number": int(number)}:
                    self._cancel(index, key, number)
                case {"type": "lost", "process": int(process)} if process == index:
                    self._lost.add(index)
                    for name in [*self._shares]:
                        self._decide(name)
                    for other in self._send.keys() - self._lost:
                        self._send[other](message)
                    for process, number in set().union(*self._requests.values()):
                        self._answer(process, number, None)  # it may never be set now
                    self._requests.clear()

    def _cancel(self, index: int, key: str, number: int) -> None:
        """A process waits no longer. If it is process 0, an exchange is over for all."""
        requests = self._requests.get(key, set())
        requests.discard((index, number))
        if not requests:
            self._requests.pop(key, None)
        number_now, _ = self._shares.get(key, {}).get(index, (None, None))
        if number_now == number and index == 0:
            self._decide(key, is_over=True)
        elif number_now == number:
            del self._shares[key][index]

    def _decide(self, name: str, *, is_over: bool = False) -> None:
        """End an exchange if all have come, if one that has not is lost, or if its time is over."""
        shares = self._shares.get(name, {})
        missing = self._send.keys() - shares.keys()
        lost = missing & self._lost
        if name not in self._failed and missing and not lost and not is_over:
            return
        values = [] if missing else [shares[index][1] for index in sorted(shares)]
        outcome = _Outcome(values, sorted(lost or missing), sorted(lost))
        if missing:  # those that come later learn the same
            outcome = self._failed.setdefault(name, outcome)
        self._shares.pop(name, None)
        for index in sorted(shares, reverse=True):  # process 0 last: it may close the connections
            self._answer(index, shares[index][0], outcome)

    def _answer(self, index: int, number: int, value: Any) -> None:
        self._send[index]({"type": "answer", "number": number, "value": value})


def meet(group: ProcessGroup, timeout: float, heartbeat_timeout: float) -> Meeting:
    """Bring the processes together at the coordinator's address, in `timeout` seconds. Collective.

    Later a machine counts as lost that is silent for `heartbeat_timeout` seconds.

    Raises:
        RendezvousError: The address cannot be used, a process did not come in time, or the
            processes disagree about their number or indices.
    """
    end = _End(timeout, time.monotonic() + timeout)
    secret = programs_secret(group)
    check_coordinator(group, timeout)
    if group.process_index > 0:
        line = _join(group, secret, end)
        line.detect_silence(heartbeat_timeout)
        return Meeting({0: line}, group.num_processes)
    lines = _Reception(group, secret, end).gather()
    for line in lines.values():
        line.detect_silence(heartbeat_timeout)
    return Meeting(lines, group.num_processes)


class _End(NamedTuple):
    """When the processes must have met: after `timeout` seconds, at a `deadline`."""

    timeout: float
    deadline: float


def _line(connection: socket.socket, secret: bytes, *, server: bool) -> LineSocket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return LineSocket(connection, secret, CONVERSATION, server=server, limit=_LINE_LIMIT)


class _Seat(NamedTuple):
    """A process that has connected to process 0, with its own description."""

    line: LineSocket
    host: str
    num_processes: int


class _Reception:
    """Process 0 while the others connect."""

    def __init__(self, group: ProcessGroup, secret: bytes, end: _End) -> None:
        self._group, self._secret, self._end = group, secret, end
        self._seats: dict[int, _Seat] = {}
        self._strangers = Strangers(group.num_processes, self._close)
        self._selector = selectors.DefaultSelector()

    def gather(self) -> dict[int, LineSocket]:
        """The connections of all other processes, once all are connected.

        Raises:
            RendezvousError: Some did not, or they disagree about their number.
        """
        address = self._group.coordinator_address
        assert address is not None
        listeners = listen(address)
        try:
            for listener in listeners:
                self._selector.register(listener, selectors.EVENT_READ)
            self._seat_all()
        finally:  # the port is free then, because the runtime listens there next
            self._strangers.close_all("all have come")
            self._selector.close()
            for listener in listeners:
                listener.close()
        self._check_counts()
        lines = {index: seat.line for index, seat in self._seats.items()}
        for line in lines.values():
            line.send({"type": "complete"})
        return lines

    def _seat_all(self) -> None:
        while missing := set(range(1, self._group.num_processes)) - self._seats.keys():
            left = self._end.deadline - time.monotonic()
            if left <= 0:
                self._fail(_not_all_came(self._group, self._end.timeout, sorted(missing)))
            for key, _ in self._selector.select(min(left, 1.0)):
                if key.data is None:
                    self._accept(key.fileobj, len(missing))
                elif key.data.connection.fileno() >= 0:  # it was not closed just now
                    self._read(key.data)
            self._strangers.expire()

    def _accept(self, listener: Any, absent: int) -> None:
        try:
            if not self._strangers.make_room(absent):
                time.sleep(_FULL)
                return
            connection = listener.accept()[0]
        except (BlockingIOError, ConnectionAbortedError):
            return  # the peer has gone again
        except OSError:  # no more descriptors
            self._strangers.close_oldest("no more descriptors")
            time.sleep(_FULL)  # others may have taken them
            return
        line = _line(connection, self._secret, server=True)
        self._selector.register(connection, selectors.EVENT_READ, line)
        self._strangers.add(line)

    def _close(self, line: LineSocket, why: str = "") -> None:
        self._strangers.discard(line)
        self._seats = {i: seat for i, seat in self._seats.items() if seat.line is not line}
        self._selector.unregister(line.connection)
        line.close()

    def _read(self, line: LineSocket) -> None:
        """Handle input from a peer; close its connection if it is no process of this run."""
        try:
            messages = line.receive()
            if messages:
                self._strangers.discard(line)  # it has the secret
            if all(self._seat(line, message) for message in messages):
                return
        except LineError:
            line.refuse()
        except OSError:
            pass
        self._close(line)

    def _seat(self, line: LineSocket, message: Message) -> bool:
        """Handle a message from a peer with the secret; return False if it gets no seat."""
        match message:
            case {"type": "hello", "process_index": int(index), "num_processes": int(count)}:
                pass
            case _:
                return False
        mine = self._group.num_processes
        if index in self._seats or not 0 < index < mine:
            why = (
                "check that process 0 was started with the same num_processes "
                f"(it has {mine}), and that no two processes have one process_index"
            )
            line.send({"type": "refused", "why": why})
            return False
        self._seats[index] = _Seat(line, str(message.get("host")), count)
        return True

    def _check_counts(self) -> None:
        mine = self._group.num_processes
        odd = [
            f"process {index} on {seat.host} with num_processes={seat.num_processes}"
            for index, seat in sorted(self._seats.items())
            if seat.num_processes != mine
        ]
        if odd:
            self._fail(
                f"process 0 was started with num_processes={mine}, but {'; '.join(odd)}; give "
                "every process the same"
            )

    def _fail(self, why: str) -> None:
        for seat in self._seats.values():
            seat.line.send({"type": "failed", "why": why})
            seat.line.close()
        raise RendezvousError(why)


def _join(group: ProcessGroup, secret: bytes, end: _End) -> LineSocket:
    """The connection to process 0, when all processes have come to it."""
    assert group.coordinator_address is not None
    left = max(1.0, end.deadline - time.monotonic())
    try:
        connection = socket.create_connection(split_address(group.coordinator_address), left)
    except OSError as error:
        raise RendezvousError(
            f"process {group.process_index} of {group.num_processes} could not connect to "
            f"{group.coordinator_address} ({error.strerror or error}), where process 0 had listened"
        ) from None
    line = _line(connection, secret, server=False)
    line.send(
        {
            "type": "hello",
            "process_index": group.process_index,
            "num_processes": group.num_processes,
            "host": socket.gethostname(),
        }
    )
    why = _await_all(group, line, end)
    if why:
        line.close()
        raise RendezvousError(why)
    return line


def _await_all(group: ProcessGroup, line: LineSocket, end: _End) -> str:
    """Wait for process 0 to report that all processes are connected; an error message or ""."""
    me = f"process {group.process_index} of {group.num_processes}"
    address = group.coordinator_address
    with selectors.DefaultSelector() as selector:
        selector.register(line.connection, selectors.EVENT_READ)
        # One second longer than process 0 waits, which knows the missing processes.
        while selector.select(max(0.0, end.deadline + 1 - time.monotonic())):
            try:
                messages = line.receive()
            except RefusedError:
                return f"{me} has another secret than the run at {address}; {SAME_SECRET}"
            except SecretError:
                return f"{me}: what listens at {address} has another secret; {SAME_SECRET}"
            except LineError as error:
                return f"{me} cannot join at {address}: {error}; check that the port is its own"
            except OSError:
                return (
                    f"{me} reached {address}, but what listens there closed the connection; check "
                    "that process 0 still runs, and that the port is its own"
                )
            for message in messages:
                match message:
                    case {"type": "complete"}:
                        return ""
                    case {"type": "failed", "why": str(why)}:
                        return why
                    case {"type": "refused", "why": str(why)}:
                        return f"{me} was refused by the run at {address}; {why}"
    return _not_all_came(group, end.timeout, [])


def _not_all_came(group: ProcessGroup, timeout: float, missing: list[int]) -> str:
    absent = f" (process {', '.join(map(str, missing))} did not)" if missing else ""
    return (
        f"the run at {group.coordinator_address} was reached, but not all {group.num_processes} "
        f"processes came within {timeout:g} s{absent}; check that each was started, with the same "
        "num_processes and a process_index of its own"
    )
