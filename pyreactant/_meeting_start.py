"""How the processes of a run come together; process 0 hears who is there and says who is not."""

import hashlib
import hmac
import os
import selectors
import socket
import time
from typing import Any

from ._errors import RendezvousError
from ._meeting import Line, Meeting
from .launch._secret import MEETING_SECRET, run_secret
from .process_group import ProcessGroup
from .process_group._address import check_coordinator, is_loopback
from .process_group._data import split_address

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
