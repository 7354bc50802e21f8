"""The first program of a pod, with Python's standard library alone: the image may have no more.

It travels in a Secret, unpacks what is beside it, lets pip install what the image lacks, and
becomes `pod`.
"""

import glob
import os
import signal
import subprocess
import sys
import tarfile

SENT = "/var/run/pyreactant/sent"
"""Where the pod has what the Secrets hold."""
HERE = "/var/run/pyreactant/here"
"""The pod's own folder, which is empty at each start."""
END = "/var/run/pyreactant/end.json"
"""The file whose content Kubernetes keeps when the container has ended."""


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
    from pyreactant.base.errors import ExitCode

    # The first process of a container ignores a signal for which it has no handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.LOST))
    if not os.access(os.environ.get("HOME", "/"), os.W_OK):
        os.environ["HOME"] = HERE
    if not install():
        sys.exit(ExitCode.MISSING)
    installed = glob.glob(f"{HERE}/packages/**/*-packages", recursive=True)  # noqa: PTH207 - 3.8
    path = [HERE, *installed, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    os.chdir(HERE)
    pod = "pyreactant.runs.places.kubernetes.pod"
    os.execv(sys.executable, [sys.executable, "-m", pod, *sys.argv[1:]])  # noqa: S606


def install() -> bool:
    """Let pip install what the image lacks of the requirements; false if it cannot."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    into = ["--no-cache-dir", "--prefix", f"{HERE}/packages", "-r", f"{SENT}/requirements.txt"]
    ran = subprocess.run([*pip, *into], stdin=subprocess.DEVNULL, check=False)
    if ran.returncode:
        text = (
            "pip cannot install what the program needs (its own words are above); use an image "
            "that has it, or name an index that the pods reach, by --index-url"
        )
        print(f"pyreactant: error: {text}", file=sys.stderr, flush=True)  # noqa: T201
    return not ran.returncode


if __name__ == "__main__":
    main()
