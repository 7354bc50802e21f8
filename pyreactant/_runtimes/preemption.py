"""Preemption: every process stops at the same step."""

from .. import _supervised
from .._errors import StateError


def reached_preemption(step: int) -> bool:
    """Whether to save and stop at this step, because the machine is about to be preempted.

    Call it once in each step of a loop, with the step's number, on every process. If one process
    of the run gets SIGTERM or SIGUSR1 (Slurm's ``--signal=USR1@60``, a requeue), all processes
    agree on the first step that none of them has begun. From that step on, this is True on all of
    them. Devices never communicate for it, and processes only after the signal.

    In a train loop of Ray Train's JaxTrainer it asks Ray, which waits for all workers at each
    call. Save there and go on: Ray restarts the loop from its last checkpoint, while a loop that
    returns has finished.

    Without `pyreactant run` a single process gets False.

    Args:
        step: Number of the step, rising, the same on every process.

    Raises:
        StateError: There are several processes and no supervisor.

    Examples:
        >>> for step in range(3):
        ...     if pr.reached_preemption(step):
        ...         break  # save first
    """
    if _supervised.connection is not None:
        return _supervised.connection.reached_preemption(step)
    from .ray_train import reached_preemption as reached_in_ray
    from .runtime import is_initialized, num_processes

    if (reached := reached_in_ray()) is not None:
        return reached

    if is_initialized() and num_processes() > 1:
        raise StateError(
            f"reached_preemption needs a supervisor if there are several processes (got "
            f"{num_processes()}), because all must stop at one step; start the program with: "
            "pyreactant run -- SCRIPT"
        )
    return False
