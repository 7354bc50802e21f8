"""Pods of a JobSet, with the manifest of docs/kubernetes.md, and slices with MEGASCALE_*."""

import re
import shlex
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

import pyreactant as pr
from pyreactant.process.group import resolve
from pyreactant.process.group.cloud_tpu import megascale_of_jobset
from tests import harness
from tests.harness import REPOSITORY
from tests.kubernetes.pods import jobset_of
from tests.kubernetes.pods import pods as pods_of

Environment = dict[str, str]
PAGE = (REPOSITORY / "docs" / "kubernetes.md").read_text()
(COMMAND,) = re.findall(r"```bash\n(pyreactant run [^`]*--dry-run[^`]*)\n```", PAGE)
(MANIFEST,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)


def pods() -> list[Environment]:
    """The environment that Kubernetes gives to each pod of the manifest."""
    return [environ for _, environ in pods_of(jobset_of([*yaml.safe_load_all(MANIFEST)]))]


def test_the_manifest_of_the_documentation(tmp_path: Path) -> None:
    """It is what the command prints, and its pods find the number of their process."""
    (tmp_path / "train.py").write_text("\n")
    argv = [sys.executable, "-m", "pyreactant", *shlex.split(COMMAND)[1:]]
    done = harness.run(argv, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == MANIFEST
    groups = [resolve(environ=environ) for environ in pods()]
    assert [g.process_index for g in groups] == list(range(8))
    assert {(g.num_processes, g.coordinator_address, g.source) for g in groups} == {
        (8, "pr-id-worker-0-0.pr-id:8482", "JobSet")
    }


def test_an_address_of_the_user_wins() -> None:
    environ = pods()[5] | {"PYREACTANT_COORDINATOR_ADDRESS": "10.0.0.1:99"}
    assert resolve(environ=environ).coordinator_address == "10.0.0.1:99"


MEGASCALE = ("MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS")
FIRST = "pr-id-worker-0-0.pr-id"


@pytest.mark.parametrize(
    ("replicas", "given", "expected"),
    [
        ("2", (), {}),  # no slice
        ("2", ("2", "1", FIRST), {}),
        ("2", ("2", "1", f"{FIRST}:8080"), {}),
        ("2", ("3", "1", FIRST), {"MEGASCALE_NUM_SLICES": "2"}),
        ("2", ("2", "0", FIRST), {"MEGASCALE_SLICE_ID": "1"}),
        ("2", ("2", "1", "other"), {"MEGASCALE_COORDINATOR_ADDRESS": FIRST}),
        ("1", ("1", "0", FIRST), {}),
        ("1", ("3", "0", FIRST), dict.fromkeys(MEGASCALE)),
    ],
)
def test_what_a_provider_says_of_slices(
    replicas: str, given: tuple[str, ...], expected: dict[str, str | None]
) -> None:
    own = pods()[5] | {"PYREACTANT_JOB_REPLICAS": replicas}
    assert megascale_of_jobset(own | dict(zip(MEGASCALE, given, strict=False))) == expected
    own.pop("PYREACTANT_JOB_HOST")
    assert megascale_of_jobset(own | dict(zip(MEGASCALE, given, strict=False))) == {}


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
        ({"PYREACTANT_JOB_HOST": ""}, "PYREACTANT_COORDINATOR_ADDRESS must be set"),
    ],
)
def test_contradictions(change: Environment, expected: str) -> None:
    with pytest.raises(pr.InvalidArgumentError) as caught:
        resolve(environ=pods()[5] | change)
    assert expected in str(caught.value)


def test_an_index_of_ours_wins() -> None:
    """So a supervisor's programs have the index that it gives them."""
    group = resolve(
        environ=pods()[5]
        | {"PYREACTANT_PROCESS_INDEX": "3", "PYREACTANT_COORDINATOR_ADDRESS": "first:1"}
    )
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
