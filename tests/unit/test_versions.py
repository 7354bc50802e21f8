"""Versions of releases are compared as pip compares them."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from pyreactant.base.facts import at_least, required, requirements, satisfies
from pyreactant.julia.place import OLDEST
from tests.harness import REPOSITORY

RELEASES = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda n: ".".join(map(str, n)))
PARTS = st.tuples(st.sampled_from(["==", "!=", "<=", ">=", "<", ">"]), RELEASES).map("".join)
WILD = st.tuples(st.sampled_from(["==", "!="]), RELEASES).map(lambda p: f"{p[0]}{p[1]}.*")
COMPATIBLE = RELEASES.filter(lambda v: "." in v).map(lambda v: f"~={v}")
SPECS = st.lists(st.one_of(PARTS, WILD, COMPATIBLE), min_size=0, max_size=3).map(",".join)


@given(RELEASES, SPECS)
def test_as_pip_does(version: str, spec: str) -> None:
    assert satisfies(version, spec) == (version in SpecifierSet(spec))


@pytest.mark.parametrize("version", ["0.11.0.dev20260101", "0.11.0rc1", "0.11.0+cuda12"])
def test_a_build_counts_as_its_release(version: str) -> None:
    assert satisfies(version, "<=0.11.0,>=0.11.0")
    assert satisfies(version, f"=={version}")
    assert not satisfies(version, "<0.11")
    assert not satisfies(version, ">=0.11.1")


@pytest.mark.parametrize(
    ("version", "oldest", "enough"),
    [
        ("580.95.05", "580", True),
        ("525.60.13", "525.60.13", True),
        ("525.60.9", "525.60.13", False),
        ("1.12.0-rc1", OLDEST, True),
        ("1.13.0-DEV.123", OLDEST, True),
        ("1.11.5+0.x64.linux.gnu", OLDEST, True),
        ("1.10", OLDEST, False),
        ("1.9.4", OLDEST, False),
        ("unknown", OLDEST, False),
    ],
)
def test_at_least(version: str, oldest: str, enough: bool) -> None:
    assert at_least(version, oldest) == enough


def test_text_that_is_no_version() -> None:
    assert not satisfies("", ">=2.0")
    assert not satisfies("of no version", "==1.*")
    assert satisfies("1.2-of-somebody", "==1.2")


LINES = [
    "numpy>=2.0",
    'Ml_Dtypes >=0.5; python_version >= "3"',
    'tomli>=1; python_version < "3"',
    'libtpu==0.0.50.*; extra == "tpu"',
    'jax-cuda13-plugin[with-cuda]<=0.12,>=0.12; extra == "cuda13" and sys_platform != "nowhere"',
    "neither a name nor a version",
]


def test_requirements() -> None:
    assert dict(requirements(LINES)) == {"numpy": ">=2.0", "Ml_Dtypes": ">=0.5"}
    assert dict(requirements(LINES, "tpu")) == {"libtpu": "==0.0.50.*"}
    assert required(LINES, "ml-dtypes") == ">=0.5"
    assert required(LINES, "libtpu") == ""
    assert required(LINES, "jax.cuda13.plugin", "tpu", "cuda13") == "<=0.12,>=0.12"


def test_the_oldest_julia_is_the_same_everywhere() -> None:
    """Python, juliapkg, Julia's package manager and the documentation agree."""
    for project in ("julia/Project.toml", "julia/start/Project.toml"):
        compat = tomllib.loads((REPOSITORY / project).read_text())["compat"]
        assert compat["julia"] == OLDEST, project
    requested = json.loads((REPOSITORY / "pyreactant/juliapkg.json").read_text())
    assert requested["julia"] == f"^{OLDEST}"
    assert f"Julia ({OLDEST} or newer)" in (REPOSITORY / "docs/julia.md").read_text()
