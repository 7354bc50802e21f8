"""The page of a cross-check: what is on it, and the blocks of any mesh."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.base.document.parts import Figure, Folded, Table
from pyreactant.check.bounds.verdict import Verdict
from pyreactant.check.records.verdict import ArrayPlan, Kind
from pyreactant.check.report.data import GradientResult
from pyreactant.check.report.report import Report
from tests.crosscheck.samples import blocks, report
from tests.pages.outline import Outline

NAMES = ["matmul", "softmax", "pkg.my_module:a_program_with_a_long_name", "heat", "fft"]


def test_what_is_on_it() -> None:
    good = report(NAMES).to_html()
    for text in (
        "Passed",
        "reactant did not run: run: pyreactant setup",
        "0123456789ab, 2 fil",
        "2 on one, two",
        "8: cpu (cpu)",
        "process 1",
        "It printed nothing",
        "0.12.0",
        "a log with &lt;tags&gt; &amp; signs",
        "--xla_a=&lt;1&gt;",
    ):
        assert text in good
    assert "<tags>" not in good
    assert "What is wrong" not in good


def test_a_wrong_program() -> None:
    bad = report(NAMES, wrong=[5, 6]).to_html()
    assert "Did not pass" in bad
    sentence = "on stand-in: transposed block: process 0, device 5"
    assert bad.count(sentence) == 1
    assert re.search(r'<details id="program-0" open>', bad)
    assert 'id="program-1" open' not in bad
    assert bad.count('class="words bad"') == 2


def test_errors_shares_and_times_have_columns_of_their_own() -> None:
    whole = report(["heat"], ["jax"])
    (row,) = whole.rows
    values = Verdict("oracle", error=1.0, ratio=0.06, error_squares=4e-14, value_squares=1.0)
    result = replace(row.results[0], values=values, seconds={"call": 0.0189})
    page = replace(whole, rows=(replace(row, results=(result,)),)).to_html()
    for label, text in (("error", "2e-07"), ("share of allowed", "0.06"), ("time", "18.9 ms")):
        assert f'data-label="{label}" class="number">{text}<' in page


def test_wrong_elements_are_mapped() -> None:
    """Devices 5 and 6 are wrong in the first line and the last column of their grid."""
    page = report(NAMES, wrong=[5, 6]).to_html()
    assert page.count('aria-label="wrong in lines 0 to 15 and columns 0 to 15 of 16 x 16"') == 1
    assert page.count("<rect ") == 16 + 15  # equal maps are one
    assert "devices 5, 6: 4000 of 32768 elements are wrong in each" in page
    assert '<rect x="0" y="0" width="1" height="1" class="fill-0"></rect>' in page
    assert "<rect " not in report(NAMES).to_html()
    again = Report.from_dict(json.loads(report(NAMES, wrong=[5, 6]).to_json()))
    assert again.to_html() == page


def test_only_numbers_that_are_there_are_explained() -> None:
    good, bad = report(["matmul"], ["jax"]), report(["matmul"], ["jax"], wrong=[5])
    for made, shown in ((good, True), (bad, False)):
        page, text = made.to_html(), made.to_text()
        assert ("Share of allowed: the largest" in page) == shown
        overview = page[: page.index("Each program")]
        assert ('data-label="error"' in overview) == shown
        assert ("Error in the worst block" in text) == shown  # and lines end anywhere
        assert "Time: median of the timed calls." in page
        assert "Time: median of the timed calls." in " ".join(text.split())
    assert "bars show the share" in bad.to_html()
    every = report(["matmul"], ["jax"], wrong=range(8)).to_html()
    assert "bars show the share" not in every
    assert "devices 0-7: 4000 of 32768 elements are wrong in each" in every


def test_gradients_are_on_it() -> None:
    one = GradientResult("matmul", "x", "jax.grad", Verdict(ratio=1e5, wrong=1))
    page = replace(report(["matmul"]), gradients=(one,)).to_html()
    assert "Gradients of Julia bodies" in page
    assert "jax.grad" in page
    assert "Gradients of Julia bodies" not in report(["matmul"]).to_html()


def test_a_report_without_programs_has_a_page() -> None:
    """If nothing ran, no program has blocks and no runtime has devices."""
    empty = Report((), (), {"jax": "install it"}, "2026-01-02T03:04:05+00:00")
    assert "Did not pass" in empty.to_html()
    assert "Nothing was checked" in empty.to_html()


def test_for_notebooks() -> None:
    text = report(NAMES, wrong=[5])._repr_html_()
    assert text is not None
    assert Outline(text).stack == []
    assert "wrong: transposed block" in text


SHAPES = [
    (pr.Mesh((8,), ("data",)), (16, 4), ("data",)),
    (pr.Mesh((2, 2, 2), ("x", "y", "z")), (8, 8, 8), ("x", "y", "z")),
    (pr.Mesh((2, 2, 2), ("x", "y", "z")), (64,), (("x", "y", "z"),)),
    (pr.Mesh((2, 4), ("x", "y")), (), ()),
    (pr.Mesh((2, 4), ("x", "y")), (0, 8), ("x",)),
    (pr.Mesh((8, 16), ("x", "y")), (256, 256), ("x", "y")),
    (pr.Mesh((64, 32), ("x", "y")), (256, 256), ("x", "y")),
    (pr.Mesh((1,), ("x",)), (3,), ()),
]


@pytest.mark.parametrize(("mesh", "shape", "spec"), SHAPES, ids=str)
def test_blocks_of_any_mesh(mesh: pr.Mesh, shape: tuple[int, ...], spec: Any) -> None:
    plan = ArrayPlan(shape, "float32", pr.NamedSharding(mesh, spec))
    whole = report(["heat"], ["jax"])
    (row,) = whole.rows
    good = blocks(plan, 0.5)
    nowhere = replace(good[0], index=None, kinds=(Kind.FEWER_DEVICES,))
    endless = replace(good[-1].values, ratio=float("inf"))
    lies = (Kind.WRONG_DEVICES,)
    elsewhere = replace(good[-1], index=good[0].index, values=endless, kinds=lies)
    for found, wrong in (
        (good, 0),
        ((nowhere, *good[1:]), 1),
        ((*good[:-1], elsewhere), 1),
        (good[1:], 1),
    ):
        result = replace(row.results[0], blocks=found)
        shown = replace(row, plans={"output 0": plan}, results=(result,))
        figures = figures_of(replace(whole, rows=(shown,)))
        if not found:
            assert figures == []
            continue
        (figure,) = figures
        drawn = [part for part in figure.parts if isinstance(part, Table)]
        cells = [cell for table in drawn for line in table.lines for cell in line[1:]]
        assert len(cells) == (mesh.size if mesh.size <= 1024 else 0)
        assert sum(cell.look == "bad" for cell in cells) == (wrong if cells else 0)
        folded = figure.parts[-1]
        assert isinstance(folded, Folded)
        (numbers,) = folded.parts
        assert isinstance(numbers, Table)
        assert len(numbers.rows) + numbers.left_out == len(found)
        assert len(numbers.rows) <= 64
        verdicts = [line[3].look for line in numbers.lines]
        assert verdicts.count("bad") == sum(not b.passed for b in found)  # none is left out


def figures_of(whole: Report) -> list[Figure]:
    """The figures of the programs on a page."""
    (section,) = (one for one in whole.document().sections if one.title == "Each program")
    groups = [part for program in section.parts for part in getattr(program, "parts", ())]
    inner = [part for group in groups for part in getattr(group, "parts", ())]
    return [part for part in inner if isinstance(part, Figure)]


AXES = ("x", "y", "z")


@pytest.mark.parametrize(
    ("sizes", "head", "rows"),
    [
        ((8,), ["", ""], [f"x={i}" for i in range(8)]),
        ((2, 4), ["", "y=0", "y=1", "y=2", "y=3"], ["x=0", "x=1"]),
        ((2, 2, 2), ["", "z=0", "z=1"], ["0.0", "0.1", "1.0", "1.1"]),
    ],
)
def test_the_last_axis_runs_across(
    sizes: tuple[int, ...], head: list[str], rows: list[str]
) -> None:
    mesh = pr.Mesh(sizes, AXES[: len(sizes)])
    plan = ArrayPlan((8, 8, 8), "float32", pr.NamedSharding(mesh, AXES[: len(sizes)]))
    whole = report(["heat"], ["jax"])
    (row,) = whole.rows
    result = replace(row.results[0], blocks=blocks(plan, 0.5))
    shown = replace(row, plans={"output 0": plan}, results=(result,))
    (figure,) = figures_of(replace(whole, rows=(shown,)))
    table = figure.parts[0]
    assert isinstance(table, Table)
    assert list(table.head) == head
    assert [line[0].text for line in table.lines] == rows
