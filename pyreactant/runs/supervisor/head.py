"""The head of a run, in process 0's supervisor: collects events, decides, orders, reports."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...base.counted import counted
from ...base.errors import ExitCode
from ...process.events import (
    End,
    Ended,
    Event,
    Go,
    GotSignal,
    Idle,
    Join,
    Kind,
    LogFailed,
    Lost,
    Metrics,
    Order,
    Profiled,
    Refused,
    WaitsFor,
)
from .cause import (
    Failure,
    Judge,
    differences,
    failure,
    loopback_names,
    without_own_names,
    without_threads,
)
from .metrics import MetricsFile
from .options import PROFILES, RunOptions
from .output import say
from .report import RunReport, first_error, process_row
from .state import ProcessState, names, utc
from .unstarted import PATIENCE
from .watch import Clock, Stalls, Stop, Waits

Send = Callable[[Order], None]

_SETTLE = 0.25
"""Seconds to wait after a failure, since its cause may be reported after its consequence."""

_SETTLE_CONSEQUENCE = 1.0
"""Seconds to wait after a failure that may be a mere consequence."""

_ENDING = 5.0
"""Seconds in which every machine should have ended its programs, after these wrote their stacks."""

_ENDING_BEFORE_RESTART = 15.0
"""Seconds for the same before a restart: no old program may be left when the new ones start."""

_WAITS = 16
"""Saves in which processes waited that the report names, the latest ones."""

_MAX_MOVES = 3
"""How often the runtime gets another port because another program took its own."""

_NOT_BEGUN = "the process ended before it recorded anything"

_NO_RESTART = ("preempted", "interrupted", "environment", "rendezvous")


class Head:
    """Process 0's view of the run, and its decisions.

    Args:
        broadcast: Sends an order to every machine.
        coordinator: Returns the address of a free port for the runtime's coordinator; None for a
            run of one process.
        restart: How often a batch system has requeued this job.
        returns: Whether a supervisor that is lost can be started again, as Slurm's tasks cannot.
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
        returns: bool = True,
    ) -> None:
        self.states = list(states)
        self._members = {s.index: s for s in states}  # in the order of the process indices
        self._judge = Judge(self.states)
        self.refused: Sequence[str] = ()
        self._options, self._broadcast, self._coordinator = options, broadcast, coordinator
        self._run, self._folder, self._restart = run, folder, restart
        self._returns = returns
        self._began = time.monotonic()
        self._started = utc()
        self._waits = Waits()
        self._clock = Clock(time.time(), self._began)
        self._changed = asyncio.Event()
        self._woke = self._began
        self._stop = Stop(options.grace)
        self._rejected: Failure | None = None
        self._address: str | None = None
        self._absent = {s.index for s in self.states}
        self._unstarted: Failure | None = None
        self._ended: set[int] = set()
        self._restarts: list[dict[str, Any]] = []
        self._long_waits: dict[str, tuple[float, str]] = {}
        self._announced: set[str] = set()
        self._own_names: list[str] = []
        self._said_log_error = False
        self._metrics = MetricsFile(folder, len(self.states), tensorboard=options.tensorboard)
        self._stalls = Stalls(
            folder,
            options.stall_timeout,
            ends=options.end_stalled,
            broadcast=broadcast,
            say=say,
        )

    def admit(self, hello: Join) -> Refused | None:
        """Admit a process to the roll-call; or return why it cannot be in this run."""
        index, count, host = hello.process, hello.num_processes, hello.host
        why = None
        if 0 <= index < len(self.states) and index not in self._members:
            name = self.states[index].name()
            return Refused(f"{name} was lost, and the run goes on without it", ExitCode.LOST)
        gone = self._gone if self._options.min_processes is not None else []
        if self._replaces(hello):
            self.lose(index, "its supervisor is gone: another one has come in its place")
            gone = self._gone
        returns = any(s.index == index for s in gone)
        if count != len(self.states):
            why = (
                f"process 0 was started with {counted(len(self.states), 'process')}, process "
                f"{index} on {host} with {count}; give every process the same number"
            )
        elif not 0 <= index < count:
            why = f"process indices are 0 to {count - 1}, but a process on {host} has {index}"
        elif not returns and self.states[index].phase != "expected":
            other = self.states[index]
            why = (
                f"two processes have index {index}: one on {other.host} (pid {other.pid}) and one "
                f"on {host} (pid {hello.pid}); give each process its own index"
            )
        now = time.monotonic()
        if returns and (why is not None or hello.cannot_start):
            why = why or f"process {index} on {host} cannot start: {hello.cannot_start}"
            self._say(f"a process that came back is refused: {why}")
        elif why is None and hello.cannot_start:
            state = self.states[index]
            state.host = host
            why = f"{state.name()} cannot start: {hello.cannot_start}"
            broken = failure("user", why, state, now, exit_code=hello.exit_code)
            self._unstarted = self._unstarted or broken
            self._absent.discard(index)
        elif why is not None:
            self._rejected = self._rejected or failure("rendezvous", why, None, now)
        else:
            if returns:
                # The judge keeps the state that was lost: it is why the programs start again.
                self.states[index] = self._members[index] = ProcessState(index)
                self._ended.add(index)
            state = self.states[index]
            state.host, state.facts, state.pid = host, hello.facts, hello.pid
            state.own_name, state.address = hello.own_name, hello.address
            if hello.head:
                self.states[0].address = hello.head
            state.enter("joined", now)
            self._judge.note(index)
            self._absent.discard(index)
        self._changed.set()
        return None if why is None else Refused(why)

    def _replaces(self, hello: Join) -> bool:
        """Whether a machine has come back before the loss of its supervisor was noticed."""
        state = self._members.get(hello.process)
        if self._options.min_processes is None or self._absent or state is None:
            return False
        return state.index > 0 and state.host == hello.host and not state.finished

    def apply(self, event: Event) -> None:
        """Apply an event from any machine, unless the run does not have its process."""
        now, process = time.monotonic(), event.process
        if isinstance(event, GotSignal):
            self._stop.request(event.number, process, now)
        elif process is not None and process in self._members:
            self._apply(event, process, now)
        self._changed.set()

    def _apply(self, event: Event, process: int, now: float) -> None:
        match event:
            case Ended():
                self._ended.add(process)
            case Idle(seconds):
                self._stalls.take(process, seconds, now)
            case Metrics(records):
                self._metrics.take(process, records)
            case WaitsFor():
                self._note_wait(process, event)
            case _:
                state = self._members[process]
                state.apply(event, now)
                self._judge.note(process)
                if isinstance(event, LogFailed) and not self._said_log_error:
                    self._said_log_error = True
                    say(f"the log of {state.name()} is not complete: {state.log_error}")

    def _note_wait(self, process: int, event: WaitsFor) -> None:
        """Say for whom a process waits."""
        if 0 <= event.other < len(self._members):
            text = event.text(self._members[process].name(), self._running[event.other].name())
            what = event.what[:200]
            if event.seconds >= self._long_waits.get(what, (0.0, ""))[0]:  # the longest is kept
                self._long_waits[what] = event.seconds, text
            self._say(text)

    def lose(self, process: int, why: str) -> None:
        """Note that the supervisor of a process is gone."""
        self.apply(Lost(why, process=process))

    async def run(self) -> RunReport:
        """Run from the roll-call to the report, which the caller writes."""
        broken = await self._roll_call()
        restarts = moves = 0
        while broken is None:
            broken = await self._attempt(restarts)
            if broken is None:
                await self._end_all(stacks=False, patience=_ENDING)
                break
            taken = self._port_was_taken(broken)
            moved = taken and moves < _MAX_MOVES
            last = restarts == self._options.max_restarts and not moved
            ended = await self._end_all(
                stacks=broken.cause not in ("preempted", "interrupted"),
                patience=_ENDING if last else self._ending_before_restart,
            )
            if taken and not moved:
                broken = self._without_ports(broken)
            if self._options.min_processes is not None and broken.consequence:
                # The end of a machine may be noticed after its consequences.
                broken = self._judge.find(time.monotonic()) or broken
            broken = without_threads(broken, self._running)
            if last or not ended or not (taken or self._can_restart(broken)):
                break
            before = self._start()
            if stopped := await self._await_return(broken):
                broken = stopped
                break
            if moved:
                moves += 1
                self._say("another program took the port of the runtime; trying another port")
            else:
                restarts += 1
                self._restarts.append(
                    {"cause": broken.cause, "summary": broken.summary, "at": utc(), **before}
                )
                self._say(f"{broken.summary}; restart {restarts} of {self._options.max_restarts}")
            self._regroup()
            self._judge = Judge(self._running)
            self._stop.restarted()
            self._metrics.restarted(len(self._members))
            self._stalls.restarted()
            self._waits = Waits()
            self._ended, self._announced, broken = set(), set(), None
        if error := self._metrics.close():
            self._say(f"not all metrics could be written: {error}")
        return self._report(broken)

    def _start(self) -> dict[str, Any]:
        """The processes of this start, and from which step they went on; None if they told none."""
        steps = [s.restored for s in self._members.values() if s.restored is not None]
        return {"processes": list(self._members), "from_step": min(steps, default=None)}

    @property
    def _running(self) -> list[ProcessState]:
        """The processes of this start, in the order of their indices."""
        return list(self._members.values())

    @property
    def _gone(self) -> list[ProcessState]:
        """The processes of this start whose machine is gone."""
        return [s for s in self._members.values() if s.gone]

    @property
    def _ending_before_restart(self) -> float:
        """Seconds for all old programs to end, or with `min_processes` to be found lost."""
        if self._options.min_processes is None:
            return _ENDING_BEFORE_RESTART
        return max(_ENDING_BEFORE_RESTART, self._options.heartbeat_timeout + _ENDING)

    async def _await_return(self, broken: Failure) -> Failure | None:
        """Wait for the machines that are gone; return why the run cannot go on after that.

        Each may come back within `start_timeout`: a new supervisor with its number joins.
        """
        least = self._options.min_processes
        if least is None or not self._gone:
            return None
        limit = self._options.start_timeout if self._returns else 0.0
        deadline = time.monotonic() + limit
        if limit:
            self._say(f"waiting up to {limit:g} s for {names(self._gone)} to come back")
        while self._gone and self._stop.requested_at is None and not self._late():
            if (left := deadline - time.monotonic()) <= 0:
                break
            await self._wait_for_change(min(1.0, left))
        now = time.monotonic()
        if self._stop.requested_at is not None:
            return failure(self._stop.cause, self._stop.summary, None, now)
        left_over = [s for s in self._members.values() if not s.gone]
        if self._late() or len(left_over) < least:
            some = counted(len(left_over), "process is", "processes are")
            why = f"{broken.summary}; {some} left, and --min-processes asks for {least}"
            return broken if self._late() else replace(broken, summary=why)
        if self._gone:
            self._say(f"going on with {len(left_over)} of {len(self.states)} processes")
        if self._options.allow_different_environments:
            return None
        return differences(left_over, now)

    def _regroup(self) -> None:
        """Give the processes that are left their indices for the next start, without gaps."""
        left = [s for s in self._members.values() if not s.gone]
        self._members = {s.index: s.restarted(index) for index, s in enumerate(left)}
        for state in self._members.values():
            self.states[state.index] = state

    async def _roll_call(self) -> Failure | None:
        deadline = self._began + self._options.start_timeout
        last_message = self._began
        while self._absent:
            now = time.monotonic()
            if self._rejected is not None:
                return self._rejected
            if self._unstarted is not None:
                stopped = self._stop.requested_at is not None  # a launcher ends the other tasks
                if stopped or now > min(deadline, self._unstarted.at + PATIENCE):
                    return self._unstarted
            if lost := self._judge.find(now):
                return lost
            if self._stop.requested_at is not None:
                return failure(self._stop.cause, self._stop.summary, None, now)
            if now <= deadline and now - last_message <= 5:
                await self._wait_for_change(min(1.0, max(0.01, deadline - now)))
                continue
            absent = [self.states[index] for index in sorted(self._absent)]
            if now > deadline:
                joined = len(self.states) - len(absent)
                summary = (
                    f"{names(absent)} did not join the roll-call within "
                    f"{self._options.start_timeout:g} s ({joined} of {len(self.states)} joined); "
                    "check that each process was started, and read its own log"
                )
                return failure("rendezvous", summary, absent[0], deadline)
            last_message = now
            self._say(f"waiting for {names(absent)} ({len(self.states) - len(absent)} joined)")
        if self._unstarted is not None:
            return self._unstarted
        if len(self.states) > 1:
            self._say(f"{len(self.states)} processes joined in {self._seconds():.1f} s")
        if self._options.platform not in ("gpu", "tpu"):
            self._own_names = loopback_names(self.states)
            for line in self._own_names:
                say(line)
        if self._options.allow_different_environments:
            return None
        return differences(self.states, time.monotonic())

    async def _attempt(self, restarts: int) -> Failure | None:
        """Start all programs; return the failure that broke them, or None if all succeeded."""
        total = self._restart + restarts
        self._address = self._coordinator()
        fewer = len(self._members) < len(self.states)
        self._broadcast(
            Go(
                f"{self._run}-{total}",
                str(self._folder),
                len(self._members),
                self._address,
                total,
                places=tuple(self._members) if fewer else (),
            )
        )
        broken_at: float | None = None
        while True:
            now = time.monotonic()
            self._clock.look(time.time(), now)
            for order in self._stop.orders(self._running):
                self._broadcast(order)
            self._stalls.check(self._running, now)
            broken = self._broken(now)
            if broken is None:
                broken_at = None
                if not self._judge.unfinished:
                    return self._stop.outcome(self._running, now)
            else:
                broken_at = broken_at or now
                settle = _SETTLE_CONSEQUENCE if broken.consequence else _SETTLE
                alone = not self._judge.unfinished
                if now - broken_at > settle or (alone and not broken.consequence):
                    broken = without_own_names(broken, self._own_names)
                    return self._clock.explain(broken)
            self._say_phases()
            self._say_slow_end(now)
            for waits in self._waits.messages(self._running, now):
                self._say(waits)
            await self._wait_for_change(0.05 if broken_at else 0.2)

    def _broken(self, now: float) -> Failure | None:
        broken = self._judge.find(now)
        requested_at = self._stop.requested_at
        # A launcher ends the other tasks once one has failed; then that failure is the cause.
        before = broken is not None and not broken.consequence and broken.at < (requested_at or now)
        if self._stop.ends_all and not before:
            if self._stop.overdue(now):
                return failure(self._stop.cause, self._stop.summary, None, now)
            return None  # the failures of processes that were asked to stop do not count
        limit = self._options.timeout
        if limit is not None and self._late():
            slow = [s for s in self._running if not s.finished]
            summary = f"the run took more than {limit:g} s; {names(slow)} still ran"
            return failure("timeout", summary, slow[0] if slow else None, self._began + limit)
        return broken or self._stalls.failure

    async def _end_all(self, *, stacks: bool, patience: float) -> bool:
        """Make every machine end its programs; false if one has not confirmed in time.

        A machine that cannot be reached ends its programs by itself.
        """
        for state in self._running:
            state.stacks = None  # those of a stall may be of a program that has ended since
        self._broadcast(End(stacks))
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if all(s.lost is not None or s.index in self._ended for s in self._running):
                return True
            await self._wait_for_change(0.05)
        return False

    def _port_was_taken(self, broken: Failure) -> bool:
        """Whether process 0 could not use the port that this head had found free."""
        error = self.states[0].error
        taken = error is not None and error.kind is Kind.PORT_TAKEN
        return taken and broken.process == 0 and not self._late()

    def _without_ports(self, broken: Failure) -> Failure:
        summary = (
            f"other programs took each of the {_MAX_MOVES + 1} ports that the supervisor chose on "
            f"process 0's machine for the runtime, the last of them {self._address}; start the run "
            "again"
        )
        return replace(broken, summary=summary)

    def _can_restart(self, broken: Failure) -> bool:
        whole = not self._gone or self._options.min_processes is not None
        return broken.cause not in _NO_RESTART and whole and not self._late()

    def _late(self) -> bool:
        limit = self._options.timeout
        return limit is not None and self._seconds() > limit

    async def _wait_for_change(self, timeout: float) -> None:
        """Wait for an event, and long enough to take in those of ten thousand processes at once."""
        took = time.monotonic() - self._woke
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        await asyncio.sleep(max(0.005, min(took, 0.2)))
        self._changed.clear()
        self._woke = time.monotonic()

    def _report(self, broken: Failure | None) -> RunReport:
        now = time.monotonic()
        for state in self.states:
            state.log = str(self._folder / f"process-{state.index}.log")
        return RunReport(
            cause="done" if broken is None else broken.cause,
            exit_code=ExitCode.DONE if broken is None else broken.exit_code,
            summary="all processes ended well" if broken is None else broken.summary,
            first_error=None if broken is None else first_error(broken, self.states, now),
            processes=[process_row(s, self._began) for s in self.states],
            seconds=round(self._seconds(), 3),
            started=self._started,
            folder=str(self._folder),
            command=list(self._options.program),
            restarts=self._restarts,
            last_start=self._start(),
            stalls=self._stalls.reports,
            facts=self.states[0].facts,
            refused=list(self.refused),
            notes=[
                *(self._notes() if broken is None else self._own_names),
                *self._compile_cache(),
                *[text for _, text in self._long_waits.values()][-_WAITS:],
                *self._profiles(),
            ],
            job=os.environ.get("SLURM_JOB_ID", ""),
        )

    def _notes(self) -> list[str]:
        """What the user of a run that ended well must know all the same."""
        gone = [s for s in self.states if s.gone]
        notes = [f"the run went on without {names(gone)}"] if gone else []
        count = len(self._members)
        joined = any("initializing" in s.times for s in self._running)
        if count == 1 or joined or not any(s.alone for s in self._running):
            return notes
        return [
            *notes,
            "no process joined the others: none called initialize (pyreactant.initialize() or "
            "jax.distributed.initialize()) with the variables of this run (PYREACTANT_*), so each "
            f"of the {count} ran as process 0 of 1",
        ]

    def _compile_cache(self) -> list[str]:
        """What the cache of compilations has saved, if the user asked for one."""
        asked = [s.compiled for s in self._running if s.compiled and s.compiled.cache]
        if not asked:
            return []
        compiled, loaded = sum(told.compiled for told in asked), sum(told.loaded for told in asked)
        each = " of all processes" if len(asked) > 1 else ""
        return [
            f"compile cache: {loaded} of {counted(compiled + loaded, 'program')}{each} loaded in "
            f"{sum(told.load_seconds for told in asked):.1f} s, {compiled} compiled in "
            f"{sum(told.compile_seconds for told in asked):.1f} s"
        ]

    def _profiles(self) -> list[str]:
        """Where the profiles are that the user asked for, and which are missing or not whole."""
        if self._options.profile is None:
            return []
        rows = [(state, state.profiled or Profiled("", _NOT_BEGUN)) for state in self._running]
        written = [state for state, told in rows if told.file]
        folder = self._folder / PROFILES
        notes = [f"profile of {names(written)}: xprof {folder}"] if written else []
        whys = sorted({told.note for _, told in rows if told.note})
        for why in whys:
            without = [state for state, told in rows if told.note == why and not told.file]
            partly = [state for state, told in rows if told.note == why and told.file]
            notes += [f"no profile of {names(without)}: {why}"] if without else []
            notes += [f"the profile of {names(partly)} is not whole: {why}"] if partly else []
        return notes

    def _say_phases(self) -> None:
        if len(self._members) == 1:
            return
        for phase, what in (
            ("initialized", "initialized"),
            ("ending", "at the end of the program"),
        ):
            if phase not in self._announced and all(phase in s.times for s in self._running):
                self._announced.add(phase)
                self._say(f"all {len(self._members)} {what} after {self._seconds():.1f} s")

    def _say_slow_end(self, now: float) -> None:
        if self._stop.slow(now) and "slow end" not in self._announced:
            self._announced.add("slow end")
            slow = names([s for s in self._running if not s.finished])
            self._say(
                f"{self._stop.summary}; waiting for {slow} to end, at most "
                f"{self._options.grace:g} s (--grace); a second signal, or Ctrl-C, ends all at once"
            )

    def _say(self, text: str) -> None:
        if not self._options.quiet:
            say(text)

    def _seconds(self) -> float:
        return time.monotonic() - self._began
