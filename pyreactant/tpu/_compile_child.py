"""The process that compiles for a TPU that is not here: the request of `_compile`, and an answer.

libtpu may end the process (it does so on what it did not expect), locks itself and logs as it
likes: none of that may happen in the user's process.
"""

import os
import resource
import sys
import time
import traceback
from typing import Any

from .._errors import PyReactantError
from ._compile_jax import FailedError, compile_request
from ._serve import Request, Stop, serve


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
    serve(_answer)
