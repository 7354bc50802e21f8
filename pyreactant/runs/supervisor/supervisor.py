"""The supervisor of `pyreactant run`: one per machine or launcher task."""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ...base.counted import counted
from ...base.errors import (
    FileError,
    InvalidArgumentError,
    PyReactantError,
    RendezvousError,
    argument,
)
from ...base.facts import GitState, facts
from ...base.outputs import is_stream
from ...base.process import raise_limit
from ...base.settings import COUNT, JOB_RESTARTS
from ...process.events import (
    Alive,
    ClockCompared,
    ClockTold,
    Event,
    GaveUp,
    Go,
    GotSignal,
    Join,
    Order,
    Profiled,
    Raised,
    Report,
)
from ...process.group import ProcessGroup, resolve
from ...process.group.coordinator import MEETING_SECRET, meeting_secret, run_secret
from ...process.group.group import (
    ShellError,
    env_int,
    join_address,
    local_devices,
    loopback_address,
    split_address,
)
from ...process.group.slurm import NAME as SLURM
from .agent import Agent
from .collectives import waits_of
from .connection import CannotStartError, Uplink, hello, join, own_name, resolve_host
from .head import Head
from .mtls import Certifier, Keys, off_note, off_reason
from .options import RunOptions, device_settings, fresh_folder, platform_note, release
from .output import close_terminals, say, terminals
from .program import find_program
from .report import RunReport, alone
from .rollcall import RollCall, heartbeat_period
from .state import ProcessState, utc
from .timeline import Comparison, make_timeline
from .unstarted import others_told
from .watch import WARNINGS, handled

T = TypeVar("T")

_GIT = 0.2
"""Seconds that the report waits for git, which had the time of the whole run."""

_FILES = 6
"""Open files of a supervisor for each program."""

_MORE_FILES = 32
"""Open files of a supervisor for all else."""

_SPARE_FILES = 256
"""Further files, for libraries and for connections of strangers."""


def supervise(options: RunOptions) -> int:
    """Run a program on every process of a run and wait for its end. Collective.

    A launcher calls it once per process; on one machine it starts `options.processes` processes
    itself. The report is in the run's folder. Call it last in a process: once the run is over,
    the signals that it handles are ignored.

    Returns:
        The exit code of the run, the same on every process.

    Raises:
        InvalidArgumentError: The options, or the launcher's settings, contradict each other.
        FileError: The run's folder or the secret's file cannot be used.
        RendezvousError: The processes did not all join the roll-call.
        CannotStartError: Process 0 cannot start its program, for a reason of its own.
    """
    with others_told():
        group = _group(options)
        _check_least(options, group)
        follows = options.processes is None and group.process_index > 0
        supervisor = (_Follower if follows else _Leader)(options, group)
    try:
        return asyncio.run(supervisor.run())
    finally:
        supervisor.close()
        close_terminals()


def _group(options: RunOptions) -> ProcessGroup:
    if options.processes is None:
        return resolve()
    try:
        group = resolve()
    except ShellError:  # --processes says how many there are
        return ProcessGroup(local_device_ids=local_devices(os.environ))
    if group.num_processes > 1:
        raise InvalidArgumentError(
            f"{argument('processes', options.processes)} was requested, but this is already "
            f"process {group.process_index} of {group.num_processes} ({group.source}); omit "
            f"{argument('processes')}, since the launcher starts one supervisor per process, or "
            f"set {COUNT}=1 to start {counted(options.processes, 'process')} that "
            "run without the others"
        )
    return group


def _check_least(options: RunOptions, group: ProcessGroup) -> None:
    least, count = options.min_processes, group.num_processes
    if least is not None and not least <= count:
        raise InvalidArgumentError(
            f"{argument('min_processes')} must be at most the number of processes, which is "
            f"{count} here ({group.source}); got {least}"
        )


class _Supervisor:
    """What all supervisors have: the keys of their programs, and the agent that runs these."""

    def __init__(
        self, options: RunOptions, group: ProcessGroup, indices: Sequence[int], secret: bytes
    ) -> None:
        self._options, self._group, self._indices, self._secret = options, group, indices, secret
        self._count = options.processes or group.num_processes
        shared = {MEETING_SECRET: meeting_secret(secret)}
        devices = device_settings(options, group, len(indices))
        settings = [{**own, **shared} for own in devices]
        off = off_reason(options.backend, self._count, options.no_mtls)
        self._keys = Keys(off)
        self._agent = Agent(options, indices, settings, self._emit, self._keys.variables)

    async def run(self) -> int:
        """Supervise the programs; return the exit code of the run."""
        raise NotImplementedError

    def close(self) -> None:
        """Delete what only the run needed."""
        self._keys.remove()

    def _emit(self, event: Event) -> None:
        """Tell the head of an event here."""
        raise NotImplementedError

    def _hello(self, index: int) -> Join:
        """The first message of a process; one without others needs not be compared with them."""
        known, name = (facts(), own_name()) if self._group.num_processes > 1 else ({}, "")
        offer = self._keys.offer(index)
        return hello(index, self._count, known, mtls=offer, own_name=name)

    def _accept(self, index: int, certificate: Mapping[str, str]) -> None:
        """Store the key of a program with its certificate; without room for it the run ends."""
        try:
            self._keys.accept(index, certificate)
        except FileError as error:
            self._emit(Raised.of(error, index))


class _Leader(_Supervisor):
    """The supervisor of process 0, or the only one of a run on one machine."""

    def __init__(self, options: RunOptions, group: ProcessGroup) -> None:
        count = options.processes or group.num_processes
        self._remote = group.num_processes > 1
        members = count if self._remote else 0
        indices = [0] if self._remote else list(range(count))
        files = _FILES * len(indices) + members + _MORE_FILES
        what = f"runs of {counted(count, 'process')}"
        raise_limit(files, what, spare=_SPARE_FILES + members)
        secret = run_secret(group) if self._remote else secrets.token_bytes(32)
        super().__init__(options, group, indices, secret)
        run = f"{utc()[:19].replace(':', '')}-{secrets.token_hex(2)}"
        restart = env_int("SLURM_RESTART_COUNT") or env_int(JOB_RESTARTS) or 0
        hosts: Sequence[str | None] = group.hosts or [None] * count
        self._certifier = Certifier(run, count, _host_names(group))
        if not self._remote:
            hosts = [hosts[0]] * count  # the launcher names the host of its one process
        self._folder = fresh_folder(options.folder, run, restart)
        self._head = Head(
            options,
            [ProcessState(i, host) for i, host in zip(range(count), hosts, strict=True)],
            self._broadcast,
            coordinator=self._free_address,
            run=run,
            folder=self._folder,
            restart=restart,
            returns=group.source != SLURM,
        )
        self._roll_call = RollCall(
            secret,
            self._head.admit,
            self._head.apply,
            self._head.lose,
            heartbeat_timeout=options.heartbeat_timeout,
            certify=self._certifier.certify,
        )

    async def run(self) -> int:
        """Supervise the run; return its exit code."""
        options, head = self._options, self._head
        for note in (find_program(options.program).note, platform_note(options)):
            if note and not options.quiet:
                say(note)
        if self._remote:
            assert self._group.coordinator_address is not None
            await self._roll_call.listen(self._group.coordinator_address, self._count)
            head.refused = self._roll_call.refused
            naming = asyncio.create_task(self._check_name(self._group.coordinator_address))
        for index in self._indices:
            joining = self._hello(index)
            head.admit(joining)
            head.apply(ClockCompared(0, 0, process=index))
            self._accept(index, self._certifier.certify(joining))
        with handled(lambda number: head.apply(GotSignal(number))):
            git = GitState(Path.cwd())
            async with self._agent:
                own_facts = asyncio.create_task(asyncio.to_thread(facts))
                report = replace(await head.run(), facts=await own_facts)
            commit = await asyncio.to_thread(git.result, _GIT)
        if self._remote:
            naming.cancel()
        if options.profile is not None:
            report = await asyncio.to_thread(self._compared, report)
        off, notes = self._certifier.off, report.notes
        note = off_note(options.backend, self._count, off)
        report = replace(
            report,
            git=commit,
            mutual_tls=f"off: {off}" if off else "on",
            notes=[*notes, *([note] if note else [])],
        )
        try:
            # A disk that is full may take its time; the others hear this process's pulse meanwhile.
            report = await asyncio.to_thread(self._written, report)
        finally:
            if self._remote:
                self._roll_call.broadcast(Report(report.exit_code, report.summary))
                await self._roll_call.close()
        _show(report, options)
        if not report.exit_code:  # a failed run's report has them
            for note in notes:
                say(note)
            if waits := report.waits_text():
                say(waits)
        return report.exit_code

    def _compared(self, report: RunReport) -> RunReport:
        """Write the timeline of the profiles; the report with it, and with who waited for whom."""
        traces, notes = make_timeline(self._folder, report.processes)
        waits, missing = waits_of(traces)
        return replace(report, waits=waits, notes=[*report.notes, *notes, *missing])

    def _written(self, report: RunReport) -> RunReport:
        """Write the report, and its page; the report is another if the page cannot be written."""
        report = report.with_page(self._options.html, overwrite=self._options.overwrite)
        report.write(self._folder)
        return report

    async def _check_name(self, address: str) -> None:
        """End the run if the host of process 0 does not resolve: its own program needs it, too."""
        try:
            await resolve_host(address, self._options.start_timeout, _progress(self._options))
        except PyReactantError as error:
            self._emit(Raised.of(error, 0))

    def close(self) -> None:
        """Give the run's folder back, too."""
        release(self._folder)
        super().close()

    def _emit(self, event: Event) -> None:
        self._head.apply(event)

    def _broadcast(self, order: Order) -> None:
        if isinstance(order, Go):
            order = order.but(mtls=not self._certifier.off)
        self._agent.order(order)
        self._roll_call.broadcast(order)

    def _free_address(self) -> str | None:
        """An address with a free port for the runtime's own coordinator, if it needs one."""
        if self._count == 1:
            return None
        if (address := self._group.coordinator_address) is None:
            return loopback_address()
        with socket.socket() as probe:
            probe.bind(("", 0))
            return join_address(split_address(address)[0], probe.getsockname()[1])


def _host_names(group: ProcessGroup) -> list[str]:
    """Names of process 0's host: the launcher's, and the one that the processes connect to."""
    names = [group.hosts[0]] if group.hosts else []
    if group.coordinator_address is not None:
        names.append(split_address(group.coordinator_address)[0])
    return names


class _Follower(_Supervisor):
    """The supervisor of any other process: carries out the orders of process 0's."""

    def __init__(self, options: RunOptions, group: ProcessGroup) -> None:
        self._index = group.process_index
        super().__init__(options, group, [self._index], run_secret(group))
        self._began = time.monotonic()
        self._uplink: Uplink | None = None
        self._clock = Comparison(self._index, self._emit)
        self._state = ProcessState(self._index, socket.gethostname(), pid=os.getpid())
        self._stop_requested = asyncio.Event()
        self._folder = options.folder  # else of process 0, which tells it at the start

    async def run(self) -> int:
        """Supervise the program; return the exit code of the run."""
        with handled(self._on_signal):
            stopping = asyncio.create_task(self._stop_unanswered())
            try:
                async with self._agent:
                    return await self._supervise(stopping)
            finally:
                stopping.cancel()
                if self._uplink is not None:
                    self._uplink.close()

    async def _supervise(self, stopping: "asyncio.Task[None]") -> int:
        options, address = self._options, self._group.coordinator_address
        assert address is not None
        joining = join(
            address,
            self._secret,
            self._hello(self._index),
            timeout=options.start_timeout,
            progress=_progress(options),
        )
        try:
            self._uplink = await _unless_stopped(stopping, joining)
            self._state.enter("joined", time.monotonic())
            self._accept(self._index, self._uplink.welcome.mtls)
            return await _unless_stopped(stopping, self._follow_orders(self._uplink))
        except CannotStartError:
            raise
        except PyReactantError as error:
            self._emit(GaveUp(str(error), process=self._index))
            await self._agent.end(stacks=True)
            return self._report_alone(error)

    async def _follow_orders(self, uplink: Uplink) -> int:
        options = self._options
        period = heartbeat_period(options.heartbeat_timeout, self._count)
        heartbeat = asyncio.create_task(_send_heartbeats(uplink, period))
        try:
            while True:
                match await uplink.receive(options.heartbeat_timeout):
                    case Report(code, summary):
                        if code and not options.quiet:
                            say(summary)
                        return code
                    case ClockTold(sent_ns, head_ns):
                        self._clock.take(sent_ns, head_ns)
                    case Order() as order:
                        if isinstance(order, Go):
                            self._folder = self._folder or Path(order.folder)
                        self._agent.order(order)
        finally:
            heartbeat.cancel()

    def _emit(self, event: Event) -> None:
        self._state.apply(event, time.monotonic())
        if self._uplink is not None:
            self._uplink.send(event)
        if isinstance(event, Profiled):
            self._clock.begin()

    def _on_signal(self, number: int) -> None:
        self._emit(GotSignal(number, process=self._index))
        if number not in WARNINGS:
            self._stop_requested.set()

    async def _stop_unanswered(self) -> None:
        """Return if a signal to stop has no effect for longer than process 0 would wait."""
        await self._stop_requested.wait()
        await asyncio.sleep(0.0 if self._uplink is None else self._options.grace + 5)

    def _report_alone(self, error: PyReactantError) -> int:
        """Report that process 0 is gone or was not reached."""
        options = self._options
        report = alone(
            self._state,
            error,
            joined=self._uplink is not None,
            began=self._began,
            folder=self._folder,
            command=options.program,
        )
        # Other processes may be alone too, and write theirs.
        page = options.html
        if page is not None and not is_stream(page):
            page = page.with_stem(f"{page.stem}-process-{self._index}")
        report = report.with_page(page, overwrite=options.overwrite)
        report.write(self._folder, f"report-process-{self._index}")
        _show(report, options)
        return report.exit_code


async def _send_heartbeats(uplink: Uplink, period: float) -> None:
    while True:
        uplink.send(Alive())
        await asyncio.sleep(period)


async def _unless_stopped(stopping: "asyncio.Task[None]", work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`.

    Raises:
        RendezvousError: `stopping` ended first.
    """
    task = asyncio.ensure_future(work)
    await asyncio.wait([stopping, task], return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        raise RendezvousError("a signal asked this process to stop, but process 0 does not answer")
    return task.result()


def _progress(options: RunOptions) -> Callable[[str], None]:
    last_message = time.monotonic()

    def progress(why: str) -> None:
        nonlocal last_message
        if not options.quiet and time.monotonic() - last_message > 5:
            last_message = time.monotonic()
            say(f"process 0 cannot be reached yet ({why})")

    return progress


def _show(report: RunReport, options: RunOptions) -> None:
    terminals()[0].drain(0.5)  # print the programs' output first, in case both are one terminal
    if why := terminals()[0].error:
        say(f"the output of the programs cannot be written ({why}); the logs have it")
    if report.exit_code:
        say(report.to_text(above=options.all_output or report.on_process_0).rstrip())
    elif not options.quiet:
        broken = f" ({len(report.broken_logs)} not complete)" if report.broken_logs else ""
        say(f"done in {report.seconds:.1f} s; logs in {report.folder}{broken}")
