"""Pods of a JobSet, with the manifest of docs/kubernetes.md, and slices with MEGASCALE_*."""

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

import pyreactant as pr
from pyreactant.process.group import resolve
from tests.harness import REPOSITORY

Environment = dict[str, str]
MANIFEST = re.findall(
    r"```yaml\n(.*?)```", (REPOSITORY / "docs" / "kubernetes.md").read_text(), re.S
)


def number(name: str) -> int:
    """A number in the manifest."""
    return int(re.findall(rf"\b{name}: (\d+)", MANIFEST[0])[0])


def pods() -> list[Environment]:
    """The environment that Kubernetes gives to each pod of the manifest."""
    (manifest,) = MANIFEST
    replicas, parallelism = number("replicas"), number("parallelism")
    entry = r"- name: (PYREACTANT_\w+)\n\s+(?:value: \"?([^\s\"]+)|valueFrom:\n\s+\w+:\n\s+(.*))"
    entries = re.findall(entry, manifest)
    assert len(entries) == 5
    found = []
    for replica in range(replicas):
        labels = {"job-index": str(replica), "replicatedjob-replicas": str(replicas)}
        for pod in range(parallelism):
            environ = {"JOB_COMPLETION_INDEX": str(pod)}
            for name, value, source in entries:
                label = re.search(r"jobset.sigs.k8s.io/([\w-]+)", source)
                environ[name] = labels[label[1]] if label else value or "s" * 32
            found.append(environ)
    return found


def test_the_manifest_of_the_documentation() -> None:
    groups = [resolve(environ=environ) for environ in pods()]
    assert [g.process_index for g in groups] == list(range(8))
    assert {(g.num_processes, g.coordinator_address, g.source) for g in groups} == {
        (8, "train-slice-0-0.train:8482", "JobSet")
    }
    assert number("replicas") * number("parallelism") == 8
    assert number("completions") == number("parallelism")


def test_slices_that_gke_describes() -> None:
    """With MEGASCALE_*, nothing is passed on, and the slices are in their order."""
    found = []
    for replica in range(2):
        for worker in range(4):
            names = [f"train-slice-{replica}-{w}.train" for w in range(4)]
            environ = {
                "JOB_COMPLETION_INDEX": str(worker),
                "TPU_WORKER_ID": str(worker),
                "TPU_WORKER_HOSTNAMES": ",".join(names),
                "MEGASCALE_NUM_SLICES": "2",
                "MEGASCALE_SLICE_ID": str(replica),
                "MEGASCALE_COORDINATOR_ADDRESS": "train-slice-0-0.train",
            }
            found.append(resolve(environ=environ))
            if replica == 0:
                continue
            with pytest.raises(pr.InvalidArgumentError, match=f"JAX_PROCESS_ID={worker}, which"):
                resolve(environ=environ | {"JAX_PROCESS_ID": str(worker)})
            resolve(environ=environ | {"JAX_PROCESS_ID": str(4 + worker)})
    assert [g.process_index for g in found] == list(range(8))
    assert {g.coordinator_address for g in found} == {"train-slice-0-0.train:8482"}
    assert {g.source for g in found} == {"Cloud TPU on GKE"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"JAX_PROCESS_ID": "1"},
            "process 5 of 8 in a run of several slices, but JAX_PROCESS_ID=1",
        ),
        ({"JOB_COMPLETION_INDEX": ""}, "JOB_COMPLETION_INDEX must be set beside"),
        ({"JOB_COMPLETION_INDEX": "4"}, "JOB_COMPLETION_INDEX must be from 0 to 3 with"),
        ({"PYREACTANT_JOB_INDEX": "2"}, "PYREACTANT_JOB_INDEX must be from 0 to 1 with"),
        ({"PYREACTANT_JOB_INDEX": "-1"}, "PYREACTANT_JOB_INDEX must be from 0 to 1 with"),
        ({"PYREACTANT_JOB_INDEX": "one"}, "PYREACTANT_JOB_INDEX must be a whole number"),
        ({"PYREACTANT_JOB_REPLICAS": ""}, "PYREACTANT_JOB_REPLICAS must be set beside"),
        ({"PYREACTANT_JOB_REPLICAS": "3"}, "must be a multiple of PYREACTANT_JOB_REPLICAS, got 8"),
        ({"PYREACTANT_JOB_REPLICAS": "0"}, "must be a multiple of PYREACTANT_JOB_REPLICAS, got 8"),
        ({"PYREACTANT_NUM_PROCESSES": ""}, "PYREACTANT_NUM_PROCESSES must be set beside"),
        ({"PYREACTANT_COORDINATOR_ADDRESS": ""}, "PYREACTANT_COORDINATOR_ADDRESS must be set"),
    ],
)
def test_contradictions(change: Environment, expected: str) -> None:
    with pytest.raises(pr.InvalidArgumentError) as caught:
        resolve(environ=pods()[5] | change)
    assert expected in str(caught.value)


def test_an_index_of_ours_wins() -> None:
    """So a supervisor's programs have the index that it gives them."""
    group = resolve(environ=pods()[5] | {"PYREACTANT_PROCESS_INDEX": "3"})
    assert (group.process_index, group.source) == (3, "environment")


def test_an_indexed_job_alone_is_no_jobset() -> None:
    assert resolve(environ={"JOB_COMPLETION_INDEX": "1"}).source == "one process"


@given(
    st.dictionaries(
        st.sampled_from(sorted({*pods()[0], "JAX_PROCESS_ID"})), st.text("-019x", max_size=3)
    )
)
def test_any_pod_is_resolved_or_explained(change: Environment) -> None:
    try:
        group = resolve(environ=pods()[5] | change)
    except pr.InvalidArgumentError:
        return
    assert 0 <= group.process_index < group.num_processes
