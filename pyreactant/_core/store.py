"""A small store of text that all processes of a run share, over the host network.

Each runtime has one: JAX its coordination service, Reactant the meeting of its processes.
"""

from typing import Protocol


class Store(Protocol):
    """Keys are paths such as ``guard/main/12``. Every method may be called from any thread.

    Every method raises a PyReactantError if the store or the connection to it is lost.
    """

    def put(self, key: str, value: str) -> None:
        """Set a key; a value that it has is replaced."""

    def get(self, key: str, timeout: float) -> str | None:
        """Wait for a key's value; None if it has none within `timeout` seconds."""

    def peek(self, key: str) -> str | None:
        """The value that a key has now; None if it has none."""

    def delete(self, prefix: str) -> None:
        """Delete this key, and all keys that begin with it and a slash."""
