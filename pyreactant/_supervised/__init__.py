"""Messages from this process to its supervisor; no-ops if `pyreactant run` did not start it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .link import Link

connection: "Link | None" = None
"""The connection to the supervisor; `main` sets it before the program starts."""


def tell(kind: str, **message: Any) -> None:
    """Send a message to the supervisor."""
    if connection is not None:
        connection.tell(kind, **message)
