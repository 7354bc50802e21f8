"""One cluster for all tests of this folder: starting it is what costs most."""

from collections.abc import Iterator

import pytest

from tests.ray.cluster import Cluster, cluster


@pytest.fixture(scope="package")
def on_ray() -> Iterator[Cluster]:
    """A head and the four hosts of a pretended v6e-16; they end with the last of the tests."""
    with cluster() as made:
        yield made
