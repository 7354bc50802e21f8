"""What the report says of further sets of inputs, from finished runs."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pyreactant import InvalidArgumentError
from pyreactant.check.member import Where, error_facts
from pyreactant.check.report.report import Report
from pyreactant.check.request import CheckRequest, coverage, read_request, write_request
from pyreactant.check.run import compare, crosscheck
from tests.crosscheck.runs import change_record, copy

SETS = {
    "matmul": ["wide", "special", "exact"],
    "row_sum": ["wide", "special", "exact"],
    "transpose": ["wide", "special", "exact"],
    "full_sum": ["wide", "exact"],
}


def test_the_report_says_per_set_what_was_checked(runs: Path, tmp_path: Path) -> None:
    report = compare(runs / "jax")
    found = {row.program: row.results[0].sets for row in report.rows}
    assert {name: [one.inputs for one in sets] for name, sets in found.items()} == SETS
    wide, special, exact = found["matmul"]
    assert wide.text.startswith("magnitudes from 2^-20 to 2^20, rows with offsets")
    assert 0 < wide.values.ratio < 1
    assert special.values.non_finite == 128  # 8 of 16 rows of 16
    assert (exact.values.error, exact.values.method) == (0.0, "whole numbers")
    assert all(one.outcome == "right" and one.dtype == "float32" for one in found["matmul"])
    text = " ".join(report.to_text().split())
    assert "wide 4 4 of 4 float32 oracle, exact oracle; at most " in text
    assert "exact 4 4 of 4 float32 whole numbers, exact oracle" in text
    assert "special 3 3 of 3 float32" in text
    page = report.to_html()
    assert "Further inputs of matmul" in page
    assert "128 NaN or infinities in place" in page
    assert "equal numbers" in page
    path = tmp_path / "report.json"
    written = json.loads(report.to_json(path))
    assert [one["inputs"] for one in written["rows"][0]["results"][0]["sets"]] == SETS["matmul"]
    assert Report.from_json(path) == report


def _break(record: dict[str, Any]) -> None:
    """As if the first block of the exact set had been found wrong."""
    exact = record["programs"][0]["sets"][2]
    kinds = ["wrong shape or dtype"]
    exact["blocks"][0] |= {"passed": False, "kinds": kinds, "ratio": "inf", "wrong": 1}
    exact["blocks"][0]["text"] = "1 of 64 elements is wrong"


def test_a_wrong_set_makes_the_program_wrong(runs: Path, tmp_path: Path) -> None:
    run = copy(runs, tmp_path) / "jax"
    for process in (0, 1):
        change_record(run, process, _break)
    report = compare(run)
    (result,) = report.rows[0].results
    assert result.outcome == "wrong"
    assert result.text.startswith("matmul (exact inputs, float32 x,y x,y) on jax: ")
    assert [one.outcome for one in result.sets] == ["right", "right", "wrong"]
    assert report.exit_code == 5
    text = " ".join(report.to_text().split())
    assert "exact 4 3 of 4" in text
    assert "ordinary 4 4 of 4" in text


def test_copies_that_differ_in_a_set(runs: Path, tmp_path: Path) -> None:
    run = copy(runs, tmp_path) / "jax"

    def change(record: dict[str, Any]) -> None:
        full_sum = next(p for p in record["programs"] if p["program"] == "full_sum")
        full_sum["sets"][0]["blocks"][0]["digest"] = "00000001"

    change_record(run, 0, change)
    result = compare(run).rows[3].results[0]
    assert (result.outcome, result.kind) == ("wrong", "copies differ")
    assert "full_sum (wide inputs, float32 x,y) on jax" in result.text


def test_without_further_sets_there_is_no_summary(runs: Path) -> None:
    report = compare(runs / "jax")
    rows = tuple(
        dataclasses.replace(row, results=(dataclasses.replace(row.results[0], sets=()),))
        for row in report.rows
    )
    alone = dataclasses.replace(report, rows=rows)
    assert "element types" in report.to_text()
    assert "element types" not in alone.to_text()


def test_coverage(tmp_path: Path) -> None:
    assert coverage("quick", True) == (("ordinary",), "one")
    assert coverage("usual", True)[1] == "some"
    assert coverage("usual", False)[1] == "one"
    assert coverage("thorough", False)[1] == "all"
    with pytest.raises(InvalidArgumentError, match="unknown coverage 'all'; known are: quick, usu"):
        crosscheck("matmul", coverage="all")
    with pytest.raises(InvalidArgumentError, match="unknown inputs 'hard'; known are: ordinary, "):
        CheckRequest(("matmul",), sets=("hard",))
    with pytest.raises(InvalidArgumentError, match="unknown extent 'most'; known are: one, some,"):
        CheckRequest(("matmul",), extent="most")
    request = CheckRequest(("matmul",), sets=("ordinary", "exact"), extent="all")
    write_request(request, tmp_path / "request.json")
    assert read_request(tmp_path / "request.json") == request


def test_an_error_says_on_which_inputs_it_was_raised() -> None:
    error = ValueError("no luck")
    error.add_note("JAX has removed its internal frames")
    error.add_note(Where("on wide inputs"))
    error.add_note(Where("in the layout and type float64 x,y"))
    message = error_facts(error)["message"]
    assert message == "no luck; on wide inputs; in the layout and type float64 x,y"
