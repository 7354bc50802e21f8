"""The agent starts, signals and ends the programs of one machine on orders from the head."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.child import MemoryKills
from ...base.errors import no_room
from ...base.settings import PROFILE
from ...process.events import (
    End,
    Ended,
    Go,
    Killed,
    Order,
    Preempt,
    Raised,
    SendSignal,
    SendStacks,
    StopAt,
)
from .leftovers import Leftovers
from .options import PROFILES, RunOptions
from .output import Log, Merged, Part, Prefixed, terminals
from .process import ChildProcess, Emit
from .program import find_program, program_environment

_STACKS_WAIT, _STACKS_LATE, _STACKS_PAUSE = 0.15, 3.0, 0.01
"""Seconds in which programs write their stacks, on a busy machine too, and between two looks."""
_TICK = 0.1


class Agent:
    """The programs on this machine: takes orders from the head, and sends it events.

    As a context it watches the programs, and ends them at its exit.

    Args:
        certificates: JAX's variables of each process that has a certificate; `Go` says whether the
            run uses them.
    """

    def __init__(
        self,
        options: RunOptions,
        indices: Sequence[int],
        settings: Sequence[Mapping[str, str]],
        emit: Emit,
        certificates: Mapping[int, Mapping[str, str]],
    ) -> None:
        self._options, self._indices, self._settings = options, indices, settings
        self._emit, self._certificates = emit, certificates
        self._program = find_program(options.program)
        self._children: list[ChildProcess] = []
        self._memory_kills = MemoryKills()
        self._leftovers = Leftovers()
        self._merged: list[Merged] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> None:
        self._start_task(self._watch())

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self.end(stacks=False)
        self._leftovers.close()

    def order(self, order: Order) -> None:
        """Carry out an order from the head."""
        match order:
            case Go():
                self._go(order)
            case SendSignal(number):
                for child in self._children:
                    child.forward(number)
            case Preempt() | StopAt():
                for child in self._children:
                    child.order(order)
            case SendStacks():
                self._start_task(self._send_stacks())
            case End(stacks):
                self._start_task(self.end(stacks=stacks))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_stacks(self) -> None:
        """Emit the Python stacks of all programs, which go on."""
        children = list(self._children)
        for child in children:
            child.dump_stacks(resume=False)
        await _await_stacks(children)
        for child in children:
            child.emit_stacks()

    async def end(self, *, stacks: bool) -> None:
        """End all programs: collect their stacks if wanted, then SIGTERM, then SIGKILL."""
        children = [c for c in self._children if not c.exited.is_set()]
        if stacks and children:
            for child in children:
                child.dump_stacks()
            await _await_stacks(children)
            for child in children:
                child.emit_stacks()
        for child in children:
            child.signal(signal.SIGTERM)
        await _await_exits(children, 0.3)
        for child in children:
            child.signal(signal.SIGKILL)
        await _await_exits(children, 5)
        for process, killed in self._leftovers.kill(self._indices[0]).items():
            self._emit(Killed(tuple(killed), process=process))
        for child in self._children:
            child.close()
        self._children = []
        for index in self._indices:
            self._emit(Ended(process=index))

    async def _watch(self) -> None:
        """Check the programs' pulses until cancelled."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            suspended = max(0.0, now - before - 10 * _TICK)
            before = now
            self._memory_kills.sample()
            self._leftovers.reap()
            for child in self._children:
                child.watch(suspended)

    def _go(self, go: Go) -> None:
        folder = Path(go.folder)
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        # Several agents of a run may share a machine; each cleans up after its own programs.
        token = f"{go.run}/{self._indices[0]}"
        self._leftovers.begin(token)
        count, later = len(self._indices), asyncio.get_running_loop().call_later
        self._merged = [Merged(terminal, count, later) for terminal in terminals()]
        for index, settings in zip(self._indices, self._settings, strict=True):
            process_index = go.process_index(index)
            if process_index is None:  # the run goes on without this machine
                continue
            environment = program_environment(
                self._program,
                settings,
                go,
                index=process_index,
                token=token,
                stall_timeout=self._options.stall_timeout,
            )
            if self._options.profile is not None:
                environment[PROFILE] = f"{self._options.profile}:{folder / PROFILES}"
            if go.mtls:
                environment |= self._certificates.get(index, {})
            try:
                child = ChildProcess(
                    index,
                    self._program,
                    environment,
                    Log(folder / f"process-{index}.log"),
                    options=self._options,
                    terminals=self._screens(index),
                    emit=self._emit,
                    memory_kills=self._memory_kills,
                    leftovers=self._leftovers,
                )
            except (OSError, RuntimeError) as error:  # no more processes, threads or memory
                self._emit(Raised.of(no_room(error), index))
            else:
                self._children.append(child)

    def _screens(self, index: int) -> tuple[Prefixed, Prefixed] | None:
        """Where the output of one program is shown; None if it is not."""
        everything = self._options.all_output
        if index and not everything:
            return None
        out, err = terminals()
        if everything and len(self._indices) > 1:
            return Part(out, self._merged[0], index), Part(err, self._merged[1], index)
        prefix = f"[{index}] "
        return (
            Prefixed(out, prefix, whole_lines=everything),
            Prefixed(err, prefix, whole_lines=everything),
        )


async def _await_stacks(children: Sequence[ChildProcess]) -> None:
    """Wait until the programs have written all of their stacks, but not for long."""
    deadline = time.monotonic() + _STACKS_LATE
    await asyncio.sleep(_STACKS_WAIT)
    while [c for c in children if not c.read_stacks()] and time.monotonic() < deadline:
        await asyncio.sleep(_STACKS_PAUSE)


async def _await_exits(children: Sequence[ChildProcess], timeout: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            for child in children:
                await child.exited.wait()
