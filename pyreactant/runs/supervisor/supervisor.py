"""The supervisor of `pyreactant run`: one per machine or launcher task."""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

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
from ...base.settings import COUNT
from ...process.group import ProcessGroup, resolve
from ...process.group.coordinator import MEETING_SECRET, meeting_secret, run_secret
from ...process.group.group import ShellError, env_int, join_address, local_devices, split_address
from .agent import Agent
from .connection import CannotStartError, Uplink, hello, join
from .head import Head
from .mtls import Certifier, Keys, off_note, off_reason
from .options import RunOptions, device_settings, fresh_folder, release
from .output import close_terminals, terminals
from .program import find_program
from .report import RunReport, alone, say, utc
from .rollcall import RollCall, heartbeat_period
from .state import ProcessState, error_event
from .unstarted import others_told
from .watch import WARNINGS, handled

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
        follows = options.processes is None and group.process_index > 0
        prepared = (_prepare_to_follow if follows else _prepare_to_lead)(options, group)
    keys = prepared.keys
    try:
        return asyncio.run((_follow if follows else _lead)(options, group, prepared))
    finally:
        if not follows:
            release(prepared.folder)
        keys.remove()
        close_terminals(5)


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
            f"set {COUNT}=1 to start {options.processes} processes that run without the others"
        )
    return group


def _keys(options: RunOptions, group: ProcessGroup) -> Keys:
    """The keys of the programs that this supervisor starts."""
    count = options.processes or group.num_processes
    indices = range(count) if group.num_processes == 1 else [group.process_index]
    return Keys(indices, off_reason(options.backend, count, options.no_mtls))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """All that a supervisor has checked and made before it meets the others."""

    secret: bytes
    settings: list[dict[str, str]]
    keys: Keys
    run: str = ""
    folder: Path = Path()


def _prepare_to_follow(options: RunOptions, group: ProcessGroup) -> _Prepared:
    secret = run_secret(group)
    settings = _settings(options, group, 1, secret)
    return _Prepared(secret=secret, settings=settings, keys=_keys(options, group))


def _prepare_to_lead(options: RunOptions, group: ProcessGroup) -> _Prepared:
    count = options.processes or group.num_processes
    remote = group.num_processes > 1
    here = 1 if remote else count
    files = _FILES * here + (count if remote else 0) + _MORE_FILES
    raise_limit(files, f"{count} processes", spare=_SPARE_FILES + (count if remote else 0))
    secret = run_secret(group) if remote else secrets.token_bytes(32)
    run = f"{utc()[:19].replace(':', '')}-{secrets.token_hex(2)}"
    return _Prepared(
        secret=secret,
        settings=_settings(options, group, here, secret),
        keys=_keys(options, group),
        run=run,
        folder=fresh_folder(options.folder, run, env_int("SLURM_RESTART_COUNT") or 0),
    )


async def _lead(options: RunOptions, group: ProcessGroup, prepared: _Prepared) -> int:
    """Supervise as process 0, or as the only supervisor of a run on one machine."""
    count = options.processes or group.num_processes
    remote = group.num_processes > 1
    indices = [0] if remote else list(range(count))
    run, folder, keys = prepared.run, prepared.folder, prepared.keys
    certifier = Certifier(run, count, keys)
    roll_call: RollCall | None = None
    program = find_program(options.program)
    if program.note and not options.quiet:
        say(program.note)

    def broadcast(order: Mapping[str, Any]) -> None:
        if order["type"] == "go":
            order = {**order, "mtls": not certifier.off}
        # Only programs in Python wait for their certificate; others have it before they start.
        certify = bool(order.get("mtls"))
        if certify and program.kind != "python":
            checked(certifier.certify_own)
        agent.order(order)
        if roll_call is not None:
            roll_call.broadcast(order)
        if certify and program.kind == "python":
            checked(certifier.certify_own)

    def checked(work: Callable[[], None]) -> None:
        """Do what may find no room for the keys of the programs here; then the run ends."""
        try:
            work()
        except FileError as error:
            head.apply(error_event(indices[0], error))

    hosts: Sequence[str | None] = group.hosts or [None] * count
    if not remote:
        hosts = [hosts[0]] * count  # the launcher names the host of its one process
    states = [ProcessState(i, host) for i, host in zip(range(count), hosts, strict=True)]
    head = Head(
        options,
        states,
        broadcast,
        coordinator=_coordinator(group, count),
        run=run,
        folder=folder,
        restart=env_int("SLURM_RESTART_COUNT") or 0,
    )
    agent = Agent(
        indices,
        options.program,
        prepared.settings,
        head.apply,
        shown=True,
        only=None if options.all_output else 0,
        stall_timeout=options.stall_timeout,
        start_timeout=options.start_timeout,
        certificates=keys.variables,
    )
    if remote:
        assert group.coordinator_address is not None
        roll_call = RollCall(
            prepared.secret,
            head.admit,
            head.apply,
            head.lose,
            heartbeat_timeout=options.heartbeat_timeout,
            welcome=certifier.welcome,
        )
        await roll_call.listen(group.coordinator_address, count)
        head.refused = roll_call.refused
    for index in indices:
        head.admit(hello(index, count, facts() if remote else {}))
        checked(partial(certifier.admit, index))
    with handled(lambda number: head.apply({"type": "signal", "number": number, "process": None})):
        watch = asyncio.create_task(agent.watch())
        git = GitState(Path.cwd())
        own_facts = asyncio.create_task(asyncio.to_thread(facts))
        try:
            report = replace(await head.run(), facts=await own_facts)
        finally:
            watch.cancel()
            await agent.end(stacks=False)
            agent.close()
            found = await asyncio.to_thread(git.result, _GIT)
    mutual_tls = f"off: {certifier.off}" if certifier.off else "on"
    note = off_note(options.backend, count, certifier.off)
    notes = [note] if note else []
    report = replace(report, git=found, mutual_tls=mutual_tls, notes=notes)
    report.write(folder, page=options.html, overwrite=options.overwrite)
    if roll_call is not None:
        end = {"type": "report", "exit_code": report.exit_code, "summary": report.summary}
        roll_call.broadcast(end)
        await roll_call.close()
    _show(report, options)
    return report.exit_code


async def _follow(options: RunOptions, group: ProcessGroup, prepared: _Prepared) -> int:
    """Supervise as any other process: carry out the orders of process 0's supervisor."""
    assert group.coordinator_address is not None
    index, began, keys = group.process_index, time.monotonic(), prepared.keys
    uplink: Uplink | None = None
    state = ProcessState(index, socket.gethostname(), pid=os.getpid())  # for a report of its own
    stop_requested = asyncio.Event()

    def emit(event: Mapping[str, Any]) -> None:
        with contextlib.suppress(LookupError, TypeError, ValueError, ArithmeticError):
            state.apply(event, time.monotonic())
        if uplink is not None:
            uplink.send(event)

    def on_signal(number: int) -> None:
        emit({"type": "signal", "number": number, "process": index})
        if number not in WARNINGS:
            stop_requested.set()

    def patience() -> float:
        return 0.0 if uplink is None else options.grace + 5

    agent = Agent(
        [index],
        options.program,
        prepared.settings,
        emit,
        shown=options.all_output,
        only=None,
        stall_timeout=options.stall_timeout,
        start_timeout=options.start_timeout,
        certificates=keys.variables,
    )
    with handled(on_signal):
        watch = asyncio.create_task(agent.watch())
        stopping = asyncio.create_task(_stop_unanswered(stop_requested, patience))
        try:
            first = hello(index, group.num_processes, facts()) | {"mtls": keys.offer(index)}
            joining = join(
                group.coordinator_address,
                prepared.secret,
                first,
                timeout=options.start_timeout,
                progress=_progress(options),
            )
            uplink = await _unless_stopped(stopping, joining)
            assert uplink is not None
            state.enter("joined", time.monotonic())
            try:
                keys.accept(index, uplink.welcome.get("mtls"))
            except FileError as error:
                emit(error_event(index, error))  # process 0 ends the run
            period = heartbeat_period(options.heartbeat_timeout, group.num_processes)
            following = _follow_orders(uplink, agent, options, period)
            return await _unless_stopped(stopping, following)
        except CannotStartError:
            raise
        except PyReactantError as error:
            emit({"type": "gave_up", "process": index, "age": 0.0, "why": str(error)})
            await agent.end(stacks=True)
            report = alone(
                state,
                str(error),
                joined=uplink is not None,
                began=began,
                folder=options.folder,
                command=options.program,
            )
            # Other processes may be alone too, and write theirs.
            page = options.html
            if page is not None and not is_stream(page):
                page = page.with_stem(f"{page.stem}-process-{index}")
            name = f"report-process-{index}"
            report.write(options.folder, name, page, overwrite=options.overwrite)
            _show(report, options)
            return report.exit_code
        finally:
            watch.cancel()
            stopping.cancel()
            await agent.end(stacks=False)
            agent.close()
            if uplink is not None:
                uplink.close()


async def _follow_orders(uplink: Uplink, agent: Agent, options: RunOptions, period: float) -> int:
    heartbeat = asyncio.create_task(_send_heartbeats(uplink, period))
    try:
        while True:
            order = await uplink.receive(options.heartbeat_timeout)
            if order["type"] == "report":
                if order["exit_code"] and not options.quiet:
                    say(order["summary"])
                return int(order["exit_code"])
            agent.order(order)
    finally:
        heartbeat.cancel()


async def _send_heartbeats(uplink: Uplink, period: float) -> None:
    while True:
        uplink.send({"type": "alive"})
        await asyncio.sleep(period)


async def _stop_unanswered(requested: asyncio.Event, patience: Callable[[], float]) -> None:
    """Return if a signal to stop has no effect for longer than process 0 would wait."""
    await requested.wait()
    await asyncio.sleep(patience())


async def _unless_stopped(stopping: "asyncio.Task[None]", work: Any) -> Any:
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


def _settings(
    options: RunOptions, group: ProcessGroup, count: int, secret: bytes
) -> list[dict[str, str]]:
    """The variables to set in the environment of each program of this machine."""
    shared = {MEETING_SECRET: meeting_secret(secret)}
    return [{**own, **shared} for own in device_settings(options, group, count)]


def _coordinator(group: ProcessGroup, count: int) -> Callable[[], str | None]:
    """A function that returns an address with a free port for the runtime's own coordinator."""

    def free_address() -> str | None:
        if count == 1:
            return None
        host = "127.0.0.1"
        if group.coordinator_address is not None:
            host, _ = split_address(group.coordinator_address)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1" if group.coordinator_address is None else "", 0))
            port = probe.getsockname()[1]
        return join_address(host, port)

    return free_address


def _progress(options: RunOptions) -> Callable[[str], None]:
    last_message = time.monotonic()

    def progress(why: str) -> None:
        nonlocal last_message
        if not options.quiet and time.monotonic() - last_message > 5:
            last_message = time.monotonic()
            say(f"process 0 does not answer yet ({why})")

    return progress


def _show(report: RunReport, options: RunOptions) -> None:
    terminals()[0].drain(0.5)  # print the programs' output first, in case both are one terminal
    if report.exit_code:
        say(report.to_text(above=options.all_output or report.on_process_0).rstrip())
    elif not options.quiet:
        broken = f" ({len(report.broken_logs)} not complete)" if report.broken_logs else ""
        say(f"done in {report.seconds:.1f} s; logs in {report.folder}{broken}")
