"""`pyreactant.log`: numbers of a program, on their way to the run's folder.

A call only queues; a thread of its own reads the arrays that are ready and sends their values to
the supervisor. So neither the devices nor the supervisor ever delay the program.
"""

import atexit
import contextlib
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...base.errors import InvalidArgumentError
from .. import supervised
from ..events import Metrics, Record
from . import profiling

REDUCTIONS = ("mean", "max")
"""What `reduce` may name."""

PERIOD = 0.1
"""Seconds between messages; longer with hundreds of processes, whose messages process 0 takes."""

_NAME_LIMIT = 200
_MESSAGE_LIMIT = 30_000
"""Longest list of records in one message, in characters; process 0 takes lines of 256 KiB."""

_Logged = tuple[int, float, str, Any, str]
"""A `Record` whose value may be an array that is not computed yet."""

_KEEP = "it must be one real number, or an array of shape () that holds one"

_queue: deque[_Logged] = deque()
_sending = threading.Lock()
_started: int | None = None
"""The process whose thread sends; a forked one starts its own."""
_index: int | None = None
_last: tuple[int, dict[str, Any]] | None = None


def log(step: int, /, *, reduce: Mapping[str, str] | None = None, **scalars: Any) -> None:
    """Record numbers of a step, such as a loss, in the run's folder.

    It never waits: neither for devices nor for other processes. Under `pyreactant run` the numbers
    appear in ``metrics.jsonl`` in the run's folder as soon as they are known, one value for each
    name and step. That is process 0's value, or a reduction over the values of all processes for
    the names in `reduce`; process 0's of those must log them too. A name that is logged twice in a
    step keeps its later value. Without `pyreactant run` nothing is recorded.

    Args:
        step: Number of the step, 0 or more.
        reduce: "mean" or "max" for some of the names, the same on every process. These names must
            be logged by every process; if some did not when the run ends, the value is over
            those that did.
        scalars: A real number for each name, or an array of shape () that holds one: a NumPy,
            JAX or `ShardedArray`. Names with other characters can be passed as
            ``**{"train/loss": loss}``. The values of JAX arrays are read once they are computed,
            so do not donate such an array afterwards; other runtimes' arrays are read by a later
            call, or at the end of the program.

    Raises:
        InvalidArgumentError: The step, a name, a value or a reduction is not of these kinds.

    Examples:
        >>> import pyreactant as pr
        >>> pr.log(3, loss=0.25, rate=1e-3, reduce={"loss": "mean"})
    """
    global _last
    if not scalars:
        raise InvalidArgumentError("log needs at least one number, such as log(step, loss=0.5)")
    if type(step) is not int:
        step = _step(step)
    if not 0 <= step < 1 << 63:
        raise InvalidArgumentError(f"step must be from 0 to 2**63 - 1, got {step}")
    if reduce:
        _check_reduce(reduce, scalars)
    now = time.time()
    for name, value in scalars.items():
        if type(value) is not float:
            scalars[name] = _admitted(name, value)
        if not 0 < len(name) <= _NAME_LIMIT:
            raise InvalidArgumentError(
                f"a name must have from 1 to {_NAME_LIMIT} characters, got {len(name)}"
            )
    _last = step, scalars
    if supervised.connection is None:
        return
    profiling.step(step)
    if _started != os.getpid():
        _start()
    for name, value in scalars.items():
        how = reduce.get(name, "") if reduce else ""
        if how or _index == 0:  # of the other numbers process 0's are the ones that count
            _queue.append((step, now, name, value, how))
    if _OfMainThread.exist:
        _read_earlier(now)


def last() -> tuple[int, dict[str, float | int]] | None:
    """Step and numbers of the latest call of `log`, once they are computed; None before one."""
    if _last is None:
        return None
    step, scalars = _last
    return step, {name: _number(value) for name, value in scalars.items()}


def flush(*, wait: bool) -> None:
    """Send what is queued.

    Args:
        wait: Whether to wait for arrays that are not computed yet; their values are lost if not.
    """
    if _started == os.getpid():
        _send(wait=wait, main=True)


class _OfMainThread:
    """An array that only the thread that logs may read, such as one that Julia holds."""

    __slots__ = ("array", "number")

    exist = False
    """Whether there was one in this process."""

    def __init__(self, array: Any) -> None:
        _OfMainThread.exist = True
        self.array = array
        self.number: float | int | None = None

    def read(self) -> float | int:
        """Its number; waits until it is computed."""
        if self.number is None:
            self.number = _from_array(self.array)
        return self.number


def _step(step: Any) -> int:
    """A step that is an integer of NumPy."""
    try:
        if isinstance(step, bool):
            raise TypeError
        return int(step.__index__())
    except (AttributeError, TypeError):
        raise InvalidArgumentError(f"step must be a whole number, got {step!r:.100}") from None


def _check_reduce(reduce: Mapping[str, str], scalars: Mapping[str, Any]) -> None:
    if not isinstance(reduce, Mapping):
        raise InvalidArgumentError(
            f'reduce must be a dict such as {{"loss": "mean"}}, got {reduce!r:.80}'
        )
    for name, how in reduce.items():
        if how not in REDUCTIONS:
            raise InvalidArgumentError(
                f"reduce must map names to {' or '.join(map(repr, REDUCTIONS))}, got {how!r} for "
                f"{name!r}"
            )
        if name not in scalars:
            raise InvalidArgumentError(
                f"reduce names {name!r}, which this call does not log; it logs {', '.join(scalars)}"
            )


def _admitted(name: str, value: Any) -> Any:
    """The value as it is queued: a number, or an array to be read later."""
    if isinstance(value, int | float):
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise InvalidArgumentError(f"{name} must fit in 64 bits, or be a float")
        return float(value) if isinstance(value, float) else int(value)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        raise InvalidArgumentError(f"{name}: {_KEEP}, got {type(value).__name__}")
    if shape != ():
        raise InvalidArgumentError(f"{name}: {_KEEP}, got shape {tuple(shape)}")
    if not _is_real(dtype):
        raise InvalidArgumentError(f"{name}: {_KEEP}, got an array of {dtype}")
    if hasattr(value, "is_ready"):  # a jax.Array
        return value
    if hasattr(value, "to_jax"):  # a ShardedArray
        inner = value.value
        return inner if hasattr(inner, "is_ready") else _OfMainThread(value)
    try:
        return _from_array(value)
    except TypeError as error:  # a key of jax.random, or an array that jit traces
        why = str(error).partition("\n")[0]
        raise InvalidArgumentError(f"{name}: {_KEEP}, got one without a value: {why}") from None


def _is_real(dtype: Any) -> bool:
    kind = getattr(dtype, "kind", "")
    return kind in "biuf" if kind != "V" else str(dtype).startswith(("bfloat", "float", "int"))


def _from_array(array: Any) -> float | int:
    import numpy as np

    number = np.asarray(array)
    return int(number) if number.dtype.kind in "biu" else float(number)


def _start() -> None:
    global _started, _index
    if _started is not None:  # this process was forked from one with a thread
        _queue.clear()
    else:
        atexit.register(flush, wait=False)  # for what exit hooks log
    _started, _index = os.getpid(), int(os.environ.get("PYREACTANT_PROCESS_INDEX") or 0)
    threading.Thread(target=_send_always, name="pyreactant metrics", daemon=True).start()


def _send_always() -> None:
    period = max(PERIOD, int(os.environ.get("PYREACTANT_NUM_PROCESSES") or 1) / 1000)
    while True:
        time.sleep(period)
        if _queue:
            _send(wait=False, main=False)


def _send(*, wait: bool, main: bool) -> None:
    """Send the records whose values are known, in order, up to the first that is not."""
    with _sending:  # also while telling, so that `flush` returns when all is sent
        for batch in _batches(_known(wait=wait, main=main)):
            supervised.tell(Metrics(tuple(batch)))


def _known(*, wait: bool, main: bool) -> Iterator[Record]:
    while _queue:
        step, at, name, value, how = _queue[0]
        if not (wait or _is_known(value, main=main)):
            return
        try:
            number: float | int | str = _number(value)
        except Exception as error:  # the array was donated, or its computation failed
            number = ""
            _lost(f"{name} of step {step} is not recorded: {type(error).__name__}: {error}")
        _queue.popleft()
        if isinstance(number, float) and not math.isfinite(number):
            number = str(number)  # JSON has no NaN
        if number != "":
            yield step, at, name, number, how


def _lost(why: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr is closed
        sys.stderr.write(f"pyreactant: {why[:500]}\n")


def _is_known(value: Any, *, main: bool) -> bool:
    if isinstance(value, int | float):
        return True
    if type(value) is _OfMainThread:
        return main or value.number is not None
    try:
        return bool(value.is_ready())
    except Exception:
        return True  # reading it says what is wrong


def _number(value: Any) -> float | int:
    if isinstance(value, int | float):
        return value
    return value.read() if type(value) is _OfMainThread else _from_array(value)


def _read_earlier(now: float) -> None:
    """Read the arrays of earlier calls that only this thread may read."""
    for _, at, _, value, _ in list(_queue):
        if type(value) is _OfMainThread and at < now:
            value.read()


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Lists of records, each short enough for one message."""
    batch: list[Record] = []
    size = 0
    for record in records:
        length = 100 + 6 * len(record[2])  # a character takes at most six in JSON
        if batch and size + length > _MESSAGE_LIMIT:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += length
    if batch:
        yield batch
