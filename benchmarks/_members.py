"""Members for the roll-call benchmark, simulated in one process.

`python -m benchmarks._members ADDRESS COUNT [SECONDS [mtls]]` joins as processes 1 to COUNT - 1 at
the same time, with the secret in `PYREACTANT_SECRET`, and waits for "go" in each. Each initializes,
sends heartbeats for SECONDS, ends, and waits for the report. With "mtls" each asks for a
certificate, for which it has made its key before. It prints JSON: the seconds until the last "go",
from the first end until the last report, the number of reports, of certificates, why members
connected again and how often, and the reasons of members without a report.

They speak the lines of real members, but in one loop without asyncio, so that on a machine with few
cores they take less from the head than it needs itself.
"""

import contextlib
import json
import os
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping

from pyreactant.base.facts import facts
from pyreactant.base.lines import LineCodec, LineError
from pyreactant.base.process import raise_limit
from pyreactant.process.events import (
    Admitted,
    Alive,
    End,
    Ended,
    Event,
    Exited,
    Go,
    HeadMessage,
    Phase,
    Report,
    Spawned,
    read,
    write,
)
from pyreactant.process.group.group import split_address
from pyreactant.runs.supervisor.connection import CONVERSATION, hello
from pyreactant.runs.supervisor.mtls import Key
from pyreactant.runs.supervisor.rollcall import heartbeat_period

_PATIENCE = 120.0
_ADDRESSES = 64
_BIND_ADDRESS_NO_PORT = 24  # of Linux; the module socket has no name for it


class _Member:
    """One simulated member."""

    def __init__(self, process: int, all_: "_Members") -> None:
        self.process, self._all = process, all_
        self.may_go = self.reported = self.certified = False
        self.why: str | None = None
        self._asks = {"public": Key().public()} if all_.mtls else {}

    def connect(self) -> None:
        self._rest, self._greeted = b"", False
        secret = os.environ["PYREACTANT_SECRET"].encode()
        self._codec = LineCodec(secret, CONVERSATION, server=False)
        self._socket = socket.socket()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Hosts have addresses of their own. From one address the kernel would search for 4 ms for
        # a free port, once half of all ports are connected to process 0.
        self._socket.setsockopt(socket.SOL_IP, _BIND_ADDRESS_NO_PORT, 1)
        self._socket.bind((f"127.0.1.{1 + self.process % _ADDRESSES}", 0))
        self._socket.connect_ex(self._all.address)
        self._all.selector.register(self._socket, selectors.EVENT_READ, self)

    def tell(self, message: Event | Alive) -> None:
        """Send a message."""
        if self.why is None:
            with contextlib.suppress(OSError):  # the reader notes a broken connection
                self._socket.send(self._codec.pack(write(message)))

    def read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self._gone(str(error))
            return
        if not data:
            self._gone("process 0 closed the connection")
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                self._take(line)
            except LineError as error:
                self._gone(str(error))
            if self.reported or self.why is not None:
                return

    def _take(self, line: bytes) -> None:
        if not self._greeted:
            self._codec.read_greeting(line)
            self._greeted = True
            first = hello(self.process, self._all.count, self._all.facts, mtls=self._asks)
            self._socket.send(self._codec.pack(write(first)))
            return
        match read(HeadMessage, self._codec.unpack(line + b"\n")):
            case Admitted(mtls):
                self.certified = "certificate" in mtls
            case Go():
                self.may_go = True
            case End():
                self.tell(Ended(process=self.process))
            case Report():
                self.reported = True
                self._close()

    def _gone(self, why: str) -> None:
        self._close()
        if self.may_go:
            self.why = why
        else:
            self._all.again[why] += 1
            self.connect()

    def _close(self) -> None:
        self._all.selector.unregister(self._socket)
        self._socket.close()


class _Members:
    """All of them."""

    def __init__(self, address: str, count: int, known: Mapping[str, str], *, mtls: bool) -> None:
        host, port = split_address(address)
        self.address, self.count, self.facts = (host, port), count, known
        self.selector = selectors.DefaultSelector()
        self.again, self.mtls = Counter[str](), mtls
        self.members = [_Member(process, self) for process in range(1, count)]

    def run(self, seconds: float) -> dict[str, object]:
        began = time.perf_counter()
        for member in self.members:
            member.connect()
        self._read_until(lambda: all(m.may_go for m in self.members), began + _PATIENCE)
        joined = time.perf_counter()
        if absent := sum(not m.may_go for m in self.members):
            sys.exit(f"{absent} of {self.count} members may not go after {_PATIENCE:.0f} s")
        for member in self.members:
            member.tell(Spawned(member.process, process=member.process))
            for phase in ("started", "initializing", "initialized"):
                member.tell(Phase(phase, process=member.process))
        until = joined + seconds
        self._beat(until)
        for member in self.members:
            member.tell(Phase("ending", 0, 0, process=member.process))
            member.tell(Exited(0, "", process=member.process))
        self._read_until(lambda: all(m.reported or m.why for m in self.members), until + _PATIENCE)
        whys = Counter(m.why or "no report" for m in self.members if not m.reported)
        return {
            "join": joined - began,
            "end": time.perf_counter() - until,
            "reports": sum(m.reported for m in self.members),
            "certificates": sum(m.certified for m in self.members),
            "again": self.again.most_common(5),
            "members_cpu": time.process_time(),
            "without": whys.most_common(5),
        }

    def _beat(self, until: float) -> None:
        """Send the heartbeats of all, evenly over each period."""
        period = heartbeat_period(15.0, self.count)
        sent, began = 0, time.perf_counter()
        while (now := time.perf_counter()) < until:
            due = int((now - began) / period * len(self.members))
            for number in range(sent, due):
                self.members[number % len(self.members)].tell(Alive())
            sent = due
            self._read(0.01)

    def _read_until(self, holds: Callable[[], bool], deadline: float) -> None:
        while not holds() and time.perf_counter() < deadline:
            self._read(0.05)

    def _read(self, timeout: float) -> None:
        for key, _ in self.selector.select(timeout):
            key.data.read()


if __name__ == "__main__":
    number = int(sys.argv[2])
    raise_limit(number + 256, f"{number} members")
    lasts = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    members = _Members(sys.argv[1], number, facts(), mtls="mtls" in sys.argv[4:])
    print(json.dumps(members.run(lasts)))
