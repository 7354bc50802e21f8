"""Meshes, specs, blocks and amounts as text; bad text gets a message."""

import contextlib

import hypothesis.strategies as st
import pytest
from hypothesis import given

import pyreactant as pr
from pyreactant.arrays.text import (
    block_text,
    bytes_text,
    format_mesh,
    parse_mesh,
    parse_spec,
    percent_text,
    ranges_text,
    seconds_text,
    spec_text,
)
from tests.unit.test_mesh import shardings


@given(shardings())
def test_round_trip(sharding: pr.NamedSharding) -> None:
    mesh = sharding.mesh
    ids = None if mesh.all_devices else mesh.device_ids
    assert parse_mesh(format_mesh(mesh), ids) == mesh
    if sharding.spec:
        text = spec_text(sharding.spec)
        assert pr.NamedSharding(mesh, parse_spec(text)) == sharding


@given(st.text(max_size=12) | st.text("0123456789xyz=,+-None ", max_size=12))
def test_any_text_is_read_or_explained(text: str) -> None:
    for parse in (parse_mesh, parse_spec):
        with contextlib.suppress(pr.ShardingError):
            assert parse(text)


@pytest.mark.parametrize("text", ["", "2*4", "2x", "x", "a=2;b=4", "a=2,4", "2x-4", "1e3"])
def test_mesh_message_has_an_example(text: str) -> None:
    with pytest.raises(pr.ShardingError, match=r"write sizes as 2x4 .* as data=2,model=4"):
        parse_mesh(text)


@pytest.mark.parametrize("text", ["", "x;y", "x,,y", "x+,y", "(x,y)", "1,2"])
def test_spec_message_has_an_example(text: str) -> None:
    with pytest.raises(pr.ShardingError, match="write one entry per dimension as x,y"):
        parse_spec(text)


def test_forms() -> None:
    assert parse_mesh("2X4") == pr.Mesh((2, 4), ("x", "y"))
    assert parse_mesh("data=2, model=4") == pr.Mesh((2, 4), ("data", "model"))
    assert parse_spec("x+y, -") == (("x", "y"), None)
    assert parse_spec("none,y") == (None, "y")


def test_specs_as_text() -> None:
    sharding = pr.NamedSharding(pr.Mesh((2, 2), ("x", "y")), (("x", "y"),))
    assert spec_text(sharding.spec) == "x+y"
    assert spec_text(sharding.axes(2)) == "x+y,None"
    assert spec_text([["x", "y"], None, "z"]) == "x+y,None,z"  # the form in JSON
    assert spec_text(()) == ""


def test_blocks_as_text() -> None:
    assert block_text((slice(0, 4), slice(2, 4))) == "[0:4, 2:4]"
    assert block_text([[0, 4], [2, 4]]) == "[0:4, 2:4]"
    assert block_text(()) == "[]"
    assert block_text(None) == "no block"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (4.5e-6, "4.5 us"),
        (999.7e-6, "1000 us"),
        (0.0123, "12.3 ms"),
        (2.5, "2.5 s"),
        (12345.6, "12346 s"),
    ],
)
def test_seconds_as_text(value: float, text: str) -> None:
    assert seconds_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1000, "1000 B"),
        (2048, "2 KiB"),
        (1000.7 * 2**20, "1001 MiB"),
        (999.7 * 2**20, "1000 MiB"),
        (-3 * 2**20, "-3 MiB"),
        (31.24 * 2**30, "31.2 GiB"),
        (2000 * 2**30, "2000 GiB"),
    ],
)
def test_bytes_as_text(value: float | None, text: str) -> None:
    assert bytes_text(value) == text


def test_shares_are_never_rounded_to_nothing() -> None:
    texts = [percent_text(part) for part in (0, 0.000392, 0.548, 1.5)]
    assert texts == ["0 %", "0.0392 %", "54.8 %", "150 %"]


def test_ranges() -> None:
    assert ranges_text([7, 0, 1, 2, 4, 5]) == "0-2, 4, 5, 7"
    assert ranges_text(range(0, 10, 2), limit=3) == "0, 2, 4 and 2 more ranges"
    assert ranges_text([]) == ""
