"""Preemption: every process stops at the same step."""

from .. import _supervised
from .._errors import StateError


def reached_preemption(step: int) -> bool:
    """Whether to save and stop at this step: the machine is about to be taken away.

    Call it once in each step of a loop, with the step's number, on every process. When one
    process of the run gets SIGTERM or SIGUSR1 (Slurm's ``--signal=USR1@60``, a requeue), all
    processes agree on the first step that none of them has begun, and this turns True on all of
    them there and stays so. No communication happens before that, and none between devices.

    Outside `pyreactant run` nobody can tell, so one process alone gets False.

    Args:
        step: Number of the step, rising, the same on every process.

    Raises:
        StateError: One of several processes that no supervisor started.
    """
    if _supervised.connection is not None:
        return _supervised.connection.reached_preemption(step)
    from .runtime import is_initialized, num_processes

    if is_initialized() and num_processes() > 1:
        raise StateError(
            f"reached_preemption needs the supervisor where there are several processes "
            f"({num_processes()} here), because all must stop at one step; start the program "
            "with: pyreactant run -- SCRIPT"
        )
    return False
