"""The guard: processes that do not do the same operations in the same order get an error.

`guard` keeps what this process does, `watch` compares the processes, `explain` says what differs.
"""

import atexit
from dataclasses import dataclass

from ....base.errors import PyReactantError
from ....process import progress, supervised
from ...backend import Store
from .guard import Guard, Terminator, end_with
from .operation import gathering


@dataclass(frozen=True, slots=True)
class Guarded:
    """The guard of this process's runtime, and what ends the process if it cannot raise."""

    guard: Guard
    terminator: Terminator

    def end(self, code: int = 0) -> None:
        """Compare the last operations, and stop. Collective if the program ended well.

        A program that failed, by its exit code, keeps nobody waiting.

        Raises:
            MismatchError: The processes differ.
        """
        progress.gathered = progress.failed = progress.compiled = None
        supervised.at_end = None
        atexit.unregister(self._at_exit)
        if code == 0:
            supervised.tell_phase("leaving")  # others that still need this process wait in vain
            self.guard.end()
        self.terminator.close()  # first: after a mismatch the guard's thread is in there
        self.guard.close()

    def _at_exit(self) -> None:
        try:
            self.end()
        except PyReactantError as error:
            end_with(error)


def start(store: Store, process_index: int, num_processes: int) -> Guarded:
    """Guard the operations of this process, until it ends or `end` is called."""
    terminator = Terminator()
    guard = Guard(store, process_index, num_processes, fail=terminator)
    guarded = Guarded(guard, terminator)
    progress.gathered = lambda what, array: guard.ran(gathering(what), (array,))
    progress.failed = guard.settle
    progress.compiled = guard.ran_once
    # A supervised program compares its end before it is known to have ended well.
    supervised.at_end = guarded.end
    atexit.register(guarded._at_exit)
    return guarded
