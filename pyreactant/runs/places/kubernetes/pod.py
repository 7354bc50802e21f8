"""The program of a pod: its supervisor, and what the cluster keeps of how it ended.

``python -m pyreactant.runs.places.kubernetes.pod OPTIONS`` is what `start` becomes.
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ....base.errors import ExitCode, PyReactantError, code_of
from ....base.files import read_json
from ....base.say import say
from ....process.group.cloud_tpu import megascale_of_jobset
from ...supervisor import RunOptions, supervise
from .manifest import GRACE
from .start import END, HERE

_KEPT = 4096
"""Bytes that Kubernetes keeps of a container's last message."""


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
    try:
        code = supervise(_options(json.loads(sys.argv[1])))
        end = _report(Path(HERE, "run"))
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


def _report(folder: Path) -> dict[str, Any]:
    """Cause and summary of the run's report, which only process 0 has."""
    for file in folder.glob("**/report.json"):
        report = read_json(file, "a report")
        return {"cause": report["cause"], "summary": report["summary"]}
    return {}


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
