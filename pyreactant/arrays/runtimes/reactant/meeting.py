"""Where the processes of a run meet before the runtime's own rendezvous, and at its barriers.

Reactant's rendezvous cannot be interrupted, does not say which process is missing, and has no
barrier with a limit. So the processes first come together here, with process 0 in the middle, at
the coordinator's address. They speak authenticated lines (`base/lines.py`). The port is free
again when the runtime is to listen there; the connections stay open and carry the run's store
(`store.py`), and the barriers use it.
"""

import contextlib
import errno
import json
import selectors
import socket
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ....base.errors import DeadlineError, PeerLostError, RendezvousError
from ....base.lines import (
    HANDSHAKE,
    LineError,
    LineSocket,
    Message,
    RefusedError,
    SecretError,
    strangers_kept,
)
from ....process.group import ProcessGroup
from ....process.group.coordinator import SAME_SECRET, check_coordinator, listen, programs_secret
from ....process.group.group import split_address
from ...backend import Store
from .store import HeldStore, RemoteStore

CONVERSATION = "meeting"
"""What the lines of a meeting are bound to."""

_LINE_LIMIT = 1 << 20  # bytes: process 0 sends the device ids of all processes in one line


class Meeting:
    """This process among those that have met: the run's store, barriers, and exchanges.

    Args:
        group: The processes.
        lines: The connection to process 0, or process 0's to all others.
    """

    def __init__(self, group: ProcessGroup, lines: dict[int, LineSocket]) -> None:
        self._group = group
        self._held = HeldStore(lines, _LINE_LIMIT) if group.process_index == 0 else None
        self._remote = RemoteStore(lines[0]) if group.process_index > 0 else None

    @property
    def store(self) -> Store:
        """The store of all processes; any thread may use it."""
        store = self._held or self._remote
        assert store is not None
        return store

    def barrier(self, name: str, timeout: float) -> None:
        """Wait until every process has come to the barrier of this name. Collective.

        Args:
            name: Used once only.
            timeout: Seconds to wait.

        Raises:
            DeadlineError: Names the processes that did not come, or that are lost.
        """
        others = range(1, self._group.num_processes)
        arrived = {index: _key("arrived", name, index) for index in others}
        if self._held is not None:
            missing = self._held.missing(arrived, timeout)
            lost = missing & self._held.lost
            for index in others:
                self._held.delete(arrived[index])
                self._held.put(
                    _key("left", name, index), json.dumps([sorted(missing), sorted(lost)])
                )
        else:
            missing, lost = self._arrive(name, timeout)
        if missing:
            raise (PeerLostError if lost else DeadlineError)(
                f"not every process came to barrier {name!r} within {timeout:g} s, or one was "
                f"lost: {_describe(missing, lost)}"
            )

    def _arrive(self, name: str, timeout: float) -> tuple[set[int], set[int]]:
        """The processes that process 0 misses at a barrier, and those of them that are lost."""
        assert self._remote is not None
        index, store = self._group.process_index, self._remote
        # Asked first, because process 0 may close when all have arrived.
        request = store.ask(_key("left", name, index), take=True)
        with contextlib.suppress(DeadlineError):  # process 0 is lost
            store.put(_key("arrived", name, index), "")
        verdict = store.answer(request, timeout)
        if verdict is not None:
            missing, lost = map(set, json.loads(verdict))
            return missing, lost
        with contextlib.suppress(DeadlineError):
            store.delete(_key("arrived", name, index))
        return {0}, store.lost & {0}

    def exchange(self, name: str, mine: Any, timeout: float) -> list[Any]:
        """Small plain data of every process, by process. Collective.

        Args:
            name: Used once only.
            mine: What `json.dumps` takes.
            timeout: Seconds to wait.

        Raises:
            DeadlineError: As `barrier`.
        """
        if self._held is not None:
            return self._exchange_in_0(self._held, name, mine, timeout)
        assert self._remote is not None
        # Asked first, as in a barrier.
        request = self._remote.ask(_key("shared", name, 0))
        with contextlib.suppress(DeadlineError):  # process 0 is lost, as the barrier will tell
            self._remote.put(_key("share", name, self._group.process_index), json.dumps(mine))
        self.barrier(f"{name}, shared", timeout)
        found = self._remote.answer(request, timeout)
        if found is None:
            raise DeadlineError(
                f"process 0 did not send all processes' {name!r} within {timeout:g} s"
            )
        return json.loads(found)

    def _exchange_in_0(self, store: HeldStore, name: str, mine: Any, timeout: float) -> list[Any]:
        self.barrier(f"{name}, shared", timeout)
        shared = [mine]
        for other in range(1, self._group.num_processes):
            share = store.peek(_key("share", name, other))
            assert share is not None  # it came before the barrier
            shared.append(json.loads(share))
            store.delete(_key("share", name, other))
        store.put(_key("shared", name, 0), json.dumps(shared))
        store.delete(_key("shared", name, 0))  # all have asked for it before
        return shared

    def close(self) -> None:
        """Close the connections. At another barrier, the others would report a lost process."""
        store = self._held or self._remote
        assert store is not None
        store.close()


def _key(what: str, name: str, index: int) -> str:
    return f"meeting/{what}/{quote(name, safe='')}/{index}"


def _describe(missing: set[int], lost: set[int]) -> str:
    did_not = "did not come" if 0 not in missing else "did not say that all have come"
    ends = {i: "ended or was cut off" if i in lost else did_not for i in missing}
    return ", ".join(f"process {i} {ends[i]}" for i in sorted(missing))


def meet(group: ProcessGroup, timeout: float, heartbeat_timeout: float) -> Meeting:
    """Bring the processes together at the coordinator's address. Collective.

    Args:
        group: The processes.
        timeout: Seconds for all to come.
        heartbeat_timeout: Seconds after which a machine that is silent counts as lost.

    Raises:
        RendezvousError: The address cannot be used, a process did not come in time, or the
            processes disagree about their number or indices.
    """
    deadline = time.monotonic() + timeout
    secret = programs_secret(group)
    check_coordinator(group, timeout)
    if group.process_index == 0:
        lines = _Host(group, secret, timeout, deadline).gather()
    else:
        lines = {0: _join(group, secret, timeout, deadline)}
    for line in lines.values():
        line.detect_silence(heartbeat_timeout)
    return Meeting(group, lines)


def _line(connection: socket.socket, secret: bytes, *, server: bool) -> LineSocket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return LineSocket(connection, secret, CONVERSATION, server=server, limit=_LINE_LIMIT)


@dataclass(frozen=True, slots=True)
class _Seat:
    """A process that has connected to process 0, with its own description."""

    line: LineSocket
    host: str
    num_processes: int


class _Host:
    """Process 0 while the others connect."""

    def __init__(self, group: ProcessGroup, secret: bytes, timeout: float, deadline: float) -> None:
        self._group, self._secret = group, secret
        self._timeout, self._deadline = timeout, deadline
        self._seats: dict[int, _Seat] = {}
        self._strangers: dict[LineSocket, float] = {}  # since when; they have not shown the secret
        self._selector = selectors.DefaultSelector()

    def gather(self) -> dict[int, LineSocket]:
        """The connections of all other processes, once all are connected.

        Raises:
            RendezvousError: Some did not, or they disagree about their number.
        """
        with self._selector, listen(self._group) as listener:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
            try:
                while len(self._seats) < self._group.num_processes - 1:
                    left = self._deadline - time.monotonic()
                    if left <= 0:
                        self._give_up()
                    for key, _ in self._selector.select(min(left, 1.0)):
                        if key.data is None:
                            self._accept(listener)
                        elif key.data.connection.fileno() >= 0:  # it was not closed just now
                            self._read(key.data)
                    self._close_strangers(before=time.monotonic() - HANDSHAKE)
            finally:
                for line in list(self._strangers):
                    self._close(line)
        self._check_counts()  # the port is free, because the runtime listens there next
        lines = {index: seat.line for index, seat in self._seats.items()}
        for line in lines.values():
            line.send({"type": "complete"})
        return lines

    def _accept(self, listener: socket.socket) -> None:
        """Take a connection; without file descriptors, instead of the oldest stranger's."""
        try:
            connection = listener.accept()[0]
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._close_strangers(keep=len(self._strangers) // 2)
                time.sleep(0.01)  # in case others have taken them
            return  # or the peer has gone again
        line = _line(connection, self._secret, server=True)
        self._selector.register(connection, selectors.EVENT_READ, line)
        self._strangers[line] = time.monotonic()
        self._close_strangers(keep=strangers_kept(self._group.num_processes))

    def _close_strangers(self, *, before: float = 0.0, keep: int | None = None) -> None:
        """Close connections that have not shown the secret: those since `before`, all but `keep`.

        They are in the order in which they came.
        """
        surplus = 0 if keep is None else len(self._strangers) - keep
        for number, (line, since) in enumerate(list(self._strangers.items())):
            if number >= surplus and since >= before:
                return
            self._close(line)

    def _close(self, line: LineSocket) -> None:
        self._strangers.pop(line, None)
        self._seats = {i: seat for i, seat in self._seats.items() if seat.line is not line}
        self._selector.unregister(line.connection)
        line.close()

    def _read(self, line: LineSocket) -> None:
        """Handle input from a peer; close its connection if it is no process of this run."""
        try:
            messages = line.receive()
            if messages:
                self._strangers.pop(line, None)  # it has the secret
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

    def _give_up(self) -> None:
        missing = sorted(set(range(1, self._group.num_processes)) - set(self._seats))
        self._fail(_not_all_came(self._group, self._timeout, missing))

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


def _join(group: ProcessGroup, secret: bytes, timeout: float, deadline: float) -> LineSocket:
    """The connection to process 0, when all processes have come to it."""
    assert group.coordinator_address is not None
    left = max(1.0, deadline - time.monotonic())
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
    why = _await_all(group, line, timeout, deadline)
    if why:
        line.close()
        raise RendezvousError(why)
    return line


def _await_all(group: ProcessGroup, line: LineSocket, timeout: float, deadline: float) -> str:
    """Wait for process 0 to report that all processes are connected; an error message or ""."""
    me, address = (
        f"process {group.process_index} of {group.num_processes}",
        group.coordinator_address,
    )
    with selectors.DefaultSelector() as selector:
        selector.register(line.connection, selectors.EVENT_READ)
        # One second longer than process 0 waits, which knows the missing processes.
        while selector.select(max(0.0, deadline + 1 - time.monotonic())):
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
    return _not_all_came(group, timeout, [])


def _not_all_came(group: ProcessGroup, timeout: float, missing: list[int]) -> str:
    absent = f" (process {', '.join(map(str, missing))} did not)" if missing else ""
    return (
        f"the run at {group.coordinator_address} was reached, but not all {group.num_processes} "
        f"processes came within {timeout:g} s{absent}; check that each was started, with the same "
        "num_processes and a process_index of its own"
    )
