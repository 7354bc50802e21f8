"""mpirun: all processes agree; inside Slurm, a disagreement of the counts is an error."""

import json
import re
import shutil
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pyreactant.process.group import port_of, resolve
from pyreactant.process.group.mpi import open_mpi
from tests import harness
from tests.harness import environment, require
from tests.unit.test_process_group_slurm import message

Environment = dict[str, str]
URI = "1915224064.0;tcp://192.0.2.2,198.51.100.2:43903;tcp6://[fd00::2]:36199"


def processes(hosts: list[int], uri: str = URI) -> list[Environment]:
    """The environment that Open MPI 4.1's mpirun gives to each process; counts are per host."""
    return [
        {
            "OMPI_COMM_WORLD_SIZE": str(sum(hosts)),
            "OMPI_COMM_WORLD_RANK": str(sum(hosts[:host]) + local),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(here),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
            "OMPI_MCA_orte_hnp_uri": uri,
            "PMIX_NAMESPACE": "1915224065",
            "PMIX_RANK": str(sum(hosts[:host]) + local),
            "PMIX_HOSTNAME": f"n{host + 1}",
        }
        for host, here in enumerate(hosts)
        for local in range(here)
    ]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda h: sum(h) > 1))
def test_all_processes_agree(hosts: list[int]) -> None:
    groups = [resolve(environ=environ) for environ in processes(hosts)]
    assert sorted(g.process_index for g in groups) == list(range(sum(hosts)))
    port = port_of("Open MPI 1915224065")
    here = len(hosts) == 1
    assert {(g.num_processes, g.coordinator_address, g.run_id, g.hosts) for g in groups} == {
        (
            sum(hosts),
            f"127.0.0.1:{port}" if here else f"192.0.2.2:{port}",
            "Open MPI 1915224065",
            ("n1",) * sum(hosts) if here else None,
        )
    }


def test_mpirun_of_one_process() -> None:
    group = resolve(environ=processes([1])[0])
    assert (group.num_processes, group.coordinator_address) == (1, None)
    assert group.source == "Open MPI"


def test_where_mpirun_runs_is_said_to_be_a_guess() -> None:
    found = open_mpi(processes([1, 1])[1])
    port = port_of("Open MPI 1915224065")
    assert found.notes == (
        "mpirun runs on 192.0.2.2, which is assumed to be the host of rank 0; if it is not, use "
        f"mpirun -x PYREACTANT_COORDINATOR_ADDRESS=<host of rank 0>:{port} ...",
    )
    only_ipv6 = processes([1, 1], "1314521088.0;tcp6://[fd00::2,fd00::3]:43370")[0]
    assert resolve(environ=only_ipv6).coordinator_address == f"[fd00::2]:{port}"


@pytest.mark.parametrize("uri", ["", "nothing"])
def test_nothing_says_where_rank_0_is(uri: str) -> None:
    port = port_of("Open MPI 1915224065")
    assert message(processes([1, 1], uri)[1]) == (
        "Open MPI started 2 processes, perhaps on several hosts, and no variable gives the host of "
        "rank 0; "
        f"give it with: mpirun -x PYREACTANT_COORDINATOR_ADDRESS=<host of rank 0>:{port} ..."
    )


def hydra(size: int, rank: int, local_size: int, local_rank: int) -> Environment:
    """The environment that MPICH 4.0's mpiexec gives to a process."""
    return {
        "PMI_SIZE": str(size),
        "PMI_RANK": str(rank),
        "MPI_LOCALNRANKS": str(local_size),
        "MPI_LOCALRANKID": str(local_rank),
    }


def test_hydra() -> None:
    groups = [resolve(environ=hydra(3, i, 3, i)) for i in range(3)]
    assert [g.process_index for g in groups] == [0, 1, 2]
    assert {(g.source, g.coordinator_address) for g in groups} == {
        ("PMIx", f"127.0.0.1:{port_of('PMIx')}")
    }
    assert message(hydra(4, 3, 2, 1)).endswith(
        f": mpiexec -genv PYREACTANT_COORDINATOR_ADDRESS <host of rank 0>:{port_of('PMIx')} ..."
    )


def test_pmix_does_not_say_how_many() -> None:
    error_text = message({"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-host-7@1"})
    assert error_text.startswith(
        "PMIX_RANK=1 is the index of this process, but PMIx does not give the number of processes;"
    )
    assert error_text.endswith(
        ": prterun -n <count> bash -c 'PYREACTANT_NUM_PROCESSES=<count> "
        "PYREACTANT_PROCESS_INDEX=$PMIX_RANK PYREACTANT_COORDINATOR_ADDRESS=<host of rank 0>:<port>"
        """ exec "$0" "$@"' ..."""
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"OMPI_COMM_WORLD_RANK": "x"}, "OMPI_COMM_WORLD_RANK must be a whole number, got 'x'"),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "PMIX_RANK": "2"},
            "OMPI_COMM_WORLD_RANK must be from 0 to 1 with",
        ),
        ({"OMPI_COMM_WORLD_SIZE": "0"}, "OMPI_COMM_WORLD_SIZE must be 1 or more, got 0"),
    ],
)
def test_nonsense(change: Environment, expected: str) -> None:
    assert expected in message(processes([1, 1])[0] | change)


def test_gpus() -> None:
    first, second = processes([2])
    visible = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert resolve(environ=first | visible).local_device_ids == (0, 1)
    assert resolve(environ=second | visible).local_device_ids == (2, 3)
    assert "CUDA_VISIBLE_DEVICES is not set" in open_mpi(first).notes[0]
    assert not open_mpi(first | {"PYREACTANT_PLATFORM": "cpu"}).notes
    odd = {"CUDA_VISIBLE_DEVICES": "0,1,2"}
    assert message(first | odd).endswith("with: mpirun --map-by ppr:3:node ...")
    assert message(hydra(2, 0, 2, 0) | odd).endswith("with: mpiexec -ppn 3 ...")


# mpirun in a Slurm job on two nodes, recorded with Slurm 22.05, Open MPI 4.1 and MPICH 4.0. On the
# first node, processes are children of the batch shell; on the others, of a step.

SHELL = {
    "SLURM_JOB_ID": "1",
    "SLURM_JOB_NODELIST": "n1,n2",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "0",
}
DAEMON = SHELL | {
    "SLURM_NTASKS": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NODELIST": "n2",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}


def test_mpirun_over_the_nodes_of_a_job() -> None:
    ranks = processes([2, 2])
    environs = [SHELL | ranks[0], SHELL | ranks[1], DAEMON | ranks[2], DAEMON | ranks[3]]
    groups = [resolve(environ=environ) for environ in environs]
    assert [g.process_index for g in groups] == [0, 1, 2, 3]
    port = port_of("Open MPI 1915224065")
    assert {(g.source, g.num_processes, g.coordinator_address) for g in groups} == {
        ("Open MPI", 4, f"n1:{port}")
    }
    assert open_mpi(environs[3]).notes[-1] == "the Slurm job's first node, n1, has rank 0"


def test_mpirun_over_the_nodes_of_a_job_without_scontrol() -> None:
    job = SHELL | {"SLURM_JOB_NODELIST": "n[1-2]", "PATH": "/nowhere"}
    error_text = message(job | processes([2, 2])[0])
    assert "the node list 'n[1-2]' needs Slurm's scontrol, which could not be started" in error_text
    assert (
        "give the host of rank 0 with: mpirun -x PYREACTANT_COORDINATOR_ADDRESS=<host of"
        in error_text
    )


def test_hydra_in_a_job() -> None:
    daemon = DAEMON | {"SLURM_NTASKS": "4"}
    group = resolve(environ=daemon | hydra(4, 3, 4, 3))
    assert (group.source, group.process_index) == ("PMIx", 3)


def test_srun_with_pmi() -> None:
    step = DAEMON | {
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_PROCID": "1",
    }
    for pmi in ({"PMI_SIZE": "2", "PMI_RANK": "1"}, {"PMIX_RANK": "1", "PMIX_NAMESPACE": "x"}):
        group = resolve(environ=step | pmi)
        assert (group.source, group.num_processes, group.process_index) == ("Slurm", 2, 1)


@pytest.mark.parametrize(
    ("around", "inside", "numbers"),
    [
        # mpirun -n 2 in a job of 4 tasks, and -n 4 in a job of one task
        (SHELL, processes([2])[1], "1 of 2, but Slurm numbers it task 0 of 4"),
        (SHELL | {"SLURM_NTASKS": "1"}, processes([4])[3], "3 of 4, but Slurm numbers it task 0"),
        # srun -n 1 mpirun -n 4
        (DAEMON, processes([4])[3], "3 of 4, but Slurm numbers it task 0 of 1"),
        # srun -n 2 mpirun -n 2: each number appears twice
        (
            DAEMON | {"SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"},
            processes([2])[1],
            "1 of 2, but Slurm numbers it task 0 of 2",
        ),
    ],
)
def test_mpirun_and_slurm_disagree(around: Environment, inside: Environment, numbers: str) -> None:
    error_text = message(around | inside)
    assert f"Open MPI numbers this process {numbers}" in error_text
    size = inside["OMPI_COMM_WORLD_SIZE"]
    assert error_text.endswith(f"start with: srun --ntasks={size} --kill-on-bad-exit=1 ...")


def test_prterun_in_a_job_shell_does_not_run_alone() -> None:
    shell = SHELL | {"SLURM_NTASKS": "1", "PMIX_RANK": "0", "PMIX_NAMESPACE": "prterun-h-7@1"}
    assert "PMIx does not give the number of processes" in message(shell)


def test_real_mpirun() -> None:
    require(shutil.which("mpirun"), "mpirun, of Debian's openmpi-bin")
    program = (
        "import dataclasses, json; from pyreactant.process.group import resolve;"
        # One write: mpirun forwards each write, and print() writes the end of the line separately.
        "print(json.dumps(dataclasses.asdict(resolve())) + chr(10), end='')"
    )
    ran = harness.run(
        [
            "mpirun",
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            "3",
            sys.executable,
            "-c",
            program,
        ],
        env=environment(CUDA_VISIBLE_DEVICES=""),
    )
    assert ran.returncode == 0, ran.stderr
    groups = [json.loads(line) for line in ran.stdout.splitlines()]
    assert sorted(g.pop("process_index") for g in groups) == [0, 1, 2]
    assert groups[0] == groups[1] == groups[2]
    assert groups[0]["num_processes"] == 3
    assert re.fullmatch(r"127\.0\.0\.1:6\d{4}", groups[0]["coordinator_address"])
    assert groups[0]["source"] == "Open MPI"
    assert groups[0]["run_id"]
    assert len(set(groups[0]["hosts"])) == 1
