"""Messages from this process to its supervisor; no-ops if `pyreactant run` did not start it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...base.errors import code_of

if TYPE_CHECKING:
    from .link import Link

connection: "Link | None" = None
"""The connection to the supervisor; `main` sets it before the program starts."""

at_end: Callable[[int], None] | None = None
"""What `main` calls with the program's exit code before it reports that; it may raise."""

_BEGIN, _END = 4000, 8000
"""Characters of a traceback that are kept of its two ends; a message has a limit.

The end says most, unless it is the text of an exception, which can be longer than that.
"""


def tell(kind: str, **message: Any) -> None:
    """Send a message to the supervisor."""
    if connection is not None:
        connection.tell(kind, **message)


def tell_error(error: BaseException) -> None:
    """Report the exception that ends the program."""
    if connection is None:
        return
    tell(
        "error",
        exception=type(error).__name__[:200],
        message=_text(error)[:2000],
        traceback=_shortened(_traceback(error)),
        causes=_causes(error),
        code=code_of(error),
    )


def _traceback(error: BaseException) -> str:
    try:
        import traceback
    except (ImportError, OSError):  # such as a program that may not open another file
        lines, frame = ["Traceback (most recent call last):"], error.__traceback__
        while frame is not None:
            code = frame.tb_frame.f_code
            lines.append(f'  File "{code.co_filename}", line {frame.tb_lineno}, in {code.co_name}')
            frame = frame.tb_next
        return "\n".join([*lines, f"{type(error).__name__}: {_text(error)}\n"])
    return "".join(traceback.format_exception(error))


def _shortened(text: str) -> str:
    left_out = len(text) - _BEGIN - _END
    if left_out <= 0:
        return text
    return f"{text[:_BEGIN]}\n... {left_out} characters are left out ...\n{text[-_END:]}"


def _causes(error: BaseException) -> list[str]:
    """Types and messages of the exceptions that led to this one, the latest first."""
    found: list[BaseException] = []
    cause = error.__cause__ or error.__context__
    while cause is not None and cause not in found and len(found) < 5:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return [f"{type(e).__name__}: {_text(e)}"[:500] for e in found]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "<the exception has no text: its __str__ raises>"
