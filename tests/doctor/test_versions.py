"""Versions are compared as pip does it, for releases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreactant.doctor._machine import satisfies

packaging = pytest.importorskip("packaging.specifiers")

RELEASES = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda n: ".".join(map(str, n)))
PARTS = st.tuples(st.sampled_from(["==", "!=", "<=", ">=", "<", ">"]), RELEASES).map("".join)
WILD = st.tuples(st.sampled_from(["==", "!="]), RELEASES).map(lambda p: f"{p[0]}{p[1]}.*")
COMPATIBLE = RELEASES.filter(lambda v: "." in v).map(lambda v: f"~={v}")
SPECS = st.lists(st.one_of(PARTS, WILD, COMPATIBLE), min_size=0, max_size=3).map(",".join)


@given(RELEASES, SPECS)
def test_as_pip_does(version: str, spec: str) -> None:
    assert satisfies(version, spec) == (version in packaging.SpecifierSet(spec))


@pytest.mark.parametrize("version", ["0.11.0.dev20260101", "0.11.0rc1", "0.11.0+cuda12"])
def test_only_numbers_count(version: str) -> None:
    assert satisfies(version, "<=0.11.0,>=0.11.0")
