"""The roll-call: process 0's supervisor listens; the others connect with the run's secret."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping

from ...base.errors import RendezvousError
from ...base.lines import LineCodec, Message, Strangers, encode, parse
from ...process.events import (
    Admitted,
    Alive,
    ClockAsked,
    ClockTold,
    Event,
    HeadMessage,
    Join,
    Refused,
    read,
    write,
)
from ...process.group.coordinator import listen
from ...process.group.group import split_address
from .connection import CONVERSATION, Member

_BEATS = 1024
"""Heartbeats of a second, from all members together."""

_HANG_UP = 5.0
"""Seconds to wait at the end while no member hangs up or sends what it still has to send."""

_HANG_UP_ALL = 60.0
"""Seconds to wait for that altogether."""

_ACCEPTED = 128
"""Connections accepted at a time."""

_FULL = 0.02
"""Seconds until the next connection is accepted if there is no room for it."""

_PAUSE = 1.0
"""Seconds until the next is accepted if this process or machine can open no more."""

_MOST_REFUSED = 20
"""Refused connections in the report."""

_ALIVE = encode(write(Alive()))


def heartbeat_period(timeout: float, members: int) -> float:
    """Seconds between heartbeats."""
    return min(max(1.0, members / _BEATS), timeout / 4)


class RollCall:
    """Process 0's end: admits peers that have the secret, and passes on their messages.

    Args:
        admit: Called with the first message of a peer that has the secret; returns what a peer
            that is refused is told, or None.
        receive: Called with every event that it tells later.
        lose: Called with the process index and the reason when a member is lost.
        certify: Called with the first message of a peer that has the secret; returns the
            certificate for a new member. It may raise ValueError.
    """

    def __init__(
        self,
        secret: bytes,
        admit: Callable[[Join], Refused | None],
        receive: Callable[[Event], None],
        lose: Callable[[int, str], None],
        *,
        heartbeat_timeout: float,
        certify: Callable[[Join], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self.members: dict[int, Member] = {}
        self.refused: list[str] = []
        self._secret = secret
        self._admit, self._receive, self._lose = admit, receive, lose
        self._certify = certify
        self._heartbeat_timeout = heartbeat_timeout
        self._expected = 0
        self._strangers: Strangers[Member] = Strangers(0, Member.close)
        self._listeners: list[socket.socket] = []
        self._expiry: asyncio.TimerHandle | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self._closing = False
        self._left = asyncio.Event()

    async def listen(self, address: str, expected: int) -> None:
        """Start to listen on the address's port.

        Raises:
            RendezvousError: The port is in use, or the host does not resolve.
        """
        host, port = split_address(address)
        self._expected, self._strangers = expected, Strangers(expected, Member.close)
        try:
            self._listeners = listen(address)
        except socket.gaierror as error:
            raise RendezvousError(
                f"process 0 must listen at {address}, but {host!r} does not resolve here "
                f"({error.strerror}); set PYREACTANT_COORDINATOR_ADDRESS to an address of this "
                "machine, the same on every process"
            ) from None
        except OSError as error:
            raise RendezvousError(
                f"process 0 must listen on port {port} of this machine for the roll-call, but "
                f"it cannot be bound ({os.strerror(error.errno or 0)}); choose another port in "
                "PYREACTANT_COORDINATOR_ADDRESS, the same on every process"
            ) from None
        for listener in self._listeners:
            self._accept_from(listener)
        self._heartbeat = asyncio.create_task(self._exchange_heartbeats())

    def broadcast(self, message: HeadMessage) -> None:
        """Send an order to every member."""
        text = encode(write(message))
        for member in list(self.members.values()):
            member.send_text(text)

    async def close(self) -> None:
        """Stop listening, and close each connection once its member has hung up.

        A connection that is closed while words of the member lie unread is reset, and the member
        may then never read its last order.
        """
        self._closing = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._stop_listening()
        for member in list(self.members.values()):
            member.finish()
        began = time.monotonic()
        while self.members and time.monotonic() - began < _HANG_UP_ALL:
            self._left.clear()
            try:
                async with asyncio.timeout(_HANG_UP):
                    await self._left.wait()
            except TimeoutError:
                last = max((m.last_heard for m in self.members.values()), default=began)
                if time.monotonic() - last > _HANG_UP:
                    break
        self._close_members()

    def _close_members(self) -> None:
        for member in list(self.members.values()):
            member.close("the run is over")

    def _stop_listening(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self._listeners.clear()
        self._strangers.close_all("the run is over")

    def _accept_from(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED):
            if not self._strangers.make_room(self._expected - len(self.members)):
                self._accept_later(listener, _FULL)
                break
            try:
                connection, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError:  # no more descriptors, or no memory for another
                self._accept_later(listener, _PAUSE)
                break
            codec = LineCodec(self._secret, CONVERSATION, server=True)
            member = Member(connection, str(address[0]), codec, self._take, self._end)
            self._strangers.add(member)
        if self._expiry is None:
            self._expire()

    def _accept_later(self, listener: socket.socket, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(seconds, self._accept_from, listener)

    def _expire(self) -> None:
        left = self._strangers.expire()
        loop = asyncio.get_running_loop()
        self._expiry = None if left is None else loop.call_later(left, self._expire)

    def _take(self, member: Member, text: bytes) -> None:
        """Take one authentic line.

        Raises:
            LineError: It is not a message.
        """
        if member.process < 0:
            self._admit_member(member, parse(text))
        elif text != _ALIVE:
            # A member can report events of its own process only.
            event = read(Event, {**parse(text), "process": member.process})
            if isinstance(event, ClockAsked):  # here, since each delay is an error of the clock
                member.send(ClockTold(event.sent_ns, time.time_ns()))
            elif event is not None:
                self._receive(event)

    def _admit_member(self, member: Member, message: Message) -> None:
        self._strangers.discard(member)
        hello = read(Join, message)
        if hello is None:
            self._refuse(member, Refused(f"its first message is malformed: {message!s:.200}"))
            return
        try:
            certificate = self._certify(hello)
        except ValueError as error:
            self._refuse(member, Refused(f"its first message is malformed ({error})"))
            return
        if (refused := self._admit(hello)) is not None:
            self._refuse(member, refused)
            return
        if (before := self.members.pop(hello.process, None)) is not None:
            before.close("another supervisor has come in its place")
        member.process = hello.process
        self.members[member.process] = member
        member.send(Admitted(certificate))

    def _refuse(self, member: Member, refused: Refused) -> None:
        member.send(refused)
        member.close(refused.why)

    def _end(self, member: Member, why: str) -> None:
        if member in self._strangers:
            self._strangers.discard(member)
            if len(self.refused) < _MOST_REFUSED:
                self.refused.append(f"a connection from {member.peer}: {why}")
        elif self.members.get(member.process) is member:
            del self.members[member.process]
            self._left.set()
            if not self._closing:
                self._lose(member.process, why)

    async def _exchange_heartbeats(self) -> None:
        """Send heartbeats to the members, and drop those that are silent for too long."""
        period = heartbeat_period(self._heartbeat_timeout, self._expected)
        before = time.monotonic()
        try:
            while True:
                await asyncio.sleep(period)
                now = time.monotonic()
                suspended = max(0.0, now - before - 2 * period)  # this process, not the members
                before = now
                self.broadcast(Alive())
                for member in list(self.members.values()):
                    member.last_heard += suspended
                    silence = now - member.last_heard
                    if silence > self._heartbeat_timeout:
                        member.close(
                            f"no heartbeat for {silence:.0f} s; its machine or the network to it "
                            "is down, or its supervisor is stopped"
                        )
        finally:
            if not self._closing:  # the event loop ends
                self._closing = True
                self._stop_listening()
                self._close_members()
