"""The processes find the words for an operation in which they differ, together: one sentence."""

import contextlib
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ....base.errors import PyReactantError
from .operation import PROGRAM, Operation, Stream, canonical
from .tree import Tree, equal

_SHOWN = 4
"""Groups of processes whose values are shown."""

_NAMED = 8  # processes of a group, by their indices
_VALUE = 160  # characters of a value, or of a line of StableHLO
_MAIN = "MainThread"

_ADVICE = (
    "Every process must do the same operations in the same order, with the same arguments; look "
    "for what depends on the process, such as its index, random numbers without a seed, the order "
    "of a set, the time, or a file that not every machine has"
)


class Group(NamedTuple):
    """Processes that did the same: how many, and the lowest indices of them."""

    size: int
    lowest: list[int]

    def __str__(self) -> str:
        left = self.size - len(self.lowest)
        return ", ".join(map(str, self.lowest)) + (f" and {left} more" if left else "")


@dataclass(frozen=True, slots=True)
class Account:
    """What a process did as one operation of a thread.

    Attributes:
        operation: What it did.
        thread: Name of the thread.
        number: Number of the operation, from 0.
        has_text: Whether its program's text can be asked for.
    """

    operation: Operation
    thread: str
    number: int
    has_text: bool = False

    def to_json(self) -> str:
        """For the process that writes the sentence; it may be longer than a message."""
        o = self.operation
        return json.dumps(
            [o.kind, o.what, o.fields, o.line, self.thread, self.number, o.text is not None]
        )

    @classmethod
    def from_json(cls, text: str) -> "Account":
        """The inverse of `to_json`, without the program's text."""
        kind, what, fields, line, thread, number, has_text = json.loads(text)
        operation = Operation(kind, what, tuple((n, v) for n, v in fields), line)
        return cls(operation, thread, number, has_text)

    def __str__(self) -> str:
        operation = self.operation
        what = f" of {operation.what}" if operation.what else ""
        line = f" at {operation.line}" if operation.line else ""
        return f"{operation.kind}{what}{line}"


def _differ_in_program(accounts: Sequence[Account]) -> bool:
    """Whether the two largest groups differ first in their programs, whose texts are known."""
    largest = accounts[:2]
    known = len(largest) == 2 and all(account.has_text for account in largest)
    return known and _first_difference(largest)[0] == PROGRAM


def _sentence(groups: Sequence[Group], accounts: Sequence[Account], texts: Sequence[str]) -> str:
    """What the processes do differently, and what to do about it.

    There are texts of the first two groups' programs if these are what differs first.
    """
    first = accounts[0]
    thread = "" if first.thread == _MAIN else f" of thread {first.thread!r}"
    name, values = _first_difference(accounts)
    subject = f", {_subject(accounts)}" if name else ""
    if texts:
        name, values = _text_difference(texts)
    shown = [f"{value} on {group}" for value, group in zip(values, groups, strict=False)]
    rest = sum(group.size for group in groups) - sum(g.size for g in groups[: len(shown)])
    if rest:
        shown.append(f"something else on {rest} more")
    return (
        f"{_who(groups)} at operation {first.number + 1}{thread}{subject}: "
        f"{name}{' ' if name else ''}{'; '.join(shown)}. {_ADVICE}"
    )


def _subject(accounts: Sequence[Account]) -> str:
    """An operation that is of one kind on all processes, with the lines where they call it."""
    operation = accounts[0].operation
    lines = dict.fromkeys(a.operation.line for a in accounts if a.operation.line)
    return str(Account(replace(operation, line=" and ".join(lines)), "", 0))


def _who(groups: Sequence[Group]) -> str:
    """The processes in the minority; all if no group is larger than the others."""
    first, *others = groups
    if others and first.size > others[0].size:
        odd = "; ".join(map(str, others))
        if sum(group.size for group in others) == 1:
            return f"process {odd} differs from the {first.size} others"
        return f"processes {odd} differ from the {first.size} others"
    if len(groups) == 2 and first.size == 1:
        return f"processes {groups[0]} and {groups[1]} differ"
    return f"processes {'; '.join(map(str, groups))} differ"


def _first_difference(accounts: Sequence[Account]) -> tuple[str, list[str]]:
    """The name of the first thing that differs, and each account's value of it."""
    operations = [account.operation for account in accounts]
    if len({(operation.kind, operation.what) for operation in operations}) > 1:
        return "", [str(account) for account in accounts]
    for pairs in itertools.zip_longest(*(o.fields for o in operations), fillvalue=("", "(none)")):
        if len(set(pairs)) > 1:
            name = next(name for name, _ in pairs if name)
            values = [value if key == name else "(none)" for key, value in pairs]
            return name, _around_difference(values)
    return "", [str(account) for account in accounts]


def _text_difference(texts: Sequence[str]) -> tuple[str, list[str]]:
    """The first lines in which two programs differ."""
    lines = [text.split("\n") for text in texts]
    for number, pair in enumerate(zip(*lines, strict=False)):
        if len(set(pair)) > 1:
            values = _around_difference([line.strip() for line in pair])
            return f"StableHLO line {number + 1}", [f"`{value}`" for value in values]
    number = min(map(len, lines))
    rest = [each[number].strip() if len(each) > number else "the end" for each in lines]
    return f"StableHLO line {number + 1}", [f"`{value}`" for value in rest]


def _around_difference(values: Sequence[str]) -> list[str]:
    """Values cut to what is around the first character that differs."""
    if max(map(len, values)) <= _VALUE:
        return list(values)
    shortest = min(map(len, values))
    at = next((i for i in range(shortest) if len({v[i] for v in values}) > 1), shortest)
    start = max(0, at - _VALUE // 2) if at > _VALUE // 2 else 0
    return [_cut(value, start) for value in values]


def _cut(value: str, start: int) -> str:
    end = start + _VALUE
    return f"{'...' if start else ''}{value[start:end]}{'...' if end < len(value) else ''}"


_GROUPS = 8  # in one message
_TEXT_LIMIT = 8 << 20  # characters of StableHLO
_FAREWELL = 1.0  # seconds that process 0 waits for the others to have read the sentence
_LOOK = 0.02  # seconds between looks for those after a process was lost

HEAD_START = 0.7
"""Seconds that the others then have to raise, or to end in a collective, before process 0 does.

JAX aborts every process at once when process 0 ends.
"""

NOTHING = "nothing"
"""Kind of the operation that a thread did not do."""


def describe(stream: Stream | None, thread: str, number: int, *, closed: bool) -> Account | None:
    """What this process did as operation `number` of a thread; None if that is yet to come.

    If the thread is closed, it does nothing more in this process.
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
    """
    groups = _group(tree, f"{name}/groups", mine)
    speakers = [group.lowest[0] for group in groups[:_SHOWN]]
    if tree.index in speakers:
        assert mine is not None
        tree.put_text(f"{name}/account/{tree.index}", mine.to_json())
        if tree.index in speakers[:2]:
            tree.put_text(f"{name}/text/{tree.index}", _text(mine.operation))
    if tree.index == 0:
        accounts = [
            Account.from_json(tree.wait_text(f"{name}/account/{speaker}")) for speaker in speakers
        ]
        texts = []
        if _differ_in_program(accounts):
            texts = [tree.wait_text(f"{name}/text/{speaker}") for speaker in speakers[:2]]
        tree.put_text(f"{name}/sentence", _sentence(groups, accounts, texts))
    text = tree.wait_text(f"{name}/sentence")
    _await_readers(tree, f"{name}/read")
    if tree.index == 0:
        time.sleep(HEAD_START)
    return text


def _await_readers(tree: Tree, name: str) -> None:
    """Wait until the others have read the sentence.

    Those that have read it may end, so a lost process is no error here.
    """
    deadline = time.monotonic() + _FAREWELL

    def check() -> None:
        if time.monotonic() >= deadline:
            raise _TimeIsUpError

    hasty = Tree(tree.store, tree.index, tree.count, check)
    with contextlib.suppress(_TimeIsUpError):
        while True:
            with contextlib.suppress(PyReactantError):
                hasty.gather(name, "", equal)
                return
            time.sleep(_LOOK)
            check()


class _TimeIsUpError(Exception):
    pass


def _text(operation: Operation) -> str:
    """The program's text; an error of the runtime must not leave the others waiting."""
    try:
        text = operation.text() if operation.text is not None else ""
    except Exception as error:
        text = f"(the text could not be made: {error!r})"
    return canonical(text)[:_TEXT_LIMIT]


def _group(tree: Tree, name: str, mine: Account | None) -> list[Group]:
    """The processes in groups with equal operations, the largest first. Collective."""
    groups = {} if mine is None else {f"{mine.operation.digest:x}": [1, [tree.index]]}
    merged = tree.exchange(name, groups, _merge_groups)
    return [Group(*group) for group in merged.values()]


def _merge_groups(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By digest, the number of processes and the lowest indices of them."""
    merged: dict[str, list[Any]] = {}
    for message in messages:
        for digest, (count, lowest) in message.items():
            group = merged.setdefault(digest, [0, []])
            group[0] += count
            group[1] = sorted(group[1] + lowest)[:_NAMED]
    order = sorted(merged, key=lambda digest: (-merged[digest][0], merged[digest][1][0]))
    return {digest: merged[digest] for digest in order[:_GROUPS]}
