"""What every process of a run asks of the kernel."""

import ctypes
import signal
import sys


def die_with_parent() -> None:
    """From now on the kernel kills this process when its parent dies; also after an exec."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
