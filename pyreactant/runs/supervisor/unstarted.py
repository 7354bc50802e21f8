"""A process that cannot start tells the others of its run why, so that all end at once.

A usage error may be met by one process only, such as a program that is missing on one machine. The
others learn it over the roll-call, and all end with the same exit code.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

from ...base.errors import PyReactantError
from ...process.events import Join, Refused
from ...process.group import ProcessGroup, resolve
from ...process.group.coordinator import run_secret
from .connection import hello, join
from .output import close_terminals, say
from .rollcall import RollCall
from .state import ProcessState
from .watch import handled

PATIENCE = 30.0
"""Seconds for the other processes to hear of it."""

_SILENT = 2.0
"""Seconds of them without a message."""


@contextlib.contextmanager
def others_told() -> Iterator[None]:
    """Tell the other processes if the body raises, and wait until they have heard it."""
    try:
        yield
    except PyReactantError as error:
        tell_others(error)
        raise


def tell_others(error: PyReactantError) -> None:
    """Tell the other processes of this run that this one cannot start. Collective.

    Processes that do not come within `PATIENCE` get no message. Nothing happens in a run of one
    process, or if it is not known how to reach the others.
    """
    try:
        group = resolve()
        if group.num_processes == 1 or group.coordinator_address is None:
            return
        secret = run_secret(group)
    except PyReactantError:
        return
    try:
        asyncio.run(_tell(error, group, secret))
    finally:
        close_terminals()


async def _tell(error: PyReactantError, group: ProcessGroup, secret: bytes) -> None:
    """Return when all have heard it, at a signal, or when there is no more patience."""
    stop = asyncio.Event()
    with handled(lambda _: stop.set()):
        telling = asyncio.create_task(
            (_refuse_all if group.process_index == 0 else _tell_process_0)(error, group, secret)
        )
        stopped = asyncio.create_task(stop.wait())
        tasks = {telling, stopped}
        first = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(tasks, timeout=_SILENT, return_when=first)
        if not done:
            say(f"{error}; waiting at most {PATIENCE:g} s to tell the other processes")
            await asyncio.wait(tasks, timeout=PATIENCE - _SILENT, return_when=first)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _refuse_all(error: PyReactantError, group: ProcessGroup, secret: bytes) -> None:
    """As process 0: refuse every process, with the reason."""
    name = ProcessState(0, socket.gethostname()).name()
    waiting = set(range(1, group.num_processes))
    all_told = asyncio.Event()

    def admit(joining: Join) -> Refused:
        waiting.discard(joining.process)
        if not waiting:
            all_told.set()
        return Refused(f"{name} cannot start: {error}", error.exit_code)

    roll_call = RollCall(
        secret,
        admit,
        lambda _: None,
        lambda *_: None,
        heartbeat_timeout=PATIENCE,
    )
    assert group.coordinator_address is not None
    await roll_call.listen(group.coordinator_address, group.num_processes)
    try:
        await all_told.wait()
    finally:
        await roll_call.close()


async def _tell_process_0(error: PyReactantError, group: ProcessGroup, secret: bytes) -> None:
    """As another process: join the roll-call with the reason, and be refused."""
    assert group.coordinator_address is not None
    with contextlib.suppress(PyReactantError):
        uplink = await join(
            group.coordinator_address,
            secret,
            hello(group.process_index, group.num_processes, {}, error=error),
            timeout=PATIENCE,
            progress=lambda _: None,
        )
        uplink.close()
