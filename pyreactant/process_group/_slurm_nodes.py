"""Slurm's two compressed notations: node lists and tasks per node."""

import os
import re
from collections.abc import Mapping, Sequence

from .._errors import InvalidArgumentError

_TIMEOUT = 10
_MOST_TASKS = 10_000_000  # more than any machine has, few enough to be listed
_NODE_LIST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:\[\],-]*")
_HOST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:-]*")
_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


def host_names(nodes: str, expected: int | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The host names of a node list, such as "rack[1-2]node[01-04],login".

    Slurm itself expands it, as what it writes and reads differs between its versions. ``scontrol
    show hostnames`` reads slurm.conf, so that must be there, but asks no controller. It takes
    "n[07" for "n]" without a word, hence `expected` (both seen with Slurm 22.05).

    Args:
        nodes: The node list.
        expected: How many hosts it must name, where that is known.
        environ: Where ``PATH`` and ``SLURM_CONF`` come from, if not from this process.

    Raises:
        InvalidArgumentError: It is no node list, or scontrol is absent or fails.
    """
    # scontrol would take a leading "-" for an option and a leading "/" for a file.
    if not _NODE_LIST.fullmatch(nodes):
        raise InvalidArgumentError(
            f"a Slurm node list must look like 'n[1-4],login', got {nodes!r}"
        )
    names = _expanded(nodes, environ) if "[" in nodes or "]" in nodes else nodes.split(",")
    if not all(_HOST.fullmatch(name) for name in names) or len(names) != (expected or len(names)):
        wanted = "host names" if expected is None else f"{expected} host names"
        raise InvalidArgumentError(
            f"Slurm's node list {nodes!r} must be of {wanted}, got {', '.join(names) or 'none'}"
        )
    return tuple(names)


def _expanded(nodes: str, environ: Mapping[str, str]) -> Sequence[str]:
    import subprocess

    try:
        ran = subprocess.run(  # noqa: S603 - checked above; scontrol as the user's PATH says
            ["scontrol", "show", "hostnames", nodes],  # noqa: S607
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except OSError as error:
        problem = f"could not be started ({error.strerror or error})"
    except subprocess.TimeoutExpired:
        problem = f"did not end within {_TIMEOUT} s"
    else:
        # For a list that it refuses, 22.05 says so and ends with 0.
        if ran.returncode == 0 and ran.stdout.strip():
            return ran.stdout.split()
        said = ran.stderr.strip().splitlines() or ["nothing"]
        problem = f"ended with {ran.returncode} and said: {said[-1]}"
    raise InvalidArgumentError(f"the node list {nodes!r} needs Slurm's scontrol, which {problem}")


def tasks_per_node(text: str) -> tuple[int, ...]:
    """How many tasks each node has, from "2(x3),1" (srun(1), SLURM_TASKS_PER_NODE).

    Raises:
        InvalidArgumentError: It has another form.
    """
    found: list[int] = []
    left = _MOST_TASKS
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        tasks, repeated = (int(match[1]), int(match[2] or 1)) if match else (0, 0)
        left -= tasks * repeated
        if tasks < 1 or repeated < 1 or left < 0:
            raise InvalidArgumentError(
                f"Slurm's tasks per node must look like '2(x3),1', got {text!r}"
            )
        found += [tasks] * repeated
    return tuple(found)
