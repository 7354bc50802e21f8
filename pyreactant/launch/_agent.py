"""The programs of one machine: started, ended and signalled as the run's head orders."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..process_group._environment import COORDINATOR, COUNT, INDEX
from ..process_group._secret import SECRET, SECRET_FILE
from ._output import Log, Prefixed, terminals
from ._process import ChildProcess, Emit

TOKEN = "PYREACTANT_RUN"  # noqa: S105 - names the run, and is no secret
"""Set in every program of a run, so that what it leaves behind can be found."""

_STACKS_WAIT = 0.15
_TICK = 0.1


class Agent:
    """The programs on this machine; the head gives orders, `emit` tells it what happens.

    Orders are dicts with "type": "go" (start), "signal", "preempt", "stop_at", "end".

    Args:
        indices: The processes to start here.
        program: As in `RunOptions`.
        settings: Environment variables of each of them.
        emit: Gets the events of all.
        shown: Whether output goes to the terminal.
        only: The one process whose output does; None for all.
        stall_timeout: As in `RunOptions`.
    """

    def __init__(
        self,
        indices: Sequence[int],
        program: Sequence[str],
        settings: Sequence[Mapping[str, str]],
        emit: Emit,
        *,
        shown: bool,
        only: int | None,
        stall_timeout: float,
    ) -> None:
        self._indices = indices
        self._program = program
        self._settings = settings
        self._emit = emit
        self._shown, self._only = shown, only
        self._stall_timeout = stall_timeout
        self._children: list[ChildProcess] = []
        self._token = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def order(self, message: Mapping[str, Any]) -> None:
        """Do what the head says."""
        kind = message["type"]
        if kind == "go":
            self._go(message)
        elif kind == "signal":
            for child in self._children:
                child.forward(int(message["number"]))
        elif kind in ("preempt", "stop_at"):
            for child in self._children:
                child.order(message)
        elif kind == "end":
            task = asyncio.create_task(self.end(stacks=bool(message.get("stacks"))))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def end(self, *, stacks: bool, grace: float = 0.3) -> None:
        """End all programs: their stacks first, then SIGTERM, then SIGKILL."""
        children = [c for c in self._children if not c.exited.is_set()]
        if stacks and children:
            for child in children:
                child.dump_stacks()
            await asyncio.sleep(_STACKS_WAIT)
            for child in children:
                child.collect_stacks()
        for child in children:
            child.signal(signal.SIGTERM)
        await _all_exited(children, grace)
        for child in children:
            child.signal(signal.SIGKILL)
        await _all_exited(children, 5)
        kill_leftovers(self._token)
        self._close()
        for index in self._indices:
            self._emit({"type": "ended", "process": index})

    async def watch(self) -> None:
        """Look after the pulses until cancelled."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            asleep = max(0.0, now - before - 10 * _TICK)
            before = now
            for child in self._children:
                child.watch(asleep)

    def _go(self, message: Mapping[str, Any]) -> None:
        folder = Path(message["folder"])
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        # Several agents of a run may share a machine, and each clears up after its own programs.
        self._token = f"{message['run']}/{self._indices[0]}"
        for index, settings in zip(self._indices, self._settings, strict=True):
            environment = {
                **{k: v for k, v in os.environ.items() if k not in (SECRET, SECRET_FILE)},
                # JAX's own service would hold SIGTERM back from programs that do not ask for it.
                "JAX_ENABLE_PREEMPTION_SERVICE": os.environ.get(
                    "JAX_ENABLE_PREEMPTION_SERVICE", "0"
                ),
                "PYTHONUNBUFFERED": "1",
                **settings,
                TOKEN: self._token,
                COUNT: str(message["num_processes"]),
                INDEX: str(index),
                "PYREACTANT_RESTART_COUNT": str(message["restarts"]),
            }
            if message.get("coordinator"):
                environment[COORDINATOR] = message["coordinator"]
            self._children.append(self._start(index, environment, folder))

    def _start(self, index: int, environment: Mapping[str, str], folder: Path) -> ChildProcess:
        log = Log(folder / f"process-{index}.log")
        if log.error:
            self._emit(
                {
                    "type": "log_failed",
                    "process": index,
                    "age": 0.0,
                    "path": str(log.path),
                    "error": log.error,
                }
            )
        shown = None
        if self._shown and self._only in (None, index):
            several = self._only is None
            out, err = (Prefixed(t, f"[{index}] ", whole_lines=several) for t in terminals())
            shown = out, err
        return ChildProcess(
            index, self._program, environment, log, shown, self._emit, self._stall_timeout
        )

    def _close(self) -> None:
        for child in self._children:
            child.close()
        self._children = []


async def _all_exited(children: Sequence[ChildProcess], timeout: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            for child in children:
                await child.exited.wait()


def kill_leftovers(token: str) -> None:
    """Kill what the run's programs started in sessions of their own: it has the run's name."""
    if not token or not Path("/proc/self/environ").exists():
        return
    mark = f"{TOKEN}={token}".encode()
    for _ in range(5):  # what is found may just have started something else
        found = False
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True
            except (OSError, ValueError):
                continue
        if not found:
            return
