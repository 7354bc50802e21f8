"""The agent starts, signals and ends the programs of one machine on orders from the head."""

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

TOKEN = "PYREACTANT_RUN"  # noqa: S105 - names the run, not a secret
"""Set in every program of a run, so that processes left behind can be found."""

_STACKS_WAIT = 0.15
_TICK = 0.1


class Agent:
    """The programs on this machine: takes orders from the head, and sends it events.

    Orders are dicts with "type": "go" (start), "signal", "preempt", "stop_at", "end".

    Args:
        indices: Indices of the processes to start on this machine.
        program: As in `RunOptions`.
        settings: Environment variables of each process.
        emit: Called with every event of these processes.
        shown: Whether output goes to the terminal.
        only: The one process whose output is shown; None for all.
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
        """Carry out an order from the head."""
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
        """End all programs: collect their stacks if wanted, then SIGTERM, then SIGKILL."""
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
        """Check the programs' pulses until cancelled."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            suspended = max(0.0, now - before - 10 * _TICK)
            before = now
            for child in self._children:
                child.watch(suspended)

    def _go(self, message: Mapping[str, Any]) -> None:
        folder = Path(message["folder"])
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        # Several agents of a run may share a machine; each cleans up after its own programs.
        self._token = f"{message['run']}/{self._indices[0]}"
        for index, settings in zip(self._indices, self._settings, strict=True):
            environment = {
                **{k: v for k, v in os.environ.items() if k not in (SECRET, SECRET_FILE)},
                # JAX's preemption service would swallow SIGTERM in programs that do not use it.
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
            index,
            self._program,
            environment,
            log,
            terminals=shown,
            emit=self._emit,
            stall_timeout=self._stall_timeout,
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
    """Kill processes that the run's programs started in other sessions; they inherit the token."""
    if not token or not Path("/proc/self/environ").exists():
        return
    mark = f"{TOKEN}={token}".encode()
    for _ in range(5):  # a process may start another one just before it is killed
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
