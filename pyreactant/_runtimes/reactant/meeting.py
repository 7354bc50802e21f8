"""Where the processes of a run meet before the runtime's own rendezvous, and at its barriers.

Reactant's rendezvous can be neither given up nor asked who is missing, and it has no barrier with
a limit. So the processes first come together here: JSON lines over TCP, with process 0 in the
middle, at the coordinator's address. Its port is free again when the runtime is to listen there;
the connections stay open, and the barriers use them.
"""

import hashlib
import hmac
import json
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from ..._errors import DeadlineError, RendezvousError
from ...process_group import ProcessGroup
from ...process_group._coordinator import check_coordinator, is_loopback
from ...process_group._group import split_address
from ...process_group._secret import MEETING_SECRET, run_secret

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


_NOT_OURS = (
    "what listens there, or what came, has another secret; set PYREACTANT_SECRET or "
    "PYREACTANT_SECRET_FILE to the same on every process"
)


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
    key = _key(group)
    check_coordinator(group, timeout)
    if group.process_index == 0:
        meeting = _Host(group, key, timeout, deadline).gather()
    else:
        meeting = _join(group, key, timeout, deadline)
    meeting.watch(heartbeat_timeout)
    return meeting


def _key(group: ProcessGroup) -> bytes:
    """What proves that a peer is of this run: the supervisor's, or the secret that it would use."""
    given = os.environ.get(MEETING_SECRET)
    return given.encode() if given else run_secret(group)


def _proof(key: bytes, *words: object) -> str:
    return hmac.new(key, " ".join(map(str, words)).encode(), hashlib.sha256).hexdigest()


class _Host:
    """Process 0 while the others come."""

    def __init__(self, group: ProcessGroup, key: bytes, timeout: float, deadline: float) -> None:
        self._group, self._key, self._timeout, self._deadline = group, key, timeout, deadline
        self._lines: dict[int, Line] = {}

    def gather(self) -> Meeting:
        with selectors.DefaultSelector() as selector:
            listener = _listen(self._group)
            selector.register(listener, selectors.EVENT_READ)
            try:
                while len(self._lines) < self._group.num_processes - 1:
                    left = self._deadline - time.monotonic()
                    if left <= 0:
                        self._give_up()
                    for key, _ in selector.select(left):
                        if key.fileobj is listener:
                            line = Line(listener.accept()[0])
                            line.send(challenge=line.challenge)
                            selector.register(line.connection, selectors.EVENT_READ, line)
                        elif not self._hear(key.data):
                            selector.unregister(key.fileobj)
                            key.data.connection.close()
            finally:
                listener.close()  # before anyone goes on: the runtime listens there next
                for key in list(selector.get_map().values()):
                    if key.data not in (None, *self._lines.values()):
                        key.data.connection.close()
        odd = [
            f"process {index} on {line.host} with num_processes={line.count}"
            for index, line in sorted(self._lines.items())
            if line.count != self._group.num_processes
        ]
        if odd:
            self._refuse_all(
                f"process 0 was started with num_processes={self._group.num_processes}, but "
                f"{'; '.join(odd)}; give every process the same"
            )
        for line in self._lines.values():
            line.send(verdict="", proof=_proof(self._key, line.answer, "verdict"))
        return Meeting(self._group, self._lines)

    def _hear(self, line: Line) -> bool:
        """Take a newcomer's word, or see that one has gone; False where it is heard no more."""
        messages = line.arrived()
        if messages is not None and all(self._seat(line, said) for said in messages):
            return True
        self._lines = {i: other for i, other in self._lines.items() if other is not line}
        return False

    def _seat(self, line: Line, said: dict[str, Any]) -> bool:
        index, count = said.get("process_index"), said.get("num_processes")
        if not isinstance(index, int) or not isinstance(count, int):
            return False
        wanted = _proof(self._key, line.challenge, index, count)
        if not hmac.compare_digest(wanted, str(said.get("proof"))):
            line.send(refused=_NOT_OURS)
            return True
        line.host, line.count, line.answer = str(said.get("host")), count, str(said.get("nonce"))
        mine = self._group.num_processes
        if index in self._lines or not 0 < index < mine:
            line.send(
                refused="check that process 0 was started with the same num_processes "
                f"(it has {mine}), and that no two processes have one process_index"
            )
            return True  # it closes when it has read that
        self._lines[index] = line
        return True

    def _give_up(self) -> None:
        missing = sorted(set(range(1, self._group.num_processes)) - set(self._lines))
        self._refuse_all(_not_all_came(self._group, self._timeout, missing))

    def _refuse_all(self, why: str) -> None:
        for line in self._lines.values():
            line.send(verdict=why, proof=_proof(self._key, line.answer, "verdict"))
        raise RendezvousError(why)


def _listen(group: ProcessGroup) -> socket.socket:
    assert group.coordinator_address is not None
    host, port = split_address(group.coordinator_address)
    backlog = min(4096, group.num_processes + 16)
    if is_loopback(group.coordinator_address):
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=backlog)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
        )
    return socket.create_server(("", port), backlog=backlog)


def _join(group: ProcessGroup, key: bytes, timeout: float, deadline: float) -> Meeting:
    assert group.coordinator_address is not None
    left = max(1.0, deadline - time.monotonic())
    try:
        connection = socket.create_connection(split_address(group.coordinator_address), left)
    except OSError as error:
        raise RendezvousError(
            f"process {group.process_index} of {group.num_processes} could not connect to "
            f"{group.coordinator_address} ({error.strerror or error}), where process 0 had listened"
        ) from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line = Line(connection)
    why = _await_verdict(group, key, line, timeout, deadline)
    if why:
        connection.close()
        raise RendezvousError(why)
    return Meeting(group, {0: line})


def _introduce(group: ProcessGroup, key: bytes, line: Line, challenge: object) -> None:
    index, count = group.process_index, group.num_processes
    line.send(
        process_index=index,
        num_processes=count,
        host=socket.gethostname(),
        nonce=line.challenge,
        proof=_proof(key, challenge, index, count),
    )


def _await_verdict(
    group: ProcessGroup, key: bytes, line: Line, timeout: float, deadline: float
) -> str:
    me = f"process {group.process_index} of {group.num_processes}"
    with selectors.DefaultSelector() as selector:
        selector.register(line.connection, selectors.EVENT_READ)
        # A little more time than process 0 takes: it knows who is missing, and says so.
        while selector.select(max(0.0, deadline + 1 - time.monotonic())):
            messages = line.arrived()
            if messages is None:
                return (
                    f"{me} reached {group.coordinator_address}, but what listens there closed the "
                    "connection; check that process 0 still runs, and that the port is its own"
                )
            for said in messages:
                if "challenge" in said:
                    _introduce(group, key, line, said["challenge"])
                if "refused" in said:
                    return (
                        f"{me} was refused by the run at {group.coordinator_address}; "
                        f"{said['refused']}"
                    )
                if "verdict" in said:
                    proof = _proof(key, line.challenge, "verdict")
                    right = hmac.compare_digest(proof, str(said.get("proof")))
                    return str(said["verdict"]) if right else f"{me}: {_NOT_OURS}"
    return _not_all_came(group, timeout, [])


def _not_all_came(group: ProcessGroup, timeout: float, missing: list[int]) -> str:
    absent = f" (process {', '.join(map(str, missing))} did not)" if missing else ""
    return (
        f"the run at {group.coordinator_address} was reached, but not all {group.num_processes} "
        f"processes came within {timeout:g} s{absent}; check that each was started, with the same "
        "num_processes and a process_index of its own"
    )
