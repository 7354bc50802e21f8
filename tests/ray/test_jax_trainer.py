"""A train loop of Ray Train's JaxTrainer, on four workers of a pretended slice."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(900)  # the first test also starts the cluster


def test_initialize_takes_over_the_trainers_processes(trained: dict[str, Any]) -> None:
    for index, worker in enumerate(trained["workers"]):
        assert (worker["num_processes"], worker["process"], worker["rank"]) == (4, index, index)
        assert worker["sum"] == 2016.0


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


def test_preemption_is_asked_of_ray(trained: dict[str, Any]) -> None:
    assert [(w["before"], w["after"]) for w in trained["workers"]] == [(False, True)] * 4


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
