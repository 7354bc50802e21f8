"""The report as data and on a terminal."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pyreactant import FileError, __version__
from pyreactant.check.bounds.verdict import BY_FLOAT32, Verdict
from pyreactant.check.records.records import SCHEMA
from pyreactant.check.report.data import Outcome, Result
from pyreactant.check.report.report import Report
from pyreactant.check.report.text import ratio_text
from tests.crosscheck.samples import report


@pytest.mark.parametrize("wrong", [[], [5, 6]])
def test_json_round_trip(wrong: list[int], tmp_path: Path) -> None:
    made = report(wrong=wrong)
    text = made.to_json(tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text() == text
    assert Report.from_json(tmp_path / "report.json") == made
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert data["passed"] is not bool(wrong)
    assert data["exit_code"] == (5 if wrong else 0)
    assert data["verdict"] == made.verdict
    assert data["pyreactant"] == __version__


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    made = report(["matmul"], wrong=[1])
    (row,) = made.rows
    endless = tuple(
        replace(r, values=replace(r.values, ratio=float("inf"), error=float("inf")))
        for r in row.results
    )
    pairs = tuple(replace(p, values=replace(p.values, error=float("inf"))) for p in row.pairs)
    made = replace(made, rows=(replace(row, results=endless, pairs=pairs),))
    made.to_json(tmp_path / "report.json")
    assert Report.from_json(tmp_path / "report.json") == made
    assert "<svg" in made.to_html()


def test_reports_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with pytest.raises(FileError, match="cannot be read"):
        Report.from_json(path)
    for text, why in (
        ("{", "truncated or damaged"),
        ("[]", "not a report"),
        ("{}", "None"),
        (f'{{"schema": {SCHEMA}, "pyreactant": "{__version__}"}}', "KeyError"),
    ):
        path.write_text(text)
        with pytest.raises(FileError, match=why):
            Report.from_json(path)
    with pytest.raises(FileError, match="its folder does not exist; create it first"):
        report(["matmul"]).to_json(tmp_path / "none" / "report.json")


def with_results(*results: Result) -> Report:
    made = report(["matmul"], [r.runtime for r in results])
    (row,) = made.rows
    return replace(made, rows=(replace(row, results=results),))


def test_programs_that_a_run_did_not_reach_share_a_sentence() -> None:
    made = report(["matmul", "gram", "fft"])
    why = "did not run on jax because its run ended before: process 1 was killed"
    rows = (
        replace(
            row, results=(Result("jax", Outcome.NOT_RUN, text=f"{row.program} {why}", exit_code=6),)
        )
        for row in made.rows[1:]
    )
    ended = replace(made, rows=(made.rows[0], *rows))
    assert f"  gram, fft {why}\n" in ended.to_text(200)
    assert ended.to_html().count(why) == 1


def test_exit_codes() -> None:
    right, wrong = Result("jax", Outcome.RIGHT), Result("jax", Outcome.WRONG)
    raised, lost = (
        Result("b", Outcome.RAISED, exit_code=1),
        Result("b", Outcome.NOT_RUN, exit_code=6),
    )
    assert with_results(right).exit_code == 0
    assert with_results(wrong).exit_code == 5
    assert with_results(wrong, lost).exit_code == 5
    assert with_results(right, raised).exit_code == 1
    assert with_results(right, lost).exit_code == 6
    assert with_results(Result("jax", Outcome.UNCHECKED)).exit_code == 3
    assert report(["matmul"], wrong=[1]).exit_code == 5
    assert Report((), (), {}, "").exit_code == 1


def test_a_run_that_breaks_after_its_last_program() -> None:
    made = report(["heat"], ["jax"])
    ended = {"cause": "lost", "exit_code": 6, "summary": "process 1 was killed by SIGKILL"}
    broken = replace(made, runs=(replace(made.runs[0], ended=ended),))
    assert not broken.passed
    assert broken.exit_code == 6
    assert broken.verdict == (
        "All programs are right, but a run failed. The run on jax failed: process 1 was killed by "
        "SIGKILL."
    )
    nothing = replace(broken, rows=())
    assert nothing.exit_code == 6
    assert "Nothing was checked. The run on jax failed" in nothing.verdict


def test_verdicts() -> None:
    assert report(["heat"]).verdict == (
        "heat: right on jax and stand-in, against an independent NumPy reference, and they agree "
        "with each other."
    )
    assert report(["heat", "fft"], ["jax"]).verdict == (
        "2 programs: right on jax, against an independent NumPy reference. Only jax ran, so there "
        "was nothing to compare it with."
    )
    assert report(["heat", "fft"], wrong=[3]).verdict == (
        "1 of 2 programs did not pass: heat wrong on stand-in (transposed block)."
    )
    assert Report((), (), {}, "").verdict == "Nothing was checked."


def test_products_in_float32_are_named() -> None:
    """In the verdict and on the page; an error of zero is then no proof of equal bits."""
    made = report(["heat"], ["jax"])
    row = made.rows[0]
    values = Verdict(BY_FLOAT32)
    results = tuple(replace(one, values=values) for one in row.results)
    made = replace(made, rows=(replace(row, results=results),))
    assert "NumPy reference, with products of the check in float32. Only jax" in made.verdict
    assert "oracle, products of the check in float32" in made.to_html()
    assert "exact" not in made.to_text()


def test_on_a_terminal() -> None:
    text = report(["heat", "fft"], wrong=[3]).to_text(width=200)
    assert "\x1b" not in text
    for expected in (
        "program",
        "jax and stand-in",
        "wrong: transposed block",
        "n=512 float32 x,y x,y",
        "heat on stand-in: transposed block: process 0, device 3",
        "reactant did not run: run: pyreactant setup",
        "1 of 2 programs did not pass",
    ):
        assert expected in text
    assert max(map(len, report().to_text(width=100).splitlines())) <= 100


def test_ratios_as_text() -> None:
    assert [ratio_text(r) for r in (0, 0.254, 3e-5, 6.2e6)] == ["0.00", "0.25", "3e-05", "6e+06"]


def test_json_has_no_line_for_each_number() -> None:
    """A map of wrong elements has one line for each of its own."""
    made = report(["matmul"], ["jax"], wrong=range(8))
    lines = [line.strip().rstrip(",") for line in made.to_json().splitlines()]
    assert lines.count(str([128] * 16)) == 8
    assert not any(line.lstrip("-").isdecimal() for line in lines)
    assert json.loads(made.to_json()) == made.to_dict()


@pytest.mark.parametrize("width", [30, 40, 60])
def test_a_narrow_terminal_breaks_no_word(width: int) -> None:
    made = report(["heat", "pkg.module:program"], wrong=[3])
    lines = made.to_text(width=width).splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for word in ("pkg.module:program", "transposed", "stand-in", "allowed,"):
        assert word in words, word
