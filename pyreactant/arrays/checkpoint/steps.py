"""`Checkpoints`: a folder of steps that one run writes, while its loop goes on."""

import contextlib
import operator
import os
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from ...base.errors import FileError, InvalidArgumentError, StateError
from ...process import progress, supervised
from ...process.events import Restored
from ...process.supervised import profiling
from ..runtimes.agree import Agreement
from ..runtimes.runtime import current
from .bucket import tensorstore
from .commit import unwritable, writer_of
from .folder import Folder, item_of, parse, steps_in
from .read import damage, open_item, restore_item
from .store import Ahead, DamageError
from .write import Snapshot, equal_trees, snapshot, write

_PARTS = 20
"""Into how many parts `every_seconds` is divided; process 0 looks at its clock once in each."""

_AFTER_ERROR = 60.0
"""Seconds to wait for a step that is being written when the loop has failed."""


class Checkpoints:
    """A folder of checkpoints, each in Orbax's format, for a loop that can be killed at any time.

    Use it in a ``with`` statement on every process. Nobody else may write the folder meanwhile.
    A step appears when it is whole. It is written by a thread while the loop goes on; a failure
    there is raised by the next `save` that is due, on all processes, and at the end. Without
    `every_seconds` and `every_steps` each call of `save` saves.

    Args:
        folder: The folder of steps, on a disk that all processes share, where it is made if absent,
            or in a bucket, as ``gs://BUCKET/FOLDER`` or ``s3://BUCKET/FOLDER``.
        keep: How many of the latest steps stay; None keeps all. A step is deleted only after a
            newer one was read back.
        every_seconds: Save when so many seconds have passed since the last time, or since the
            start, by the clock of process 0.
        every_steps: Save at steps that are a multiple of this.
        item: Name of the folder in each step: "state", or what another tool expects, such as
            "items" (MaxText) or "default" (Orbax's StandardSave).

    Raises:
        InvalidArgumentError: An argument has the wrong form.

    Examples:
        >>> with pr.Checkpoints("run1", keep=2, every_steps=2) as checkpoints:
        ...     state = checkpoints.restore() or {"step": 0}
        ...     for step in range(state["step"], 5):
        ...         state = {"step": step + 1}
        ...         saved = checkpoints.save(step, state)
        >>> pr.restore("run1/4")
        {'step': 5}
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep: int | None = None,
        every_seconds: float | None = None,
        every_steps: int | None = None,
        item: str = "state",
    ) -> None:
        for name, number in (("keep", keep), ("every_steps", every_steps)):
            if number is not None and (type(number) is not int or number < 1):
                raise InvalidArgumentError(
                    f"{name} must be a whole number from 1, or None, got {number!r}"
                )
        is_number = isinstance(every_seconds, (int, float)) and every_seconds is not True
        if every_seconds is not None and not (is_number and every_seconds > 0):
            raise InvalidArgumentError(
                f"every_seconds must be a positive number, got {every_seconds!r}"
            )
        if not isinstance(item, str) or not item.isidentifier():
            raise InvalidArgumentError(f'item must be a name such as "state", got {item!r}')
        self.folder = parse(folder)
        self._keep, self._item = keep, item
        self._every_seconds, self._every_steps = every_seconds, every_steps
        self._agreement: Agreement | None = None
        self._writer = writer_of(self.folder)
        self._written = _no_save()
        self._failure: Exception | None = None
        self._last: int | None = None  # the step after which the next one comes
        self._pace = _Pace(every_seconds)

    def __enter__(self) -> "Checkpoints":
        if self._agreement is not None:
            raise StateError(f"the checkpoints of {self.folder} are open; open them once")
        agreement = Agreement(current())

        def open_folder() -> list[int]:
            tensorstore()
            if agreement.process:
                return []
            self._writer.take()
            with unwritable(self.folder):
                self._writer.clean()
            return steps_in(self.folder, self._item)

        try:
            steps = agreement.round(f"open {self.folder}", open_folder, lambda rows: rows[0])
        except BaseException:
            self._writer.free()
            raise
        self._agreement, self._last = agreement, steps[-1] if steps else None
        self._written, self._failure = _no_save(), None  # not of an earlier with statement
        self._pace.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._finish()
            else:
                self._written.wait(_AFTER_ERROR)
                if self._failure is not None:
                    error.add_note(f"the step {self._last} was not saved: {self._failure}")
                if not self._written.is_set():
                    error.add_note(f"the step {self._last} was still being written")
        finally:
            self._agreement = None
            if self._written.is_set():
                self._writer.free()  # else the system does it at the end of the process

    def restore(self, like: Any = None, shardings: Any = None, *, step: int | None = None) -> Any:
        """Read the latest step that the folder has now, as `pyreactant.restore` does. Collective.

        Waits for a step that this run is writing.

        Args:
            like: As in `pyreactant.restore`.
            shardings: As there.
            step: An older step. The newer ones are renamed to ``STEP.superseded`` at the next save,
                which a bucket cannot do: there `save` raises a `FileError`.

        Returns:
            The tree; None if there is no step.

        Raises:
            FileError: The folder does not have that step.
            InvalidArgumentError: The step is no whole number from 0.
            StateError: The checkpoints are not open.

        The others are those of `pyreactant.restore`, and of the step that is being written.
        """
        agreement = self._opened()
        step = None if step is None else _whole(step)
        self._finish()

        def choose(rows: Sequence[list[int]]) -> int | None:
            steps = rows[0]
            if step is not None and step not in steps:
                raise FileError(
                    f"{self.folder} has no step {step}, but {', '.join(map(str, steps)) or 'none'}"
                )
            return step if step is not None else steps[-1] if steps else None

        def look() -> list[int]:
            return [] if agreement.process else steps_in(self.folder, self._item)

        chosen = agreement.round(f"restore {self.folder}", look, choose)
        if chosen is None:
            return None

        def find() -> Folder:
            return item_of(self.folder / str(chosen), self._item)

        tree = restore_item(agreement, find, like, shardings, what=f"restore {chosen}")
        self._last = chosen
        self._pace.start()
        supervised.tell(Restored(chosen))
        return tree

    def save(self, step: int, tree: Any, *, now: bool = False) -> bool:
        """Save a step if it is time. Call it in each step, on every process. Collective.

        It returns when this process's blocks are copied, or held where the host's memory has them.

        Args:
            step: Number of the step, rising, the same on every process.
            tree: As in `pyreactant.save`.
            now: Save in any case, such as ``now=pr.reached_preemption(step)``; the same on every
                process.

        Returns:
            Whether it was time.

        Raises:
            InvalidArgumentError: The step is not greater than the last one, or the tree cannot be
                in a checkpoint.
            FileError: The step before could not be written.
            MismatchError: The trees of the processes differ.
            StateError: The checkpoints are not open.
        """
        agreement = self._opened()
        step = _whole(step)
        profiling.step(step)
        if not (self._is_due(agreement, step) or now):
            return False
        self._finish()
        taken = Snapshot()

        def prepare() -> list[Any]:
            nonlocal taken
            if self._last is not None and step <= self._last:
                raise InvalidArgumentError(
                    f"step must be greater than {self._last}, the last one in {self.folder}, got "
                    f"{step}; restore it and go on from there, or name another folder"
                )
            taken = snapshot(current(), tree)
            return [step, taken.digest]

        agreement.round(f"save {step}", prepare, self._begin)
        self._last = step
        self._pace.start(agreement)
        self._written = threading.Event()
        args = (agreement, step, taken, self._written)
        threading.Thread(target=self._write, args=args, name="pyreactant save", daemon=True).start()
        return True

    def _opened(self) -> Agreement:
        if self._agreement is None:
            raise StateError(
                f"the checkpoints of {self.folder} are not open; use them in a with statement: "
                "with pr.Checkpoints(...) as checkpoints"
            )
        return self._agreement

    def _is_due(self, agreement: Agreement, step: int) -> bool:
        if self._every_seconds is None and self._every_steps is None:
            return True
        written = self._written.is_set()
        timely = self._every_seconds is not None and self._pace.is_over(agreement, written)
        return timely or (self._every_steps is not None and step % self._every_steps == 0)

    def _begin(self, rows: Sequence[Sequence[Any]]) -> None:
        """Process 0 compares what all save, and moves newer steps away."""
        equal_trees([f"{step} {digest}" for step, digest in rows])
        number = rows[0][0]
        with unwritable(self.folder):
            self._writer.check()
            target, steps = self.folder / str(number), steps_in(self.folder, self._item)
            if target.exists() and number not in steps:
                raise FileError(f"{target} exists and is no whole step; move it away")
            for step in steps:
                if self._last is None or step > self._last:
                    self._writer.supersede(self.folder / str(step))

    def _finish(self) -> None:
        """Wait for the step that is being written, and raise its failure once."""
        self._written.wait()  # after a Ctrl-C in `Thread.join` Python takes the thread for dead
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @progress.storing()
    def _write(
        self, agreement: Agreement, step: int, taken: Snapshot, written: threading.Event
    ) -> None:
        try:
            target = self.folder / str(step)
            write(agreement, self._writer, target, taken, item=self._item)
            if self._keep is not None:
                self._delete_old(agreement, step, taken, self._keep)
        except Exception as error:  # raised in the loop's thread, by `_finish`
            self._failure = error
        finally:
            written.set()

    def _delete_old(self, agreement: Agreement, step: int, taken: Snapshot, keep: int) -> None:
        what = f"clean after {step}"

        def look() -> list[int]:
            return [] if agreement.process else steps_in(self.folder, self._item)[:-keep]

        old = agreement.round(what, look, lambda rows: rows[0])
        if not old:
            return
        agreement.round(what, lambda: _read_back(self.folder / str(step) / self._item, taken))

        def delete() -> None:
            if agreement.process == 0:
                with unwritable(self.folder):
                    for number in old:
                        self._writer.delete(self.folder / str(number))

        agreement.round(what, delete)


class _Pace:
    """Whether it is time, which process 0 says at calls that all processes know before.

    So no process waits in the calls between them, and devices never communicate for it.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds or 0.0
        self._calls = self._asked = self._forgotten = 0
        self._next = 1
        self._since, self._first = time.monotonic(), 0

    def start(self, agreement: Agreement | None = None) -> None:
        """The time begins anew; with an agreement all processes have come to this call."""
        self._since, self._first, self._next = time.monotonic(), self._calls, self._calls + 1
        if agreement is not None:
            agreement.forget(self._forgotten, self._asked)
            self._forgotten = self._asked

    def is_over(self, agreement: Agreement, ready: bool) -> bool:
        """Whether process 0 says at this call that the time is over, and that it is ready."""
        self._calls += 1
        if self._calls < self._next:
            return False
        over, calls = agreement.publish("save", self._asked, lambda: self._look(ready))
        self._asked += 1
        self._next = self._calls + calls
        return bool(over)

    def _look(self, ready: bool) -> list[Any]:
        """Process 0: whether the time is over, and after how many calls to look again."""
        passed, calls = time.monotonic() - self._since, self._calls - self._first
        left = self._seconds - passed
        if left <= 0:
            return [ready, 1]
        each = max(passed / calls, 1e-9)
        return [False, max(1, int(min(left / each, self._seconds / _PARTS / each, calls)))]


def _no_save() -> threading.Event:
    """As after a save: there is nothing to wait for."""
    written = threading.Event()
    written.set()
    return written


def _whole(step: Any) -> int:
    with contextlib.suppress(TypeError):
        if not isinstance(step, bool) and (number := operator.index(step)) >= 0:
            return number  # the folder of a negative one would be none of a step
    raise InvalidArgumentError(f"step must be a whole number from 0, got {step!r:.100}")


def _read_back(folder: Folder, taken: Snapshot) -> None:
    """Compare what this process wrote with what can be read now."""
    requests = [(name, index, taken.arrays[name]) for name, index, _ in taken.pieces]
    with damage(folder):
        blocks = Ahead(open_item(folder).reader, requests)
        for name, _, data in taken.pieces:
            if not np.array_equal(_bytes(blocks.next()), _bytes(data)):
                raise DamageError(f"array {name} is not what was written")


def _bytes(data: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
