"""The processes find the words for an operation in which they differ, together."""

import json
import time
from collections.abc import Sequence
from typing import Any

from .operation import Operation
from .order import Stream
from .program import canonical
from .report import SHOWN, Account, Group, asks_for_text, sentence
from .tree import LIMIT, Tree

_GROUPS = 8  # in one message
_RANGES = 20  # of process indices in one group
_TEXT_LIMIT = 8 << 20  # characters of StableHLO
_FAREWELL = 1.0  # seconds that process 0 waits for the others to have read the sentence

HEAD_START = 0.7
"""Seconds that the others then have to raise, or to end in a collective, before process 0 does.

JAX aborts every process at once when process 0 ends.
"""

NOTHING = "nothing"
"""Kind of the operation that a thread did not do."""


def describe(stream: Stream | None, thread: str, number: int, *, closed: bool) -> Account | None:
    """What this process did as operation `number` of a thread; None if that is yet to come.

    Args:
        stream: The thread's operations, if it has any here.
        thread: The id of the stream.
        number: From 0.
        closed: Whether the thread does nothing more in this process.
    """
    operation = stream.operation(number) if stream is not None else None
    name = stream.name if stream is not None else thread
    if operation is None and not closed:
        return None
    return Account(operation or Operation(NOTHING, "", (), ""), name, number)


def explain(tree: Tree, name: str, mine: Account | None) -> str:
    """One sentence about an operation in which the processes differ. Collective.

    The lowest process of each group with equal operations describes it, and process 0 writes the
    sentence. It returns last, because the others could say nothing more if it ended before them.

    Args:
        tree: This process's place among all.
        name: The beginning of the keys.
        mine: What this process did.
    """
    groups = _group(tree, f"{name}/groups", mine)
    speakers = [group.lowest for group in groups[:SHOWN]]
    if tree.index in speakers:
        assert mine is not None
        tree.put_text(f"{name}/account/{tree.index}", mine.to_json())
    if tree.index == 0:
        accounts = [
            Account.from_json(tree.wait_text(f"{name}/account/{speaker}")) for speaker in speakers
        ]
        wanted = asks_for_text(accounts)
        tree.put(f"{name}/wanted", json.dumps(wanted))
    elif tree.index in speakers[:2]:
        wanted = json.loads(tree.wait(f"{name}/wanted"))
    else:
        wanted = False
    if wanted and tree.index in speakers[:2]:
        assert mine is not None
        tree.put_text(f"{name}/text/{tree.index}", _text(mine.operation))
    if tree.index == 0:
        texts = [tree.wait_text(f"{name}/text/{speaker}") for speaker in speakers[:2] if wanted]
        tree.put_text(f"{name}/sentence", sentence(groups, accounts, texts))
    found = tree.wait_text(f"{name}/sentence")
    tree.gather(f"{name}/read", "", "".join, time.monotonic() + _FAREWELL)
    if tree.index == 0:
        time.sleep(HEAD_START)
    return found


def _text(operation: Operation) -> str:
    """The program's text; an error of the runtime must not leave the others waiting."""
    try:
        text = operation.text() if operation.text is not None else ""
    except Exception as error:
        text = f"(the text could not be made: {error!r})"
    return canonical(text)[:_TEXT_LIMIT]


def _group(tree: Tree, name: str, mine: Account | None) -> list[Group]:
    """The processes in groups with equal operations, the largest first. Collective."""
    groups: dict[str, list[Any]] = {}
    if mine is not None:
        groups[f"{mine.operation.digest:x}"] = [1, [[tree.index, tree.index]]]
    merged = tree.exchange(name, json.dumps(groups), _merge_groups)
    return [
        Group(count, tuple(map(tuple, ranges))) for count, ranges in json.loads(merged).values()
    ]


def _merge_groups(messages: Sequence[str]) -> str:
    """By digest, the number of processes and the ranges of their indices."""
    merged: dict[str, list[Any]] = {}
    for message in messages:
        for digest, (count, ranges) in json.loads(message).items():
            group = merged.setdefault(digest, [0, []])
            group[0] += count
            group[1] += ranges
    for group in merged.values():
        group[1] = _joined(group[1])[:_RANGES]
    order = sorted(merged, key=lambda digest: (-merged[digest][0], merged[digest][1][0]))
    text = json.dumps({digest: merged[digest] for digest in order[:_GROUPS]}, separators=(",", ":"))
    assert len(text) <= LIMIT
    return text


def _joined(ranges: list[list[int]]) -> list[list[int]]:
    """Ranges of indices, sorted, and adjacent ones as one."""
    joined: list[list[int]] = []
    for low, high in sorted(ranges):
        if joined and joined[-1][1] + 1 == low:
            joined[-1][1] = high
        else:
            joined.append([low, high])
    return joined
