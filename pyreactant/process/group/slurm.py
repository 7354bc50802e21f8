"""Slurm: the tasks of a step that srun started, and shells of a job, which are no tasks."""

from collections.abc import Mapping

from ...base.errors import InvalidArgumentError
from ...base.settings import COORDINATOR, COUNT, INDEX
from . import gpus
from .group import (
    LaunchError,
    ProcessGroup,
    Resolution,
    ShellError,
    check_rank,
    defined_variables,
    env_int,
    join_address,
    local_devices,
    port_of,
    required,
    required_int,
)
from .mpi import World, world_of
from .nodes import host_names, tasks_per_node

NAME = "Slurm"
_SRUN = "srun --kill-on-bad-exit=1 ..."
_SRUN_GPUS = "srun --ntasks-per-node={gpus} --gpus-per-task=1 --kill-on-bad-exit=1 ..."
_IDENTIFYING = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
# Slurm numbers its own steps (batch, interactive, extern, pending) down from 2**32 (slurm.h,
# SLURM_INTERACTIVE_STEP and its neighbours) and the users' steps up from 0.
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
_TASKS_PER_NODE = "SLURM_STEP_TASKS_PER_NODE"
_VARIABLES = (
    *_IDENTIFYING,
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NNODES",
    "SLURM_JOB_NODELIST",
    "SLURM_STEP_NODELIST",
    _TASKS_PER_NODE,
    "SLURM_DISTRIBUTION",
    "SLURM_NODEID",
    "SLURM_LOCALID",
    "SLURM_RESTART_COUNT",
    *gpus.VARIABLES,
)


def slurm(environ: Mapping[str, str]) -> Resolution:
    """The tasks of the step (srun(1), OUTPUT ENVIRONMENT VARIABLES)."""
    if not any(environ.get(name) for name in _IDENTIFYING):
        return Resolution(NAME, "not in a Slurm job: SLURM_JOB_ID is not set")
    evidence = defined_variables(_VARIABLES, environ)
    try:
        in_step = _in_step(environ)
        world = world_of(environ)
        if world is not None and _mpirun_decides(world, in_step, environ):
            reason = f"{world.name} started this process and decides"
            return Resolution(NAME, reason, evidence)
        if not in_step:
            return Resolution(NAME, "a shell of a job of one task", evidence, _shell(environ))
        group, notes = _step(environ)
    except InvalidArgumentError as error:
        return Resolution(NAME, "the launch cannot work", evidence, error=error)
    return Resolution(NAME, f"task {group.process_index} of a step", evidence, group, notes=notes)


def tasks_without_job(environ: Mapping[str, str]) -> None:
    """Check that no number of tasks is left of a job whose id is not there.

    Raises:
        ShellError: One is; this process may be one of several tasks.
    """
    for name in ("SLURM_NTASKS", "SLURM_NPROCS"):
        if (tasks := env_int(name, environ) or 1) > 1:
            raise ShellError(
                f"{name}={tasks} says that there are {tasks} tasks, but SLURM_JOB_ID is not set, "
                f"so this process would run alone (set {COUNT}=1 if you want that); pass the "
                "whole environment of Slurm on, and start every task with",
                _SRUN,
            )


def _in_step(environ: Mapping[str, str]) -> bool:
    """Whether srun started this process; a batch script has SLURM_PROCID=0 too, but no step."""
    if not environ.get("SLURM_JOB_ID"):  # an incomplete step is an error of the step, not a shell
        return True
    step = env_int("SLURM_STEP_ID", environ)
    if step is None:
        return bool(environ.get("SLURM_STEP_NUM_TASKS"))
    return 0 <= step < _FIRST_SPECIAL_STEP


def _shell(environ: Mapping[str, str]) -> ProcessGroup:
    for name in ("SLURM_PROCID", "SLURM_NODEID"):
        if env_int(name, environ):
            raise InvalidArgumentError(
                f"{name}={environ[name]} says that this is one of several tasks of Slurm job "
                f"{environ['SLURM_JOB_ID']}, but it is in no step of srun; pass the whole "
                f"environment on, or set {COUNT}, {INDEX} and {COORDINATOR} instead, or {COUNT}=1 "
                "to run alone"
            )
    if (components := env_int("SLURM_HET_SIZE", environ) or 1) > 1:
        raise InvalidArgumentError(
            f"SLURM_HET_SIZE={components} says that this is a shell of a job of several "
            f"components, so it would run alone (set {COUNT}=1 if you want that); start every task "
            f"of one component with srun --het-group=0 --kill-on-bad-exit=1 ..., or set {COUNT}, "
            f"{INDEX} and {COORDINATOR}"
        )
    tasks = _tasks_of_job(environ)
    if tasks > 1:
        raise ShellError(
            f"this is a shell of Slurm job {environ['SLURM_JOB_ID']}, not one of its {tasks} "
            f"tasks, so it would run alone (set {COUNT}=1 if you want that); start every task with",
            _SRUN,
        )
    return ProcessGroup(local_device_ids=local_devices(environ), source=NAME)


def _tasks_of_job(environ: Mapping[str, str]) -> int:
    """The number of tasks that srun would start.

    SLURM_TASKS_PER_NODE does not give it: without --ntasks it counts CPUs.
    """
    nodes = _number(environ, "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
    per_node = _number(environ, "SLURM_NTASKS_PER_NODE")
    tasks = _number(environ, "SLURM_NTASKS", "SLURM_NPROCS", default=nodes * per_node)
    return max(tasks, nodes)


def _number(environ: Mapping[str, str], *names: str, default: int = 1) -> int:
    """A number of nodes or tasks, by the first of its variables that is set."""
    for name in names:
        number = env_int(name, environ)
        if number is not None and number < 1:
            raise InvalidArgumentError(f"{name} must be 1 or more, got {number}")
        if number is not None:
            return number
    return default


def _mpirun_decides(world: World, in_step: bool, environ: Mapping[str, str]) -> bool:
    """Whether mpirun's rank and size are those of the run, and Slurm's describe its surroundings.

    In the job's shell that is so if mpirun starts as many processes as Slurm has tasks. On the
    other nodes mpirun's daemons are the tasks of a step (seen with Open MPI 4.1, MPICH 4.0).
    """
    tasks = required_int(_step_size(environ), environ) if in_step else _tasks_of_job(environ)
    if not in_step:
        if world.size in (None, tasks):
            return True
    elif world.size in (None, tasks):
        if world.rank == env_int("SLURM_PROCID", environ):
            return False  # srun --mpi=pmix and the like: both count the same
        if world.size is None:
            return True
    elif world.several_hosts or world.size == env_int("SLURM_NTASKS", environ):
        return True
    raise LaunchError(
        f"{world.name} numbers this process {world.rank} of {world.size}, but Slurm numbers it "
        f"task {environ.get('SLURM_PROCID', 'unknown')} of {tasks}; leave mpirun out and start "
        "with",
        f"srun --ntasks={world.size} --kill-on-bad-exit=1 ...",
    )


def _step_size(environ: Mapping[str, str]) -> str:
    """The variable with the number of tasks of the step."""
    return "SLURM_STEP_NUM_TASKS" if environ.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"


def _step(environ: Mapping[str, str]) -> tuple[ProcessGroup, tuple[str, ...]]:
    job, step = required_int("SLURM_JOB_ID", environ), required_int("SLURM_STEP_ID", environ)
    size = _step_size(environ)
    index, count = required_int("SLURM_PROCID", environ), required_int(size, environ)
    check_rank(size, count, "SLURM_PROCID", index)
    run_id = f"slurm {job}.{step} restart {env_int('SLURM_RESTART_COUNT', environ) or 0}"
    tasks = (1,) if count == 1 else tasks_per_node(required(_TASKS_PER_NODE, environ))
    if sum(tasks) != count:
        raise InvalidArgumentError(
            f"{_TASKS_PER_NODE} must add up to {count} tasks, got {environ[_TASKS_PER_NODE]!r}; "
            f"in a job of several components set {COUNT}, {INDEX} and {COORDINATOR} instead"
        )
    given, bound = gpus.slurm_gives(environ)
    local, notes = gpus.assign(
        environ,
        _tasks_on_this_node(tasks, environ),
        env_int("SLURM_LOCALID", environ) or 0,
        command=_SRUN_GPUS,
        given=given,
        bound=bound,
    )
    address: str | None = None
    hosts: tuple[str, ...] | None
    if count == 1:  # a single process can run even if other variables are missing
        node = environ.get("SLURM_STEP_NODELIST", "")
        hosts = None if not node or "[" in node or "," in node else (node,)
    else:
        address, hosts, more = _coordinator_and_hosts(tasks, run_id, environ)
        notes += more
    group = ProcessGroup(
        count,
        index,
        address,
        local_device_ids=local,
        source=NAME,
        run_id=run_id,
        hosts=hosts,
    )
    return group, notes


def _tasks_on_this_node(tasks: tuple[int, ...], environ: Mapping[str, str]) -> int:
    if len(set(tasks)) == 1:
        return tasks[0]
    node = required_int("SLURM_NODEID", environ)
    if not 0 <= node < len(tasks):
        raise InvalidArgumentError(
            f"SLURM_NODEID must be from 0 to {len(tasks) - 1} with {_TASKS_PER_NODE}="
            f"{environ[_TASKS_PER_NODE]}, got {node}"
        )
    return tasks[node]


def _coordinator_and_hosts(
    tasks: tuple[int, ...], run_id: str, environ: Mapping[str, str]
) -> tuple[str, tuple[str, ...] | None, tuple[str, ...]]:
    """The coordinator's address, each task's host (None if unknown), and notes."""
    given, port = environ.get(COORDINATOR), port_of(run_id)
    try:
        nodes = host_names(required("SLURM_STEP_NODELIST", environ), len(tasks), environ)
    except InvalidArgumentError as error:
        if given:
            return given, None, (f"the hosts are not known: {error}",)
        raise LaunchError(
            f"{error}; name the host of task 0 in the batch script, before srun",
            f'export {COORDINATOR}=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
            f":{port}",
        ) from None
    distribution = environ.get("SLURM_DISTRIBUTION") or "block"
    arbitrary = distribution.startswith("arbitrary") and len(nodes) > 1
    if arbitrary and not given:
        # The node list is sorted, whatever the order in the host file (seen with Slurm 22.05).
        raise LaunchError(
            f"SLURM_DISTRIBUTION={distribution} does not tell which node has task 0; name it with",
            f'{COORDINATOR}=$(head -n 1 "$SLURM_HOSTFILE"):{port} {_SRUN}',
        )
    # With one task per node all other distributions are equal; srun then reports "cyclic".
    in_order = distribution.startswith("block") or (set(tasks) == {1} and not arbitrary)
    host_of_task = (node for node, n in zip(nodes, tasks, strict=True) for _ in range(n))
    hosts = tuple(host_of_task) if in_order or len(nodes) == 1 else None
    return given or join_address(nodes[0], port), hosts, ()
