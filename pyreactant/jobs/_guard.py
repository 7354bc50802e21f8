"""While a worker imports the file of its function, that file must not start jobs."""

from .._errors import StateError

importing: str | None = None
"""The function whose file this worker imports now."""


def check_not_importing() -> None:
    """Check that this call does not come from the top level of a file that a worker imports.

    Raises:
        StateError: It does: the worker would start a job, whose workers start jobs.
    """
    if importing is not None:
        raise StateError(
            f"a job was started while a worker imports the file of {importing}: calls at the top "
            'level of that file must stand below `if __name__ == "__main__":`'
        )
