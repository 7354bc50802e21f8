"""The one runtime of this process: start it, query it, end it."""

import importlib
import os
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from ...base.errors import InvalidArgumentError, PyReactantError, StateError, argument
from ...base.packages import broken_package
from ...base.settings import COMPILE_CACHE, REPLAY_EVERY, check_names
from ...process import progress, supervised
from ...process.group import ProcessGroup, resolve
from ...process.group.group import env_int
from ...process.supervised import metrics
from ..backend import AbstractBackend, StartOptions
from ..mesh import Mesh
from ..sharding import Device
from .compiled import Compiled
from .known import (
    BACKEND,
    BACKENDS,
    CPU_DEVICES,
    MOST_CPU_DEVICES,
    PLATFORM,
    check_backend,
    check_platform,
    check_variables,
    check_workers,
)
from .replay import check_replay

if TYPE_CHECKING:
    from .guard import Guarded


_MOST_PROGRAMS = 256


class Recent(OrderedDict[Any, Compiled]):
    """The 256 programs that were used last; older ones are dropped, and their memory is freed."""

    def find(self, key: Any) -> Compiled | None:
        """The program of a key, which is now the last used; None if there is none."""
        compiled = self.get(key)
        if compiled is not None:
            self.move_to_end(key)
        return compiled

    def keep(self, key: Any, compiled: Compiled) -> None:
        """Keep a program, unless there is one of this key."""
        self.setdefault(key, compiled)
        if len(self) > _MOST_PROGRAMS:
            self.popitem(last=False)


@dataclass(slots=True)
class Running:
    """The runtime of this process and the arguments of its start.

    Attributes:
        backend: The runtime.
        group: The processes.
        options: The other arguments of `initialize`.
        cache: Compiled programs, by name or by their StableHLO; the last used ones.
        calls: Compiled programs of called `Program` objects.
        meshes: Meshes that fit the devices of the run.
        barriers: How often each barrier was used, which is part of its name for the runtime.
        guarded: What compares the operations of the processes.
        replay_every: Every how many calls a compiled program is called twice; 0 for never.
    """

    backend: AbstractBackend
    group: ProcessGroup
    options: StartOptions
    cache: Recent = field(default_factory=Recent)
    calls: Recent = field(default_factory=Recent)
    meshes: set[Mesh] = field(default_factory=set)
    barriers: Counter[str] = field(default_factory=Counter)
    guarded: "Guarded | None" = None
    replay_every: int = 0


_running: Running | None = None
_ended = False


def initialize(
    backend: str | None = None,
    *,
    platform: str | None = None,
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    local_device_ids: Sequence[int] | None = None,
    num_cpu_devices: int | None = None,
    initialization_timeout: float | None = None,
    heartbeat_timeout: float | None = None,
    guard: bool | None = None,
    compile_cache: str | os.PathLike[str] | None = None,
) -> None:
    """Start the runtime of this process. Collective if there are several processes.

    Arguments that are not given come from the environment (``PYREACTANT_BACKEND``, ``_PLATFORM``,
    ``_NUM_CPU_DEVICES``, ``_COORDINATOR_ADDRESS``, ``_NUM_PROCESSES``, ``_PROCESS_INDEX``,
    ``_LOCAL_DEVICE_IDS``, ``_COMPILE_CACHE``) or from the launcher; otherwise: one process on the
    best available platform. If that is a CPU, JAX starts eight virtual devices, so that sharding is
    visible on any laptop. After ``jax.distributed.initialize``, and in a train loop of Ray Train's
    JaxTrainer, it takes over the processes there. Calling it again with the same arguments does
    nothing.

    Args:
        backend: "jax" or "reactant"; "jax" if not given.
        platform: "cpu", "gpu" or "tpu"; an error if it is absent.
        coordinator_address: "host:port" of process 0, the same on every process.
        num_processes: Number of processes of the run.
        process_index: Number of this process, from 0.
        local_device_ids: GPUs of this machine that belong to this process. (A single one is what
            Reactant calls single_gpu_per_process.)
        num_cpu_devices: Virtual CPU devices of this process.
        initialization_timeout: Seconds to wait for the other processes; 60 by default.
        heartbeat_timeout: Seconds after which a silent process counts as lost; 30 by default.
        guard: Whether several processes compare their operations, so that processes that diverge
            get a MismatchError; yes by default (``PYREACTANT_GUARD=0`` says no). See
            docs/interface.md.
        compile_cache: Folder in which every process keeps what JAX compiled, so that the next start
            loads it; made if it does not exist. See docs/run.md.

    Raises:
        InvalidArgumentError: The arguments are wrong or contradict each other, or the environment
            has a PYREACTANT_* variable that is no setting of pyreactant.
        StateError: A runtime with other arguments runs already, or a runtime was shut down.
        RequirementError: The runtime's package or the platform is absent.
        RendezvousError: The processes did not find each other, or disagree.

    Examples:
        >>> pr.initialize("jax", platform="cpu", num_cpu_devices=8)
        >>> pr.backend_name(), pr.process_index(), pr.num_processes()
        ('jax', 0, 1)
    """
    global _running
    group_arguments: dict[str, Any] = {
        "coordinator_address": coordinator_address,
        "num_processes": num_processes,
        "process_index": process_index,
    }
    option_arguments: dict[str, Any] = {
        "platform": platform,
        "num_cpu_devices": num_cpu_devices,
        "initialization_timeout": initialization_timeout,
        "heartbeat_timeout": heartbeat_timeout,
        "compile_cache": compile_cache,
    }
    _check_types({"backend": backend, "guard": guard, **group_arguments, **option_arguments})
    group_arguments["local_device_ids"] = _device_ids(local_device_ids)
    option_arguments["compile_cache"] = _cache_folder(compile_cache)
    if _ended:
        raise StateError(
            "this process's runtime was shut down; a process has one runtime for its whole "
            "life: start a new process"
        )
    if _running is not None:
        _check_same(_running, {"backend": backend, **group_arguments, **option_arguments})
        return
    check_names()
    check_variables(
        {BACKEND: backend, PLATFORM: platform, CPU_DEVICES: num_cpu_devices}, os.environ
    )
    name = backend or os.environ.get(BACKEND) or "jax"
    check_backend(name)
    runtime = _load(name)
    replay_every = check_replay(env_int(REPLAY_EVERY))
    group = _group(runtime, group_arguments)
    options = _options(option_arguments)
    several = group.num_processes > 1  # a single process keeps no other waiting
    if several:
        supervised.tell_phase("initializing")
    runtime.start(group, options)
    if several:
        supervised.tell_phase("initialized")
    _running = Running(runtime, group, options, replay_every=replay_every)
    if os.environ.get("PYREACTANT_GUARD") != "0" if guard is None else guard:
        _start_guard(_running)


_KINDS: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(("backend", "platform", "coordinator_address"), (str, "text")),
    **dict.fromkeys(
        ("num_processes", "process_index", "num_cpu_devices"), (Integral, "a whole number")
    ),
    **dict.fromkeys(("initialization_timeout", "heartbeat_timeout"), (Real, "a number of seconds")),
    "guard": (bool, "True or False"),
    "compile_cache": (str | os.PathLike, "a path"),
}
"""The type of each argument of `initialize`; True and False are no numbers."""


def _check_types(arguments: Mapping[str, Any]) -> None:
    """Check the types: the value of an environment variable, for instance, is text."""
    for name, value in arguments.items():
        kind, words = _KINDS[name]
        if value is not None and (
            not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        ):
            raise InvalidArgumentError(
                f"{argument(name)} must be {words}, got {value!r:.80} ({type(value).__name__})"
            )


def _device_ids(ids: Any) -> tuple[int, ...] | None:
    if ids is None:
        return None
    listed = () if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) else tuple(ids)
    if not listed or not all(isinstance(i, Integral) and not isinstance(i, bool) for i in listed):
        raise InvalidArgumentError(
            f"{argument('local_device_ids')} must be a list of whole numbers such as [0, 1], got "
            f"{ids!r:.80}"
        )
    return tuple(int(i) for i in listed)


def _cache_folder(path: str | os.PathLike[str] | None) -> str | None:
    if path is None:
        return None
    folder = os.fspath(path)
    if not folder:
        raise InvalidArgumentError(f"{argument('compile_cache')} must name a folder, got ''")
    return folder


def _start_guard(running: Running) -> None:
    store = running.backend.store()
    if store is not None:
        from .guard import start

        running.guarded = start(store, running.group.process_index, running.group.num_processes)


def _group(runtime: AbstractBackend, asked: Mapping[str, Any]) -> ProcessGroup:
    """The processes that the runtime has joined already, or those of the launcher."""
    running = check_workers(runtime.name, runtime.running_group())
    if running is None:
        return resolve(**asked)
    differ = [
        name
        for name in ("num_processes", "process_index")
        if asked[name] is not None and asked[name] != getattr(running, name)
    ]
    if differ:
        raise StateError(
            f"initialize was asked for {differ[0]}={asked[differ[0]]}, but jax.distributed already "
            f"runs with {getattr(running, differ[0])}; leave the argument out, or initialize only "
            "one of them"
        )
    return running


def _load(name: str) -> AbstractBackend:
    path, package = BACKENDS[name]
    module, _, attribute = path.partition(":")
    try:
        make = getattr(importlib.import_module(module), attribute)
    except (PyReactantError, MemoryError, OSError):
        raise
    except Exception as error:  # a jaxlib that does not fit jax is a RuntimeError, for instance
        broken = broken_package(error, f"backend {name!r}", package)
        assert broken is not None
        raise broken from error
    return make()


def _options(arguments: Mapping[str, Any]) -> StartOptions:
    options = {key: value for key, value in arguments.items() if value is not None}
    environment = {
        "platform": os.environ.get(PLATFORM) or None,
        "num_cpu_devices": None if "num_cpu_devices" in options else env_int(CPU_DEVICES),
        "compile_cache": os.environ.get(COMPILE_CACHE) or None,
    }
    options = {k: v for k, v in environment.items() if v is not None} | options
    check_platform(options.get("platform", "cpu"))
    if not 1 <= options.get("num_cpu_devices", 1) <= MOST_CPU_DEVICES:
        raise InvalidArgumentError(
            f"{argument('num_cpu_devices')} must be 1 to {MOST_CPU_DEVICES}, got "
            f"{options['num_cpu_devices']}"
        )
    for key in ("initialization_timeout", "heartbeat_timeout"):
        if not options.get(key, 1) > 0:
            raise InvalidArgumentError(f"{key} must be positive seconds, got {options[key]}")
    return StartOptions(**options)


def _check_same(running: Running, asked: Mapping[str, Any]) -> None:
    runs: dict[str, Any] = {"backend": running.backend.name}
    for part in (running.group, running.options):
        runs |= {key: getattr(part, key) for key in asked if hasattr(part, key)}
    if runs["platform"] is None:
        runs["platform"] = running.backend.devices()[0].platform
    if runs["num_cpu_devices"] is None and runs["platform"] == "cpu":
        runs["num_cpu_devices"] = len(running.backend.local_positions)
    differ = {k: v for k, v in asked.items() if v is not None and v != runs[k]}
    if differ:
        asked_text = ", ".join(f"{k}={v!r}" for k, v in differ.items())
        runs_text = ", ".join(f"{k}={runs[k]!r}" for k in differ)
        raise StateError(
            f"initialize was asked for {asked_text}, but this process already runs with "
            f"{runs_text}; a process has one runtime for its whole life: start a new process, or "
            "call initialize before anything else"
        )


def current() -> Running:
    """The runtime of this process; starts it with default arguments if none runs."""
    if _running is None:
        initialize()
    assert _running is not None
    return _running


def is_initialized() -> bool:
    """Whether the runtime of this process has started.

    Examples:
        >>> pr.is_initialized()
        True
    """
    return _running is not None


def shutdown() -> None:
    """End the runtime of this process, which cannot start another. Collective.

    Examples:
        >>> import atexit
        >>> atexit.register(pr.shutdown)
        <function shutdown at ...>
    """
    global _running, _ended
    if _running is not None:
        if _running.guarded is not None:
            _running.guarded.end()
        metrics.flush(wait=True)
        _running.backend.shutdown()
        supervised.tell_phase("shutdown")
        _running, _ended = None, True


def backend_name() -> str:
    """Name of the runtime, "jax" or "reactant".

    Examples:
        >>> pr.backend_name()
        'jax'
    """
    return current().backend.name


def process_index() -> int:
    """Number of this process, from 0.

    Examples:
        >>> pr.process_index()
        0
    """
    return current().group.process_index


def num_processes() -> int:
    """Number of processes of the run.

    Examples:
        >>> pr.num_processes()
        1
    """
    return current().group.num_processes


def devices() -> tuple[Device, ...]:
    """All devices of the run, the same on every process; by process, then by runtime id.

    Examples:
        >>> len(pr.devices())
        8
    """
    return current().backend.devices()


def local_devices() -> tuple[Device, ...]:
    """The devices of this process.

    Examples:
        >>> len(pr.local_devices())
        8
    """
    backend = current().backend
    return tuple(d for d in backend.devices() if d.position in backend.local_positions)


_YEAR = 365 * 24 * 3600  # seconds


def barrier(name: str, *, timeout: float = 300.0) -> None:
    """Wait until every process has called this. Collective.

    Args:
        name: Name of the barrier. Every process must call the same barriers in the same order.
        timeout: Positive seconds to wait, at most a year.

    Raises:
        InvalidArgumentError: The name is not text in Unicode, or the timeout not such a number.
        DeadlineError: A process did not call it in time, or was lost.

    Examples:
        >>> pr.barrier("files are written")
    """
    running = current()
    if not isinstance(name, str) or not name.isprintable():
        raise InvalidArgumentError(f"the name of a barrier must be printable text, got {name!r}")
    if not isinstance(timeout, Real) or isinstance(timeout, bool) or not 0 < timeout <= _YEAR:
        raise InvalidArgumentError(
            f"{argument('timeout')} must be positive seconds, at most a year, got {timeout!r}"
        )
    if running.group.num_processes > 1:
        running.barriers[name] += 1
        with progress.collective():
            running.backend.barrier(f"{name}/{running.barriers[name]}", timeout)
