"""One cluster for all tests of this folder: starting it is what costs most."""

from collections.abc import Iterator

import pytest

from tests.ray.cluster import Cluster, cluster


@pytest.fixture(scope="session")
def on_ray() -> Iterator[Cluster]:
    """A head and the four hosts of a pretended v6e-16."""
    with cluster() as made:
        yield made
