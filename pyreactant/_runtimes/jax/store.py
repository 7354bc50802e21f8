"""The store of a run on JAX: the key-value store of its coordination service."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from ..._errors import DeadlineError

_FIRST_PAUSE = 0.0003  # seconds, about the time of one call
_LONGEST_PAUSE = 0.05
_PAUSE_PER_PROCESS = 0.00025  # 1024 processes that wait make 4000 calls per second


class JaxStore:
    """A `_core.store.Store` over JAX's coordination service, which runs in process 0.

    Waiting asks again and again. JAX has a call that waits, but each one that ends without a value
    keeps 35 KB (jax 0.10.2 and 0.12), and waiting in C++ ignores Ctrl-C.

    Args:
        client: JAX's client of the service.
        num_processes: Number of processes of the run.
    """

    def __init__(self, client: Any, num_processes: int) -> None:
        self._client = client
        self._longest = max(_LONGEST_PAUSE, num_processes * _PAUSE_PER_PROCESS)
        self._waits: dict[str, float] = {}  # since when each key is waited for

    def put(self, key: str, value: str) -> None:
        """See `Store`."""
        with _lost_store_named():
            self._client.key_value_set(key, value, allow_overwrite=True)

    def get(self, key: str, timeout: float) -> str | None:
        """See `Store`."""
        deadline = time.monotonic() + timeout
        began = self._waits.get(key)
        while (value := self.peek(key)) is None:
            now = time.monotonic()
            if began is None:
                began = self._waits[key] = now
            if now >= deadline:
                return None
            # In proportion to the wait so far, also that of the calls before.
            pause = min(max(_FIRST_PAUSE, (now - began) / 8), self._longest)
            time.sleep(min(pause, deadline - now))
        self._waits.pop(key, None)
        return value

    def peek(self, key: str) -> str | None:
        """See `Store`."""
        with _lost_store_named():
            try:
                value: str = self._client.key_value_try_get(key)
            except Exception as error:  # jaxlib's XlaRuntimeError, by whichever name it has
                if str(error).startswith("NOT_FOUND"):
                    return None
                raise
            return value

    def delete(self, prefix: str) -> None:
        """See `Store`."""
        with _lost_store_named():
            self._client.key_value_delete(prefix)


def run_store(num_processes: int) -> JaxStore:
    """The store of the run that this process has joined."""
    from jax._src import distributed  # the key-value store has no public name

    return JaxStore(distributed.global_state.client, num_processes)


@contextlib.contextmanager
def _lost_store_named() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise DeadlineError(
            "the connection to process 0, which holds the run's store, was lost: "
            f"{str(error).splitlines()[0]}"
        ) from error
