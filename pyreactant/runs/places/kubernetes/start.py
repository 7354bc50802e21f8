"""The first program of a pod, with Python's standard library alone: the image may have no more.

It travels in a Secret, unpacks what is beside it and what is too large for a Secret, lets pip
install what the image lacks, and becomes `pod`.
"""

import glob
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from typing import NoReturn

SENT = "/var/run/pyreactant/sent"
"""Where the pod has what the Secrets hold."""
HERE = "/var/run/pyreactant/here"
"""The pod's own folder, which is empty at each start."""
END = "/var/run/pyreactant/end.json"
"""The file whose content Kubernetes keeps when the container has ended."""
STORED = "stored"
"""The file of `work` that names an object with the rest of `work`, which fits in no Secret."""


def main() -> None:
    """Unpack, install, and become `pod`."""
    os.dup2(1, 2)  # lines of two streams would not come in the order of their times
    if sys.version_info < (3, 11):  # noqa: UP036 - the Python of the image
        version = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"pyreactant: the image must have Python 3.11 or later, and has {version}")
    for archive in ("pyreactant", "work"):
        with tarfile.open(f"{SENT}/{archive}.tar.bz2") as opened:
            opened.extractall(HERE)  # noqa: S202 - of the submitting user
    sys.path.insert(0, HERE)
    from pyreactant.base.errors import ExitCode, PyReactantError, code_of

    # The first process of a container ignores a signal for which it has no handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.LOST))
    try:
        fetch()
    except PyReactantError as error:
        end(str(error), code_of(error))
    if not os.access(os.environ.get("HOME", "/"), os.W_OK):
        os.environ["HOME"] = HERE
    if not install():
        text = (
            "pip cannot install what the program needs (its own words are in the log); use an "
            "image that has it, or name an index that the pods reach, by --index-url"
        )
        end(text, ExitCode.MISSING)
    installed = glob.glob(f"{HERE}/packages/**/*-packages", recursive=True)  # noqa: PTH207 - 3.8
    path = [HERE, *installed, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    os.chdir(HERE)
    pod = "pyreactant.runs.places.kubernetes.pod"
    os.execv(sys.executable, [sys.executable, "-m", pod, *sys.argv[1:]])  # noqa: S606


def fetch() -> None:
    """Unpack what is too large for a Secret."""
    from pyreactant.base.storage import Folder, login_of_machine

    if os.path.exists(f"{HERE}/work/{STORED}"):  # noqa: PTH110 - 3.8
        with open(f"{HERE}/work/{STORED}") as named, tempfile.TemporaryFile(dir=HERE) as content:  # noqa: PTH123
            Folder(sys.argv[2], login_of_machine).get(named.read(), content)
            with tarfile.open(fileobj=content) as opened:
                opened.extractall(HERE)  # noqa: S202 - of the submitting user


def install() -> bool:
    """Let pip install what the image lacks of the requirements; false if it cannot."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    into = ["--no-cache-dir", "--prefix", f"{HERE}/packages", "-r", f"{SENT}/requirements.txt"]
    return not subprocess.run([*pip, *into], stdin=subprocess.DEVNULL, check=False).returncode


def end(text: str, code: int) -> NoReturn:
    """End with an error, which the cluster keeps, too."""
    with open(END, "w") as kept:  # noqa: PTH123 - 3.8
        json.dump({"exit_code": int(code), "summary": text}, kept)
    print(f"pyreactant: error: {text}", file=sys.stderr, flush=True)  # noqa: T201
    sys.exit(code)


if __name__ == "__main__":
    main()
