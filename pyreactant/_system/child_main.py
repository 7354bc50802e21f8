"""A child process that answers one request: JSON in, JSON out.

It reads one line from standard input and writes its answer to what was its standard output; all
else that is printed goes to standard error. When standard input closes, the parent is gone, and
so is this.
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
"""Shows the parent what is known so far, as plain JSON; whether it needs no more."""


def serve(answer: Callable[[Request, Stop], Mapping[str, Any]]) -> None:
    """Answer one request and end the process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort is an answer, not a crash
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    # Julia makes its standard input one that does not block, which would look like its end here.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()

    def say(message: Mapping[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    def stop(shown: Any) -> bool:
        say({"lowered": shown})
        return bool(json.loads(lines.get())["stop"])

    with contextlib.suppress(BrokenPipeError):
        say(answer(json.loads(lines.get()), stop))
    os._exit(0)  # taking a runtime apart piece by piece takes time


def _read(requests: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    for line in requests:
        lines.put(line)
    os._exit(1)
