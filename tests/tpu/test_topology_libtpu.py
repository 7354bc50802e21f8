"""Every row of the topology calculator, compared with libtpu's own topology description."""

import importlib.util
import json
import sys
from collections import Counter
from functools import cache
from typing import Any

import pytest

from pyreactant.base.slices.generations import GENERATIONS, GIB, shapes
from pyreactant.base.slices.topology import Topology, topologies, topology
from pyreactant.fit.layouts.machine import chips_of
from tests import harness
from tests.harness import environment, require

KINDS = {
    "v2": "TPU v2",
    "v3": "TPU v3",
    "v4": "TPU v4",
    "v5e": "TPU v5 lite",
    "v5p": "TPU v5",
    "v6e": "TPU v6 lite",
    "tpu7x": "TPU7x",
}
NAMES = [found.name for found in topologies()]
SEVERAL = [("v6e-16", 2), ("v6e-8", 3), ("v5p-32", 2), ("v4-8", 4), ("tpu7x-8", 2), ("v5e-1", 2)]
GKE = ["ct6e-standard-4t:2x4", "ct5lp-hightpu-4t:2x4"]


def ask(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    require(importlib.util.find_spec("libtpu"), "libtpu, which describes slices without a TPU")
    ran = harness.run(
        [sys.executable, "-m", "tests.tpu.describe"], input=json.dumps(rows), env=environment()
    )
    assert ran.returncode == 0, ran.stderr
    return list(json.loads(ran.stdout))


@cache
def described() -> dict[tuple[str, int], dict[str, Any]]:
    """Describe all slices in one process: a description takes milliseconds, a process a second."""
    keys = [(name, 1) for name in (*NAMES, *GKE)] + SEVERAL
    smallest = {next(n for n in NAMES if topology(n).generation == g) for g in GENERATIONS}
    rows = [
        {"options": topology(*key).description_options, "memory": key[0] in smallest}
        for key in keys
    ]
    return dict(zip(keys, ask(rows), strict=True))


def check(found: Topology, theirs: dict[str, Any]) -> None:
    assert "error" not in theirs, theirs["error"]
    devices = theirs["devices"]
    assert len(devices) == found.devices
    assert theirs["kind"] == KINDS[found.generation]
    box = tuple(max(d[axis] for d in devices) + 1 for axis in (2, 3, 4))
    assert box == (*found.shape, 1)[:3]
    by_process = Counter(d[0] for d in devices)
    assert len(by_process) == found.hosts
    assert set(by_process.values()) == {found.devices_per_process}
    assert len({d[1] for d in devices}) == found.num_slices
    by_chip = Counter(tuple(d[1:5]) for d in devices)
    assert len(by_chip) == found.chips
    assert set(by_chip.values()) == {found.devices_per_chip}
    hosts = found.hosts // found.num_slices
    for process, piece, *chip, _, _ in devices:
        assert process == piece * hosts + found.host_of(tuple(chip)), (piece, chip)
    in_order = sorted(devices, key=lambda device: (device[0], device[-1]))
    assert chips_of(found) == [tuple(device[1:5]) for device in in_order]


@pytest.mark.parametrize("name", [*NAMES, *GKE])
def test_a_row(name: str) -> None:
    check(topology(name), described()[name, 1])


@pytest.mark.parametrize(("name", "num_slices"), SEVERAL)
def test_several_slices(name: str, num_slices: int) -> None:
    check(topology(name, num_slices), described()[name, num_slices])


@pytest.mark.parametrize("generation", GENERATIONS)
def test_memory_as_the_compiler_sees_it(generation: str) -> None:
    name = next(n for n in NAMES if topology(n).generation == generation)
    theirs = described()[name, 1]["hbm_gib"]
    # libtpu prints two decimals, and versions differ by one in the last.
    assert topology(name).hbm_bytes / GIB == pytest.approx(theirs, abs=0.0151)


def test_all_shapes_are_here() -> None:
    """Every shape of up to 256 chips that Google's rules allow is a row above."""
    for generation in GENERATIONS.values():
        mine = {topology(n).shape for n in NAMES if topology(n).generation == generation.name}
        assert mine == set(shapes(generation, 256))
    assert {topology(n).shape for n in NAMES if n.startswith("v5p")} == {
        (2, 2, 1),
        (2, 2, 2),
        (2, 2, 4),
        (2, 4, 4),
        (4, 4, 4),
        (4, 4, 8),
        (4, 4, 12),
        (4, 8, 8),
        (4, 4, 16),
    }


def test_what_libtpu_takes_when_nothing_is_said() -> None:
    """`description_options` adds to the name, because libtpu's defaults differ from Cloud TPU."""
    rows = ask(
        [{"options": {"topology_name": name}, "memory": False} for name in ("v6e:2x4", "v4:2x2x1")]
    )
    assert len({d[0] for d in rows[0]["devices"]}) == 2 != topology("v6e-8").hosts
    assert len(rows[1]["devices"]) == 8 != topology("v4-8").devices
