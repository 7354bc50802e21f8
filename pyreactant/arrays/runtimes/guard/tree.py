"""All processes exchange a short message over the store, as a tree of fan-in 6.

A process sends and receives at most 8 messages of at most 4 KiB per exchange, however many
processes there are: from 6 children, to its parent, and the verdict of process 0.
"""

import base64
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from ...backend import Store

FAN_IN = 6
LIMIT = 4096
"""Longest message, in bytes."""

_POLL = 0.25  # seconds; so often a wait looks whether it must stop

Merge = Callable[[Sequence[Any]], Any]
"""Makes one message of those of several processes; messages are plain data for JSON."""


class Tree:
    """One process's place in the tree; process 0 is the root.

    While it waits it calls `check`, which raises what is to end the wait.
    """

    def __init__(self, store: Store, index: int, count: int, check: Callable[[], None]) -> None:
        self.store = store
        self.index = index
        self.count = count
        self._check = check
        self._children = range(FAN_IN * index + 1, min(FAN_IN * index + FAN_IN + 1, count))

    def exchange(
        self,
        name: str,
        mine: Any,
        merge: Merge,
        conclude: Callable[[Any], Any] = lambda merged: merged,
    ) -> Any:
        """The verdict about every process's message. Collective.

        Process 0 makes it of the merged messages. A name serves once only.
        """
        merged = self.gather(name, mine, merge)
        if self.index > 0:
            return self.wait(f"{name}/verdict")
        verdict = conclude(merged)
        self.put(f"{name}/verdict", verdict)
        return verdict

    def gather(self, name: str, mine: Any, merge: Merge) -> Any:
        """All processes' messages merged, in process 0; the others do not wait for all.

        Args:
            name: Used once only.
            mine: This process's message.
            merge: As in `exchange`.
        """
        merged = merge([mine, *(self.wait(f"{name}/{child}") for child in self._children)])
        if self.index > 0:
            self.put(f"{name}/{self.index}", merged)
        return merged

    def put(self, key: str, message: Any) -> None:
        """Put a message of at most `LIMIT` bytes."""
        text = json.dumps(message, separators=(",", ":"))
        if len(text) > LIMIT:
            raise ValueError(f"a message takes {LIMIT} bytes, got {len(text)} for {key}")
        self.store.put(key, text)

    def wait(self, key: str) -> Any:
        """Wait for a message."""
        while (text := self.store.get(key, _POLL)) is None:
            self._check()
        return json.loads(text)

    def put_text(self, key: str, text: str) -> None:
        """Put a text of any length, in compressed pieces."""
        packed = base64.b64encode(zlib.compress(text.encode("utf-8", "backslashreplace"))).decode()
        length = LIMIT - len('""')
        pieces = [packed[i : i + length] for i in range(0, len(packed), length)]
        for number, piece in enumerate(pieces):
            self.put(f"{key}/{number}", piece)
        self.put(f"{key}/pieces", len(pieces))

    def wait_text(self, key: str) -> str:
        """Wait for a text of `put_text`."""
        count = self.wait(f"{key}/pieces")
        packed = "".join(self.wait(f"{key}/{number}") for number in range(count))
        return zlib.decompress(base64.b64decode(packed)).decode()


def equal(messages: Sequence[str | None]) -> str | None:
    """A merge: the text that all processes have; None if they differ."""
    return messages[0] if all(message == messages[0] for message in messages) else None
