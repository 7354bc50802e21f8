"""Every environment variable whose name begins with PYREACTANT_, and the check for misspelt ones.

A misspelt name would have no effect: with PYREACTANT_NUM_PROCESES each process would run alone.
"""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from .errors import InvalidArgumentError

PREFIX = "PYREACTANT_"

# Those that describe the group of processes.
COUNT = "PYREACTANT_NUM_PROCESSES"
INDEX = "PYREACTANT_PROCESS_INDEX"
COORDINATOR = "PYREACTANT_COORDINATOR_ADDRESS"
LOCAL_DEVICES = "PYREACTANT_LOCAL_DEVICE_IDS"
JOB_INDEX = "PYREACTANT_JOB_INDEX"
JOB_REPLICAS = "PYREACTANT_JOB_REPLICAS"
JOB_HOST = "PYREACTANT_JOB_HOST"
JOB_RESTARTS = "PYREACTANT_JOB_RESTARTS"

COMPILE_CACHE = "PYREACTANT_COMPILE_CACHE"
"""The folder of compiled programs."""
PROFILE = "PYREACTANT_PROFILE"
REPLAY_EVERY = "PYREACTANT_REPLAY_EVERY"
JOB = "PYREACTANT_JOB"
"""The id of the job, in every process of it."""
STALL_TIMEOUT = "PYREACTANT_STALL_TIMEOUT"
DESCRIPTORS = "PYREACTANT_SUPERVISOR_FDS"
"""Two file descriptors of a program: for messages to its supervisor, and for Python stacks."""


class Setting(NamedTuple):
    """One environment variable.

    Attributes:
        meaning: What it sets, in one line.
        reader: Whose setting it is: a key of `READERS`.
    """

    meaning: str
    reader: str


READERS = {
    "process": "Read by every process",
    "program": "Set by the supervisor for its programs",
    "slurm": "Read by `slurm/main.sbatch`",
    "gcloud": "Read by the scripts in `gcloud/`",
    "tests": "Read only by the tests and CI of this repository",
}
"""Groups of the table, each with its heading."""

SETTINGS = {
    "PYREACTANT_BACKEND": Setting("runtime: jax (the default) or reactant", "process"),
    "PYREACTANT_PLATFORM": Setting("cpu, gpu or tpu; the best available if unset", "process"),
    "PYREACTANT_NUM_CPU_DEVICES": Setting("virtual CPU devices of this process", "process"),
    COUNT: Setting("number of processes of the run", "process"),
    INDEX: Setting("number of this process, from 0", "process"),
    COORDINATOR: Setting("host:port of process 0", "process"),
    LOCAL_DEVICES: Setting(
        "GPUs, such as 0,1; a supervisor divides them among its processes", "process"
    ),
    JOB_INDEX: Setting("index of this replica of a JobSet", "process"),
    JOB_REPLICAS: Setting("number of replicas of a JobSet", "process"),
    JOB_HOST: Setting("host of process 0 of a JobSet, without a port", "process"),
    JOB_RESTARTS: Setting("how often a JobSet was started again", "process"),
    COMPILE_CACHE: Setting(
        "folder in which every process keeps what it compiled, for the next start", "process"
    ),
    REPLAY_EVERY: Setting(
        "every how many calls a compiled program is called twice, to compare the bits", "process"
    ),
    "PYREACTANT_GUARD": Setting("0 switches the guard off", "process"),
    "PYREACTANT_SECRET": Setting("secret that admits processes to the run", "process"),
    "PYREACTANT_SECRET_FILE": Setting("file with the secret of the run", "process"),
    "PYREACTANT_MTLS": Setting("0 switches the run's mutual TLS off", "process"),
    "PYREACTANT_DEBUG": Setting("1 shows the tracebacks of commands", "process"),
    "PYREACTANT_RESTART_COUNT": Setting("how often the run was restarted or requeued", "program"),
    "PYREACTANT_MEETING_SECRET": Setting("secret of the meeting of the processes", "program"),
    "PYREACTANT_STALL_TIMEOUT": Setting("seconds until a silent process is reported", "program"),
    "PYREACTANT_SUPERVISOR_FDS": Setting("connection to the supervisor", "program"),
    "PYREACTANT_RUN": Setting("mark of the run's processes, by which it ends them", "program"),
    PROFILE: Setting("steps to profile, their number, and the folder", "program"),
    JOB: Setting("id of the job, in all of its processes", "program"),
    "PYREACTANT_BACKENDS": Setting("runtimes, one step each; all that can start", "slurm"),
    "PYREACTANT_PROGRAM": Setting("program if the command line has none", "slurm"),
    "PYREACTANT_PROGRAMS": Setting("programs to cross-check, or --all", "slurm"),
    "PYREACTANT_SIZE": Setting("size of the cross-check's arrays", "slurm"),
    "PYREACTANT_MESH": Setting("mesh of the cross-check, such as x=8,y=2", "slurm"),
    "PYREACTANT_SPEC": Setting("partition spec of the cross-check, such as x,y", "slurm"),
    "PYREACTANT_DTYPE": Setting("element type of the cross-check", "slurm"),
    "PYREACTANT_OUTPUT": Setting("output folder, which all nodes share", "slurm"),
    "PYREACTANT_MAX_REQUEUES": Setting(
        "maximum number of requeues at the time limit; 0 if unset. After the failure of a node "
        "Slurm requeues the job by itself: `sbatch --no-requeue` forbids it",
        "slurm",
    ),
    "PYREACTANT_START_TIMEOUT": Setting("seconds to wait for the other tasks; 300", "slurm"),
    "PYREACTANT_GRACE": Setting("seconds between SIGTERM and SIGKILL; 20", "slurm"),
    "PYREACTANT_SLURM_FOLDER": Setting("folder of main.sbatch and step.sh", "slurm"),
    "PYREACTANT_GIT_DIFF": Setting("1 keeps the changes since the commit, as git.diff", "slurm"),
    "PYREACTANT_PYTHON": Setting("Python executable, also for `gcloud/run.sh`", "slurm"),
    "PYREACTANT_METADATA": Setting("address of the metadata server", "gcloud"),
    "PYREACTANT_TPU_API": Setting("address of the Cloud TPU API", "gcloud"),
    "PYREACTANT_STATE_FOLDER": Setting("folder with the time of a worker's start", "gcloud"),
    "PYREACTANT_EXPIRE_PAUSE": Setting("seconds between attempts to delete a slice", "gcloud"),
    "PYREACTANT_ANSWER_LIMIT": Setting("seconds that a VM waits for one answer", "gcloud"),
    "PYREACTANT_CI": Setting("a test fails, instead of skipping, if a tool is absent", "tests"),
    "PYREACTANT_RECORD": Setting("1 writes new recorded answers of libtpu", "tests"),
    "PYREACTANT_TEST_JULIA": Setting("Julia executable", "tests"),
    "PYREACTANT_TEST_JULIA_PROJECT": Setting("Julia project of the tests", "tests"),
    "PYREACTANT_TEST_REACTANT": Setting("1 runs the tests that need Reactant", "tests"),
    "PYREACTANT_TEST_REACTANT_SOURCE": Setting("folder of Reactant's sources", "tests"),
    "PYREACTANT_TEST_XLA_LIBRARY": Setting("library of julia/test/xla, built", "tests"),
    "PYREACTANT_TEST_EVERY_STEP": Setting("1 kills setup before each change of a file", "tests"),
    "PYREACTANT_TEST_BAD_LINES": Setting("number of bad command lines", "tests"),
    "PYREACTANT_TEST_ORBAX": Setting("folder with Orbax 0.11", "tests"),
    "PYREACTANT_MUTANT": Setting("Julia file that is changed while it loads", "tests"),
    "PYREACTANT_MUTANT_CODE": Setting("code that is replaced in that file", "tests"),
    "PYREACTANT_MUTANT_WITHOUT": Setting("what replaces that code", "tests"),
}
"""All names, in the order of `READERS`."""

SWITCHES = ("PYREACTANT_GUARD", "PYREACTANT_MTLS", "PYREACTANT_DEBUG", "PYREACTANT_GIT_DIFF")
"""Those that are 0 or 1."""

# Kubernetes sets such names for a Service called pyreactant or pyreactant-...
_OF_A_SERVICE = re.compile(
    r"PYREACTANT(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_[A-Z]+(_PROTO|_PORT|_ADDR)?)?)"
)


def check_names(environ: Mapping[str, str] = os.environ) -> None:
    """Check that every name in the environment that begins with PYREACTANT_ is known.

    Raises:
        InvalidArgumentError: A name is unknown, and the message has the nearest known name; or a
            switch is not 0 or 1.
    """
    for name in SWITCHES:
        if environ.get(name, "") not in ("", "0", "1"):
            raise InvalidArgumentError(f"{name} must be 0 or 1, got {environ[name]!r:.80}")
    unknown = [
        name
        for name in environ
        if name.startswith(PREFIX) and name not in SETTINGS and not _OF_A_SERVICE.fullmatch(name)
    ]
    if unknown:
        names = " and ".join(f"{name} (the nearest is {nearest(name)})" for name in sorted(unknown))
        raise InvalidArgumentError(
            f"environment variables that begin with {PREFIX} must be settings of pyreactant, got "
            f"{names}; correct the name, or unset the variable; docs/run.md lists all names"
        )


def nearest(name: str) -> str:
    """The known name that is most like this one."""
    from difflib import get_close_matches  # only an error needs it

    ends = {known.removeprefix(PREFIX): known for known in SETTINGS}
    return ends[get_close_matches(name.removeprefix(PREFIX).upper(), ends, n=1, cutoff=0.0)[0]]


def as_markdown() -> str:
    """The tables in docs/run.md, which a test compares with this one."""
    parts = []
    for reader, heading in READERS.items():
        rows = [f"| `{n}` | {s.meaning} |" for n, s in SETTINGS.items() if s.reader == reader]
        parts.append("\n".join([f"{heading}:", "", "| variable | sets |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"
