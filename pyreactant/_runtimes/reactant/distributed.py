"""Reactant's rendezvous of many processes, made to fail with a message instead of a hang.

The processes meet in Python before Julia starts, so that what is wrong with the run is found in
a moment and where it can be said; Reactant's own rendezvous comes when all have Julia.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from ... import _supervised
from ..._core.backend import StartOptions
from ..._errors import PyReactantError, RendezvousError
from ..._system.hook import end_at_once, flush_output
from ...process_group import ProcessGroup
from ...process_group._coordinator import check_coordinator, is_loopback
from .julia import call
from .meeting import Meeting

_JULIA_STARTS = 900.0  # seconds; where it was not set up, it compiles its packages first


def connect(
    module: Any, meeting: Meeting, group: ProcessGroup, options: StartOptions, gpus: tuple[int, ...]
) -> None:
    """Reactant's own rendezvous, of processes that have met and run Julia. Collective.

    It finds everything right; should it wait for ever all the same, the process ends with a
    message: nothing can take it out of there.

    Raises:
        DeadlineError: A process was lost while Julia started.
        RendezvousError: Reactant could not join its processes.
    """
    address = group.coordinator_address
    assert address is not None
    meeting.barrier("pyreactant/julia", _JULIA_STARTS)
    if group.process_index > 0:
        check_coordinator(group, options.initialization_timeout)
    with limited(group, options, "its rendezvous"):
        call(
            module.initialize,
            address,
            group.num_processes,
            group.process_index,
            gpus,
            len(gpus) == 1,
            address if is_loopback(address) else "",
            options.initialization_timeout,
            options.heartbeat_timeout,
        )
    meeting.barrier("pyreactant/joined", options.initialization_timeout)


@contextlib.contextmanager
def limited(group: ProcessGroup, options: StartOptions, what: str) -> Iterator[None]:
    """End the process with a message where Julia does not come back within the start's limit.

    For what waits in C++, where neither an exception nor Ctrl-C reaches it: that too ends the
    process at once, which has nothing yet to save.
    """
    error = RendezvousError(
        f"process {group.process_index} of {group.num_processes} met the others at "
        f"{group.coordinator_address}, but Reactant did not end {what} within "
        f"{options.initialization_timeout:g} s; check that no firewall or proxy stands between the "
        "hosts, or give it longer with initialization_timeout="
    )
    done = threading.Event()

    def watch() -> None:
        if not done.wait(options.initialization_timeout):
            _end(error)

    threading.Thread(target=watch, name="pyreactant deadline", daemon=True).start()
    # Somebody else's handler stays: what it does is not known here.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        done.set()
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(error: PyReactantError) -> None:
    _supervised.tell_error(error)
    flush_output()
    with contextlib.suppress(Exception):
        sys.stderr.write(f"pyreactant: {type(error).__name__}: {error}\n")
    end_at_once(error.exit_code)
