"""What changes in JAX when a supervised program imports it.

`jax.distributed.initialize()` without arguments works in a program that does not use pyreactant:
JAX asks the first of its cluster environments that applies; when JAX is imported, ours is put in
front. What a program passes to `initialize` always wins. JAX itself is not imported here.
"""

import functools
import importlib.machinery
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ...base.settings import COORDINATOR, COUNT, INDEX, STALL_TIMEOUT
from .. import compilations, supervised

_LATER = 60
"""Seconds after the supervisor's limit at which JAX gives a silent process up.

The supervisor then names the process, where JAX would abort the others.
"""

_PROCESSES = ("coordinator_address", "num_processes", "process_id", "cluster_detection_method")


def install() -> None:
    """Make the changes when JAX is imported; nothing is changed in a program without JAX."""
    if os.environ.get(COUNT) and not any(name in sys.modules for name in _CHANGES):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds the modules to change as Python does, and changes them once they are loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = _CHANGES.get(name)
        if change is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader: Any = spec and spec.loader
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                try:
                    change(module)
                except Exception as error:
                    sys.stderr.write(
                        f"pyreactant: this version of JAX does not learn its processes from "
                        f"`pyreactant run` ({error!r}); pass them to jax.distributed.initialize\n"
                    )

            loader.exec_module = exec_module
        return spec


def _add_cluster(module: Any) -> None:
    """Put our cluster first, because those of JAX are added when their modules are loaded."""

    class PyReactantCluster(module.ClusterEnv):  # type: ignore[misc]
        name = "pyreactant"

        @classmethod
        def is_env_present(cls) -> bool:
            return bool(os.environ.get(COUNT))

        @classmethod
        def get_coordinator_address(cls, *_: Any, **others: Any) -> str:
            address = os.environ.get(COORDINATOR)
            if not address:  # a run of one process has none
                from ..group.group import loopback_address

                address = loopback_address()
            port = others.get("override_coordinator_port")
            return f"{address.rpartition(':')[0]}:{port}" if port else address

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ[COUNT])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ.get(INDEX) or 0)

        @classmethod
        def get_local_process_id(cls) -> int | None:
            return None  # JAX_LOCAL_DEVICE_IDS says which devices are this process's own


def _wrap_initialize(module: Any) -> None:
    original = module.initialize
    signature = inspect.signature(original)

    @functools.wraps(original)
    def initialize(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind_partial(*args, **kwargs).arguments
        except TypeError:
            return original(*args, **kwargs)  # it says what is wrong
        _go_around_proxies(given.get("coordinator_address"))
        more = {k: v for k, v in _defaults(given).items() if k in signature.parameters}
        supervised.initializes = True
        count = int(os.environ.get(COUNT) or 1)
        detected = given.get("cluster_detection_method") is not None
        ours = not detected and given.get("num_processes") in (None, count)
        several = ours and count > 1
        if several:
            supervised.tell_phase("initializing")
        result = original(*args, **kwargs, **more)
        if several:
            supervised.tell_phase("initialized")
        return result

    module.initialize = initialize


def _go_around_proxies(coordinator_address: str | None) -> None:
    """Let gRPC connect to the coordinator itself, also to one that the program names."""
    from ..group.group import around_proxies  # a program without JAX need not wait for it

    addresses = coordinator_address, os.environ.get("JAX_COORDINATOR_ADDRESS")
    for address in filter(None, (*addresses, os.environ.get(COORDINATOR))):
        os.environ.update(around_proxies(address, os.environ))


def _defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the program left out and no environment variable sets."""
    defaults: dict[str, Any] = {}
    stall = os.environ.get(STALL_TIMEOUT)
    if stall and "heartbeat_timeout_seconds" not in given:
        defaults["heartbeat_timeout_seconds"] = int(float(stall)) + _LATER
    address = os.environ.get("JAX_COORDINATOR_ADDRESS") or os.environ.get(COORDINATOR) or ""
    local = address.startswith(("127.", "localhost:", "[::1]:"))
    bound = "coordinator_bind_address" in given or os.environ.get("JAX_COORDINATOR_BIND_ADDRESS")
    if local and not bound and all(given.get(name) is None for name in _PROCESSES):
        # By default JAX listens on every network card.
        defaults["coordinator_bind_address"] = address
    return defaults


_CHANGES: dict[str, Callable[[Any], None]] = {
    "jax._src.clusters.cluster": _add_cluster,
    "jax._src.compiler": compilations.install,
    "jax._src.distributed": _wrap_initialize,
}
