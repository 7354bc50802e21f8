"""What Slurm says about all jobs of this user, asked at most every two seconds."""

import json
import subprocess
import time
from typing import NamedTuple

from .._errors import RequirementError
from .._system.files import replacing
from ._record import jobs_folder, private_file, private_folder

INTERVAL = 2.0
"""Seconds between two questions to the controller, by all processes of this user together."""


class Row(NamedTuple):
    """One job in Slurm: its number, name, state, and why it waits."""

    number: int
    name: str
    state: str
    reason: str


def queue(*, fresh: bool = False) -> list[Row]:
    """The jobs of this user that Slurm knows.

    Args:
        fresh: Whether to ask even if the last answer is young.

    Raises:
        RequirementError: squeue is absent, or the controller does not answer.
    """
    file = jobs_folder() / ".slurm.json"
    if not fresh:
        try:
            saved = json.loads(file.read_bytes())
            if 0 <= time.time() - saved["at"] < INTERVAL:
                return [Row(*row) for row in saved["rows"]]
        except (OSError, ValueError, KeyError, TypeError):
            pass  # nobody has asked, or another version did
    rows = _ask()
    private_folder(jobs_folder())
    with replacing(file) as partial, private_file(partial) as opened:
        opened.write(json.dumps({"at": time.time(), "rows": rows}).encode())
    return rows


def _ask() -> list[Row]:
    argv = ["squeue", "--me", "--noheader", "--states=all", "--format=%A|%T|%r|%j"]
    try:
        ran = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=30,
        )
    except FileNotFoundError:
        raise RequirementError(
            "squeue is not installed on this machine; ask on a login node of the cluster"
        ) from None
    except subprocess.TimeoutExpired:
        raise RequirementError("Slurm's controller does not answer; try again later") from None
    if ran.returncode:
        raise RequirementError(f"Slurm's controller does not answer: {ran.stderr.strip()}")
    rows = []
    for line in ran.stdout.splitlines():
        number, state, reason, name = line.split("|", 3)
        rows.append(Row(int(number), name, state, "" if reason == "None" else reason))
    return rows
