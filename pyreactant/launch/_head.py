"""The head of a run, in process 0's supervisor: hears all processes, judges, orders, reports."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._cause import Failure, differences, failure, judge
from ._options import RunOptions
from ._report import RunReport, first_error, process_row, say, utc
from ._state import ProcessState, names

_KNOWN = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

_SAME = 1.0
"""Seconds within which signals to several processes are one event, as Slurm sends them."""


class Stop:
    """What was asked for by signals, and what follows from it.

    SIGINT is passed on. SIGTERM and SIGUSR1 are a preemption: programs that call
    `reached_preemption` agree on a step; to others the signal is passed on. After SIGINT and
    SIGTERM all must end within the grace; a second one ends them at once. SIGUSR1 is a warning
    only, as Slurm's ``--signal=USR1@60``.
    """

    def __init__(self, grace: float) -> None:
        self.asked_at: float | None = None
        self.number = 0
        self.ends_all = False
        self._grace = grace
        self._source: int | None = None
        self._enforce = False
        self._pending: list[int] = []
        self._announced = self._preempting = self._agreed = False

    @property
    def cause(self) -> str:
        """The cause class."""
        return "interrupted" if self.number == signal.SIGINT else "preempted"

    @property
    def summary(self) -> str:
        """A sentence."""
        where = "the supervisor" if self._source is None else f"process {self._source}"
        return f"{where} got {signal.Signals(self.number).name}"

    def ask(self, number: int, process: int | None, now: float) -> None:
        """A signal has come to a supervisor or a program.

        Raises:
            ValueError: It is none that asks to stop.
        """
        if number not in _KNOWN:
            raise ValueError(f"signal {number}")
        again = self.ends_all and number != signal.SIGUSR1
        if again and self.asked_at is not None and now - self.asked_at > _SAME:
            self._enforce = True
        if self.asked_at is None or (number != signal.SIGUSR1 and not self.ends_all):
            self.asked_at, self.number, self._source = now, number, process
            self._pending.append(number)
        self.ends_all = self.ends_all or number != signal.SIGUSR1

    def orders(self, states: Sequence[ProcessState]) -> Iterator[Mapping[str, Any]]:
        """What to tell every machine now."""
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
        if self._preempting and not self._agreed and all(s.told_step for s in alive):
            self._agreed = True
            # The first step that no process has begun, so that each still comes to it.
            steps = [s.step for s in alive if s.step is not None]
            yield {"type": "stop_at", "step": max(steps, default=0) + 1}

    def overdue(self, now: float) -> bool:
        """Whether the grace is over."""
        return self._enforce or (self.asked_at is not None and now - self.asked_at > self._grace)

    def outcome(self, states: Sequence[ProcessState], now: float) -> Failure | None:
        """What the signals made of a run in which every process has ended."""
        if self.asked_at is None or not (self.ends_all or any(s.stopped for s in states)):
            return None
        if self._agreed and all(s.code == 0 and not s.stopped for s in states):
            return None  # they came to their end before the step
        return failure(self.cause, self.summary, None, now)

    def restarted(self) -> None:
        """The programs are new, and have heard of nothing."""
        self._preempting = self._agreed = False


Send = Callable[[Mapping[str, Any]], None]

_SETTLE = 0.25
"""Seconds to wait for the cause of a failure, which may be heard of after its consequence."""

_SETTLE_CONSEQUENCE = 1.0

_ENDING = 1.5
"""Seconds in which every machine should have ended its programs."""

_ENDING_BEFORE_RESTART = 15.0
"""The same where the programs are to be started again, which none of the old may see."""

_NO_RESTART = ("preempted", "interrupted", "environment", "rendezvous")


class Head:
    """What process 0 knows and decides.

    Args:
        options: What was asked for.
        states: One for each process of the run.
        broadcast: Sends an order to every machine.
        coordinator: Gives the address of a fresh port for the runtime; None for one process.
        run: Name of the run.
        folder: For logs and report.
        restart: How often a batch system has started this job again.
    """

    def __init__(
        self,
        options: RunOptions,
        states: Sequence[ProcessState],
        broadcast: Send,
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
        self._news = asyncio.Event()
        self._stop = Stop(options.grace)
        self._turned_down: Failure | None = None
        self._ended: set[int] = set()
        self._restarts: list[dict[str, Any]] = []
        self._said: set[str] = set()

    def admit(self, hello: Mapping[str, Any]) -> str | None:
        """Note a process that has come to the roll-call; or why it cannot be in this run."""
        index, count = int(hello["process"]), int(hello["num_processes"])
        host, facts = str(hello["host"]), {str(k): str(v) for k, v in hello["facts"].items()}
        why = None
        if count != len(self.states):
            why = (
                f"process 0 was started with {len(self.states)} processes, process {index} on "
                f"{host} with {count}; give every process the same"
            )
        elif not 0 <= index < count:
            why = f"there is no process {index} among {count}"
        elif self.states[index].phase != "expected":
            other = self.states[index]
            why = (
                f"two processes have index {index}: one on {other.host} (pid {other.pid}) and one "
                f"on {host} (pid {hello['pid']}); give each its own"
            )
        if why is not None:
            now = time.monotonic()
            self._turned_down = self._turned_down or failure("rendezvous", why, None, now)
        else:
            state = self.states[index]
            state.host, state.facts, state.pid = host, facts, int(hello["pid"])
            state.enter("joined", time.monotonic())
        self._news.set()
        return why

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take in an event from any machine; nonsense is nothing."""
        kind = event["type"]
        try:
            if kind == "ended":
                self._ended.add(int(event["process"]))
            elif kind == "signal":
                self._stop.ask(int(event["number"]), event.get("process"), time.monotonic())
            else:
                self.states[int(event["process"])].apply(event, time.monotonic())
        except (LookupError, TypeError, ValueError, ArithmeticError):
            return  # a message of another version, or a program that speaks for itself
        self._news.set()

    def lose(self, process: int, why: str) -> None:
        """A machine is gone."""
        self.hear({"type": "lost", "process": process, "why": why})

    async def run(self) -> RunReport:
        """From the roll-call to the report; who calls writes it."""
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
            self._ended, self._said, broken = set(), set(), None
        return self._report(broken)

    async def _roll_call(self) -> Failure | None:
        deadline = self._began + self._options.start_timeout
        spoken = self._began
        while absent := [s for s in self.states if s.phase == "expected"]:
            now = time.monotonic()
            if self._turned_down is not None:
                return self._turned_down
            if lost := judge(self.states, now):
                return lost
            if self._stop.asked_at is not None:
                return failure(self._stop.cause, self._stop.summary, None, now)
            if now > deadline:
                came = len(self.states) - len(absent)
                summary = (
                    f"{names(absent)} did not come to the roll-call within "
                    f"{self._options.start_timeout:g} s ({came} of {len(self.states)} came); check "
                    "that each was started, and its own log"
                )
                return failure("rendezvous", summary, absent[0], deadline)
            if now - spoken > 5:
                spoken = now
                self._say(f"waiting for {names(absent)} ({len(self.states) - len(absent)} came)")
            await self._wait_for_news(min(1.0, max(0.01, deadline - now)))
        if len(self.states) > 1:
            self._say(f"{len(self.states)} processes came in {self._seconds():.1f} s")
        if self._options.allow_different_environments:
            return None
        return differences(self.states, time.monotonic())

    async def _attempt(self, restarts: int) -> Failure | None:
        """Start all programs; the failure that broke them, or None once all have ended well."""
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
            await self._wait_for_news(0.05 if found_at else 0.2)

    def _broken(self, now: float) -> Failure | None:
        found = judge(self.states, now)
        asked_at = self._stop.asked_at
        # A launcher ends the other tasks as soon as one has failed, and that is the cause.
        before = found is not None and not found.consequence and found.at < (asked_at or now)
        if self._stop.ends_all and not before:
            if self._stop.overdue(now):
                return failure(self._stop.cause, self._stop.summary, None, now)
            return None  # what happens to processes that were told to stop is no failure
        limit = self._options.timeout
        if limit is not None and self._late():
            slow = [s for s in self.states if not s.finished]
            summary = f"the run took more than {limit:g} s; {names(slow)} still ran"
            return failure("timeout", summary, slow[0] if slow else None, self._began + limit)
        return found

    async def _end_all(self, *, stacks: bool, patience: float) -> bool:
        """Have every machine end its programs; false where one has not said in time that it has.

        Those that cannot answer do so by themselves.
        """
        self._broadcast({"type": "end", "stacks": stacks})
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if all(s.lost is not None or s.index in self._ended for s in self.states):
                return True
            await self._wait_for_news(0.05)
        return False

    def _can_restart(self, broken: Failure) -> bool:
        gone = any(s.lost for s in self.states)
        return broken.cause not in _NO_RESTART and not gone and not self._late()

    def _late(self) -> bool:
        limit = self._options.timeout
        return limit is not None and self._seconds() > limit

    async def _wait_for_news(self, timeout: float) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
                await asyncio.sleep(0.005)  # a thousand processes come with their news at once
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
            if phase not in self._said and all(phase in s.times for s in self.states):
                self._said.add(phase)
                self._say(f"all {len(self.states)} {what} after {self._seconds():.1f} s")

    def _say(self, text: str) -> None:
        if not self._options.quiet:
            say(text)

    def _seconds(self) -> float:
        return time.monotonic() - self._began
