"""Real Reactant, if it is installed: behaviour that the stand-in cannot show.

Run it with the contract suite: ``PYREACTANT_TEST_REACTANT=1 pytest --backend reactant
tests/backend tests/multiprocess tests/reactant``, after `pyreactant setup`.
"""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.reactant import julia
from pyreactant.julia.place import find_place, is_pinned
from tests.backend.common import MATMUL, MESH, XY, body, numbers
from tests.harness import environment
from tests.julia import place

pytestmark = [pytest.mark.reactant, pytest.mark.only("reactant")]


@pytest.fixture
def a(backend: str) -> pr.ShardedArray:
    return pr.device_put(numbers((8, 8)), XY)


def test_it_is_the_real_one(a: pr.ShardedArray) -> None:
    versions = dict(julia.call(julia.start().versions))
    assert "standin" not in versions["Reactant"]
    assert is_pinned(versions["Reactant"]) or find_place().any_version
    chosen = place.real_sources or not os.environ.get("PYREACTANT_TEST_JULIA")
    assert chosen, "that is the stand-in"


def test_text_has_shardings_and_collectives(a: pr.ShardedArray) -> None:
    f = pr.compile(MATMUL, a, a, out_sharding=XY)
    assert "stablehlo.dot_general" in f.as_text()
    assert "sdy.mesh" in f.as_text()
    assert "all-gather" in f.as_text("hlo") or "all-reduce" in f.as_text("hlo")


def test_precision_is_that_of_the_compilation(a: pr.ShardedArray) -> None:
    """The precision must be set around the compilation; around the call it has no effect."""
    texts = [
        pr.compile(MATMUL, a, a, out_sharding=XY, precision=precision).as_text().upper()
        for precision in ("default", "highest")
    ]
    assert "HIGHEST" not in texts[0]
    assert "HIGHEST" in texts[1]


def test_transposes_of_the_memory_order_are_optimised_away(a: pr.ShardedArray) -> None:
    """Julia's axes are XLA's in reverse; two products do not need to move data for that."""
    one = pr.NamedSharding(pr.Mesh((1,), ("i",), [0]), ())
    x = pr.device_put(numbers((8, 8)), one)
    assert " transpose(" not in pr.compile(MATMUL, x, x).as_text("hlo")


@pytest.mark.parametrize("spec", [("x", "y"), ("x",), (None, "y"), ("y", "x"), (("x", "y"),), ()])
def test_placement_that_the_compiler_chooses(backend: str, spec: Any) -> None:
    """Shardy's choice is reported as a spec, and the blocks are placed as the spec describes."""
    x = pr.device_put(numbers((8, 8)), pr.NamedSharding(MESH, spec))
    for program, expected in (
        (body("add_transposed"), numbers((8, 8)) + numbers((8, 8)).T),
        (body("one_in_a_tuple"), numbers((8, 8)) + 1),
    ):
        found = pr.compile(program, x)(x)
        c = found[0] if isinstance(found, tuple) else found
        oracle = c.sharding.devices_indices_map(c.shape)
        for shard in c.addressable_shards:
            assert shard.index == oracle[shard.device.position]
            np.testing.assert_array_equal(shard.data, expected[shard.index])


def test_long_loop_of_calls_keeps_memory(a: pr.ShardedArray) -> None:
    """Julia's collector does not track memory of devices."""
    big = pr.NamedSharding(pr.Mesh((8,), ("i",)), ("i",))
    x = pr.device_put(np.ones((1 << 22,), np.float32), big)
    f = pr.compile(body("one_in_a_tuple"), x, out_sharding=big)
    for _ in range(500):  # 8 GiB altogether
        f(x)
    with open("/proc/self/status") as lines:
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    assert peak < 5 << 20


def test_platform_that_is_not_here() -> None:
    code = "import pyreactant as p; p.initialize('reactant', platform='tpu')"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=300
    )
    assert "RequirementError: platform 'tpu'" in ran.stderr
