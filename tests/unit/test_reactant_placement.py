"""The partition spec that describes a compiler's placement, compared with the oracle."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import pyreactant as pr
from pyreactant.arrays.runtimes.reactant.lower import find_sharding
from tests.unit.test_mesh import meshes, placements


@given(placements())
def test_finds_a_spec_that_says_the_same(placement: tuple[pr.NamedSharding, Any]) -> None:
    sharding, shape = placement
    oracle = sharding.devices_indices_map(shape)
    found = find_sharding([sharding.mesh], shape, oracle)
    assert found is not None
    assert found.mesh == sharding.mesh
    assert found.devices_indices_map(shape) == oracle
    assert found.spec == () or found.spec[-1] is not None


@given(placements(), st.data())
def test_says_none_or_the_truth(placement: tuple[pr.NamedSharding, Any], data: Any) -> None:
    """For any placement of blocks: None, or a spec whose placement is the same."""
    sharding, shape = placement
    oracle = sharding.devices_indices_map(shape)
    dealt = dict(zip(oracle, data.draw(st.permutations(list(oracle.values()))), strict=True))
    found = find_sharding([sharding.mesh], shape, dealt)
    assert found is None or found.devices_indices_map(shape) == dealt


@given(placements(), meshes())
def test_the_first_mesh_that_can_say_it(
    placement: tuple[pr.NamedSharding, Any], other: Any
) -> None:
    sharding, shape = placement
    oracle = sharding.devices_indices_map(shape)
    found = find_sharding([other, sharding.mesh], shape, oracle)
    assert found is not None
    assert found.mesh in (other, sharding.mesh)
    assert found.devices_indices_map(shape) == oracle


MESH = pr.Mesh((2, 2), ("x", "y"))


@pytest.mark.parametrize(
    "blocks",
    [
        [(0, 3), (0, 3), (3, 5), (3, 5)],  # uneven
        [(0, 2), (2, 4), (2, 4), (0, 2)],  # a diagonal
        [(0, 2), (0, 2), (0, 2), (2, 4)],  # one device holds another block
        [(0, 2), (1, 3), (2, 4), (3, 5)],  # overlapping
        [(0, 2), (0, 2), (0, 2), (0, 2)],  # one part is missing
    ],
)
def test_no_spec_says_this(blocks: list[tuple[int, int]]) -> None:
    placement = {i: (slice(*block),) for i, block in enumerate(blocks)}
    assert find_sharding([MESH], (5,), placement) is None
    assert find_sharding([], (5,), placement) is None


def test_axes_of_size_one_are_left_away() -> None:
    mesh = pr.Mesh((1, 4), ("one", "x"))
    oracle = pr.NamedSharding(mesh, (("one", "x"),)).devices_indices_map((8,))
    found = find_sharding([mesh], (8,), oracle)
    assert found == pr.NamedSharding(mesh, ("x",))
