"""Start Reactant in this process: flags, rendezvous, platform, and a check of what started.

Several processes meet in Python before Julia starts, which finds every mistake of the run at once.
Reactant's own rendezvous follows when all processes run Julia.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .... import preferences
from ....base.counted import counted
from ....base.errors import RendezvousError, RequirementError, StateError, argument
from ....base.facts import tpu_chips, usable_gpus
from ....base.process import end_at_once_on_error
from ....julia.place import LIBRARY, find_place
from ....process.group import ProcessGroup
from ....process.group.coordinator import bind_host, check_coordinator
from ....process.group.group import join_address, split_address
from ...backend import FORCED_CPU_DEVICES, StartOptions
from ...sharding import Device
from ..guard.guard import end_with
from .julia import call, check_process
from .julia import start as start_julia
from .meeting import Meeting, meet


def start(
    group: ProcessGroup, options: StartOptions
) -> tuple[Any, tuple[Device, ...], Meeting | None]:
    """Start Julia, the rendezvous and the platform. Collective if there are several processes.

    Returns:
        The Julia module PyReactant, the devices of the run, and the connections to the other
        processes (None without any).
    """
    check_process()
    preferences.check_runtime(group.num_processes)
    check_libtpu(options, find_place().libtpu)
    count = options.cpu_devices(group.num_processes)
    meeting = None
    if group.num_processes > 1:
        end_at_once_on_error()
        meeting = meet(group, options.initialization_timeout, options.heartbeat_timeout)
    with _xla_flags(count):
        module = start_julia()
        check_runtime(module)
        if meeting is not None:
            connect(module, meeting, group, options, local_gpus(group, options))
        rows = _start_platform(module, group, options)
    here = [int(row[0]) for row in rows if row[4]]
    owned = [here]
    if meeting is not None:
        owned = meeting.exchange("pyreactant/devices", here, options.initialization_timeout)
    devices = make_devices([(row[0], row[2], row[3]) for row in rows], owned)
    check_started(group, options, devices)
    return module, devices, meeting


def _start_platform(module: Any, group: ProcessGroup, options: StartOptions) -> Any:
    platform, count = options.platform or "", options.num_cpu_devices or 0
    if group.num_processes == 1:
        call(module.start_platform, platform, count)
    else:  # the first query of devices waits for those of every process
        with time_limit(group, options, "its devices' rendezvous"):
            call(module.start_platform, platform, count)
    return call(module.devices)


@contextlib.contextmanager
def _xla_flags(count: int | None) -> Iterator[None]:
    """Set the number of CPU devices while XLA reads its flags; children keep their own."""
    before = os.environ.get("XLA_FLAGS")
    if count is not None:
        os.environ["XLA_FLAGS"] = f"{before or ''} --{FORCED_CPU_DEVICES}={count}".strip()
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("XLA_FLAGS", None)
        else:
            os.environ["XLA_FLAGS"] = before


def check_runtime(module: Any) -> None:
    """Check that Reactant was loaded with IFRT, and as its preference says.

    Raises:
        StateError: The preference names another runtime; it was changed after Julia had started.
        RequirementError: The runtime is PJRT. On several devices it takes only whole arrays, and
            only meshes with their devices in ascending order, in one process too.
    """
    loaded = str(call(module.runtime))
    preferred = preferences.get("xla_runtime") or "PJRT"
    if loaded != preferred:
        raise StateError(
            f"Reactant's preference xla_runtime is {preferred}, but this process loaded Reactant "
            f"with {loaded}; start a new process, and load Reactant through pyreactant alone"
        )
    if loaded != "IFRT":
        raise RequirementError(
            f"Reactant must be loaded with xla_runtime IFRT, its preference is {loaded}, which has "
            "neither arrays made of blocks nor meshes with reordered devices; "
            "run: pyreactant prefs set xla_runtime IFRT, then: pyreactant setup"
        )


def check_libtpu(options: StartOptions, settled: str | None) -> None:
    """Check that libtpu is there before Reactant's devices start; it may be the one of the setup.

    Otherwise Reactant downloads a nightly build then, while the other processes wait.

    Raises:
        RequirementError: This machine has a TPU, which is to be started, and there is no libtpu.
    """
    has_tpu = tpu_chips() > 0 or "REACTANT_FORCE_TPU_INIT" in os.environ
    if options.platform not in (None, "tpu") or not has_tpu:
        return
    path = os.environ.get(LIBRARY) or settled
    if path is None:
        raise RequirementError(
            "Reactant needs libtpu for the TPU of this machine, and would download a nightly build "
            "while the other processes wait; run: pyreactant setup --tpu (with network), or set "
            f"{LIBRARY} to a libtpu.so"
        )
    if not Path(path).is_file():
        raise RequirementError(
            f"libtpu must be at {path} ({LIBRARY}, or what pyreactant setup chose), but is not; "
            f"run: pyreactant setup --tpu, or set {LIBRARY} to a libtpu.so"
        )


def local_gpus(group: ProcessGroup, options: StartOptions) -> tuple[int, ...]:
    """The GPUs for Reactant to use. Without them it would ask the launcher itself.

    An empty tuple means no GPU, so by default this names all that the process can see.
    """
    if options.platform in ("cpu", "tpu"):
        return ()
    if group.local_device_ids is not None:
        return group.local_device_ids
    return tuple(range(usable_gpus()))


def make_devices(
    rows: Sequence[Sequence[Any]], owned: Sequence[Sequence[int]]
) -> tuple[Device, ...]:
    """The devices of the run, by process and id.

    Args:
        rows: Reactant's id, platform and kind of each device of the run.
        owned: Ids of each process's devices. Reactant knows only those of this process.

    Raises:
        RendezvousError: A device belongs to no process, or processes see different devices.
    """
    described = {int(row[0]): (str(row[1]), str(row[2])) for row in rows}
    places = [(process, i) for process, ids in enumerate(owned) for i in sorted(ids)]
    if sorted(i for _, i in places) != sorted(described):
        raise RendezvousError(
            f"the processes' devices {[list(ids) for ids in owned]} must together be Reactant's "
            f"devices {sorted(described)}, each once; start Reactant's processes through "
            "pyreactant.initialize alone"
        )
    return tuple(
        Device(position, process, i, *described[i]) for position, (process, i) in enumerate(places)
    )


def check_started(group: ProcessGroup, options: StartOptions, devices: tuple[Device, ...]) -> None:
    """Check that Reactant started as requested; it falls back to a CPU without an error.

    Raises:
        RequirementError: The platform is absent.
        RendezvousError: Some processes have no devices.
        StateError: The number of devices differs from the requested one.
    """
    platform = devices[0].platform if devices else "none"
    if options.platform is not None and platform != options.platform:
        raise RequirementError(
            f"platform {options.platform!r} was requested, but Reactant has: {platform}; run on a "
            "machine that has one, or set Reactant up for it (pyreactant setup --gpu cuda|rocm); "
            "pyreactant doctor shows more"
        )
    processes = {d.process_index for d in devices}
    if processes != set(range(group.num_processes)):
        raise RendezvousError(
            f"num_processes={group.num_processes} was requested, but Reactant has devices of "
            f"processes {sorted(processes)}; start its processes through pyreactant.initialize "
            "alone, and give each a device"
        )
    local = sum(d.process_index == group.process_index for d in devices)
    for name, wanted, kind in (
        ("num_cpu_devices", options.num_cpu_devices, "cpu"),
        ("local_device_ids", len(group.local_device_ids or ()) or None, "gpu"),
    ):
        if wanted is not None and platform == kind and local != wanted:
            raise StateError(
                f"{argument(name)} requests {counted(wanted, 'device')} in this process, but "
                f"Reactant has {local}; call pyreactant.initialize before anything uses Reactant, "
                "and name devices of this machine"
            )


_JULIA_STARTS = 900.0  # seconds; without a setup, Julia first compiles its packages


def connect(
    module: Any, meeting: Meeting, group: ProcessGroup, options: StartOptions, gpus: tuple[int, ...]
) -> None:
    """Reactant's own rendezvous, of processes that have met and run Julia. Collective.

    By now every precondition has been checked. If the C++ rendezvous still hangs, it cannot be
    interrupted, so the process exits with an error.

    Raises:
        DeadlineError: A process was lost while Julia started.
        RendezvousError: Reactant could not join its processes.
    """
    address = group.coordinator_address
    assert address is not None
    meeting.barrier("pyreactant/julia", _JULIA_STARTS)
    if group.process_index > 0:
        check_coordinator(group, options.initialization_timeout)
    host = bind_host(address)
    with time_limit(group, options, "its rendezvous"):
        call(
            module.initialize,
            address,
            group.num_processes,
            group.process_index,
            gpus,
            len(gpus) == 1,
            "" if host is None else join_address(host, split_address(address)[1]),
            options.initialization_timeout,
            options.heartbeat_timeout,
        )
    meeting.barrier("pyreactant/joined", options.initialization_timeout)


@contextlib.contextmanager
def time_limit(group: ProcessGroup, options: StartOptions, what: str) -> Iterator[None]:
    """End the process with a message if Julia does not return within `initialization_timeout`.

    It is for calls that wait in C++, where neither an exception nor Ctrl-C reaches them. Ctrl-C,
    too, ends the process at once; it has nothing to save yet.
    """
    error = RendezvousError(
        f"process {group.process_index} of {group.num_processes} met the others at "
        f"{group.coordinator_address}, but Reactant did not finish {what} within "
        f"{options.initialization_timeout:g} s; check that no firewall or proxy separates the "
        "hosts, or allow more time with initialization_timeout="
    )
    done = threading.Event()

    def watch() -> None:
        if not done.wait(options.initialization_timeout):
            end_with(error)

    threading.Thread(target=watch, name="pyreactant deadline", daemon=True).start()
    # A handler that the program installed stays in place.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        done.set()
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
