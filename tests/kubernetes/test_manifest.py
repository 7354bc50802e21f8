"""The manifests of jobs on Kubernetes: files that they are compared with, and JobSet's own schema.

``python -m tests.kubernetes.test_manifest`` writes the files anew.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

import pyreactant as pr
from pyreactant.process.group import resolve
from pyreactant.runs.places.kubernetes import Kubernetes
from pyreactant.runs.places.kubernetes.manifest import text
from pyreactant.runs.record import draft
from tests.kubernetes.pods import jobset_of, pods
from tests.kubernetes.schema import problems

FILES = Path(__file__).with_name("manifests")

CASES = {
    "cpu": Kubernetes(nodes=2),
    "gpu": Kubernetes(
        image="nvcr.io/nvidia/jax:25.10-py3",
        nodes=2,
        gpus_per_node=8,
        node_selector=("cloud.google.com/gke-accelerator=nvidia-h100-80gb",),
    ),
    "v6e-16": Kubernetes(accelerator_type="v6e-16", lifetime=6.0, timeout=3600.0),
    "two-slices": Kubernetes(accelerator_type="v6e-16", slices=2, max_restarts=5),
    "tpu7x": Kubernetes(accelerator_type="tpu7x-32", namespace="research"),
    "kueue": Kubernetes(
        accelerator_type="v5p-16",
        queue="team-a",
        priority="high",
        service_account="trainer",
        volumes=("gs://my-bucket:/data", "scratch:/scratch"),
        store="gs://my-bucket/jobs/",
        index_url="https://pypi.example/simple",
    ),
    "spot": Kubernetes(
        accelerator_type="v6e-8",
        node_selector=("cloud.google.com/gke-spot=true",),
        tolerations=("cloud.google.com/gke-spot=true:NoSchedule", "maintenance"),
        no_network_policy=True,
    ),
    "pathways": Kubernetes(
        accelerator_type="v6e-16",
        slices=2,
        pathways=True,
        store="gs://my-bucket/jobs",
        queue="team-a",
        priority="high",
        service_account="trainer",
        node_selector=("cloud.google.com/gke-spot=true",),
        tolerations=("cloud.google.com/gke-spot=true:NoSchedule",),
        volumes=("gs://my-bucket:/data",),
        lifetime=6.0,
        max_restarts=5,
    ),
}


def plan(target: Kubernetes) -> str:
    target.check_settings()
    return target.plan(draft("train.py", "kubernetes", target.settings()))


def documents(name: str) -> list[Any]:
    return [*yaml.safe_load_all(plan(CASES[name]))]


@pytest.mark.parametrize("name", CASES)
def test_a_manifest_is_as_its_file(name: str) -> None:
    assert plan(CASES[name]) == (FILES / f"{name}.yaml").read_text()


def test_no_file_is_of_no_case() -> None:
    assert {path.stem for path in FILES.iterdir()} == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_jobset_accepts_it(name: str) -> None:
    assert problems(jobset_of(documents(name))) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("spec", "ttlSecondsAfterFinish"), 5, "ttlSecondsAfterFinish"),
        (("spec", "failurePolicy", "maxRestarts"), "5", "'5' is not of type 'integer'"),
        (("spec", "failurePolicy", "rules", 0, "action"), "Fail", "'Fail' is not one of"),
    ],
)
def test_the_schema_finds_mistakes(path: tuple[Any, ...], value: object, said: str) -> None:
    jobset = jobset_of(documents("cpu"))
    part: Any = jobset
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert any(said in problem for problem in problems(jobset))


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"pathways"}))
def test_each_pod_finds_its_process(name: str) -> None:
    target = CASES[name]
    jobset = jobset_of(documents(name))
    groups = [resolve(environ=environ) for _, environ in pods(jobset)]
    count = target.slices * target.pods
    assert [g.process_index for g in groups] == list(range(count))
    assert {(g.num_processes, g.coordinator_address, g.source) for g in groups} == {
        (count, "pr-id-worker-0-0.pr-id:8482", "JobSet")
    }


def test_what_a_slice_has() -> None:
    """Sizes of slices as GKE names them: https://cloud.google.com/kubernetes-engine/docs/."""
    found = {}
    for name in ("v6e-16", "v6e-8", "v5p-16", "tpu7x-32"):
        jobset = jobset_of([*yaml.safe_load_all(plan(Kubernetes(accelerator_type=name)))])
        job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
        pod = job["template"]["spec"]
        found[name] = (
            *pod["nodeSelector"].values(),
            job["completions"],
            pod["containers"][0]["resources"]["limits"]["google.com/tpu"],
        )
    assert found == {
        "v6e-16": ("tpu-v6e-slice", "4x4", 4, "4"),
        "v6e-8": ("tpu-v6e-slice", "2x4", 1, "8"),
        "v5p-16": ("tpu-v5p-slice", "2x2x2", 2, "4"),
        "tpu7x-32": ("tpu7x", "2x2x4", 4, "4"),
    }


def test_the_longest_names_fit() -> None:
    """The label of process 0's address may have 63 characters, and so may the name of a pod."""
    target = Kubernetes(nodes=65536)
    record = draft("train.py", "kubernetes", {})
    whole = type(record)(record.folder, "20261128-122903-22e8", "train.py", "kubernetes", {})
    jobset = jobset_of([*yaml.safe_load_all(target.plan(whole))])
    names = [(name, environ) for name, environ in pods(jobset)]
    assert len(names[-1][0]) + len("-abcde") <= 63
    assert len(names[0][1]["PYREACTANT_JOB_HOST"]) <= 63


PATHWAYS = {"accelerator_type": "v6e-16", "pathways": True, "store": "gs://mine/jobs"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"image": "python 3"}, "image must be the name of an image, such as python:3.12"),
        ({"image": ""}, "image must be the name of an image"),
        ({"namespace": "Mine"}, "namespace must be a name of lower-case letters"),
        ({"namespace": "a" * 64}, "namespace must be a name of lower-case letters"),
        (
            {"queue": "team a"},
            "queue must be the name of a LocalQueue, of lower-case letters, digits, - and ., "
            "got 'team a'",
        ),
        ({"queue": f"{'a' * 32}.{'b' * 32}"}, "queue must be the name of a LocalQueue"),
        ({"priority": "-x"}, "priority must be the name of a PriorityClass"),
        ({"service_account": "a/b"}, "service_account must be the name of a service account"),
        ({"node_selector": ("spot",)}, "node_selector must be a label of nodes as KEY=VALUE"),
        ({"node_selector": ("a b=true",)}, "node_selector must begin with a label's key"),
        ({"tolerations": ("a=b:Never",)}, "tolerations must be a taint as KEY=VALUE:NoSchedule"),
        ({"tolerations": ("é:NoSchedule",)}, "tolerations must begin with a label's key"),
        ({"volumes": ("/data",)}, "volumes must be CLAIM:/FOLDER or gs://BUCKET:/FOLDER"),
        ({"volumes": ("data:data",)}, "volumes must be CLAIM:/FOLDER"),
        ({"volumes": ("data:/",)}, "volumes must have another folder than /, such as /data"),
        ({"volumes": ("data:/var",)}, "another folder than /var, such as /data"),
        ({"volumes": ("data:/run/pyreactant/sent/..",)}, "another folder than /run/pyreactant"),
        ({"volumes": ("a:/dev/shm/x",)}, "another folder than /dev/shm/x"),
        (
            {"volumes": ("a:/data", "gs://bucket:/data/")},
            "volumes must have a folder of its own each, got /data twice",
        ),
        ({"node_selector": ("a=1", "b=1", "a=2")}, "must have each key once, got a, b, a"),
        ({"max_restarts": 2**31}, "max_restarts must be at most 2147483647, which is JobSet's"),
        ({"pathways": True}, "pathways needs accelerator_type, such as v6e-16"),
        ({"pathways": True, "nodes": 2}, "pathways needs accelerator_type"),
        (
            {**PATHWAYS, "store": None},
            "pathways needs store, such as gs://mine/jobs, for Pathways'",
        ),
        ({"pathways": "yes"}, "pathways must be"),
        ({**PATHWAYS, "nodes": 2}, "a slice has its own nodes and no GPUs"),
        ({**PATHWAYS, "gpus_per_node": 8}, "a slice has its own nodes and no GPUs"),
        ({**PATHWAYS, "backend": "reactant"}, "backend must be one of jax, got 'reactant'"),
        ({**PATHWAYS, "platform": "tpu"}, "all devices of all slices; leave out platform='tpu'"),
        ({**PATHWAYS, "devices_per_process": 4}, "leave out devices_per_process=4"),
        ({"index_url": "https://me:key@x/simple"}, "an index, without a password"),
        ({"nodes": 0}, "nodes must be 1 or more, got 0"),
        ({"slices": 2}, "slices needs accelerator_type, such as v6e-16"),
        ({"accelerator_type": "v6e-16", "nodes": 4}, "a slice has its own nodes and no GPUs"),
        (
            {"accelerator_type": "v6e-16", "devices_per_process": 4},
            "on TPU a process has all devices of its machine; leave out devices_per_process=4",
        ),
        (
            {"gpus_per_node": 8, "devices_per_process": 9},
            "devices_per_process must be at most the 8 of gpus_per_node, got 9",
        ),
        ({"accelerator_type": "v6e-17"}, "no Cloud TPU slice is called 'v6e-17'"),
        ({"accelerator_type": "v3-8"}, "GKE has no nodes with v3; choose v4"),
        ({"platform": "tpu"}, "platform is tpu, but the pods have cpu only"),
        ({"backend": "reactant"}, "backend must be one of jax, got 'reactant'"),
        ({"nodes": 65537}, "a job has at most 65536 pods, got 65537"),
        ({"lifetime": 0.0}, "lifetime must be a positive number"),
        ({"max_restarts": -1}, "max_restarts must be 0 or more"),
    ],
)
def test_what_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(pr.InvalidArgumentError) as caught:
        Kubernetes(**settings).check_settings()
    assert said in str(caught.value)


def test_words_that_fit_in_no_annotation() -> None:
    record = draft("train.py", "kubernetes", {}, program=["train.py", "x" * 300_000])
    with pytest.raises(pr.InvalidArgumentError) as caught:
        Kubernetes().plan(record)
    said = str(caught.value)
    assert said.startswith("the words of the program must have at most 250 KiB with the names of")
    assert said.endswith("and have 293 KiB; put what is long into a file of the code")


PLAIN = st.text() | st.integers() | st.booleans() | st.sampled_from(["yes", "0o1", "1:30", "~", ""])
KEYS = st.text(max_size=100)  # YAML allows no key in one line of more than 1024 characters
TREES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def nests_lists(tree: Any) -> bool:
    """Whether a list is directly in a list, which no object of Kubernetes has."""
    if isinstance(tree, list):
        return any((isinstance(part, list) and part) or nests_lists(part) for part in tree)
    return isinstance(tree, dict) and any(map(nests_lists, tree.values()))


@given(st.lists(st.dictionaries(KEYS, TREES, min_size=1, max_size=3), min_size=1, max_size=2))
def test_any_object_is_read_back(objects: list[dict[str, Any]]) -> None:
    if not any(map(nests_lists, objects)):
        assert [*yaml.safe_load_all(text(objects))] == objects


def written() -> Iterator[str]:
    FILES.mkdir(exist_ok=True)
    for name, target in CASES.items():
        (FILES / f"{name}.yaml").write_text(plan(target))
        yield name


if __name__ == "__main__":
    print(*written())
