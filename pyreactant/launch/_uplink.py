"""A member's end of the roll-call: it connects to process 0, and takes its orders."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from .._errors import PyReactantError, RendezvousError
from .._system.lines import LINE_LIMIT, LineCodec, LineError, Message, RefusedError
from ..process_group._group import split_address
from ..process_group._secret import SAME_SECRET
from ._rollcall import CONVERSATION

GREETING = 30.0
"""Seconds to wait for process 0's first line. If very many processes connect at once, its kernel
may drop a connection that this end takes for established."""


def hello(
    index: int, count: int, facts: Mapping[str, str], error: PyReactantError | None = None
) -> dict[str, Any]:
    """The first message of a process.

    Args:
        index: Process index.
        count: Number of processes of the run, as this process knows it.
        facts: Versions and settings, to compare with those of the others.
        error: Why this process cannot start its program.
    """
    message: dict[str, Any] = {
        "type": "join",
        "process": index,
        "num_processes": count,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "facts": facts,
    }
    if error is not None:
        message["cannot_start"] = {"message": str(error), "code": error.exit_code}
    return message


class CannotStartError(PyReactantError):
    """Process 0 cannot start its program; `exit_code` is its own."""

    def __init__(self, why: str, exit_code: int) -> None:
        super().__init__(why)
        self.exit_code = exit_code


class _GoneError(RendezvousError):
    """The connection to process 0 is closed or broken."""


class Uplink:
    """Every other process's end of the roll-call.

    Attributes:
        welcome: What process 0 answered to the first message.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, codec: LineCodec
    ) -> None:
        self.welcome: Message = {}
        self._reader, self._writer, self._codec = reader, writer, codec

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to process 0; a broken connection is detected by `receive`."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(self._codec.pack(dict(message)))

    async def receive(self, timeout: float) -> Message:
        """The next order.

        Raises:
            RendezvousError: Process 0 is gone, or silent for `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                line = await self._reader.readline()
        except TimeoutError:
            raise RendezvousError(
                f"no heartbeat from process 0 for {timeout:g} s; its machine or the network to it "
                "is down"
            ) from None
        except (OSError, ValueError) as error:
            raise _GoneError(f"the connection to process 0 broke ({error})") from None
        if not line:
            raise _GoneError("process 0 closed the connection")
        try:
            return self._codec.unpack(line)
        except RefusedError:
            raise RendezvousError(
                "process 0 refused this process: the run's secret differs between the two; "
                f"{SAME_SECRET}"
            ) from None

    def close(self) -> None:
        """Close the connection; what was sent before still goes out."""
        self._writer.close()


async def join(
    address: str,
    secret: bytes,
    hello: Mapping[str, Any],
    *,
    timeout: float,
    progress: Callable[[str], None],
) -> Uplink:
    """Connect to process 0, which may not listen yet, and join the roll-call.

    Args:
        address: Address of process 0, HOST:PORT.
        secret: The run's secret.
        hello: The first message: index, count, host, pid and facts.
        timeout: Seconds to try for.
        progress: Called after each failed attempt with the reason.

    Raises:
        RendezvousError: Process 0 was not reached in time, or refused this process.
        CannotStartError: Process 0 cannot start its program.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return await _enter(address, secret, hello, max(5.0, timeout))
        except socket.gaierror as error:
            host, _ = split_address(address)
            why = f"the host {host!r} does not resolve here ({error.strerror})"
        except TimeoutError:
            why = "no answer"
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
        except (ValueError, _GreetingError, _GoneError) as error:
            why = str(error)
        if time.monotonic() > deadline:
            raise RendezvousError(
                f"process {hello['process']} could not reach process 0 at {address} within "
                f"{timeout:g} s: {why}; check that process 0 runs on that host and that no "
                "firewall blocks the port"
            )
        progress(why)
        await asyncio.sleep(0.1)


class _GreetingError(RendezvousError):
    """The listener is not the roll-call of this version of pyreactant."""


async def _enter(address: str, secret: bytes, hello: Mapping[str, Any], timeout: float) -> Uplink:
    """Try once to connect and join."""
    host, port = split_address(address)
    codec = LineCodec(secret, CONVERSATION, server=False)
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(host, port, limit=LINE_LIMIT)
    uplink = Uplink(reader, writer, codec)
    try:
        async with asyncio.timeout(min(timeout, GREETING)):
            greeting = await reader.readline()
        try:
            codec.read_greeting(greeting)
        except LineError as error:
            raise _GreetingError(str(error)) from None
        uplink.send(hello)
        try:
            answer = await uplink.receive(timeout)
        except _GoneError:
            raise _GoneError("process 0 ended the handshake, which took too long") from None
        if answer["type"] == "refused" and answer["exit_code"] is not None:
            raise CannotStartError(answer["why"], int(answer["exit_code"]))
        if answer["type"] == "refused":
            raise RendezvousError(f"process 0 refused this process: {answer['why']}")
        uplink.welcome = answer
    except BaseException:
        uplink.close()
        raise
    return uplink
