"""The nodes of a Slurm job: its two compressed notations, node lists and tasks per node."""

import os
import re
from collections.abc import Mapping, Sequence

from ...base.counted import counted
from ...base.errors import InvalidArgumentError

_TIMEOUT = 10
_MAX_TASKS = 10_000_000  # more than any machine has, few enough to list
_NODE_LIST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:\[\],-]*")
_HOST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:-]*")
_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


def host_names(nodes: str, expected: int | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The host names of a node list, such as "rack[1-2]node[01-04],login".

    Slurm itself expands it, because the notation differs between its versions. ``scontrol show
    hostnames`` needs slurm.conf but does not ask the controller. It silently expands "n[07" to
    "n]", hence `expected` (both seen with Slurm 22.05).

    Args:
        nodes: The node list.
        expected: The number of hosts that the list must name; None if unknown.
        environ: Variables such as ``PATH`` and ``SLURM_CONF``, before those of this process.

    Raises:
        InvalidArgumentError: The text is not a node list, or scontrol is absent or fails.
    """
    # scontrol takes a leading "-" for an option and a leading "/" for a file.
    if not _NODE_LIST.fullmatch(nodes):
        raise InvalidArgumentError(
            f"a Slurm node list must look like 'n[1-4],login', got {nodes!r}"
        )
    names = _expanded(nodes, environ) if "[" in nodes or "]" in nodes else nodes.split(",")
    if not all(_HOST.fullmatch(name) for name in names) or len(names) != (expected or len(names)):
        required = "host names" if expected is None else counted(expected, "host name")
        raise InvalidArgumentError(
            f"Slurm's node list {nodes!r} must have {required}, got {', '.join(names) or 'none'}"
        )
    return tuple(names)


def _expanded(nodes: str, environ: Mapping[str, str]) -> Sequence[str]:
    import subprocess

    from ...base.child import output_of

    try:
        argv = ["scontrol", "show", "hostnames", nodes]
        ran = output_of(argv, env={**os.environ, **environ}, timeout=_TIMEOUT)
    except OSError as error:
        problem = f"could not be started ({error.strerror or error})"
    except subprocess.TimeoutExpired:
        problem = f"did not end within {_TIMEOUT} s"
    else:
        # Slurm 22.05 ends with 0 even if it refuses the list.
        if ran.returncode == 0 and ran.stdout.strip():
            return ran.stdout.split()
        printed = ran.stderr.strip().splitlines() or ["nothing"]
        problem = f"ended with code {ran.returncode} and printed: {printed[-1]}"
    raise InvalidArgumentError(f"the node list {nodes!r} needs Slurm's scontrol, which {problem}")


def tasks_per_node(text: str) -> tuple[int, ...]:
    """The number of tasks of each node, from "2(x3),1" (srun(1), SLURM_TASKS_PER_NODE).

    Raises:
        InvalidArgumentError: The text has another form.
    """
    counts: list[int] = []
    left = _MAX_TASKS
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        tasks, repeated = (int(match[1]), int(match[2] or 1)) if match else (0, 0)
        left -= tasks * repeated
        if tasks < 1 or repeated < 1 or left < 0:
            raise InvalidArgumentError(
                f"Slurm's tasks per node must look like '2(x3),1', got {text!r}"
            )
        counts += [tasks] * repeated
    return tuple(counts)
