"""Processes that differ may abort before the guard has found out; abort() waits for it here.

Gloo, which does the collectives on CPUs, ends the process when it receives data of another size
than it expects, in a thread of its own and within milliseconds.
"""

import ctypes
import signal
import sys
from typing import Any

_libc: Any = ctypes.CDLL(None)
_libc.signal.restype = ctypes.c_void_p
_libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]


class AbortsDelayed:
    """From now until `restore`, a thread that calls abort() first sleeps for 6 seconds.

    The handler of SIGABRT is the C function sleep, which takes the signal's number as its argument.
    It needs neither Python's global lock nor anything else that another thread may hold.
    """

    def __init__(self) -> None:
        self._previous: int | None = None
        self._is_installed = sys.platform == "linux"
        if self._is_installed:
            sleep = ctypes.cast(_libc.sleep, ctypes.c_void_p)
            self._previous = _libc.signal(signal.SIGABRT, sleep)

    def restore(self) -> None:
        """Let abort() end the process at once again."""
        if self._is_installed:
            self._is_installed = False
            _libc.signal(signal.SIGABRT, self._previous)
