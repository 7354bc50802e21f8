"""Slurm: all tasks of a step agree; every wrong start gets a message with the right command."""

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

import pyreactant as pr
from pyreactant.process.group import ProcessGroup, port_of, resolve
from pyreactant.process.group.slurm import slurm

Environment = dict[str, str]


def step(tasks: Sequence[int], nodes: str = "", **more: str) -> list[Environment]:
    """The environment that srun gives to each task of a step, recorded with Slurm 22.05."""
    common = {
        "SLURM_JOB_ID": "123",
        "SLURM_STEP_ID": "4",
        "SLURM_NTASKS": str(sum(tasks)),
        "SLURM_STEP_NUM_TASKS": str(sum(tasks)),
        "SLURM_STEP_NODELIST": nodes or ",".join(f"n{i}" for i in range(len(tasks))),
        "SLURM_STEP_TASKS_PER_NODE": ",".join(map(str, tasks)),
    }
    places = [(node, local) for node, here in enumerate(tasks) for local in range(here)]
    return [
        {
            **common,
            "SLURM_PROCID": str(index),
            "SLURM_NODEID": str(node),
            "SLURM_LOCALID": str(local),
            **more,
        }
        for index, (node, local) in enumerate(places)
    ]


def message(environ: Environment) -> str:
    """The message of the error that `resolve` raises."""
    with pytest.raises(pr.InvalidArgumentError) as caught:
        resolve(environ=environ)
    return str(caught.value)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5).filter(lambda t: sum(t) > 1))
def test_all_tasks_of_a_step_agree(tasks: list[int]) -> None:
    groups = [resolve(environ=environ) for environ in step(tasks)]
    assert sorted(g.process_index for g in groups) == list(range(sum(tasks)))
    assert {(g.num_processes, g.coordinator_address, g.run_id, g.hosts) for g in groups} == {
        (
            sum(tasks),
            f"n0:{port_of('slurm 123.4 restart 0')}",
            "slurm 123.4 restart 0",
            tuple(f"n{i}" for i, here in enumerate(tasks) for _ in range(here)),
        )
    }
    assert {g.source for g in groups} == {"Slurm"}


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(lambda t: sum(t) > 1),
    st.integers(1, 4),
)
def test_tasks_of_a_node_share_its_gpus(tasks: list[int], each: int) -> None:
    gpus = each * 6  # counts that one, two and three tasks can share
    visible = ",".join(map(str, range(gpus)))
    groups = [resolve(environ=e) for e in step(tasks, CUDA_VISIBLE_DEVICES=visible)]
    start = 0
    for here in tasks:
        own = [g.local_device_ids for g in groups[start : start + here]]
        if here == 1:
            assert own == [None]
        else:
            assert [i for ids in own for i in ids or ()] == list(range(gpus))
            assert len({len(ids or ()) for ids in own}) == 1
        start += here


def test_a_requeued_job_and_another_step_are_other_runs() -> None:
    first, second = step([1, 1])[0], step([1, 1])[0] | {"SLURM_STEP_ID": "5"}
    again = first | {"SLURM_RESTART_COUNT": "1"}
    groups = [resolve(environ=e) for e in (first, second, again)]
    assert [g.run_id for g in groups] == [
        "slurm 123.4 restart 0",
        "slurm 123.5 restart 0",
        "slurm 123.4 restart 1",
    ]
    assert len({g.coordinator_address for g in groups}) == 3


def test_one_task_needs_nothing_more() -> None:
    alone = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    run_id = "slurm 1.0 restart 0"
    assert resolve(environ=alone) == ProcessGroup(source="Slurm", run_id=run_id)
    on_a_node = alone | {"SLURM_STEP_NODELIST": "n7", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert resolve(environ=on_a_node).hosts == ("n7",)
    assert slurm(on_a_node).notes == ("the one task on this node drives all 2 GPUs that it sees",)


@pytest.mark.parametrize(
    ("distribution", "tasks", "known"),
    [
        ("block", [2, 2], True),
        ("block:cyclic", [2, 2], True),
        ("cyclic", [2, 2], False),
        ("plane", [2, 2], False),
        ("cyclic", [1, 1], True),  # srun's value for one task per node
        ("cyclic", [2], True),
        ("arbitrary", [2], True),
    ],
)
def test_hosts_are_given_where_the_order_is_known(
    distribution: str, tasks: list[int], known: bool
) -> None:
    group = resolve(environ=step(tasks, SLURM_DISTRIBUTION=distribution)[0])
    assert (group.hosts is not None) == known
    assert str(group.coordinator_address).startswith("n0:")


def test_arbitrary_distribution_hides_task_0() -> None:
    environ = step([1, 1], SLURM_DISTRIBUTION="arbitrary")[0]
    error_text = message(environ)
    assert "SLURM_DISTRIBUTION=arbitrary does not tell which node has task 0" in error_text
    port = port_of("slurm 123.4 restart 0")
    assert error_text.endswith(
        f'PYREACTANT_COORDINATOR_ADDRESS=$(head -n 1 "$SLURM_HOSTFILE"):{port} '
        "srun --kill-on-bad-exit=1 ..."
    )
    group = resolve(environ=environ | {"PYREACTANT_COORDINATOR_ADDRESS": "n1:1"})
    assert (group.coordinator_address, group.hosts) == ("n1:1", None)


def test_shell_of_a_job_of_several_components() -> None:
    """Each component may have one task, as with `salloc -N1 : -N1`."""
    assert "SLURM_HET_SIZE=2 says that this is a shell of a job of" in message(
        SALLOC | {"SLURM_HET_SIZE": "2", "SLURM_NTASKS": "1"}
    )


BATCH = {"SLURM_JOB_ID": "9", "SLURM_JOB_NUM_NODES": "1", "SLURM_PROCID": "0"}
SALLOC = {"SLURM_JOB_ID": "9", "SLURM_JOB_NUM_NODES": "1"}
INTERACTIVE = SALLOC | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}


@pytest.mark.parametrize("shell", [BATCH, SALLOC, INTERACTIVE])
@pytest.mark.parametrize(
    ("size", "tasks"),
    [
        ({"SLURM_NTASKS": "4"}, 4),
        ({"SLURM_JOB_NUM_NODES": "3"}, 3),
        ({"SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS_PER_NODE": "4"}, 8),
        ({"SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "1"}, 2),
    ],
)
def test_shell_of_a_job(shell: Environment, size: Environment, tasks: int) -> None:
    assert message(shell | size) == (
        f"this is a shell of Slurm job 9, not one of its {tasks} tasks, so it would run alone "
        "(set PYREACTANT_NUM_PROCESSES=1 if you want that); start every task with: "
        "srun --kill-on-bad-exit=1 ..."
    )
    alone = shell | size | {"PYREACTANT_NUM_PROCESSES": "1"}
    assert resolve(environ=alone) == ProcessGroup(source="environment")


@pytest.mark.parametrize("shell", [BATCH, SALLOC, INTERACTIVE, BATCH | {"SLURM_NTASKS": "1"}])
def test_shell_of_a_job_of_one_task(shell: Environment) -> None:
    assert resolve(environ=shell) == ProcessGroup(source="Slurm")


@pytest.mark.parametrize(
    "name",
    [
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_PROCID",
        "SLURM_STEP_NODELIST",
        "SLURM_STEP_TASKS_PER_NODE",
    ],
)
def test_a_part_of_the_environment(name: str) -> None:
    environ = step([2, 2])[0]
    del environ[name]
    assert f"{name} must be set beside the launcher's other variables" in message(environ)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"SLURM_PROCID": "x"}, "SLURM_PROCID must be a whole number, got 'x'"),
        (
            {"SLURM_PROCID": "3"},
            "SLURM_PROCID must be from 0 to 2 with SLURM_STEP_NUM_TASKS=3, got 3",
        ),
        (
            {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "", "SLURM_NTASKS": "3"},
            "SLURM_PROCID must be from 0 to 2 with SLURM_NTASKS=3, got 3",
        ),
        ({"SLURM_STEP_TASKS_PER_NODE": "2,2"}, "must add up to 3 tasks, got '2,2'"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2;1"}, "must look like '2(x3),1', got '2;1'"),
        ({"SLURM_NODEID": "2"}, "SLURM_NODEID must be from 0 to 1"),
        ({"SLURM_STEP_NODELIST": "n0"}, "must have 2 host names, got n0"),
        ({"SLURM_STEP_NODELIST": "/etc/passwd"}, "must look like 'n[1-4],login'"),
        ({"SLURM_STEP_NODELIST": "-V"}, "must look like 'n[1-4],login'"),
    ],
)
def test_nonsense(change: Environment, expected: str) -> None:
    assert expected in message(step([2, 1])[0] | change)


# GPUs


ONE_EACH = [
    {"SLURM_GPUS_PER_TASK": "1"},
    {"SLURM_GPUS_PER_TASK": "a100:1"},
    {"SLURM_GPUS_PER_TASK": "1", "SLURM_GPU_BIND": "closest"},
    {"SLURM_NTASKS_PER_GPU": "1"},
    {"SLURM_TRES_PER_TASK": "cpu=4,gres/gpu=1"},
    {"SLURM_TRES_PER_TASK": "cpu=4,gres/gpu:a100=1"},
    {"SLURM_GPU_BIND": "per_task:1"},
    {"SLURM_GPU_BIND": "verbose,map_gpu:0,1"},
    {"SLURMD_TRES_BIND": "gpu:single:1"},
]


@pytest.mark.parametrize(
    "bound",
    [
        *ONE_EACH,
        {"SLURM_GPU_BIND": "closest"},
        {"SLURM_GPUS_PER_TASK": "2", "CUDA_VISIBLE_DEVICES": "0,1"},
        {"SLURM_GPUS_PER_TASK": "a100:1,v100:1", "CUDA_VISIBLE_DEVICES": "0,1"},
        {"PYREACTANT_PLATFORM": "cpu", "CUDA_VISIBLE_DEVICES": "0,1,2,3"},
        {"CUDA_VISIBLE_DEVICES": "3"},
        {"CUDA_VISIBLE_DEVICES": ""},
        {"CUDA_VISIBLE_DEVICES": "-1"},
    ],
)
def test_tasks_with_gpus_of_their_own_or_none_share_nothing(bound: Environment) -> None:
    visible = {"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "4"}
    for environ in step([2, 2]):
        assert resolve(environ=environ | visible | bound).local_device_ids is None


@pytest.mark.parametrize("given", ONE_EACH)
def test_a_task_that_sees_more_than_slurm_gave_it(given: Environment) -> None:
    """A script sets the variable, or this Slurm does not bind: all would take all GPUs."""
    environ = step([4])[1] | {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_GPUS_ON_NODE": "4"} | given
    text = message(environ)
    assert text == (
        "each of the 4 tasks on this node must see GPUs of its own, but this one sees 4 "
        "(CUDA_VISIBLE_DEVICES=0,1,2,3), and Slurm gives each of them 1; leave that variable to "
        "Slurm, or name each task's GPUs with: srun bash -c "
        '\'PYREACTANT_LOCAL_DEVICE_IDS=$SLURM_LOCALID exec "$0" "$@"\' ...'
    )
    assert resolve(environ=environ | {"PYREACTANT_LOCAL_DEVICE_IDS": "1"}).local_device_ids == (1,)
    assert resolve(environ=environ | {"SLURM_GPU_BIND": "none"}).local_device_ids == (1,)
    assert resolve(environ=environ | {"PYREACTANT_PLATFORM": "cpu"}).local_device_ids is None


def test_tasks_bound_to_near_gpus() -> None:
    """Slurm does not say how many: what they see together must fit the node."""
    first = step([4])[0] | {"SLURM_GPU_BIND": "closest", "SLURM_GPUS_ON_NODE": "4"}
    both = message(first | {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert "this one sees 2 (CUDA_VISIBLE_DEVICES=0,1), and the node has 4 for all of them" in both
    assert resolve(environ=first | {"CUDA_VISIBLE_DEVICES": "2"}).local_device_ids is None
    assert resolve(environ=first | {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}).local_device_ids == (0,)


@pytest.mark.parametrize(
    "unbound",
    [
        {"SLURM_TRES_PER_TASK": "cpu=4"},
        {"SLURM_GPUS_PER_TASK": "1", "SLURM_GPU_BIND": "none"},
        {"SLURM_GPUS_PER_TASK": "1", "SLURMD_TRES_BIND": "gpu:none"},
    ],
)
@pytest.mark.parametrize(
    "visible",
    [
        {"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
        {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c,GPU-d,-1,7"},
        {"SLURM_GPUS_ON_NODE": "4"},
        {"SLURM_STEP_GPUS": "0,2,4,6"},
    ],
)
def test_gpus_seen_by_all_are_shared_out(unbound: Environment, visible: Environment) -> None:
    second = step([2, 2])[1] | visible | unbound
    assert resolve(environ=second).local_device_ids == (2, 3)
    assert slurm(second).notes == (
        "2 tasks on this node see the same 4 GPUs; this one takes 2, 3 of them",
    )


@pytest.mark.parametrize(
    ("tasks", "visible", "seen"),
    [
        (3, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, "3 tasks on this node see the same 4 GPUs"),
        (8, {"SLURM_GPUS_ON_NODE": "4"}, "8 tasks on this node see the same 4 GPUs"),
        (
            2,
            {"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "1"},
            "2 tasks on this node see the same 1 GPU, ",
        ),
    ],
)
def test_gpus_that_cannot_be_shared_out(tasks: int, visible: Environment, seen: str) -> None:
    environ = step([tasks])[0] | visible
    error_text = message(environ)
    assert error_text.startswith(seen)
    gpus = visible.get("SLURM_GPUS_ON_NODE", "4")
    assert error_text.endswith(
        f": srun --ntasks-per-node={gpus} --gpus-per-task=1 --kill-on-bad-exit=1 ..."
    )
    named = environ | {"PYREACTANT_LOCAL_DEVICE_IDS": "0"}
    assert resolve(environ=named).local_device_ids == (0,)
    assert resolve(local_device_ids=[2], environ=environ).local_device_ids == (2,)


def test_nonsense_about_gpus() -> None:
    environ = step([2])[0] | {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_LOCALID": "2"}
    assert "task's index on its node must be from 0 to 1, got 2" in message(environ)
