"""Slices by name and shape: the rows, their names, errors; the command and its picture."""

import json
import math
import pickle
import re
from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import pyreactant as pr
from pyreactant.base.slices.generations import GENERATIONS, GKE
from pyreactant.base.slices.topology import Topology, layer, nearest, topologies, topology
from tests.harness import REPOSITORY, pyreactant

EVERY = list(topologies())
NAMES = [found.name for found in EVERY]


# Copied from Google's pages, not computed: name, shape, chips, VMs, chips of a VM, devices.
@pytest.mark.parametrize(
    "row",
    [
        ("v6e-1", (1, 1), 1, 1, 1, 1),
        ("v6e-4", (2, 2), 4, 1, 4, 4),
        ("v6e-8", (2, 4), 8, 1, 8, 8),
        ("v6e-16", (4, 4), 16, 4, 4, 16),
        ("v6e-32", (4, 8), 32, 8, 4, 32),
        ("v6e-256", (16, 16), 256, 64, 4, 256),
        ("v5litepod-8", (2, 4), 8, 1, 8, 8),
        ("v5litepod-16", (4, 4), 16, 4, 4, 16),
        ("v5litepod-128", (8, 16), 128, 32, 4, 128),
        ("v5p-8", (2, 2, 1), 4, 1, 4, 4),
        ("v5p-16", (2, 2, 2), 8, 2, 4, 8),
        ("v5p-32", (2, 2, 4), 16, 4, 4, 16),
        ("v5p-64", (2, 4, 4), 32, 8, 4, 32),
        ("v5p-128", (4, 4, 4), 64, 16, 4, 64),
        ("v5p-256", (4, 4, 8), 128, 32, 4, 128),
        ("v5p-512", (4, 8, 8), 256, 64, 4, 256),
        ("v5p-1024", (8, 8, 8), 512, 128, 4, 512),
        ("v5p-2048", (8, 8, 16), 1024, 256, 4, 1024),
        ("v5p-12288", (16, 16, 24), 6144, 1536, 4, 6144),
        ("v4-8", (2, 2, 1), 4, 1, 4, 4),
        ("v4-64", (2, 4, 4), 32, 8, 4, 32),
        ("v4-512", (4, 8, 8), 256, 64, 4, 256),
        ("v3-8", (2, 2), 4, 1, 4, 8),
        ("v3-32", (4, 4), 16, 4, 4, 32),
        ("v2-512", (16, 16), 256, 64, 4, 512),
        ("tpu7x-8", (2, 2, 1), 4, 1, 4, 8),
        ("tpu7x-128", (4, 4, 4), 64, 16, 4, 128),
    ],
)
def test_published_rows(row: tuple[str, tuple[int, ...], int, int, int, int]) -> None:
    found = topology(row[0])
    got = found.shape, found.chips, found.hosts, found.chips_per_host, found.devices
    assert got == row[1:]


@pytest.mark.parametrize("found", EVERY, ids=NAMES)
@pytest.mark.parametrize("num_slices", [1, 2, 5])
def test_a_row_agrees_with_itself(found: Topology, num_slices: int) -> None:
    several = topology(found.name, num_slices)
    assert several.chips == num_slices * math.prod(several.shape)
    assert several.hosts * several.chips_per_host == several.chips
    assert several.hosts * several.devices_per_process == several.devices
    assert several.chips * several.devices_per_chip == several.devices
    hosts = [several.host_of(chip) for chip in np.ndindex(several.shape)]
    assert sorted(set(hosts)) == list(range(several.hosts // num_slices))
    assert all(hosts.count(host) == several.chips_per_host for host in set(hosts))


@pytest.mark.parametrize("found", EVERY, ids=NAMES)
def test_every_way_to_write_it_is_the_same_slice(found: Topology) -> None:
    shape = "x".join(map(str, found.shape))
    prefix = GENERATIONS[found.generation].prefix
    for name in (found.libtpu_name, f"{prefix}:{shape}", f" {found.name.upper()} "):
        assert topology(name) == found
    if ":" not in found.name:
        assert topology(found.accelerator_type) == found
    if found.machine_type:
        assert topology(f"{found.machine_type}:{shape}") == found
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(topology(found.name)) == hash(found)
    assert json.loads(json.dumps(found.to_dict()))["shape"] == list(found.shape)


def test_gke_splits_eight_chips() -> None:
    found = topology("ct6e-standard-4t:2x4")
    assert (found.hosts, found.chips_per_host, found.host_bounds) == (2, 4, (2, 2, 1))
    assert topology(found.name) == found
    assert "one VM of 8" in found.notes[0]
    assert topology("v6e-8").hosts == 1
    assert "ct6e-standard-4t makes it two hosts" in topology("v6e-8").notes[0]


def test_notes_say_what_a_name_counts() -> None:
    assert "v5p-16 counts TensorCores, two per chip" in topology("v5p-16").notes
    assert "Cloud TPU calls it v5litepod-16, libtpu v5e:4x4" in topology("v5e-16").notes
    other = topology("v5p:4x4x16")
    assert other.name == "v5p:4x4x16"
    assert (
        "v5p-512 alone is 4x8x8; ask for this one with --type=v5p --topology=4x4x16" in other.notes
    )
    assert topology("v6e-16").notes == ()


def test_rings() -> None:
    assert topology("v6e-128").wraparound == (False, True)
    assert topology("v6e-256").wraparound == (True, True)
    assert topology("v5p-64").wraparound == (False, False, False)
    assert topology("v5p-256").wraparound == (True, True, True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v4e-8", "the nearest are v4-8"),  # guides use this name
        ("v6e-12", "'v6e-12'; the nearest are v6e-16, v6e-8, v6e-32"),
        ("v5p-12", "the nearest are v5p-16, v5p-8, v5p-32"),
        ("v5p-9", "the nearest are v5p-8, v5p-16, v5p-32"),
        ("v6-16", "the nearest are v6e-16"),
        ("v5litepod-12", "the nearest are v5e-16, v5e-8"),
        ("v6e:4x5", "the nearest are v6e:4x4, v6e:4x8"),
        ("v6e:8x4", "the nearest are v6e:4x8"),
        ("v5p:4x2x2", "the nearest are v5p:2x2x4"),
        ("v5p:2x2", "the nearest are v5p:2x2x1"),
        ("ct6e-standard-8t:4x4", "the nearest are v6e:4x4"),
        ("ct6e-standard-1t:2x4", "the nearest are v6e:2x4"),
        ("v6e 16", "the nearest are v6e-16"),
        ("v2-16", "the nearest are v2-"),
        ("v6e-99999999999999999999", "the nearest are v6e-256"),
        ("", r"name a slice as v6e-16, v5litepod-16, v5p-32 or v4-64, a generation and shape"),
        ("v5p-2x2x", "the nearest are v5p:2x2x1"),
        ("tpu-v5p-slice:2x2x5", "the nearest are v5p:2x2x4"),
        ("tpu-v5p-slices:2x2x4", "the nearest are v5p:2x2x4"),
        ("tpu-v5-litepod-slice:4x4", "the nearest are v5e:4x4"),
        ("tpu-v5-lite-device:4x4", "the nearest are v5e:4x4, v5e:2x4"),  # it is one VM
        ("ct5l-hightpu-4t:2x4", "the nearest are v5e:2x4"),
        ("ct5p-hightpu-2t", "the nearest are v5p-8"),  # Cloud TPU has no such slice
        ("ct6e-standard-16t", "the nearest are v6e-16"),
        ("tpu-v5p-slice", "is GKE's label for all slices of v5p; add .* as in tpu-v5p-slice:2x4x4"),
        ("tpu-v5-lite-device", "add the topology of the slice, as in tpu-v5-lite-device:2x4"),
        (16, "a slice is named as 'v6e-16' or 'v6e:4x4', got 16"),
    ],
)
def test_messages(name: str, message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        topology(name)


@pytest.mark.parametrize("number", [0, -1, 1.0, True, "2"])
def test_number_of_slices(number: int) -> None:
    with pytest.raises(pr.InvalidArgumentError, match="num_slices must be a whole number from 1"):
        topology("v6e-16", number)


@settings(max_examples=40)
@given(
    st.text(max_size=30) | st.from_regex(r"(v|tpu)[0-9][a-z]{0,8}[:-][0-9x]{0,12}", fullmatch=True)
)
def test_any_text_is_a_slice_or_our_error(name: str) -> None:
    try:
        assert topology(name).chips > 0
    except pr.InvalidArgumentError:
        for near in nearest(name):
            assert topology(near).name


@pytest.mark.parametrize(
    ("gke", "name", "hosts"),
    [
        ("tpu-v4-podslice:2x2x4", "v4-32", 4),
        ("tpu-v5-lite-device:2x4", "v5e-8", 1),
        ("tpu-v5-lite-podslice:4x4", "v5e-16", 4),
        ("tpu-v5p-slice:2x2x4", "v5p-32", 4),
        ("tpu-v5p-slice:4x4x16", "v5p:4x4x16", 64),
        ("TPU-v6e-slice:16x16", "v6e-256", 64),
        ("tpu7x:2x2x2", "tpu7x-16", 2),
        ("tpu7x-4x4x4", "tpu7x-128", 16),
        ("ct4p-hightpu-4t:2x2x2", "v4-16", 2),
        ("ct5l-hightpu-8t", "v5e-8", 1),
        ("ct5lp-hightpu-1t", "v5e-1", 1),
        ("ct5p-hightpu-4t", "v5p-8", 1),
        ("ct6e-standard-8t", "v6e-8", 1),
        ("ct6e-standard-4t:2x4", "ct6e-standard-4t:2x4", 2),
        ("tpu7x-standard-4t:2x2x2", "tpu7x-16", 2),
    ],
)
def test_names_of_gke(gke: str, name: str, hosts: int) -> None:
    """Its labels with a topology, and its machine types with or without one."""
    slices = topology(gke)
    assert (slices.name, slices.hosts) == (name, hosts)
    assert topology(slices.name) == slices


def test_the_table_of_machine_types() -> None:
    """The rows of docs/tpu.md are those of Google's table that this package reads."""
    text = (REPOSITORY / "docs" / "tpu.md").read_text()
    rows = re.findall(r"^\| (\S+) \| (`tpu.*) \| (`.*t`) \|$", text, re.MULTILINE)
    shown: dict[str, tuple[str, tuple[int, ...]]] = {}
    for generation, labels, machines in rows:
        shown |= dict.fromkeys(re.findall("`(.*?)`", labels), (generation, ()))
        for machine in re.findall("`(.*?)`", machines):
            family, _, chips = machine[:-1].rpartition("-")
            shown[family] = (generation, (*shown.get(family, ("", ()))[1], int(chips)))
    assert shown == {
        "tpu7x": ("tpu7x", ()),
        **{name: (gke.generation, gke.chips) for name, gke in GKE.items()},
    }


def test_picture_has_each_chip_once() -> None:
    assert layer(topology("v6e-16"), 0) == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]
    assert layer(topology("v5p-32"), 2) == [[2, 2], [2, 2]]


run = partial(pyreactant, "topology")


PICTURE = """
   x= 0 1   2 3
    ┌─────┬─────┐
y=0 │ 0 0 │ 1 1 │
y=1 │ 0 0 │ 1 1 │
    ├─────┼─────┤
y=2 │ 2 2 │ 3 3 │
y=3 │ 2 2 │ 3 3 │
    └─────┴─────┘
"""


def test_command() -> None:
    ran = run("v6e-16", "--slices", "2")
    assert ran.returncode == 0, ran.stderr
    plain = "\n".join(line.rstrip() for line in ran.stdout.splitlines()) + "\n"
    assert plain.startswith("v6e-16 x 2 slices: 32 chips on 8 VMs, 32 JAX devices\n")
    assert "918 TFLOP/s bfloat16" in plain
    assert "the next slice continues from 4:" in plain
    assert PICTURE in plain


def test_command_in_three_dimensions() -> None:
    ran = run("v5p-128")
    assert ran.returncode == 0, ran.stderr
    assert "z=0" in ran.stdout
    assert "y=3 │  2  2 │  3  3 │   y=3 │  6  6 │  7  7 │" in ran.stdout
    assert "v5p-128 counts TensorCores, two per chip" in ran.stdout
    many = run("v5p-12288")
    assert "... and 8 more layers, up to VM 1535" in many.stdout


def test_command_all_and_json() -> None:
    table = run("--all")
    assert table.returncode == 0, table.stderr
    for name in NAMES:
        assert f"{name} " in table.stdout
    assert "…" not in table.stdout
    assert [row["name"] for row in json.loads(run("--all", "--json").stdout)] == NAMES
    assert json.loads(run("v6e-8", "--json").stdout)["hosts"] == 1


def test_command_wrong() -> None:
    wrong = run("v6e-12")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: no Cloud TPU slice is called 'v6e-12'; the nearest are")
    for arguments in ((), ("--all", "v6e-16")):
        neither = run(*arguments)
        assert neither.returncode == 2
        assert "give the name of one slice, such as v6e-16, or --all" in neither.stderr
