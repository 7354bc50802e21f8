"""The positions of the devices of a mesh axis, and the load of their exchange on the links."""

from collections import Counter

import pytest

import pyreactant as pr
from pyreactant.base.slices.topology import topologies, topology
from pyreactant.fit.layouts.machine import along_network, chips_of, loads_of, slice_machine

EVERY = [found.name for found in topologies(64)]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("num_slices", [1, 2])
def test_each_chip_has_its_devices(name: str, num_slices: int) -> None:
    found = topology(name, num_slices)
    chips = chips_of(found)
    assert set(Counter(chips).values()) == {found.devices_per_chip}
    assert len(set(chips)) == found.chips
    per_process = found.devices_per_process
    for process in range(found.hosts):
        here = chips[process * per_process : (process + 1) * per_process]
        each = found.hosts // num_slices
        assert {(c[0] * each) + found.host_of(c[1:]) for c in here} == {process}
    order = along_network(found, tuple(reversed(range(len(found.shape)))))
    assert sorted(order) == list(range(found.devices))
    assert [chips[i] for i in order] == sorted(chips, key=lambda c: (c[0], c[3], c[2], c[1]))


def loads(name: str, shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> list[float]:
    found = topology(name)
    ids = None if order is None else along_network(found, order)
    mesh = pr.Mesh(shape, tuple("xyz"[: len(shape)]), ids)
    return [max(axis.values(), default=0.0) for axis in loads_of(found, mesh)]


def test_lines_and_rings() -> None:
    """A line of chips sends all data over one link, a ring half of it in each direction."""
    assert loads("v6e-16", (4, 4), (1, 0)) == [1.0, 1.0]
    assert loads("v6e-256", (16, 16), (1, 0)) == [0.5, 0.5]
    assert loads("v5p-128", (4, 4, 4), (2, 1, 0)) == [0.5, 0.5, 0.5]
    assert loads("v6e-4", (4,)) == [0.5]  # four chips in a square are a ring
    assert loads("v6e-1", (1,)) == [0.0]


def test_devices_of_one_chip_need_no_link() -> None:
    assert loads("tpu7x-2", (2,)) == [0.0]
    assert loads("tpu7x-8", (4, 2))[1] == 0.0


def test_order_by_vm_shares_links() -> None:
    """In order of VMs, neighbours in a mesh axis of 16 are far from each other."""
    assert loads("v6e-256", (16, 16)) == [4.0, 0.5]
    assert loads("v6e-16", (4, 4)) == [1.0, 0.5]


@pytest.mark.parametrize(
    ("name", "shape"), [("v6e-16", (2, 8)), ("v5p-32", (4, 4)), ("v4-8", (4,))]
)
def test_no_axis_loses_a_block(name: str, shape: tuple[int, ...]) -> None:
    """Each block crosses at least one link, and no route leaves the slice."""
    found = topology(name)
    mesh = pr.Mesh(shape, tuple("xyz"[: len(shape)]))
    for axis, links in enumerate(loads_of(found, mesh)):
        moves = found.devices * (shape[axis] > 1)
        assert sum(links.values()) >= moves  # two rings, halved
        for (piece, *place), dimension, step in links:
            assert piece == 0
            after = list(place)
            after[dimension - 1] += step
            ring = found.wraparound[dimension - 1]
            assert ring or 0 <= after[dimension - 1] < found.shape[dimension - 1]


def test_axes_that_share_a_link_wait_for_each_other() -> None:
    found = topology("v6e-16")
    machine, mesh = slice_machine(found, "bfloat16"), pr.Mesh((8, 2), ("x", "y"))
    apart = [machine.link_seconds(mesh, amounts) for amounts in ((1.0, 0.0), (0.0, 1.0))]
    assert max(apart) < machine.link_seconds(mesh, (1.0, 1.0)) <= sum(apart)
    aligned = pr.Mesh((4, 4), ("x", "y"), along_network(found, (1, 0)))
    larger = machine.link_seconds(aligned, (3.0, 0.0))
    assert machine.link_seconds(aligned, (3.0, 2.0)) == larger  # different links


def test_slices_have_no_links_between_them() -> None:
    found = topology("v6e-4", 2)
    across, within = loads_of(found, pr.Mesh((2, 4), ("slice", "x")))
    assert not across
    assert {link[0][0] for link in within} == {0, 1}
