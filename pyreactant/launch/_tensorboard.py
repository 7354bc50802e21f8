"""TensorBoard event files of a run's metrics, written by TensorBoard's own library."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._errors import RequirementError
from ._metrics import Metric

FOLDER = "tensorboard"
"""The folder of the event files, in the run's folder."""


class TensorBoard:
    """A sink of metrics: ``tensorboard --logdir FOLDER`` shows them, also while the run goes on.

    Args:
        folder: The run's folder.

    Raises:
        RequirementError: TensorBoard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.error: str | None = None
        self._folder = folder / FOLDER
        self._writer: Any = None
        check()

    def add(self, metrics: Sequence[Metric]) -> None:
        """Write metrics; after an error of the disk nothing more is written."""
        import numpy as np

        if self.error is not None:
            return
        try:
            if self._writer is None:
                from tensorboard.summary import Writer

                self._writer = Writer(str(self._folder))
            with np.errstate(over="ignore"):  # the files hold float32
                for metric in metrics:
                    self._writer.add_scalar(
                        metric.name.encode(errors="replace").decode(),
                        metric.value,
                        metric.step,
                        wall_time=metric.time,
                        description=metric.reduce and f"{metric.reduce} over all processes",
                    )
            self._writer.flush()
        except OSError as error:
            self.error = f"{self._folder}: {error.strerror}"

    def close(self) -> str | None:
        """Write what is held back; return why not everything could be written."""
        if self._writer is not None and self.error is None:
            try:
                self._writer.close()
            except OSError as error:
                self.error = f"{self._folder}: {error.strerror}"
        return self.error


def check() -> None:
    """Check that TensorBoard is installed.

    Raises:
        RequirementError: It is not.
    """
    try:
        import tensorboard.summary  # noqa: F401
    except ImportError as error:
        raise RequirementError(
            f"TensorBoard's event files need the package tensorboard, which cannot be imported "
            f"({error}); install it with: python -m pip install 'pyreactant[metrics]'"
        ) from error
