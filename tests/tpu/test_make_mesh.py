"""The order of `make_mesh` on libtpu's slices: JAX's order, and what programs send in it."""

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.jax.convert import hardware_order
from pyreactant.base.slices.topology import Topology, topology
from pyreactant.fit.layouts.machine import loads_of, slice_machine
from pyreactant.fit.preflight.preflight import preflight
from tests.harness import REPOSITORY
from tests.tpu.test_topology_libtpu import ask

pytestmark = pytest.mark.slow


class Case(NamedTuple):
    """A mesh on one or several slices; with `outer` the shape over the slices."""

    name: str
    shape: tuple[int, ...]
    split: bool | None = None
    num_slices: int = 1
    outer: tuple[int, ...] | None = None

    @property
    def inner(self) -> tuple[int, ...]:
        """The shape within a slice."""
        outer = self.outer or (1,) * len(self.shape)
        return tuple(n // pieces for n, pieces in zip(self.shape, outer, strict=True))


ORDERS = [
    Case("v6e-16", (4, 4)),
    Case("v6e-16", (16,)),
    Case("v6e-16", (2, 8), split=True),
    Case("v6e-16", (2, 2, 4), split=True),
    Case("v6e-8", (2, 4)),
    Case("v6e-8", (8,)),
    Case("v6e-4", (4,)),
    Case("v6e-64", (8, 8)),
    Case("v5e-16", (2, 8)),
    Case("v5e-16", (16,)),
    Case("v5p-16", (8,)),
    Case("v5p-32", (4, 4)),
    Case("v5p-32", (2, 8)),
    Case("v5p-32", (16, 1)),
    Case("v5p-128", (4, 16)),
    Case("v4-32", (4, 4)),
    Case("v3-32", (4, 8)),
    Case("tpu7x-32", (4, 8)),
    Case("v6e-16", (2, 4, 4), num_slices=2, outer=(2, 1, 1)),
    Case("v6e-16", (8, 4), num_slices=2, outer=(2, 1)),
    Case("v6e-8", (3, 8), num_slices=3, outer=(3, 1)),
    Case("v4-8", (2, 8), num_slices=4, outer=(2, 2)),
]
REFUSED = [Case("v6e-16", (2, 8)), Case("v5p-32", (2, 2, 4))]


@cache
def described() -> dict[tuple[str, int], dict[str, Any]]:
    """All slices, with JAX's order for each mesh, from one process."""
    cases: dict[tuple[str, int], list[Case]] = {}
    for case in (*ORDERS, *REFUSED, Case("v6e-8", (8, 3), num_slices=3, outer=(1, 3))):
        cases.setdefault((case.name, case.num_slices), []).append(case)
    rows = [
        {
            "options": topology(*key).description_options,
            "memory": False,
            "meshes": [
                {"shape": case.inner, "outer": case.outer, "split": case.split} for case in several
            ],
        }
        for key, several in cases.items()
    ]
    found = dict(zip(cases, ask(rows), strict=True))
    for key, several in cases.items():
        found[key]["orders"] = dict(zip(several, found[key]["orders"], strict=True))
    return found


def devices_of(name: str, num_slices: int) -> list[SimpleNamespace]:
    """What JAX knows of the devices, in the order of `pyreactant.devices()`."""
    found = described()[name, num_slices]
    devices = [
        SimpleNamespace(
            id=number,
            platform="tpu",
            device_kind=found["kind"],
            process_index=process,
            coords=place,
            core_on_chip=core,
            **({"slice_index": piece} if num_slices > 1 else {}),
        )
        for process, piece, *place, core, number in found["devices"]
    ]
    return sorted(devices, key=lambda device: (device.process_index, device.id))


def order_of(case: Case, devices: Sequence[Any] | None = None) -> tuple[int, ...]:
    found = devices or devices_of(case.name, case.num_slices)
    return hardware_order(case.shape, found, case.split)


@pytest.mark.parametrize("case", ORDERS, ids=lambda c: f"{c.name}x{c.num_slices}-{c.shape}")
def test_the_order_is_that_of_jax(case: Case) -> None:
    theirs = described()[case.name, case.num_slices]["orders"][case]
    assert isinstance(theirs, list), theirs
    devices = devices_of(case.name, case.num_slices)
    assert [devices[position].id for position in order_of(case)] == theirs


def test_positions_follow_the_processes_and_not_jax() -> None:
    """The launcher's order of the processes may differ from libtpu's."""
    case = ORDERS[0]
    devices = devices_of(case.name, 1)
    turned = [*devices[4:], *devices[:4]]
    theirs = [devices[i].id for i in order_of(case)]
    assert [turned[i].id for i in order_of(case, turned)] == theirs
    assert order_of(case, turned) != order_of(case)


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_shape_without_an_order(case: Case) -> None:
    theirs = described()[case.name, 1]["orders"][case]
    assert "Failed to find assignment" in theirs
    with pytest.raises(pr.ShardingError) as raised:
        order_of(case)
    text = str(raised.value)
    assert f"along the network of 16 TPU v{case.name[1]}" in text
    assert f"got {case.shape}: {theirs}" in text
    assert text.endswith("allow_split_physical_axes=True, or a pyreactant.Mesh with device_ids")


def test_slices_that_the_first_axes_do_not_hold() -> None:
    with pytest.raises(
        pr.ShardingError, match=r"factor of 3, got \(8, 3\); give a first size such"
    ):
        order_of(Case("v6e-8", (8, 3), num_slices=3))


# Slice, number of slices, mesh, specs of x and y, for the table in docs/tpu.md.
PROGRAMS: list[tuple[str, int, pr.Mesh, tuple[Any, ...]]] = [
    ("v6e-16", 1, pr.Mesh((4, 4), ("x", "y")), ("x", "y")),
    ("v6e-64", 1, pr.Mesh((8, 8), ("x", "y")), ("x", "y")),
    ("v5p-32", 1, pr.Mesh((4, 4), ("x", "y")), ("x", "y")),
    ("v6e-16", 2, pr.Mesh((2, 4, 4), ("slice", "x", "y")), (("slice", "x"), "y")),
]


def row(found: Topology, mesh: pr.Mesh, spec: tuple[Any, ...], label: str) -> str:
    """A product's collectives and the load of the links, as in docs/tpu.md."""
    report = preflight("matmul", topology=found, size=4096, dtype="bfloat16", mesh=mesh, spec=spec)
    gathered = [c for c in report.collectives if c.op == "all-gather"]
    assert all(c.whole and len(c.axes) == 1 for c in gathered)
    sent = {axis: sum(c.wire_bytes for c in gathered if c.axes == (axis,)) for axis in ("x", "y")}
    busiest = [max(axis.values(), default=0.0) for axis in loads_of(found, mesh)][-2:]
    received = [0.0, *sent.values()][-len(mesh.shape) :]
    seconds = slice_machine(found, "bfloat16").link_seconds(mesh, received)
    others = [c for c in report.collectives if c.op != "all-gather"]
    assert all(c.across_slices and c.axes == ("slice",) for c in others)
    between = f", {' and '.join(c.op for c in others)} along slice" if others else ""
    name = f"{found.num_slices} x {found.name}" if found.num_slices > 1 else found.name
    return (
        f"| {name} | {'x'.join(map(str, mesh.shape))} | {label} | {len(gathered)} all-gathers, "
        f"{sent['x'] / 2**20:g} and {sent['y'] / 2**20:g} MiB{between} | "
        f"{busiest[0]:g} and {busiest[1]:g} | {seconds * 1e6:.0f} us |"
    )


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(("name", "num_slices", "plain", "spec"), PROGRAMS)
def test_what_programs_send(name: str, num_slices: int, plain: pr.Mesh, spec: Any) -> None:
    """Kinds and bytes are those of any order; the links that carry them are not."""
    found = topology(name, num_slices)
    order = hardware_order(plain.shape, devices_of(name, num_slices))
    ordered = pr.Mesh(plain.shape, plain.axis_names, order)
    rows = [row(found, plain, spec, "`pr.Mesh`"), row(found, ordered, spec, "`pr.make_mesh`")]
    assert rows[0].split("|")[4] == rows[1].split("|")[4]
    documented = (REPOSITORY / "docs" / "tpu.md").read_text().splitlines()
    assert [line for line in rows if line not in documented] == []
