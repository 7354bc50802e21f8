"""Launchers of plain variables: what says that there are several processes never runs as one."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyreactant as pr
from pyreactant.process.group import resolve
from pyreactant.process.group.cloud_tpu import gke
from pyreactant.process.group.mpi import open_mpi
from pyreactant.process.group.plain import LAUNCHERS, Launcher
from pyreactant.process.group.slurm import slurm
from tests.harness import REPOSITORY

JAX = {"JAX_COORDINATOR_ADDRESS": "h:6666", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
MPI = {
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
ONE_TASK = {
    "SLURM_JOB_ID": "14",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NODELIST": "gpu07",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}
STEP = ONE_TASK | {
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "a,b",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
ONE_HOST = {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
SHELL = {"SLURM_JOB_ID": "14", "SLURM_NTASKS": "1"}


@pytest.mark.parametrize(
    ("environ", "source", "address"),
    [
        (JAX, "JAX_*", "h:6666"),
        (JAX | {"JAX_COORDINATOR_ADDRESS": "h", "JAX_COORDINATOR_PORT": "7"}, "JAX_*", "h:7"),
        (JAX | {"PYREACTANT_COORDINATOR_ADDRESS": "g:1"}, "JAX_*", "g:1"),
        (
            {
                "COORDINATOR_ADDRESS": "job-worker-0",
                "COORDINATOR_PORT": "6666",
                "NUM_PROCESSES": "2",
                "PROCESS_ID": "1",
            },
            "JAXJob",
            "job-worker-0:6666",
        ),
        (
            {
                "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
                "SKYPILOT_NUM_NODES": "2",
                "SKYPILOT_NODE_RANK": "1",
            },
            "SkyPilot",
            "10.0.0.1:",
        ),
    ],
)
def test_resolved(environ: dict[str, str], source: str, address: str) -> None:
    group = resolve(environ=environ)
    assert (group.num_processes, group.process_index, group.source) == (2, 1, source)
    assert (group.coordinator_address or "").startswith(address)


_SEVERAL = {
    "number": "2",
    "index": "1",
    "hosts": "a,b",
    "cluster": '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"index": 0}}',
}


@dataclasses.dataclass(frozen=True)
class Said:
    """A row of docs/run.md: variables, and what they say."""

    names: tuple[str, ...]
    kind: str
    what: str

    def several(self, name: str) -> dict[str, str]:
        """An environment in which one of the variables says that there are two processes."""
        value = _SEVERAL[self.kind]
        return {**({"SLURM_JOB_ID": "14"} if name.startswith("SLURM_") else {}), name: value}


def documented() -> list[Said]:
    text = (REPOSITORY / "docs" / "run.md").read_text().partition("## Launchers")[2]
    rows = [line.strip("| ").split(" | ") for line in text.partition("\n\nA shell")[0].splitlines()]
    return [
        Said(tuple(re.findall("`(\\w+)`", row[0])), row[1], row[3]) for row in rows if len(row) == 4
    ][1:]


ROWS = documented()
SAYING = [(row, name) for row in ROWS if row.kind != "-" for name in row.names]


@pytest.mark.parametrize(("row", "name"), SAYING, ids=[name for _, name in SAYING])
def test_none_alone_says_several_in_vain(row: Said, name: str) -> None:
    """One variable is not enough to resolve a run: it, or what is absent beside it, is named."""
    environ = row.several(name)
    with pytest.raises(pr.InvalidArgumentError) as caught:
        resolve(environ=environ)
    assert name.partition("_")[0].upper() in str(caught.value).upper()
    assert resolve(environ=environ | {"PYREACTANT_NUM_PROCESSES": "1"}).num_processes == 1


@pytest.mark.parametrize("name", [name for row in ROWS if row.kind == "-" for name in row.names])
def test_the_others_say_nothing_alone(name: str) -> None:
    # An address without the numbers is half of what is needed.
    if "ADDRESS" not in name or name in ("MEGASCALE_COORDINATOR_ADDRESS", "RAY_ADDRESS"):
        assert resolve(environ={name: "7"} | ONE_TASK).num_processes == 1


@pytest.mark.parametrize("launcher", [row for row in LAUNCHERS if not row.address_of])
def test_one_process_of_a_launcher(launcher: Launcher) -> None:
    said = dict.fromkeys(launcher.counts.split(), "1") | dict.fromkeys(
        launcher.indexes.split(), "0"
    )
    assert resolve(environ=said).num_processes == 1


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"JAX_NUM_PROCESSES": "2"}, "JAX_PROCESS_ID must be set beside"),
        ({"JAX_PROCESS_ID": "1"}, "JAX_NUM_PROCESSES must be set beside"),
        (JAX | {"JAX_COORDINATOR_ADDRESS": ""}, "JAX_COORDINATOR_ADDRESS must be set beside"),
        (JAX | {"JAX_COORDINATOR_ADDRESS": "h"}, "JAX_COORDINATOR_PORT must be set beside"),
        (
            JAX | {"JAX_PROCESS_ID": "2"},
            "JAX_PROCESS_ID must be from 0 to 1 with JAX_NUM_PROCESSES=2, got 2",
        ),
        (
            JAX | {"JAX_COORDINATOR_ADDRESS": "::1:80"},
            r"JAX_COORDINATOR_ADDRESS must have the form host:port or \[IPv6\]:port .*got '::1:80'",
        ),
        ({"NNODES": "2:4"}, "NNODES=2:4 .from xpk. means"),
        ({"SM_HOSTS": '["algo-1","algo-2"]'}, "from SageMaker. means"),
        ({"TPU_PROCESS_BOUNDS": "2,1,1"}, "TPU_PROCESS_BOUNDS=2,1,1 .from Cloud TPU. means"),
        (
            {"PYREACTANT_NUM_PROCESSES": "2_0", "PYREACTANT_PROCESS_INDEX": "0"},
            "PYREACTANT_NUM_PROCESSES must be a whole number, got '2_0'",
        ),
        (
            {"PYREACTANT_NUM_PROCESSES": "2", "PYREACTANT_PROCESS_INDEX": "2"},
            "PYREACTANT_PROCESS_INDEX must be from 0 to 1 with PYREACTANT_NUM_PROCESSES=2, got 2",
        ),
        ({"JAX_NUM_PROCESSES": "-2"}, "JAX_NUM_PROCESSES must be a whole number from 0, got '-2'"),
        (
            {"JAX_NUM_PROCESSES": "9" * 5000},
            "JAX_NUM_PROCESSES must be a whole number from 0, got '9{79}; correct or unset it",
        ),
        ({"JAX_NUM_PROCESSES": "2.0"}, "must be a whole number from 0, got '2.0'; correct or"),
        (JAX | {"JAX_NUM_PROCESSES": "9999999"}, "JAX_NUM_PROCESSES must be at most 1000000"),
        ({"NNODES": "1:2"}, "NNODES=1:2 .from xpk. means"),
        ({"NNODES": "1:x"}, "NNODES must be a whole number, or two such as 1:2, got '1:x'"),
        ({"PET_NPROC_PER_NODE": "all"}, "must be a whole number, auto, cpu, gpu or xpu, got 'all'"),
        ({"TF_CONFIG": '["a"]'}, "TF_CONFIG must be a JSON object with a cluster"),
        (
            {"CLUSTER_SPEC": '{"cluster": {"workerpool0": ["a:1"], "workerpool1": ["b:1"]}}'},
            ".from Vertex AI. means",
        ),
        ({"SM_HOSTS": "algo-1,algo-2"}, "SM_HOSTS must be a JSON list of host names"),
        (
            {"TPU_PROCESS_BOUNDS": "2,x"},
            "TPU_PROCESS_BOUNDS must be whole numbers from 1 such as 2,1,1",
        ),
        (ONE_TASK | {"LOCAL_RANK": "a"}, "LOCAL_RANK must be a whole number from 0, got 'a'"),
        (JAX | {"JAX_COORDINATOR_PORT": "7"}, "JAX_COORDINATOR_PORT=7 give two ports of process 0"),
        (
            JAX | {"NUM_PROCESSES": "2", "PROCESS_ID": "1", "COORDINATOR_ADDRESS": "h:7"},
            r"JAX_COORDINATOR_ADDRESS=h:6666 .from JAX_\*. and NUM_PROCESSES=2, PROCESS_ID=1, "
            "COORDINATOR_ADDRESS=h:7 .from JAXJob. describe two runs",
        ),
        (
            {
                "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
                "SKYPILOT_NUM_NODES": "3",
                "SKYPILOT_NODE_RANK": "1",
            },
            "SKYPILOT_NODE_IPS must list one host for each of SKYPILOT_NUM_NODES=3, got 2",
        ),
        (
            {
                "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
                "SKYPILOT_NUM_NODES": "1",
                "SKYPILOT_NODE_RANK": "0",
            },
            "one host for each of SKYPILOT_NUM_NODES=1, got 2",
        ),
        (
            MPI | {"PMI_SIZE": "1", "PMI_RANK": "0"},
            "OMPI_COMM_WORLD_SIZE=2 contradicts PMI_SIZE=1: two launchers",
        ),
        (
            MPI | ONE_TASK | {"PMI_SIZE": "1", "PMI_RANK": "0"},  # of srun --mpi=pmi2
            "Open MPI numbers this process 0 of 2, but Slurm numbers it task 0 of 1; leave mpirun "
            "out and start with: srun --ntasks=2",
        ),
        (
            ONE_HOST | {"JAX_COORDINATOR_ADDRESS": "h:1"},
            "TPU on GKE says that this process is the only one, but JAX_COORDINATOR_ADDRESS=h:1 "
            "says that it is one of several; set .* PYREACTANT_NUM_PROCESSES=1 to run alone",
        ),
        (
            ONE_TASK | {"JAX_COORDINATOR_ADDRESS": "h:1"},
            "Slurm says that this process is the only one, but JAX_COORDINATOR_ADDRESS=h:1 says",
        ),
        ({"TPU_PROCESS_BOUNDS": "0,1"}, "TPU_PROCESS_BOUNDS must be whole numbers from 1"),
        (JAX | {"JAX_COORDINATOR_ADDRESS": "h:0"}, "with a port from 1 to 65535, .*got 'h:0'"),
        (JAX | {"JAX_COORDINATOR_ADDRESS": "h:x"}, "JAX_COORDINATOR_ADDRESS must .*got 'h:x'"),
        (
            JAX | {"JAX_COORDINATOR_ADDRESS": "h", "JAX_COORDINATOR_PORT": "-1"},
            "JAX_COORDINATOR_ADDRESS must .* its port in JAX_COORDINATOR_PORT, got 'h:-1'",
        ),
        (STEP | {"SLURM_PROCID": "2"}, "SLURM_PROCID must be from 0 to 1 with SLURM_STEP_NUM_T"),
        (STEP | {"SLURM_STEP_NUM_TASKS": "0"}, "SLURM_STEP_NUM_TASKS must be 1 or more, got 0"),
        (SHELL | {"SLURM_NTASKS": "0"}, "SLURM_NTASKS must be 1 or more, got 0"),
        ({"SLURM_JOB_ID": "14", "SLURM_NNODES": "-2"}, "SLURM_NNODES must be 1 or more, got -2"),
        (
            MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "3"},
            "OMPI_COMM_WORLD_LOCAL_SIZE must be from 1 to 2, the number of all processes, got 3",
        ),
        (
            MPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "5"},
            "OMPI_COMM_WORLD_LOCAL_RANK must be from 0 to 1 with OMPI_COMM_WORLD_LOCAL_SIZE=2",
        ),
        (MPI | {"PMIX_RANK": "1"}, "OMPI_COMM_WORLD_RANK=0 contradicts PMIX_RANK=1"),
        (MPI | {"PMI_RANK": "1"}, "OMPI_COMM_WORLD_RANK=0 contradicts PMI_RANK=1: two launchers"),
        ({"PYREACTANT_JOB_REPLICAS": "2"}, "PYREACTANT_JOB_INDEX must be set beside"),
        (JAX | {"JAX_PROCESS_ID": "a"}, "JAX_PROCESS_ID must be a whole number from 0, got 'a'"),
        (
            {"JAX_COORDINATOR_ADDRESS": "h:1"},
            "JAX_COORDINATOR_ADDRESS set but not JAX_NUM_PROCESSES, JAX_PROCESS_ID; set all three",
        ),
    ],
)
def test_incomplete(environ: dict[str, str], message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        resolve(environ=environ)


@pytest.mark.parametrize("alone", [ONE_TASK, ONE_HOST, SHELL])
def test_two_launchers_that_disagree(alone: dict[str, str]) -> None:
    """Such as the pods of a TrainJob that each have a TPU slice of one host."""
    assert resolve(environ=alone).num_processes == 1
    with pytest.raises(pr.InvalidArgumentError, match="is the only one, but JAX_NUM_PROCESSES=2"):
        resolve(environ=alone | JAX)
    assert resolve(environ=alone | JAX | {"PYREACTANT_NUM_PROCESSES": "1"}).num_processes == 1


@pytest.mark.parametrize("name", ["SLURM_NTASKS", "SLURM_NPROCS"])
def test_tasks_of_slurm_without_the_job(name: str) -> None:
    """Such as a container to which a part of the environment was passed on."""
    with pytest.raises(pr.InvalidArgumentError, match=f"^{name}=2 says .* SLURM_JOB_ID is not set"):
        resolve(environ={name: "2"})
    for more in ({name: "1"}, {name: "2", "PYREACTANT_NUM_PROCESSES": "1"}):
        assert resolve(environ=more).num_processes == 1
    assert resolve(environ=JAX | {name: "2"}).source == "JAX_*"  # another launcher decides


_NAMES = sorted({name for row in ROWS for name in row.names})
_VALUES = st.sampled_from(["0", "1", "2", "3", " 2", "+2", "", "h:1", "h", "a,b"])


@given(st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=6), st.booleans(), st.booleans())
def test_whatever_says_several_never_runs_alone(
    environ: dict[str, str], task: bool, host: bool
) -> None:
    """By the table of docs/run.md, which knows nothing of the code."""
    environ = {**(ONE_TASK if task else {}), **(ONE_HOST if host else {}), **environ}
    said = [
        environ[name].strip("+ ").isdecimal() and int(environ[name]) > (row.kind == "number")
        if row.kind in ("number", "index")
        else "," in environ[name]
        for row in ROWS
        for name in row.names
        if row.kind != "-" and environ.get(name) and not name.startswith("SLURM_")
    ]
    try:
        group = resolve(environ=environ)
    except pr.InvalidArgumentError:
        return
    assert group.num_processes > 1 or not any(said)


_READ = sorted(
    name
    for row in ROWS
    if row.kind != "-" and not row.names[0].startswith("SLURM_")
    for name in row.names
)
_UNREADABLE = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1).filter(
    lambda text: not any(c.isdigit() or c in ", " for c in text) and text.strip().isprintable()
)


@given(st.sampled_from(_READ), _UNREADABLE | st.sampled_from(["-1", "1.0", "0x2", "1e3", "2_0"]))
def test_what_cannot_be_read_is_refused_by_its_name(name: str, text: str) -> None:
    """Such a value once meant one process. A list of hosts may be any text: one host."""
    kind = next(row.kind for row in ROWS if name in row.names)
    words = "PET_NPROC_PER_NODE"  # torchrun's agent takes words, too
    if (kind == "hosts" and name != "SM_HOSTS") or (name == words and text in ("auto", "gpu")):
        return
    with pytest.raises(pr.InvalidArgumentError) as caught:
        resolve(environ={name: text})
    assert name.partition("_")[0] in str(caught.value)  # or the one that is absent beside it


def test_the_documentation_lists_every_variable() -> None:
    listed = {name for row in ROWS for name in row.names}
    known = {name for row in LAUNCHERS for name in row.variables}
    for resolver in (slurm, open_mpi, gke):  # what they saw of an environment with everything
        everything = dict.fromkeys(listed, "1") | ONE_TASK
        known |= {*resolver(everything).evidence}
    gpus = {name for name in known if "GPU" in name or "TRES" in name or "VISIBLE" in name}
    assert known - gpus - listed - {"PYREACTANT_LOCAL_DEVICE_IDS"} == set()


@pytest.mark.parametrize(
    "environ",
    [
        {"TF_CONFIG": '{"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}}'},
        {"TF_CONFIG": '{"cluster": {"worker": "a:1"}}'},
        {"TF_CONFIG": "{}"},
        {"SM_HOSTS": '["algo-1"]'},
        {"TPU_PROCESS_BOUNDS": "1,1,1"},
        {"NNODES": "1:1"},
        JAX | {"JAX_NUM_PROCESSES": "1", "JAX_PROCESS_ID": "0"},
        {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": "0"},
        {"WORLD_SIZE": "", "TF_CONFIG": "", "JAX_NUM_PROCESSES": ""},
    ],
)
def test_such_a_value_says_one_process(environ: dict[str, str]) -> None:
    assert resolve(environ=environ).num_processes == 1
