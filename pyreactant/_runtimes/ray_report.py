"""`pyreactant.report`: logged numbers and a checkpoint for Ray Train."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._errors import FileError, InvalidArgumentError, StateError
from .._supervised import metrics
from .collective import everywhere
from .ray_train import train_module
from .runtime import current


def report(step: int, /, *, checkpoint: str | os.PathLike[str] | None = None) -> None:
    """Send the numbers that `log` recorded last to Ray Train, with a checkpoint. Collective.

    Every worker of a train loop calls it the same number of times; Ray Train waits for all of
    them. `result.metrics` of the trainer are then process 0's numbers and the step. Ray Train keeps
    metrics only together with a checkpoint, so without a folder process 0 sends an empty one.

    Args:
        step: Number of the step, the same on every process.
        checkpoint: Folder that Ray Train copies to its storage, which every machine must reach.
            Folders of several processes become one. None for no files of this process.

    Raises:
        StateError: This is not a train loop of Ray Train.
        FileError: The folder of some process does not exist.
        InvalidArgumentError: The step is not a whole number.

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
        return {**(logged[1] if logged else {}), "step": step}

    running = current()
    # Before the barrier in Ray, where a process that raised would leave the others waiting.
    numbers = everywhere(running.backend, running.group, "report", prepare)
    with _folder(checkpoint, running.group.process_index) as folder:
        sent = None if folder is None else train.Checkpoint.from_directory(folder)
        train.report(numbers, checkpoint=sent)


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
