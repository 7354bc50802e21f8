"""What a program calls in its loop: `reached_preemption` and `report`.

Every process stops at the same step before a preemption. A report to Ray Train has logged numbers
and a checkpoint.
"""

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...base.errors import FileError, InvalidArgumentError, MismatchError, StateError
from ...process import supervised
from ...process.supervised import metrics, profiling
from .collective import everywhere, exchange_json
from .known import train_module
from .runtime import current, is_initialized, num_processes


def reached_preemption(step: int) -> bool:
    """Whether to save and stop at this step, because the machine is about to be preempted.

    Call it once in each step of a loop, with the step's number, on every process. If one process
    of the run gets SIGTERM or a warning (SIGUSR1 or SIGUSR2, such as Slurm's ``--signal=USR1@60``),
    all processes agree on the first step that none of them has begun. From that step on, this is
    True on all of them. Devices never communicate for it, and processes only after the signal.

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
    if supervised.connection is not None:
        profiling.step(step)
        return supervised.connection.reached_preemption(step)
    if (train := train_module()) is not None:
        return train.get_preemption_info() is not None
    if is_initialized() and num_processes() > 1:
        raise StateError(
            f"reached_preemption needs a supervisor if there are several processes (got "
            f"{num_processes()}), because all must stop at one step; start the program with: "
            "pyreactant run -- SCRIPT"
        )
    return False


_LONGEST = 4000
"""Characters of the names and values that one report reduces."""


def report(
    step: int,
    /,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    reduce: Mapping[str, str] | None = None,
) -> None:
    """Send the numbers that `log` recorded last to Ray Train, with a checkpoint. Collective.

    Every worker of a train loop calls it the same number of times; Ray Train waits for all of
    them. `result.metrics` of the trainer are then process 0's numbers and the step. Ray Train keeps
    metrics only together with a checkpoint, so without a folder process 0 sends an empty one.

    Args:
        step: Number of the step, the same on every process.
        checkpoint: Folder that Ray Train copies to its storage, which every machine must reach.
            Folders of several processes become one. None for no files of this process.
        reduce: "mean" or "max" for some of the logged names, the same on every process: the value
            is then over all processes, and not process 0's.

    Raises:
        StateError: This is not a train loop of Ray Train.
        FileError: The folder of some process does not exist.
        InvalidArgumentError: The step is not a whole number, or a process did not log a name of
            `reduce`.
        MismatchError: The processes reduce different names.

    Examples:
        >>> def train_loop(config):
        ...     pr.initialize()
        ...     for step in range(config["steps"]):
        ...         pr.log(step, loss=train_step())
        ...     pr.report(step, checkpoint="model")
    """
    train = train_module()
    if train is None:
        raise StateError(
            "report sends metrics to Ray Train, but this is not a train loop that JaxTrainer "
            "started; pyreactant.log records numbers everywhere"
        )

    def prepare() -> dict[str, Any]:
        if type(step) is not int or step < 0:
            raise InvalidArgumentError(f"step must be a whole number from 0, got {step!r:.100}")
        if checkpoint is not None and not Path(checkpoint).is_dir():
            raise FileError(f"the checkpoint {os.fspath(checkpoint)!r:.300} is not a folder")
        logged = metrics.last()
        numbers = {**(logged[1] if logged else {}), "step": step}
        _check_reduce(reduce or {}, numbers)
        return numbers

    running = current()
    # Before the barrier in Ray, where a process that raised would leave the others waiting.
    numbers = everywhere(running.backend, running.group, "report", prepare)
    mine = [[name, how, numbers[name]] for name, how in sorted((reduce or {}).items())]
    numbers |= _reduce(exchange_json(running.backend, running.group, mine))
    with _folder(checkpoint, running.group.process_index) as folder:
        sent = None if folder is None else train.Checkpoint.from_directory(folder)
        train.report(numbers, checkpoint=sent)


def _check_reduce(reduce: Mapping[str, str], numbers: Mapping[str, Any]) -> None:
    for name, how in reduce.items():
        if how not in metrics.REDUCTIONS:
            known = " or ".join(map(repr, metrics.REDUCTIONS))
            raise InvalidArgumentError(f"reduce must map names to {known}, got {how!r}")
        if name not in numbers or name == "step":
            raise InvalidArgumentError(
                f"reduce names {name!r}, which the last pr.log of this process did not have"
            )
    if len(json.dumps([[name, how, numbers[name]] for name, how in reduce.items()])) > _LONGEST:
        raise InvalidArgumentError(f"reduce takes names of {_LONGEST} characters together at most")


def _reduce(rows: list[list[list[Any]]]) -> dict[str, float]:
    """The value over all processes for each name, from [name, reduction, value] of each."""
    for process, row in enumerate(rows):
        if [part[:2] for part in row] != [part[:2] for part in rows[0]]:
            raise MismatchError(
                f"report(reduce=) must be the same on every process, got {_text(rows[0])} on "
                f"process 0 and {_text(row)} on process {process}"
            )
    reduced = {}
    for place, (name, how, _) in enumerate(rows[0]):
        values = [float(row[place][2]) for row in rows]
        if any(map(math.isnan, values)):
            reduced[name] = math.nan
        else:
            reduced[name] = max(values) if how == "max" else math.fsum(values) / len(values)
    return reduced


def _text(row: list[list[Any]]) -> str:
    return str({name: how for name, how, _ in row})


@contextmanager
def _folder(given: str | os.PathLike[str] | None, process: int) -> Iterator[str | None]:
    """The folder to send: the user's, an empty one from process 0, or none."""
    if given is not None:
        yield os.fspath(given)
    elif process:
        yield None
    else:
        with tempfile.TemporaryDirectory(prefix="pyreactant-") as empty:
            yield empty
