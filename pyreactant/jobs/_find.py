"""The ids of all jobs of this user, and the job with an id."""

import os
import re

from .._errors import FileError, InvalidArgumentError
from ._record import Record, jobs_folder, load


def find(name: str) -> Record:
    """The job of that id; the beginning or the end of an id is enough if only one job has it.

    Raises:
        InvalidArgumentError: It is no id, or several jobs have it.
        FileError: There is no such job; or as `load`.
    """
    if not re.fullmatch(r"[-\w]+", name):
        raise InvalidArgumentError(
            f"a job id is like 20261122-204500-3f9a, or the beginning or end of one, got {name!r}"
        )
    if (jobs_folder() / name).is_dir():
        return load(jobs_folder() / name)
    found = [one for one in names() if one.startswith(name) or one.endswith(name)]
    if len(found) > 1:
        some = ", ".join(found[:4])
        raise InvalidArgumentError(f"{len(found)} jobs have an id like {name}: {some}; write more")
    if not found:
        raise FileError(
            f"there is no job {name} in {jobs_folder()}; pyreactant jobs list shows all jobs"
        )
    return load(jobs_folder() / found[0])


def names() -> list[str]:
    """The ids of all jobs of this user, the earliest first.

    Raises:
        FileError: The folder of all jobs cannot be read.
    """
    try:
        with os.scandir(jobs_folder()) as entries:
            return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileError(f"{jobs_folder()} cannot be read ({error.strerror})") from None
