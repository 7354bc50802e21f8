"""The numbers that programs log: one value for each name and step, in the run's folder.

TensorBoard's own library writes them as its event files, too, if that is asked for.
"""

import contextlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from ...base.errors import FileError, RequirementError
from ...process.events import Record

FILE = "metrics.jsonl"
"""The file in the run's folder."""

_WAITING = 100_000
"""Names and steps whose reduction may wait for more processes; beyond it the oldest is written."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run.

    Attributes:
        step: Step of the program.
        name: Such as "loss".
        value: Process 0's value, or the reduction over the processes; NaN and infinities too.
        time: When it was logged, in seconds since 1970 (UTC); with a reduction, the latest.
        reduce: "mean" or "max"; None if `value` is process 0's.
        processes: Number of processes whose values are in `value`.
    """

    step: int
    name: str
    value: float | int
    time: float
    reduce: str | None = None
    processes: int = 1

    def to_line(self) -> str:
        """A line of the file, without its end: a JSON object; NaN and infinities are texts."""
        data = asdict(self)
        if self.reduce is None:
            del data["reduce"], data["processes"]
        if isinstance(self.value, float) and not math.isfinite(self.value):
            data["value"] = str(self.value)
        return json.dumps(data, allow_nan=False)


def parse_metric(line: str | bytes) -> Metric | None:
    """The metric in a line of the file; None for a line that is damaged or not complete."""
    try:
        data = json.loads(line)
        step, value = data["step"], data["value"]
        if isinstance(value, str):
            value = float(value)
        if type(step) is not int or type(value) not in (int, float):
            return None
        return Metric(
            step,
            str(data["name"]),
            value,
            float(data["time"]),
            data.get("reduce"),
            int(data.get("processes", 1)),
        )
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError):
        return None


def read_metrics(folder: Path) -> list[Metric]:
    """The metrics of a run, by step, and within a step in the order in which they were written.

    The run may still be going on. A number that was logged again, such as after a restart, has
    its latest value.

    Args:
        folder: The run's folder.

    Returns:
        One metric for each name and step; empty if the program has logged nothing.

    Raises:
        FileError: The file cannot be read.

    Examples:
        >>> for metric in read_metrics(Path("out")):
        ...     print(metric.step, metric.name, metric.value)
    """
    try:
        lines = (folder / FILE).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileError(f"{folder / FILE}: cannot be read ({error.strerror})") from None
    latest: dict[tuple[int, str], Metric] = {}
    for line in lines:
        metric = parse_metric(line) if line.endswith(b"\n") else None
        if metric is not None:
            latest[metric.step, metric.name] = metric
    return sorted(latest.values(), key=lambda m: m.step)


class MetricsFile:
    """Process 0's collection of the numbers that all processes log."""

    def __init__(self, folder: Path, processes: int, *, tensorboard: bool = False) -> None:
        self._error: str | None = None
        self._path, self._processes = folder / FILE, processes
        self._tensorboard = TensorBoard(folder) if tensorboard else None
        self._file: TextIO | None = None
        # Several of one name and step if it is logged again before all processes have logged it.
        self._waiting: dict[tuple[int, str], list[_Reduction]] = {}

    def take(self, process: int, records: Iterable[Record]) -> None:
        """Take the records of one process."""
        done = []
        for step, at, name, value, how in records:
            number = float(value) if isinstance(value, str) else value
            metric = Metric(step, name, number, at, how or None)
            if metric.reduce is not None:
                done += self._reduce(process, metric)
            elif process == 0:
                done.append(metric)
        self._write(done)

    def restarted(self, processes: int) -> None:
        """Write what still waits for processes, whose number is now this one."""
        self._finish()
        self._processes = processes

    def _finish(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._write([each.result() for several in waiting.values() for each in several])

    def close(self) -> str | None:
        """Write everything and close the file; return why not everything could be written."""
        self._finish()
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._fail(error)
        errors = [self._error, self._tensorboard and self._tensorboard.close()]
        return "; ".join(error for error in errors if error) or None

    def _fail(self, error: OSError) -> None:
        """Write no more; what the file has not taken is dropped."""
        self._error = f"{self._path}: {error.strerror}"
        if self._file is not None:
            with contextlib.suppress(OSError):  # it tries once more
                self._file.close()
        self._file = None

    def _reduce(self, process: int, metric: Metric) -> list[Metric]:
        """What is complete, or waits for too long, with one more value."""
        key = metric.step, metric.name
        several = self._waiting.setdefault(key, [])
        reduction = next((each for each in several if process not in each.values), None)
        if reduction is None:
            several.append(reduction := _Reduction(metric.reduce))
        reduction.values[process] = metric
        if len(reduction.values) == self._processes:
            several.remove(reduction)
            if not several:
                del self._waiting[key]
            return [reduction.result()]
        if len(self._waiting) > _WAITING:
            oldest = self._waiting.pop(next(iter(self._waiting)))
            return [each.result() for each in oldest]
        return []

    def _write(self, metrics: Sequence[Metric]) -> None:
        if not metrics:
            return
        if self._tensorboard is not None:
            self._tensorboard.add(metrics)
        if self._error is not None:
            return
        try:
            if self._file is None:
                self._file = self._path.open("a", encoding="utf-8", errors="backslashreplace")
            self._file.write("".join(metric.to_line() + "\n" for metric in metrics))
            self._file.flush()
        except OSError as error:  # the disk is full; the run goes on
            self._fail(error)


class _Reduction:
    """The values of one name and step, by process."""

    def __init__(self, how: str | None) -> None:
        self.how = how
        self.values: dict[int, Metric] = {}

    def result(self) -> Metric:
        metrics = [self.values[process] for process in sorted(self.values)]
        numbers = [metric.value for metric in metrics]
        if any(math.isnan(number) for number in numbers):
            value: float | int = math.nan
        elif self.how == "max":
            value = max(numbers)
        else:
            value = _mean(numbers)
        latest = max(metric.time for metric in metrics)
        first = metrics[0]
        return Metric(first.step, first.name, value, latest, self.how, len(metrics))


def _mean(numbers: Sequence[float | int]) -> float:
    """The mean in float64; NaN of both infinities."""
    try:
        return math.fsum(numbers) / len(numbers)
    except (OverflowError, ValueError):  # the sum is beyond float64, or inf - inf
        return sum(float(number) / len(numbers) for number in numbers)


TENSORBOARD = "tensorboard"
"""The folder of the event files, in the run's folder."""


class TensorBoard:
    """TensorBoard's files: ``tensorboard --logdir FOLDER`` shows them, also during the run."""

    def __init__(self, folder: Path) -> None:
        self.error: str | None = None
        self._folder = folder / TENSORBOARD
        self._writer: Any = None

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


def check_tensorboard() -> None:
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
