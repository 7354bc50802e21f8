"""The process that compiles for a TPU that is not here: JSON in, JSON out.

It reads one line from standard input, the request of `_compile`, and writes one, the answer, to
what was its standard output; all else that is printed goes to standard error. libtpu may end the
process (it does so on what it did not expect), locks itself and logs as it likes: none of that
may happen in the user's process. When standard input closes, the parent is gone, and so is this.
"""

import contextlib
import json
import os
import queue
import resource
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

from .._errors import PyReactantError
from ._compile_jax import FailedError, Request, Stop, compile_request


def main() -> None:
    """Answer one request and end."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # libtpu's aborts are answers, not crashes
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()

    def say(answer: Mapping[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    def stop(digest: str) -> bool:
        say({"lowered": digest})
        return bool(json.loads(lines.get())["stop"])

    with contextlib.suppress(BrokenPipeError):
        say(_answer(json.loads(lines.get()), stop))
    os._exit(0)  # taking JAX apart piece by piece takes 0.1 s


def _read(lines: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(1)


def _answer(request: Request, stop: Stop) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        answer = compile_request(request, stop)
        return {"answer": answer and {**answer, "compiler_bytes": _peak_bytes()}}
    except FailedError as failed:
        error = failed.error
        return {
            "failed": failed.step,
            "type": type(error).__name__,
            "message": str(error),
            "ours": isinstance(error, PyReactantError),
            "dynamic": _is_dynamic(error),
            "where": _where(error),
            "seconds": time.perf_counter() - start,
            "compiler_bytes": _peak_bytes(),
        }


def _peak_bytes() -> int:
    """The most memory that this process had; Linux and macOS count in other units."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _is_dynamic(error: BaseException) -> bool:
    """Whether a shape would depend on values."""
    kinds = (
        "ConcretizationTypeError",
        "NonConcreteBooleanIndexError",
        "TracerIntegerConversionError",
    )
    return any(kind.__name__ in kinds for kind in type(error).__mro__)


def _where(error: BaseException) -> str:
    """The last line of the user's own code on the way to the error."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(f"{os.sep}{name}{os.sep}" in frame.filename for name in ("jax", "pyreactant"))
    ]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


if __name__ == "__main__":
    main()
