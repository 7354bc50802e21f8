"""What placing costs in a large mesh, on a runtime of the tests that places nothing."""

from functools import partial

import numpy as np

import pyreactant as pr
from tests.backend.nothing import running_nothing

from ._measure import Pair, interleave, timed

LOCAL, CALLS = 64, 20


def _put(shape: tuple[int, int], explicit: bool) -> float:
    """Seconds of a `device_put` on the 64 local devices of a mesh of this shape."""
    size = shape[0] * shape[1]
    with running_nothing(size // LOCAL, LOCAL):
        ids = np.random.default_rng(0).permutation(size) if explicit else None
        sharding = pr.NamedSharding(pr.Mesh(shape, ("x", "y"), ids), ("x", "y"))
        x = np.ones((1024, 1024), np.float32)
        pr.device_put(x, sharding)  # the first use of a mesh reads all of it

        def run() -> None:
            for _ in range(CALLS):
                pr.device_put(x, sharding)

        return timed(run) / CALLS


def put(repetitions: int) -> list[Pair]:
    """Time a `device_put` in a mesh of 32768 devices relative to one in a mesh of 64."""
    pairs = []
    for ids, explicit in (("all devices", False), ("device_ids in any order", True)):
        large, small = interleave(
            partial(_put, (128, 256), explicit), partial(_put, (8, 8), explicit), repetitions
        )
        name = f"device_put, 64 local devices of 32768 relative to 64 of 64, {ids}"
        pairs.append(Pair(name, large, small, 2.0))
    return pairs
