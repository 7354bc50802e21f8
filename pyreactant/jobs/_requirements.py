"""The packages of ``requirements=``, installed once where the job runs."""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from .._errors import RequirementError
from .._system.folders import cache_folder
from ._record import Record, Status, private_folder, written


def install(record: Record) -> None:
    """Install the job's requirements, and let Python and its children find them.

    Raises:
        RequirementError: pip cannot install them; its last lines are in the message.
    """
    file = record.work / "requirements.txt"
    if not file.exists():
        return
    digest = hashlib.sha256(f"{sys.version}\n".encode() + file.read_bytes()).hexdigest()[:16]
    folder = cache_folder() / "requirements" / digest
    with written(folder):
        private_folder(folder.parent)
        lock = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # jobs that start together install once
        if not folder.exists():
            record.write_status(Status("starting", "installing requirements"))
            _pip(file, folder)
    finally:
        os.close(lock)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def _pip(file: Path, folder: Path) -> None:
    partial = folder.with_suffix(f".{os.getpid()}.partial")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    ran = subprocess.run(
        [*pip, "--target", str(partial), "-r", str(file)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ran.returncode:
        last = " | ".join(line for line in ran.stderr.splitlines() if line.strip())[-500:]
        raise RequirementError(
            f"pip cannot install {file} ({last}); mend the file, and submit again"
        )
    partial.mkdir(exist_ok=True)  # nothing was required
    partial.rename(folder)
