"""The program of a pod: its supervisor, and what the cluster keeps of how it ended.

``python -m pyreactant.runs.places.kubernetes.pod OPTIONS [FOLDER]`` is what `start` becomes.
"""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ....base.errors import (
    ExitCode,
    InvalidArgumentError,
    PyReactantError,
    argument,
    code_of,
)
from ....base.say import say
from ....base.settings import JOB_RESTARTS
from ....base.storage import Folder, login_of_machine
from ....process.group import resolve
from ....process.group.cloud_tpu import megascale_of_jobset
from ....process.group.group import env_int
from ...record import report_in
from ...supervisor import RunOptions, supervise
from ...supervisor.metrics import FILE as METRICS
from ...supervisor.options import run_folder
from .brought import MOST, TooLargeError, sent
from .manifest import GRACE, ON_FAILURE
from .start import END, HERE

_KEPT = 4096
"""Bytes that Kubernetes keeps of a container's last message."""
_LATER = 5.0
"""Seconds in which the cluster sees that another pod has ended."""


def main() -> None:
    """Supervise the process of this pod, and end with the exit code of the run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.LOST))
    for name, value in megascale_of_jobset(os.environ).items():
        if name in os.environ:
            say(
                f"{name}={os.environ[name]} is not what the JobSet says; it is {value or 'unset'} "
                "from now on"
            )
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    end: dict[str, Any] = {}
    folder, store = Path(HERE, "run"), sys.argv[2:]
    stored = Folder(store[0], login_of_machine) if store else None
    signals, into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(into)  # the supervisor handles them, and does not say which came
    try:
        first = resolve().process_index == 0
        if first and stored:
            stored.check()
        code = supervise(_options(json.loads(sys.argv[1])))
        if first:
            own = run_folder(folder, env_int(JOB_RESTARTS) or 0)
            end = _report(own)
            _send(own, stored)
        alone = any(folder.glob("**/report-process-*"))
        asked = signal.SIGTERM in _read(signals)
        code, wait = end_of(code, first=first, alone=alone, asked=asked)
        time.sleep(wait)
    except PyReactantError as error:
        say(f"error: {error}")
        code = code_of(error)
        end = {"summary": str(error)}
    _keep({"exit_code": int(code), **end})
    sys.exit(code)


def _options(given: dict[str, Any]) -> RunOptions:
    program = ["-m", "pyreactant.runs.worker", f"{HERE}/work", f"{HERE}/out"]
    return RunOptions(
        program=program,
        folder=Path(HERE, "run"),
        grace=GRACE,
        quiet=True,
        all_output=True,
        **given,
    )


def end_of(code: int, *, first: bool, alone: bool, asked: bool) -> tuple[int, float]:
    """The exit code of this pod, and the seconds until it ends.

    The first pod that fails decides what becomes of the run, and the cluster then removes the other
    pods of its Job that still run, with their logs. So after a failure of the program only that of
    process 0 fails, once the others have ended. After a loss a pod that was asked to end comes
    first, of which the cluster knows whether its node was drained; then that of process 0, which
    has the report.

    Args:
        code: The exit code of the run.
        first: Whether this is process 0's pod.
        alone: Whether process 0 was not reached, so that its pod may not say it.
        asked: Whether the cluster has asked this pod to end.
    """
    if code not in ON_FAILURE:
        return code, 0.0 if not code or asked else _LATER if first else 2 * _LATER
    if first or alone:
        return code, _LATER
    return ExitCode.DONE, 0.0


def _read(signals: int) -> bytes:
    """The numbers of the signals that came."""
    try:
        return os.read(signals, 1 << 12)
    except BlockingIOError:
        return b""


def _report(folder: Path) -> dict[str, Any]:
    """Cause and summary of the run's report; none if it could not be written."""
    if report := report_in(folder):
        return {"cause": report["cause"], "summary": report["summary"]}
    return {}


def _send(folder: Path, stored: Folder | None) -> None:
    """Send report, metrics and value to whoever reads the log; what is too large is left out.

    Raises:
        InvalidArgumentError: The value is too large.
        PyReactantError: The value cannot be stored.
    """
    files = {name: folder / name for name in ("report.json", METRICS)}
    files["value"] = Path(HERE, "out", "value")
    trouble: PyReactantError | None = None
    for left_out in ((), (METRICS,), ("value",), ("value", METRICS)):
        try:
            lines = sent({n: path for n, path in files.items() if n not in left_out}, stored)
        except TooLargeError as error:
            trouble = trouble or InvalidArgumentError(
                f"the value of a function must have at most {MOST >> 20} MiB when it is packed, "
                f"and has {error}; name a bucket for it by {argument('store')}, or write it to a "
                "volume, and return its path"
            )
        except PyReactantError as error:
            trouble, stored = error, None
        else:
            sys.stdout.buffer.writelines(lines)
            sys.stdout.buffer.flush()
            break
    if METRICS in left_out:
        say(f"the metrics do not come back: all that does has at most {MOST >> 20} MiB")
    if "value" in left_out and trouble is not None:
        raise trouble


def _keep(end: dict[str, Any]) -> None:
    """Leave a message that outlives the container's log."""
    room = _KEPT - len(json.dumps({**end, "summary": ""}))
    summary = str(end.get("summary", ""))
    while len(json.dumps(summary)) > room:
        summary = summary[: len(summary) * 9 // 10]
    with contextlib.suppress(OSError):  # the exit code says it, too
        Path(END).write_text(json.dumps({**end, "summary": summary}))


if __name__ == "__main__":
    main()
