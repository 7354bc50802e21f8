"""Trees and ranges as inputs, and bad oracles beside good ones."""

import json
import sys
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.base.steps import told_to
from pyreactant.check.request import CheckRequest, check_request
from tests.harness import environment, run

from .input_programs import HERE, adds_in_any_order, entropy, loss, of_exits
from .runs import small


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_programs_of_trees_and_ranges_are_right(dtype: str) -> None:
    report = small([loss, entropy], size=16, dtype=dtype, coverage="usual")
    assert report.passed, report.to_text()
    assert [len(row.plans) for row in report.rows] == [6, 2]


def test_bad_oracles_do_not_end_the_command(tmp_path: Path) -> None:
    names = ["random", "a_file", "a_changed", "no_numbers", "exits", "raises", "prints"]
    argv = [sys.executable, "-m", "pyreactant", "crosscheck", "--json", "--platform", "cpu"]
    argv += ["--processes", "2", "--devices-per-process", "2", "--backends", "jax", "--size", "8"]
    argv += ["--quick", "--out", str(tmp_path / "out"), *(f"{HERE}:of_{name}" for name in names)]
    done = run(argv, env=environment(), timeout=300)
    assert done.returncode == 5, done.stderr
    rows = {row["program"]: row["results"][0] for row in json.loads(done.stdout)["rows"]}
    found = {name: rows[f"{HERE}:of_{name}"] for name in names}
    assert {name: result["outcome"] for name, result in found.items()} == {
        "random": "raised",
        "a_file": "raised",
        "a_changed": "right",
        "no_numbers": "wrong",
        "exits": "raised",
        "raises": "raised",
        "prints": "right",
    }
    assert "Program 'random': its oracle" in found["random"]["text"]
    assert "must return the same numbers for the same arguments" in found["random"]["text"]
    assert "FileNotFoundError" in found["a_file"]["text"]
    path = HERE.replace(".", "/") + ".py"
    assert f"it raised SystemExit: 3 ({path}, line" in found["exits"]["text"]
    assert "must be nan" in found["no_numbers"]["text"]
    assert "the oracle speaks" in done.stderr


def test_an_oracle_may_add_in_any_order_and_is_announced() -> None:
    program = pr.Program("sums", jax=f"{HERE}:double", oracle=adds_in_any_order, inputs=((8, 99),))
    told: list[str] = []
    with told_to(told.append):
        check_request(CheckRequest((program,)), 4, ["jax"])
    assert told == ["running the oracle of sums"]


def test_a_bad_oracle_alone_is_an_error_before_anything_starts() -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"'exits': its oracle .*SystemExit"):
        small(of_exits, size=8)
