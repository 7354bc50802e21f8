"""make_mesh: what it asks of a runtime, and the order where no network is known."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.jax.convert import hardware_order
from tests.backend.nothing import NothingBackend, running_nothing


def test_hosts_keep_the_order_of_processes() -> None:
    for platform in ("cpu", "gpu"):
        with running_nothing(2, 4, platform):
            mesh = pr.make_mesh((2, -1), ("x", "y"), axis_types=("auto", "explicit"))
        assert mesh == pr.Mesh((2, 4), ("x", "y"), axis_types=("auto", "explicit"))


def test_the_order_of_a_runtime() -> None:
    asked: list[Any] = []

    def order(backend: NothingBackend, shape: tuple[int, ...], split: bool | None) -> Any:
        asked.append((shape, split))
        return (1, 0, 3, 2)

    with (
        running_nothing(2, 2, "tpu"),
        mock.patch.object(NothingBackend, "hardware_order", order),
    ):
        mesh = pr.make_mesh((-1, 2), ("x", "y"), axis_types=("explicit", "auto"))
        pr.make_mesh((4,), ("x",), allow_split_physical_axes=True)
    assert mesh == pr.Mesh((2, 2), ("x", "y"), (1, 0, 3, 2), axis_types=("explicit", "auto"))
    assert asked == [((2, 2), None), ((4,), True)]


def test_a_runtime_that_does_not_know_where_its_devices_are() -> None:
    with (
        running_nothing(2, 4, "tpu"),
        pytest.raises(pr.RequirementError) as raised,
    ):
        pr.make_mesh((2, 4), ("x", "y"))
    assert "needs the coordinates of TPU devices, which the runtime 'nothing' does" in str(
        raised.value
    )
    assert "pyreactant.Mesh((2, 4), ..., device_ids=...)" in str(raised.value)


@pytest.mark.parametrize(
    ("shape", "names", "message"),
    [
        ((2, 2), ("x", "y"), r"Mesh\(x=2, y=2\) uses 4 of 8 devices"),
        ((4, 4), ("x", "y"), "needs 16 devices"),
        ((2, 4), ("x",), "needs 2 axis names, got 1"),
        ((3, -1), ("x", "y"), "needs a multiple of 3 devices of the run"),
    ],
)
def test_messages(shape: tuple[int, ...], names: tuple[str, ...], message: str) -> None:
    with running_nothing(2, 4), pytest.raises(pr.ShardingError, match=message):
        pr.make_mesh(shape, names)


def host(number: int, platform: str, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(id=number, platform=platform, device_kind=platform, **more)


def test_jax_without_a_torus() -> None:
    """CPU devices keep their order, also if JAX numbers the processes otherwise than we do."""
    cpus = [host(number, "cpu") for number in (2048, 2049, 0, 1)]
    assert hardware_order((2, 2), cpus) == (0, 1, 2, 3)
    gpus = [host(number, "gpu", slice_index=0) for number in (2, 3, 0, 1)]
    assert hardware_order((2, 2), gpus) == (2, 3, 0, 1)
    nodes = [host(number, "gpu", slice_index=number % 2) for number in range(4)]
    assert hardware_order((2, 2), nodes) == (0, 2, 1, 3)
    with pytest.raises(pr.ShardingError, match="lays 2 slices along the first axes"):
        hardware_order((3, 2), [host(i, "gpu", slice_index=i // 3) for i in range(6)])
    uneven = [host(i, "gpu", slice_index=int(i > 2)) for i in range(4)]
    with pytest.raises(pr.ShardingError, match=r"network of 4 gpu, got \(2, 2\): Number of dev"):
        hardware_order((2, 2), uneven)
