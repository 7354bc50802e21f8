"""Launchers of plain variables: what says that there are several processes never runs as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyreactant as pr
from pyreactant.process.group import resolve
from pyreactant.process.group.plain import LAUNCHERS, Launcher
from tests.harness import REPOSITORY

JAX = {"JAX_COORDINATOR_ADDRESS": "h:6666", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
ONE_TASK = {
    "SLURM_JOB_ID": "14",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NODELIST": "gpu07",
    "SLURM_STEP_TASKS_PER_NODE": "1",
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


@pytest.mark.parametrize(
    "launcher", [row for row in LAUNCHERS if not row.address], ids=lambda row: row.name
)
def test_refused_by_the_names_of_the_variables(launcher: Launcher) -> None:
    said = {launcher.count: "2", launcher.index: "1"}
    said.pop("", None)
    with pytest.raises(pr.InvalidArgumentError) as caught:
        resolve(environ=said)
    for name, value in said.items():
        assert f"{name}={value}" in str(caught.value)
    assert "PYREACTANT_NUM_PROCESSES=1 to run alone" in str(caught.value)
    assert resolve(environ=said | {"PYREACTANT_NUM_PROCESSES": "1"}).num_processes == 1
    assert resolve(environ={name: str(int(value) - 1) for name, value in said.items()}).source == (
        "one process"
    )


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"JAX_NUM_PROCESSES": "2"}, "JAX_PROCESS_ID must be set beside"),
        ({"JAX_PROCESS_ID": "1"}, "JAX_NUM_PROCESSES must be set beside"),
        (JAX | {"JAX_COORDINATOR_ADDRESS": ""}, "JAX_COORDINATOR_ADDRESS must be set beside"),
        (JAX | {"JAX_COORDINATOR_ADDRESS": "h"}, "JAX_COORDINATOR_PORT must be set beside"),
        (JAX | {"JAX_PROCESS_ID": "2"}, "process_index must be from 0 to 1"),
        (JAX | {"JAX_PROCESS_ID": "a"}, "JAX_PROCESS_ID must be a whole number, got 'a'"),
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


_NAMES = sorted({name for row in LAUNCHERS for name in row.variables} | set(ONE_TASK | ONE_HOST))
_VALUES = st.sampled_from(["0", "1", "2", "3", "", "h:1", "h"])


@given(st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=6), st.booleans(), st.booleans())
def test_whatever_says_several_never_runs_alone(
    environ: dict[str, str], task: bool, host: bool
) -> None:
    environ = {**(ONE_TASK if task else {}), **(ONE_HOST if host else {}), **environ}
    several = any(row.says_several(environ) for row in LAUNCHERS)
    try:
        group = resolve(environ=environ)
    except pr.InvalidArgumentError:
        return
    assert group.num_processes > 1 or not several


def test_the_documentation_lists_every_variable() -> None:
    text = (REPOSITORY / "docs" / "run.md").read_text()
    assert not [name for row in LAUNCHERS for name in row.variables if f"`{name}`" not in text]
