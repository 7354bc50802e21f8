"""Slurm: a task that srun started knows who it is; a shell of a job does not."""

from collections.abc import Mapping

from .._errors import InvalidArgumentError
from . import _gpus
from ._environment import (
    COORDINATOR,
    COUNT,
    INDEX,
    Finding,
    Trap,
    env_int,
    local_devices,
    required,
    required_int,
    seen,
)
from ._group import ProcessGroup, join_address, port_of
from ._mpi import World, world
from ._slurm_nodes import host_names, tasks_per_node

NAME = "Slurm"
_SRUN = "srun --kill-on-bad-exit=1 ..."
_SRUN_GPUS = "srun --ntasks-per-node={gpus} --gpus-per-task=1 --kill-on-bad-exit=1 ..."
_MARKS = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
# Slurm numbers its own steps (batch, interactive, extern, pending) from the end of 32 bits
# (slurm.h, SLURM_INTERACTIVE_STEP and its neighbours); users' steps count from 0.
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
_TASKS_PER_NODE = "SLURM_STEP_TASKS_PER_NODE"
_VARIABLES = (
    *_MARKS,
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_NODELIST",
    "SLURM_STEP_NODELIST",
    _TASKS_PER_NODE,
    "SLURM_DISTRIBUTION",
    "SLURM_NODEID",
    "SLURM_LOCALID",
    "SLURM_RESTART_COUNT",
    *_gpus.VARIABLES,
)


def slurm(environ: Mapping[str, str]) -> Finding:
    """The step's tasks, from srun(1), OUTPUT ENVIRONMENT VARIABLES."""
    if not any(environ.get(name) for name in _MARKS):
        return Finding(NAME, "not in a Slurm job: SLURM_JOB_ID is not set")
    saw = seen(_VARIABLES, environ)
    try:
        in_step = _in_step(environ)
        mpi = world(environ)
        if mpi is not None and _counts_instead(mpi, in_step, environ):
            return Finding(NAME, f"gives way to {mpi.name}, which started this process", saw)
        if not in_step:
            return Finding(NAME, "a shell of a job of one task", saw, _shell(environ))
        group, notes = _step(environ)
    except InvalidArgumentError as trap:
        return Finding(NAME, "the launch cannot work", saw, trap=trap)
    return Finding(NAME, f"task {group.process_index} of a step", saw, group, notes=notes)


def _in_step(environ: Mapping[str, str]) -> bool:
    """Whether srun started this; batch scripts have SLURM_PROCID=0 too, but no step."""
    step = env_int("SLURM_STEP_ID", environ)
    if step is None:  # a part of a step's variables is an error there, and not a shell
        return not environ.get("SLURM_JOB_ID") or bool(environ.get("SLURM_STEP_NUM_TASKS"))
    return 0 <= step < _FIRST_SPECIAL_STEP


def _shell(environ: Mapping[str, str]) -> ProcessGroup:
    tasks = _tasks_of_job(environ)
    if tasks > 1:
        raise Trap(
            f"this is a shell of Slurm job {environ['SLURM_JOB_ID']} and none of its {tasks} tasks,"
            f" so it would run alone ({COUNT}=1, if that is meant); start every task with",
            _SRUN,
        )
    return ProcessGroup(local_device_ids=local_devices(environ), source=NAME)


def _tasks_of_job(environ: Mapping[str, str]) -> int:
    """How many tasks srun would start.

    SLURM_TASKS_PER_NODE is no help: without --ntasks it counts CPUs.
    """
    nodes = env_int("SLURM_JOB_NUM_NODES", environ) or 1
    per_node = env_int("SLURM_NTASKS_PER_NODE", environ) or 1
    return env_int("SLURM_NTASKS", environ) or nodes * per_node


def _counts_instead(mpi: World, in_step: bool, environ: Mapping[str, str]) -> bool:
    """Whether mpirun's numbers are the run's, and Slurm's are those of something around it.

    In the job's shell that is so if mpirun starts as many processes as Slurm has tasks. On the
    other nodes mpirun's daemons are the tasks of a step (seen with Open MPI 4.1, MPICH 4.0).
    """
    tasks = _step_tasks(environ) if in_step else _tasks_of_job(environ)
    if not in_step:
        if mpi.size in (None, tasks):
            return True
    elif mpi.size in (None, tasks):
        if mpi.rank == env_int("SLURM_PROCID", environ):
            return False  # srun --mpi=pmix and the like: both count the same
        if mpi.size is None:
            return True
    elif mpi.several_hosts or mpi.size == env_int("SLURM_NTASKS", environ):
        return True
    raise Trap(
        f"{mpi.name} says process {mpi.rank} of {mpi.size}, but Slurm says task "
        f"{environ.get('SLURM_PROCID', 'unknown')} of {tasks}; leave mpirun out and start with",
        f"srun --ntasks={mpi.size} --kill-on-bad-exit=1 ...",
    )


def _step_tasks(environ: Mapping[str, str]) -> int:
    return env_int("SLURM_STEP_NUM_TASKS", environ) or required_int("SLURM_NTASKS", environ)


def _step(environ: Mapping[str, str]) -> tuple[ProcessGroup, tuple[str, ...]]:
    job, step = required_int("SLURM_JOB_ID", environ), required_int("SLURM_STEP_ID", environ)
    index, count = required_int("SLURM_PROCID", environ), _step_tasks(environ)
    run_id = f"slurm {job}.{step} restart {env_int('SLURM_RESTART_COUNT', environ) or 0}"
    tasks = (1,) if count == 1 else tasks_per_node(required(_TASKS_PER_NODE, environ))
    if sum(tasks) != count:
        raise InvalidArgumentError(
            f"{_TASKS_PER_NODE} must be those of {count} tasks, got {environ[_TASKS_PER_NODE]!r}; "
            f"in a job of several components set {COUNT}, {INDEX} and {COORDINATOR} instead"
        )
    local, notes = _gpus.share(
        environ,
        _tasks_here(tasks, environ),
        env_int("SLURM_LOCALID", environ) or 0,
        bound=_gpus.slurm_binds(environ),
        command=_SRUN_GPUS,
    )
    if count == 1:  # whatever else is missing, one process can run
        node = environ.get("SLURM_STEP_NODELIST", "")
        host = None if not node or "[" in node or "," in node else (node,)
        return ProcessGroup(1, index, None, local, NAME, run_id, host), notes
    address, hosts, more = _places(tasks, run_id, environ)
    return ProcessGroup(count, index, address, local, NAME, run_id, hosts), notes + more


def _tasks_here(tasks: tuple[int, ...], environ: Mapping[str, str]) -> int:
    if len(set(tasks)) == 1:
        return tasks[0]
    node = required_int("SLURM_NODEID", environ)
    if not 0 <= node < len(tasks):
        raise InvalidArgumentError(
            f"SLURM_NODEID must be from 0 to {len(tasks) - 1} with {_TASKS_PER_NODE}="
            f"{environ[_TASKS_PER_NODE]}, got {node}"
        )
    return tasks[node]


def _places(
    tasks: tuple[int, ...], run_id: str, environ: Mapping[str, str]
) -> tuple[str, tuple[str, ...] | None, tuple[str, ...]]:
    """The coordinator's address, each task's host where Slurm says it, and notes."""
    said, port = environ.get(COORDINATOR), port_of(run_id)
    try:
        nodes = host_names(required("SLURM_STEP_NODELIST", environ), len(tasks), environ)
    except InvalidArgumentError as error:
        if said:
            return said, None, (f"the hosts are not known: {error}",)
        raise Trap(
            f"{error}; name the host of task 0 in the batch script, before srun",
            f'export {COORDINATOR}=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
            f":{port}",
        ) from None
    distribution = environ.get("SLURM_DISTRIBUTION") or "block"
    arbitrary = distribution.startswith("arbitrary") and len(nodes) > 1
    if arbitrary and not said:
        # The node list is sorted, whatever the order in the host file (seen with Slurm 22.05).
        raise Trap(
            f"SLURM_DISTRIBUTION={distribution} does not say on which node task 0 is; say it with",
            f'{COORDINATOR}=$(head -n 1 "$SLURM_HOSTFILE"):{port} {_SRUN}',
        )
    # One task each is the same in every other distribution; srun then says "cyclic" by itself.
    in_order = distribution.startswith("block") or (set(tasks) == {1} and not arbitrary)
    placed = (node for node, here in zip(nodes, tasks, strict=True) for _ in range(here))
    hosts = tuple(placed) if in_order or len(nodes) == 1 else None
    return said or join_address(nodes[0], port), hosts, ()
