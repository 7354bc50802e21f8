"""One Ray cluster: a Ray Job, the laws of jobs, failures, and a train loop of JaxTrainer."""

import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.ray.cluster import Cluster

pytestmark = pytest.mark.timeout(900)  # the first test may start the cluster


def test_a_reduction_over_a_slice_as_a_ray_job(on_ray: Cluster, reduced: str) -> None:
    """Every host runs the function, in the slice's order, and process 0's value comes back."""
    assert "result {'hosts': 4, 'devices': 4, 'sum': array(240., dtype=float32)}" in reduced
    assert "process 0 on TPU worker 0\n" in reduced
    assert "process 1 on TPU worker" not in reduced, "a blocking call shows process 0's lines"
    assert "succeeded" in reduced


def test_a_killed_worker_is_named_and_a_queue_can_be_left(lost: str) -> None:
    assert "lost was named\n" in lost
    assert (
        "waits for 1 host with 1 CPU and 1 GPU; the cluster has 8 CPU and 0 GPU in total\n" in lost
    )
    assert "cancelled: cancelled 130\n" in lost


@pytest.mark.slow
def test_the_law_of_values_from_a_machine_outside(from_outside: str) -> None:
    """What every target must do with arguments and values."""
    assert from_outside.endswith("the law holds\n")


@pytest.mark.slow
def test_the_other_laws(lawful: str, full: str) -> None:
    assert lawful.endswith("the law holds\n")
    assert full.endswith("the law holds\n")


@pytest.mark.slow
def test_the_submitting_process_is_killed(killed: str) -> None:
    assert killed.endswith("the law holds\n")


@pytest.mark.slow
def test_initialize_takes_over_the_trainers_processes(trained: dict[str, Any]) -> None:
    for index, worker in enumerate(trained["workers"]):
        assert (worker["num_processes"], worker["process"], worker["rank"]) == (4, index, index)
        assert worker["sum"] == 2016.0


@pytest.mark.slow
def test_metrics_and_checkpoint_come_back(trained: dict[str, Any]) -> None:
    """The numbers are process 0's or over all; the files are those of all processes."""
    metrics = trained["metrics"]
    mean = sum(worker["loss"] for worker in trained["workers"]) / 4
    assert metrics == {"loss": pytest.approx(mean), "epoch": 4, "step": 6, "process": 3}
    files = sorted(path.name for path in Path(trained["checkpoint"]).iterdir())
    assert [name for name in files if name.startswith("params")] == [
        f"params-{i}.json" for i in range(4)
    ]
    assert f"Training finished. Final loss: {metrics['loss']:.4f}" in trained["log"]


@pytest.mark.slow
def test_preemption_is_asked_of_ray(trained: dict[str, Any]) -> None:
    assert [(w["before"], w["after"]) for w in trained["workers"]] == [(False, True)] * 4


@pytest.mark.slow
def test_mistakes_in_a_train_loop(trained: dict[str, Any]) -> None:
    """A folder that is absent on one process is an error on all."""
    for index, worker in enumerate(trained["workers"]):
        backend, count, folder, different, unknown = worker["mistakes"]
        assert different == (
            "report(reduce=) must be the same on every process, got {} on process 0 and "
            "{'loss': 'mean'} on process 1"
        )
        assert "reduce names 'absent', which the last pr.log of this process" in unknown
        assert "backend 'reactant' was requested in a train loop of Ray Train" in backend
        assert "initialize was asked for num_processes=3, but" in count
        prefix = "" if index == 2 else "report failed on process 2: "
        assert folder == f"{prefix}the checkpoint 'absent' is not a folder"


def test_nothing_is_left_on_the_hosts(on_ray: Cluster, started: dict[str, Future[Any]]) -> None:
    for driver in started.values():
        driver.result()

    def found() -> list[Path]:
        patterns = "r/**/pyreactant-*", "pyreactant-*", "pyreactant-*/**/*"
        return [path for pattern in patterns for path in on_ray.folder.glob(pattern)]

    deadline = time.monotonic() + 60
    while found() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found() == []
