"""The head of a run, in process 0's supervisor: collects events, decides, orders, reports."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._cause import Failure, differences, failure, find_failure
from ._options import RunOptions
from ._report import RunReport, first_error, process_row, say, utc
from ._state import ProcessState, names

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

_SAME_EVENT = 1.0
"""Seconds within which signals to several processes count as one, as Slurm sends them."""


class Stop:
    """The signals that asked the run to stop, and the orders that follow from them.

    SIGINT is passed on to the programs. SIGTERM and SIGUSR1 announce a preemption: programs that
    call `reached_preemption` agree on a step; other programs get the signal. After SIGINT or
    SIGTERM all must end within the grace period; a second one ends them at once. SIGUSR1 is only
    a warning, as with Slurm's ``--signal=USR1@60``.
    """

    def __init__(self, grace: float) -> None:
        self.requested_at: float | None = None
        self.number = 0
        self.ends_all = False
        self._grace = grace
        self._source: int | None = None
        self._enforce = False
        self._pending: list[int] = []
        self._announced = self._preempting = self._agreed = False

    @property
    def cause(self) -> str:
        """The cause class of a run that these signals ended."""
        return "interrupted" if self.number == signal.SIGINT else "preempted"

    @property
    def summary(self) -> str:
        """One sentence: which process got which signal."""
        where = "the supervisor" if self._source is None else f"process {self._source}"
        return f"{where} got {signal.Signals(self.number).name}"

    def request(self, number: int, process: int | None, now: float) -> None:
        """Note a signal that a supervisor or a program received.

        Raises:
            ValueError: The signal is not one that asks to stop.
        """
        if number not in _STOP_SIGNALS:
            raise ValueError(f"signal {number}")
        again = self.ends_all and number != signal.SIGUSR1
        if again and self.requested_at is not None and now - self.requested_at > _SAME_EVENT:
            self._enforce = True
        if self.requested_at is None or (number != signal.SIGUSR1 and not self.ends_all):
            self.requested_at, self.number, self._source = now, number, process
            self._pending.append(number)
        self.ends_all = self.ends_all or number != signal.SIGUSR1

    def orders(self, states: Sequence[ProcessState]) -> Iterator[Mapping[str, Any]]:
        """The orders to send to every machine now."""
        cooperate = any(s.cooperates for s in states)
        for number in self._pending:
            self._announced = self._announced or number != signal.SIGINT
            if number == signal.SIGINT or not cooperate:
                yield {"type": "signal", "number": number}
        self._pending = []
        if self._announced and cooperate and not self._preempting:
            self._preempting = True
            yield {"type": "preempt"}
        alive = [s for s in states if not s.finished]
        if self._preempting and not self._agreed and all(s.step_reported for s in alive):
            self._agreed = True
            # The first step that no process has begun, so that each process still reaches it.
            steps = [s.step for s in alive if s.step is not None]
            yield {"type": "stop_at", "step": max(steps, default=0) + 1}

    def overdue(self, now: float) -> bool:
        """Whether the grace period is over."""
        if self._enforce:
            return True
        return self.requested_at is not None and now - self.requested_at > self._grace

    def outcome(self, states: Sequence[ProcessState], now: float) -> Failure | None:
        """The failure that the signals caused in a run whose processes have all ended, if any."""
        if self.requested_at is None or not (self.ends_all or any(s.stopped for s in states)):
            return None
        if self._agreed and all(s.code == 0 and not s.stopped for s in states):
            return None  # they finished before the agreed step
        return failure(self.cause, self.summary, None, now)

    def restarted(self) -> None:
        """Announce the preemption again: the programs were restarted."""
        self._preempting = self._agreed = False


Send = Callable[[Mapping[str, Any]], None]

_SETTLE = 0.25
"""Seconds to wait after a failure, since its cause may be reported after its consequence."""

_SETTLE_CONSEQUENCE = 1.0
"""Seconds to wait after a failure that may be a mere consequence."""

_ENDING = 1.5
"""Seconds in which every machine should have ended its programs."""

_ENDING_BEFORE_RESTART = 15.0
"""Seconds for the same before a restart: no old program may be left when the new ones start."""

_NO_RESTART = ("preempted", "interrupted", "environment", "rendezvous")


class Head:
    """Process 0's view of the run, and its decisions.

    Args:
        options: Options of the run.
        states: One state for each process of the run.
        broadcast: Sends an order to every machine.
        coordinator: Returns the address of a free port for the runtime's coordinator; None for a
            run of one process.
        run: Name of the run.
        folder: Folder for logs and report.
        restart: How often a batch system has requeued this job.
    """

    def __init__(
        self,
        options: RunOptions,
        states: Sequence[ProcessState],
        broadcast: Send,
        *,
        coordinator: Callable[[], str | None],
        run: str,
        folder: Path,
        restart: int,
    ) -> None:
        self.states = list(states)
        self.refused: Sequence[str] = ()
        self._options, self._broadcast, self._coordinator = options, broadcast, coordinator
        self._run, self._folder, self._restart = run, folder, restart
        self._began = time.monotonic()
        self._started = utc()
        self._changed = asyncio.Event()
        self._stop = Stop(options.grace)
        self._rejected: Failure | None = None
        self._ended: set[int] = set()
        self._restarts: list[dict[str, Any]] = []
        self._announced: set[str] = set()

    def admit(self, hello: Mapping[str, Any]) -> str | None:
        """Admit a process to the roll-call; or return why it cannot be in this run."""
        index, count = int(hello["process"]), int(hello["num_processes"])
        host, facts = str(hello["host"]), {str(k): str(v) for k, v in hello["facts"].items()}
        why = None
        if count != len(self.states):
            why = (
                f"process 0 was started with {len(self.states)} processes, process {index} on "
                f"{host} with {count}; give every process the same number"
            )
        elif not 0 <= index < count:
            why = f"process indices are 0 to {count - 1}, but a process on {host} has {index}"
        elif self.states[index].phase != "expected":
            other = self.states[index]
            why = (
                f"two processes have index {index}: one on {other.host} (pid {other.pid}) and one "
                f"on {host} (pid {hello['pid']}); give each process its own index"
            )
        if why is not None:
            now = time.monotonic()
            self._rejected = self._rejected or failure("rendezvous", why, None, now)
        else:
            state = self.states[index]
            state.host, state.facts, state.pid = host, facts, int(hello["pid"])
            state.enter("joined", time.monotonic())
        self._changed.set()
        return why

    def apply(self, event: Mapping[str, Any]) -> None:
        """Apply an event from any machine; malformed events are ignored."""
        kind = event["type"]
        try:
            if kind == "ended":
                self._ended.add(int(event["process"]))
            elif kind == "signal":
                self._stop.request(int(event["number"]), event.get("process"), time.monotonic())
            else:
                self.states[int(event["process"])].apply(event, time.monotonic())
        except (LookupError, TypeError, ValueError, ArithmeticError):
            return  # another version's message, or a program that wrote to its supervisor's line
        self._changed.set()

    def lose(self, process: int, why: str) -> None:
        """Note that the supervisor of a process is gone."""
        self.apply({"type": "lost", "process": process, "why": why})

    async def run(self) -> RunReport:
        """Run from the roll-call to the report, which the caller writes."""
        broken = await self._roll_call()
        restarts = 0
        while broken is None:
            broken = await self._attempt(restarts)
            if broken is None:
                break
            last = restarts == self._options.max_restarts
            ended = await self._end_all(
                stacks=broken.cause not in ("preempted", "interrupted"),
                patience=_ENDING if last else _ENDING_BEFORE_RESTART,
            )
            if last or not ended or not self._can_restart(broken):
                break
            restarts += 1
            self._restarts.append({"cause": broken.cause, "summary": broken.summary, "at": utc()})
            self._say(f"{broken.summary}; restart {restarts} of {self._options.max_restarts}")
            self.states = [s.restarted() for s in self.states]
            self._stop.restarted()
            self._ended, self._announced, broken = set(), set(), None
        return self._report(broken)

    async def _roll_call(self) -> Failure | None:
        deadline = self._began + self._options.start_timeout
        last_message = self._began
        while absent := [s for s in self.states if s.phase == "expected"]:
            now = time.monotonic()
            if self._rejected is not None:
                return self._rejected
            if lost := find_failure(self.states, now):
                return lost
            if self._stop.requested_at is not None:
                return failure(self._stop.cause, self._stop.summary, None, now)
            if now > deadline:
                joined = len(self.states) - len(absent)
                summary = (
                    f"{names(absent)} did not join the roll-call within "
                    f"{self._options.start_timeout:g} s ({joined} of {len(self.states)} joined); "
                    "check that each process was started, and read its own log"
                )
                return failure("rendezvous", summary, absent[0], deadline)
            if now - last_message > 5:
                last_message = now
                self._say(f"waiting for {names(absent)} ({len(self.states) - len(absent)} joined)")
            await self._wait_for_change(min(1.0, max(0.01, deadline - now)))
        if len(self.states) > 1:
            self._say(f"{len(self.states)} processes joined in {self._seconds():.1f} s")
        if self._options.allow_different_environments:
            return None
        return differences(self.states, time.monotonic())

    async def _attempt(self, restarts: int) -> Failure | None:
        """Start all programs; return the failure that broke them, or None if all succeeded."""
        total = self._restart + restarts
        self._broadcast(
            {
                "type": "go",
                "run": f"{self._run}-{total}",
                "folder": str(self._folder),
                "num_processes": len(self.states),
                "coordinator": self._coordinator(),
                "restarts": total,
            }
        )
        found_at: float | None = None
        while True:
            now = time.monotonic()
            for order in self._stop.orders(self.states):
                self._broadcast(order)
            broken = self._broken(now)
            if broken is None:
                found_at = None
                if all(s.finished for s in self.states):
                    return self._stop.outcome(self.states, now)
            else:
                found_at = found_at or now
                settle = _SETTLE_CONSEQUENCE if broken.consequence else _SETTLE
                alone = all(s.finished for s in self.states)
                if now - found_at > settle or (alone and not broken.consequence):
                    return broken
            self._say_phases()
            await self._wait_for_change(0.05 if found_at else 0.2)

    def _broken(self, now: float) -> Failure | None:
        found = find_failure(self.states, now)
        requested_at = self._stop.requested_at
        # A launcher ends the other tasks once one has failed; then that failure is the cause.
        before = found is not None and not found.consequence and found.at < (requested_at or now)
        if self._stop.ends_all and not before:
            if self._stop.overdue(now):
                return failure(self._stop.cause, self._stop.summary, None, now)
            return None  # the failures of processes that were asked to stop do not count
        limit = self._options.timeout
        if limit is not None and self._late():
            slow = [s for s in self.states if not s.finished]
            summary = f"the run took more than {limit:g} s; {names(slow)} still ran"
            return failure("timeout", summary, slow[0] if slow else None, self._began + limit)
        return found

    async def _end_all(self, *, stacks: bool, patience: float) -> bool:
        """Make every machine end its programs; false if one has not confirmed in time.

        A machine that cannot be reached ends its programs by itself.
        """
        self._broadcast({"type": "end", "stacks": stacks})
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if all(s.lost is not None or s.index in self._ended for s in self.states):
                return True
            await self._wait_for_change(0.05)
        return False

    def _can_restart(self, broken: Failure) -> bool:
        gone = any(s.lost for s in self.states)
        return broken.cause not in _NO_RESTART and not gone and not self._late()

    def _late(self) -> bool:
        limit = self._options.timeout
        return limit is not None and self._seconds() > limit

    async def _wait_for_change(self, timeout: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
                await asyncio.sleep(0.005)  # take in the events of a thousand processes at once
        except TimeoutError:
            pass

    def _report(self, broken: Failure | None) -> RunReport:
        now = time.monotonic()
        for state in self.states:
            state.log = str(self._folder / f"process-{state.index}.log")
        return RunReport(
            cause="done" if broken is None else broken.cause,
            exit_code=0 if broken is None else broken.exit_code,
            summary="all processes ended well" if broken is None else broken.summary,
            first_error=None if broken is None else first_error(broken, self.states, now),
            processes=[process_row(s) for s in self.states],
            seconds=round(self._seconds(), 3),
            started=self._started,
            folder=str(self._folder),
            command=list(self._options.program),
            restarts=self._restarts,
            facts=self.states[0].facts,
            refused=list(self.refused),
        )

    def _say_phases(self) -> None:
        if len(self.states) == 1:
            return
        for phase, what in (
            ("initialized", "initialized"),
            ("ending", "at the end of the program"),
        ):
            if phase not in self._announced and all(phase in s.times for s in self.states):
                self._announced.add(phase)
                self._say(f"all {len(self.states)} {what} after {self._seconds():.1f} s")

    def _say(self, text: str) -> None:
        if not self._options.quiet:
            say(text)

    def _seconds(self) -> float:
        return time.monotonic() - self._began
