"""The limit of open files: raised for a supervisor, as it was for its programs."""

import resource

from .._errors import RequirementError

_found: int | None = None
"""The soft limit before it was raised."""


def raise_limit(needed: int, what: str, *, spare: int = 0) -> None:
    """Raise the soft limit of open files of this process, if it is too low.

    Args:
        needed: Number of files that this process needs at the same time.
        what: What needs them, for the message.
        spare: Number of further files for which the limit is raised if that is possible.

    Raises:
        RequirementError: The hard limit is lower.
    """
    global _found
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    wanted = needed + spare if unlimited else min(needed + spare, hard)
    if not unlimited and hard < needed:
        raise RequirementError(
            f"{what} need {needed} open files, but the limit is {hard} (ulimit -Hn); raise it "
            f"with ulimit -n {needed}, or ask the administrator of this machine to"
        )
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    _found = soft if _found is None else _found


def restore_limit(pid: int) -> None:
    """Give a child the limit that this process had: some programs close or visit every number."""
    if _found is not None and hasattr(resource, "prlimit"):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (_found, hard))
        except ProcessLookupError:
            pass  # it has ended already
