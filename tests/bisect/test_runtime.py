"""`--bad backend=...`: the program's body runs on a runtime, and its module is looked at then."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from pyreactant.check.bisect.bisect import bisect as run
from pyreactant.check.bisect.shrink import Problem
from pyreactant.check.bisect.way import Way
from tests.bisect.test_bisect import LAYERS, LONG, bisect, found
from tests.harness import REPOSITORY

pytestmark = pytest.mark.slow

MODULES = "flags=--xla_dump_max_hlo_modules"
WRONG = ("--bad", "backend=jax", "--bad", f"{MODULES}=2", "--size", "4")


def test_the_body_is_wrong_on_a_runtime(tmp_path: Path) -> None:
    result = found(tmp_path, *WRONG, program="tests.bisect.programs:flags")
    assert result["smallest"] == "size 2, float32, mesh 1x1, ordinary inputs"
    assert result["lowered"].startswith("it fails on platform=cpu (jax ")
    assert (result["cause"], result["good"]) == ("program", "interpreter")
    assert float(result["got"]) == pytest.approx(float(result["right"]) + 1, rel=1e-3)
    report = (tmp_path / "bisect/report.md").read_text()
    assert "its module  it fails on platform=cpu" in report
    assert "correct the program's body, or its oracle" in report


def test_another_way_says_what_is_right(tmp_path: Path) -> None:
    options = (*WRONG, "--good", "backend=jax")
    result = found(tmp_path, *options, program="tests.bisect.programs:unjudged")
    assert result["cause"] == "program"


def test_a_runtime_that_crashes_is_cut_down(tmp_path: Path) -> None:
    options = ("--bad", "backend=jax", "--bad", f"{MODULES}=1", "--size", "4")
    result = found(tmp_path, *options, program="tests.bisect.programs:flags")
    assert (result["outcome"], result["cause"]) == ("crash", "runtime")
    assert result["smallest"] == "size 2, float32, mesh 1x1, ordinary inputs"
    assert "SIGABRT" in result["lowered"]
    assert "show.py" not in (tmp_path / "bisect/report.md").read_text()


def test_without_julia_it_says_what_is_needed(tmp_path: Path) -> None:
    place = {"PYTHON_JULIACALL_EXE": "/no/julia", "PYTHON_JULIACALL_PROJECT": str(tmp_path)}
    ended = bisect(LAYERS, "--bad", "backend=reactant", folder=tmp_path, **place)
    assert ended.returncode == 3
    assert ended.stderr.startswith("error: PYTHON_JULIACALL_EXE must name an executable")


@pytest.mark.parametrize("fault", ["module", "runtime"])
def test_sizes_that_are_reversed(fault: str, tmp_path: Path) -> None:
    """Reactant's arrays are Python's, transposed, in the module alone."""
    stand_in = tmp_path / "python"
    path = shlex.quote(str(REPOSITORY))
    command = f"{shlex.quote(sys.executable)} -P -m tests.bisect.reversed_runtime"
    stand_in.write_text(f"#!/bin/sh\nPYTHONPATH={path} REVERSED={fault} exec {command}\n")
    stand_in.chmod(0o755)
    bad = Way(("backend=reactant",), python=str(stand_in), backend="reactant")
    problem = Problem("matmul", size=4)
    result = run(problem, good=None, bad=bad, out=tmp_path / "out", where="matmul", each=LONG)
    assert json.loads((tmp_path / "out/bisect.json").read_text())["complete"]
    if fault == "module":
        assert (result["cause"], result["good"]) == ("program", "interpreter")
        assert float(result["got"]) == pytest.approx(2 * float(result["right"]))
    else:
        assert result["cause"] == "runtime"
        assert result["lowered"].startswith("it is right on platform=cpu")


@pytest.mark.julia
@pytest.mark.timeout(0)
def test_a_julia_body_is_wrong(named_julia: None, tmp_path: Path) -> None:
    options = ("--bad", "backend=reactant", "--size", "4")
    result = found(tmp_path, *options, program="tests.bisect.programs:halved")
    assert (result["outcome"], result["bad"]) == ("ran", "backend=reactant")
    assert result["smallest"] == "size 2, float32, mesh 1x1, ordinary inputs"
    assert result["versions"]["Reactant"].endswith("+standin")
    assert result["cause"] == "runtime"  # the stand-in writes no text of this body
