"""Meshes and specs as text: what is written is read back, anything else is ours to explain."""

import contextlib

import hypothesis.strategies as st
import pytest
from hypothesis import given

import pyreactant as pr
from pyreactant._core.text import format_mesh, format_spec, parse_mesh, parse_spec
from tests.unit.test_mesh import shardings


@given(shardings())
def test_round_trip(sharding: pr.NamedSharding) -> None:
    mesh = sharding.mesh
    ids = None if mesh.all_devices else mesh.device_ids
    assert parse_mesh(format_mesh(mesh), ids) == mesh
    if sharding.spec:
        text = format_spec(sharding, len(sharding.spec))
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
