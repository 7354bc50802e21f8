"""One Slurm cluster for all tests that do not break it."""

from collections.abc import Iterator

import pytest

from tests.harness import require
from tests.slurm.cluster import Cluster, missing, started


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two nodes, n1 and n2."""
    lacks = missing()
    require(not lacks, lacks)
    with started(tmp_path_factory.mktemp("slurm")) as running:
        yield running
