"""The child's side of `child.ask_child`: answer one JSON request with one line of JSON.

The request is one line of standard input, and the answer goes to the original standard output; all
other output goes to standard error. If standard input closes, the parent is gone and the child
ends.
"""

import contextlib
import json
import os
import queue
import resource
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any

Request = Mapping[str, Any]
Stop = Callable[[Any], bool]
"""Sends plain JSON to the parent; returns whether the parent knows the answer already."""


def serve(answer: Callable[[Request, Stop], Mapping[str, Any]]) -> None:
    """Answer one request and end the process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort is reported; no core file
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    # Julia makes its standard input non-blocking, which a reader would take for its end.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()

    def send(message: Mapping[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    def stop(shown: Any) -> bool:
        send({"lowered": shown})
        return bool(json.loads(lines.get())["stop"])

    with contextlib.suppress(BrokenPipeError):
        send(answer(json.loads(lines.get()), stop))
    os._exit(0)  # an orderly shutdown of the runtime takes time


def _read(requests: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    for line in requests:
        lines.put(line)
    os._exit(1)
