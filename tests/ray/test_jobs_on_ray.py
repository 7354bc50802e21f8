"""`pyreactant.targets.Ray` on a real cluster: the source document's example, the laws, failures."""

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


def test_the_law_of_values_from_a_machine_outside(from_outside: str) -> None:
    """What every target must do with arguments and values."""
    assert from_outside.endswith("the law holds\n")


def test_the_other_laws(lawful: str, full: str) -> None:
    assert lawful.endswith("the law holds\n")
    assert full.endswith("the law holds\n")


def test_the_submitting_process_is_killed(killed: str) -> None:
    assert killed.endswith("the law holds\n")


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
