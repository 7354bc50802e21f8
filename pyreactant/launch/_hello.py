"""The first message of a process in the roll-call."""

import os
import socket
from collections.abc import Mapping
from typing import Any

from .._errors import PyReactantError


def hello(
    index: int, count: int, facts: Mapping[str, str], error: PyReactantError | None = None
) -> dict[str, Any]:
    """The first message of a process.

    Args:
        index: Process index.
        count: Number of processes of the run, as this process knows it.
        facts: Versions and settings, to compare with those of the others.
        error: Why this process cannot start its program.
    """
    message: dict[str, Any] = {
        "type": "join",
        "process": index,
        "num_processes": count,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "facts": facts,
    }
    if error is not None:
        message["cannot_start"] = {"message": str(error), "code": error.exit_code}
    return message
