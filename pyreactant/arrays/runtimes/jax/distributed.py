"""The processes of JAX: their rendezvous, made to fail with a message instead of an abort.

The store of a run is the key-value store of the same service.
"""

import contextlib
import ctypes
import importlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax

from ....base.errors import (
    DeadlineError,
    InvalidArgumentError,
    PeerLostError,
    RendezvousError,
    StateError,
)
from ....base.process import end_at_once_on_error
from ....base.words import is_absent_key, is_late
from ....process import supervised
from ....process.group import ProcessGroup
from ....process.group.coordinator import bind_host, check_coordinator, is_loopback
from ....process.group.group import around_proxies, join_address, local_devices, split_address
from ....process.supervised.link import Link
from ...backend import StartOptions

# JAX aborts the process when its own limit is over, so ours comes first and raises.
_JAX_TIMEOUT = 24 * 3600
_SHUTDOWN_TIMEOUT = 30
_BIND = "JAX_COORDINATOR_BIND_ADDRESS"
_JOINED = 60.0
"""Seconds for an exchange of processes that have joined the run."""


def running_group() -> ProcessGroup | None:
    """The processes of `jax.distributed`, if the program has initialized it itself."""
    if not jax.distributed.is_initialized():
        return None
    state = _state()
    return ProcessGroup(
        num_processes=state.num_processes,
        process_index=state.process_id,
        coordinator_address=state.coordinator_address,
        source="jax.distributed",
    )


def check_unused(group: ProcessGroup) -> None:
    """Check that JAX can still join other processes; StateError if it uses its devices already."""
    if importlib.import_module("jax._src.xla_bridge").backends_are_initialized():
        raise StateError(
            f"JAX already uses the devices of this process alone, so it cannot join "
            f"{group.num_processes} processes; call pyreactant.initialize (or "
            "jax.distributed.initialize) before anything that uses JAX, such as jax.devices() or "
            "jax.numpy.ones"
        )


def connect(group: ProcessGroup, options: StartOptions) -> None:
    """Join the run. Collective.

    Raises:
        InvalidArgumentError: A variable of JAX says no devices, or no address to listen at.
        RequirementError: The host of process 0 does not resolve.
        RendezvousError: The meeting point cannot be used, a process is missing, or the
            processes disagree about their number.
    """
    assert group.coordinator_address is not None
    started = time.monotonic()
    local_devices(os.environ, "JAX_LOCAL_DEVICE_IDS")  # which JAX reads if nothing else says it
    if group.process_index == 0 and os.environ.get(_BIND):
        _check_bind_address(os.environ[_BIND])
    if supervised.connection is not None:
        # It would swallow SIGTERM, which the supervisor sends to programs that do not ask.
        jax.config.update("jax_enable_preemption_service", False)
    os.environ.update(around_proxies(group.coordinator_address, os.environ))
    check_coordinator(group, options.initialization_timeout)
    left = max(1.0, options.initialization_timeout - (time.monotonic() - started))
    end_at_once_on_error()
    caught: list[BaseException] = []
    thread = threading.Thread(target=_initialize, args=(group, options, caught), daemon=True)
    # A thread, because JAX waits in C++ where neither a limit nor Ctrl-C reaches it.
    with _aborts_noticed(thread) as aborted:
        thread.start()
        deadline = time.monotonic() + left
        while thread.is_alive() and not aborted.is_set() and time.monotonic() < deadline:
            thread.join(0.05)
    if aborted.is_set():
        raise RendezvousError(
            f"process {group.process_index} of {group.num_processes} was refused by the run at "
            f"{group.coordinator_address}, or process 0 ended (JAX's own words are above); check "
            "that process 0 was started with the same num_processes, and that no two processes "
            "have one process_index"
        )
    if thread.is_alive():
        raise RendezvousError(
            f"process {group.process_index} of {group.num_processes} reached "
            f"{group.coordinator_address}, but not all {group.num_processes} processes came within "
            f"{options.initialization_timeout:g} s; check that each was started, with the same "
            "num_processes and a process_index of its own"
        )
    if caught:
        raise RendezvousError(f"JAX could not join the run: {caught[0]}") from caught[0]
    if supervised.connection is not None:
        _state().preemption_sync_manager = _Preemption(supervised.connection)
    _agree_on_count(group, left)


def _check_bind_address(address: str) -> None:
    """Check that process 0 can listen where JAX's variable says; JAX would crash otherwise."""
    try:
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except (InvalidArgumentError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no host:port"
        raise InvalidArgumentError(
            f"{_BIND} must be an address of this machine with a free port, such as 0.0.0.0:8476, "
            f"got {address!r} ({why}); correct or unset it"
        ) from None


class _Preemption:
    """The supervisor's answer where JAX's preemption service would answer.

    `jax.experimental.multihost_utils.reached_preemption_sync_point` asks it, and so do libraries
    such as Orbax, which then save at the step that all processes have agreed on.
    """

    def __init__(self, connection: Link) -> None:
        self._connection = connection
        self._sync_point: int | None = None

    def reached_sync_point(self, step: int) -> bool:
        """Whether this is the agreed step; as JAX's, False again after it."""
        if self._connection.reached_preemption(step) and self._sync_point is None:
            self._sync_point = step
        return step == self._sync_point

    def shutdown(self) -> None:
        """Do nothing; JAX calls it before it leaves the run."""


def _initialize(group: ProcessGroup, options: StartOptions, caught: list[BaseException]) -> None:
    address = group.coordinator_address
    assert address is not None
    try:
        jax.distributed.initialize(
            address,
            group.num_processes,
            group.process_index,
            local_device_ids=group.local_device_ids,
            cluster_detection_method="deactivate",
            coordinator_bind_address=_bind_address(address),
            initialization_timeout=_JAX_TIMEOUT,
            heartbeat_timeout_seconds=max(1, round(options.heartbeat_timeout)),
            shutdown_timeout_seconds=_SHUTDOWN_TIMEOUT,
        )
    except Exception as error:  # handed to the thread that waits
        caught.append(error)


def _bind_address(address: str) -> str | None:
    """Where process 0 listens; None leaves it to JAX, which listens on every network.

    With mutual TLS that does no harm, and reaches processes behind any of them.
    """
    secured = getattr(jax.config, "jax_mtls_cert_file", None)
    if os.environ.get(_BIND) or (secured and not is_loopback(address)):
        return None
    host = bind_host(address)
    return None if host is None else join_address(host, split_address(address)[1])


@contextlib.contextmanager
def _aborts_noticed(thread: threading.Thread) -> Iterator[threading.Event]:
    """Make abort() in a thread an event here, and let that thread wait without end.

    JAX aborts the whole process when the coordinator refuses it or goes away. abort() raises
    SIGABRT in its own thread, so a handler that never returns holds that thread, and the main
    one can still say what happened. Python's own handlers run too late for this.
    """
    aborted = threading.Event()

    def hold(_: int) -> None:
        if threading.get_ident() == thread.ident:
            aborted.set()
            threading.Event().wait()

    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(hold)
    previous = libc.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield aborted
    finally:
        if thread.is_alive():
            _kept.append(handler)  # the thread may still abort, and must not take the process along
        else:
            libc.signal(signal.SIGABRT, previous)


_kept: list[Any] = []


def _agree_on_count(group: ProcessGroup, timeout: float) -> None:
    """JAX believes process 0 about the number of processes; make sure that all agree."""
    try:
        mine = [group.num_processes, socket.gethostname()]
        described = _exchange("pyreactant/process", group, mine, timeout)
        # Nobody leaves before all have read this: process 0 takes the store with it. This barrier
        # also keeps the first collective from starting more than its 30 s apart (gloo's limit).
        client().wait_at_barrier("pyreactant/agreed", max(1, round(timeout * 1000)))
    except Exception as error:  # jaxlib's XlaRuntimeError, by whichever name it has
        raise RendezvousError(
            f"process {group.process_index} of {group.num_processes} joined the run at "
            f"{group.coordinator_address}, but a process was lost before all agreed on their "
            f"number: {str(error).splitlines()[0]}"
        ) from error
    first = described[0][0]
    odd = [
        f"process {index} on {host} with num_processes={count}"
        for index, (count, host) in sorted(described.items())
        if count != first
    ]
    if odd:
        if group.process_index == 0:
            time.sleep(1)  # its end ends the others through JAX; they too must be able to say why
        raise RendezvousError(
            f"process 0 was started with num_processes={first}, but {'; '.join(odd)}; give every "
            "process the same"
        )


def _exchange(key: str, group: ProcessGroup, mine: Any, timeout: float) -> dict[int, Any]:
    """Plain data of every process, by process, through JAX's store. Collective."""
    store = client()
    store.key_value_set(f"{key}/{group.process_index}", json.dumps(mine))
    store.wait_at_barrier(f"{key}/all", max(1, round(timeout * 1000)))
    return {
        int(path.rpartition("/")[2]): json.loads(text)
        for path, text in store.key_value_dir_get(key)
    }


def wait_at_barrier(name: str, timeout: float) -> None:
    """Wait at a barrier of JAX's service.

    Raises:
        DeadlineError: Some process did not come.
        PeerLostError: Some process was lost.
    """
    try:
        client().wait_at_barrier(name, max(1, round(timeout * 1000)))
    except Exception as error:  # jaxlib's XlaRuntimeError, by whichever name it has
        first, *_ = str(error).splitlines()
        if is_late(error):
            raise DeadlineError(
                f"not every process came to barrier {name!r} within {timeout:g} s: {first}"
            ) from error
        raise PeerLostError(
            f"barrier {name!r} cannot finish, because a process was lost: {first}"
        ) from error


def runtime_processes(group: ProcessGroup, platform: str | None) -> dict[int, int]:
    """The launcher's process index for each process index of JAX. Collective.

    They differ on TPU, where libtpu numbers the processes itself, whatever index they were given
    (SkyRL pull request 1252, maxtext pull request 1454).

    Raises:
        RendezvousError: JAX runs with another number of processes, one did not answer, or two
            have one index.
    """
    try:
        mine, count = jax.process_index(platform), jax.process_count(platform)
    except RuntimeError:
        return {0: group.process_index}  # no device: the backend says so
    if count != group.num_processes:
        raise RendezvousError(
            f"num_processes={group.num_processes} was requested, but JAX runs with {count}; start "
            "JAX's processes through pyreactant.initialize alone, or before it with "
            "jax.distributed.initialize and the same number"
        )
    if count == 1:
        return {mine: group.process_index}
    try:
        indices_of = _exchange("pyreactant/runtime_index", group, mine, _JOINED)
        indices = [indices_of[i] for i in range(group.num_processes)]
    except Exception as error:  # jaxlib's XlaRuntimeError, by whichever name it has
        raise RendezvousError(
            f"process {group.process_index} of {group.num_processes} did not learn JAX's index of "
            f"every process: {str(error).splitlines()[0]}"
        ) from error
    owner = {index: process for process, index in enumerate(indices)}
    if sorted(owner) != list(range(group.num_processes)):
        raise RendezvousError(
            f"each process must have an index of its own in JAX, from 0 to "
            f"{group.num_processes - 1}, got {indices} for processes 0 to "
            f"{group.num_processes - 1}; start every process once, with one process_index"
        )
    return owner


def client() -> Any:
    """JAX's client of the coordination service."""
    return _state().client


def _state() -> Any:
    # The key-value store and the barrier have no public name.
    return importlib.import_module("jax._src.distributed").global_state


_FIRST_PAUSE = 0.0003  # seconds, about the time of one call
_LONGEST_PAUSE = 0.05
_PAUSE_PER_PROCESS = 0.00025  # 1024 processes that wait make 4000 calls per second


class JaxStore:
    """The `Store` of the run that this process has joined: JAX's service in process 0.

    Waiting asks again and again. JAX has a call that waits, but each one that ends without a value
    keeps 35 KB (jax 0.10.2 and 0.12), and waiting in C++ ignores Ctrl-C.
    """

    def __init__(self, num_processes: int) -> None:
        self._client = client()
        self._longest = max(_LONGEST_PAUSE, num_processes * _PAUSE_PER_PROCESS)
        self._waits: dict[str, float] = {}  # since when each key is waited for

    def put(self, key: str, value: str) -> None:
        self._ask("key_value_set", key, value, allow_overwrite=True)

    def get(self, key: str, timeout: float) -> str | None:
        deadline = time.monotonic() + timeout
        began = self._waits.get(key)
        while (value := self._ask("key_value_try_get", key)) is None:
            now = time.monotonic()
            if began is None:
                began = self._waits[key] = now
            if now >= deadline:
                return None
            # In proportion to the wait so far, also that of the calls before.
            pause = min(max(_FIRST_PAUSE, (now - began) / 8), self._longest)
            time.sleep(min(pause, deadline - now))
        self._waits.pop(key, None)
        return str(value)

    def delete(self, prefix: str) -> None:
        self._ask("key_value_delete", prefix)

    def _ask(self, method: str, *args: Any, **options: Any) -> Any:
        """What the service answers; None for a key that it does not have."""
        try:
            return getattr(self._client, method)(*args, **options)
        except Exception as error:  # jaxlib's XlaRuntimeError, by whichever name it has
            if is_absent_key(error):
                return None
            raise PeerLostError(
                "the connection to process 0, which holds the run's store, was lost: "
                f"{str(error).splitlines()[0]}"
            ) from error
