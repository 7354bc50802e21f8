"""The script with which a VM deletes its queued resource when its time is over."""

import shlex
from pathlib import Path

from .._errors import FileError
from ._request import Request


def scripts_folder() -> Path:
    """The folder with run.sh: of the checkout, or within the installed package.

    Raises:
        FileError: It is in neither.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package.parent / "gcloud", package / "_gcloud"):
        if (folder / "expire.sh").exists():
            return folder
    raise FileError(f"gcloud/expire.sh is neither beside nor in {package}; install it again")


def startup_script(request: Request) -> str:
    """expire.sh with this request's values before it; metadata of every node."""
    text = (scripts_folder() / "expire.sh").read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    values = {"RESOURCE": request.path, "LIFETIME": str(int(request.lifetime))}
    given = "\n".join(f"{key}={shlex.quote(value)}" for key, value in values.items())
    return f"{first}\n{given}\n{rest}"
