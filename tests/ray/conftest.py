"""One cluster for all tests of this folder, and their drivers, which run at the same time."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.ray.cluster import Cluster, cluster
from tests.ray.drivers import ALL


@pytest.fixture(scope="package")
def on_ray() -> Iterator[Cluster]:
    """A head and the four hosts of a pretended v6e-16; they end with the last of the tests."""
    with cluster() as made:
        yield made


@pytest.fixture(scope="package")
def started(
    on_ray: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Any]]]:
    """The drivers of the tests that were chosen; they wait more than they work."""
    names = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    with ThreadPoolExecutor(len(ALL)) as pool:
        yield {
            name: pool.submit(driver, on_ray, tmp_path_factory.mktemp(name))
            for name, driver in ALL.items()
            if name in names
        }


def _found(name: str) -> Any:
    """A fixture: what the driver of that name found or printed."""

    @pytest.fixture(scope="package", name=name)
    def found(started: dict[str, Future[Any]]) -> Any:
        return started[name].result()

    return found


for _name in ALL:
    globals()[_name] = _found(_name)
