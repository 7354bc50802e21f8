"""What a check can see decides whether a result is right, right with a remark, or unchecked."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.dtypes import as_dtype
from pyreactant.check.bounds.compare import compare
from pyreactant.check.bounds.estimate import tracked_results
from pyreactant.check.bounds.expected import Expected
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.sight import Sight, combined
from pyreactant.check.bounds.tracked import track
from pyreactant.check.bounds.verdict import Verdict, plain
from pyreactant.check.check import check_blocks
from pyreactant.check.execute import run_case
from pyreactant.check.programs import find_case
from pyreactant.check.records.verdict import ArrayPlan, BlockVerdict
from pyreactant.check.report.results import Seen, outliers, percent, seen
from tests.crosscheck.samples import report

from . import padded_programs, user_programs
from .faults import MESH, Scene
from .runs import small
from .trials import diagnosis_of


def sight(values: np.ndarray, bound: float | np.ndarray) -> Sight:
    """The sight of float32 results that are right."""
    with np.errstate(all="ignore"):
        held = values.astype(np.float32)
    bounds = np.broadcast_to(np.asarray(bound, float), values.shape)
    found = compare(held, Expected(values.astype(np.float64), bounds, last_rounding=True))
    assert found.wrong == 0
    return found.sight


def test_sensitivity_is_the_median_tolerance_over_the_size_of_the_result() -> None:
    values = np.full((8, 8), 2.0)
    assert sight(values, 0.02).sensitivity == pytest.approx(0.01, rel=0.07)
    assert sight(values, 0.0).sensitivity == 0
    found = sight(values, 0.02)
    assert Sight.from_dict(json.loads(json.dumps(plain(found)))) == found
    few = np.where(np.arange(64).reshape(8, 8) < 20, np.inf, 0.02)
    assert sight(values, few).sensitivity == pytest.approx(0.01, rel=0.07)
    assert sight(values, few).unbounded == 20
    assert sight(values, np.inf).sensitivity == math.inf
    large = sight(np.full((400, 400), 2.0), 0.02)  # thinned out
    assert large.sensitivity == pytest.approx(0.01, rel=0.07)
    assert sum(large.tolerances.values()) == pytest.approx(160000, rel=0.02)


def test_non_finite_elements_do_not_count() -> None:
    values = np.array([np.inf, np.nan, 3.0, 3.0])
    bounds = np.array([0.0, np.inf, 0.03, 0.03])
    found = sight(values, bounds)
    assert (found.finite, found.unbounded) == (2, 0)
    assert found.squares == 18
    loose = sight(np.array([np.inf, 3.0]), np.array([np.inf, 0.03]))
    assert loose.unbounded == 1  # whatever stands there passes


def test_sights_are_combined_over_the_whole_array() -> None:
    """A block of small values has a large sensitivity alone; the array does not."""
    small_ones, large = sight(np.full(10, 1e-3), 1e-3), sight(np.full(30, 1.0), 1e-3)
    assert small_ones.sensitivity > 0.9
    both = combined([small_ones, large])
    assert both.sensitivity < 2e-3
    assert combined([]).sensitivity == math.inf  # nothing was compared


def test_a_zero_result_is_measured_by_what_cancels() -> None:
    zero = Sight({sight_bin(1e-6): 4}, squares=0.0, finite=4)
    assert zero.sensitivity == pytest.approx(1e-6, rel=0.07)
    assert replace(zero, absolute=4e-4).sensitivity == pytest.approx(1e-4, rel=0.07)


def test_sights_of_huge_numbers_and_damaged_ones() -> None:
    huge = Sight({sight_bin(1e150): 4}, squares=math.inf, finite=4)
    assert 0 < huge.sensitivity < 1e-3
    assert Sight({sight_bin(1.0): 4}).sensitivity == math.inf
    for damage in ({"finite": -1}, {"squares": "nan"}, {"tolerances": {"-3": 1}}):
        with pytest.raises(ValueError, match="must not be negative"):
            Sight.from_dict(plain(huge) | damage)


def sight_bin(tolerance: float) -> int:
    return next(iter(sight(np.ones(1), tolerance).tolerances))


def judged(sensitivity: float, dtype: str, *, probed: bool = False) -> Seen:
    values = sight(np.ones(16), sensitivity)
    block = BlockVerdict("output 0", 0, 0, [[0, 16]], [[0, 16]], Verdict("oracle", sight=values))
    plan = ArrayPlan((16,), dtype, pr.NamedSharding(MESH, ()))
    return seen([block], {"output 0": plan}, probed=probed)


def test_limits_of_what_is_right() -> None:
    for value, dtype, coarse, unchecked in (
        (8e-3, "float32", False, False),
        (3e-2, "float32", True, False),
        (0.2, "complex64", True, False),
        (0.2, "bfloat16", False, False),
        (0.4, "float16", True, False),
        (0.7, "bfloat16", False, True),
        (math.inf, "float64", False, True),
    ):
        found = judged(value, dtype)
        assert (found.coarse, bool(found.unchecked)) == (coarse, unchecked), (value, dtype)
        probed = judged(value, dtype, probed=True)
        assert (probed.coarse, probed.unchecked) == (False, "")
    assert "--dtype float64" in judged(0.7, "bfloat16").unchecked
    assert "no error bound" in judged(math.inf, "float64").unchecked
    assert "--dtype" not in judged(math.inf, "float64").unchecked
    assert judged(math.inf, "float32").note.startswith("16 of 16 elements of output 0 have no")
    assert "by 1e+09 times its root mean square" in judged(1e9, "float32").unchecked
    assert [percent(x) for x in (0.031, 0.0004, 2.0)] == ["3.1 %", "0.04 %", "200 %"]


def test_outliers_are_noted() -> None:
    def block(device: int, index: int, ratio: float) -> BlockVerdict:
        place = [[index, index + 1]]
        values = Verdict("oracle", ratio=ratio, sight=Sight({}, 1.0, 1))
        return BlockVerdict("output 0", device, device // 2, place, place, values)

    usual = [block(0, 0, 0.1), block(1, 1, 0.11), block(2, 2, 0.09)]
    assert outliers([*usual, block(3, 3, 0.4)]) == ""
    found = outliers([*usual, block(3, 3, 0.5)])
    assert found.startswith("block [3:4] of output 0 on device 3 (process 1) is suspicious")
    assert outliers([block(0, 0, 0.1), block(1, 0, 0.5)]) == ""  # copies of one block
    assert outliers([]) == ""


def test_coarse_and_unchecked_results_in_the_report() -> None:
    made = report(["heat", "fft"], ["jax"])
    first, second = made.rows
    (result,) = first.results
    coarse = replace(
        made,
        rows=(replace(first, results=(replace(result, sensitivity=0.031, coarse=True),)), second),
    )
    assert coarse.passed
    assert "1 of them with errors below 3.1 % not seen (heat)" in coarse.verdict
    assert "right, errors below 3.1 % not seen" in " ".join(coarse.to_text(200).split())
    both = report(["heat"], ["jax", "standin"])
    (row,) = both.rows
    blind = tuple(replace(one, outcome="unchecked", text="why") for one in row.results)
    alike = replace(both, rows=(replace(row, results=blind),))
    assert not alike.passed  # although the runtimes agree
    assert alike.exit_code == 3
    assert "heat did not pass: unchecked on jax" in alike.verdict
    without = replace(both, rows=(replace(row, results=blind, oracle=False),))
    assert without.passed


@pytest.mark.usefixtures("backend")
def test_a_short_sum_that_is_zero_is_never_right() -> None:
    outcomes = set()
    for seed in (0, 5, 6):
        scene = Scene.of("full_sum", 32, dtype="bfloat16", seed=seed)
        run = scene.with_blocks({device: np.zeros_like(b) for device, b in scene.right.items()})
        found = diagnosis_of(run)
        blocks = check_blocks(run)
        unchecked = seen(blocks, run.plans).unchecked
        assert not found.passed or unchecked
        outcomes.add(found.passed)
    assert False in outcomes


@pytest.mark.usefixtures("backend")
def test_a_result_that_is_zero_is_checked() -> None:
    scene = Scene.of(user_programs.of_nothing, 32)
    blocks = check_blocks(scene.run)
    found = seen(blocks, scene.run.plans)
    assert 0 < found.sensitivity < 1e-3
    assert not found.unchecked


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("program", "dtype", "column"),
    [
        ("row_sum", "float32", 0),
        ("row_sum", "bfloat16", 2),
        ("softmax", "float16", 3),
        ("fft", "complex64", 0),
        ("perceptron_gradient", "float32", 0),
    ],
)
def test_the_table_in_the_documentation_is_true(program: str, dtype: str, column: int) -> None:
    """`python -m benchmarks.crosscheck --only sensitivity` prints all of it."""
    text = (Path(__file__).parents[2] / "docs/checks.md").read_text()
    row = re.search(rf"^\|.*\b{program} \|(.*)\|$", text, re.MULTILINE)
    assert row
    given = row[1].split("|")[column].strip()
    stated = float(given.split()[0]) * (0.01 if given.endswith("%") else 1)
    run = run_case(find_case(program), dtype=dtype, calls=1)
    blocks = check_blocks(run)
    assert seen(blocks, run.plans).sensitivity == pytest.approx(stated, rel=0.15)


def test_a_run_says_what_it_cannot_see(capfd: pytest.CaptureFixture[str]) -> None:
    """A long chain whose bound allows anything; and a fault of process 1 alone."""
    programs = [user_programs.of_layers, user_programs.wrong_on_one]
    made = small(programs, size=64, typical=0, progress=True)
    chain, one = (row.results[0] for row in made.rows)
    assert chain.outcome == "unchecked"
    assert chain.sensitivity > 0.5
    assert "is unchecked: rounding in float32 may change output 0 by" in chain.text
    assert (
        "run it with a longer element type (--dtype float64), with a smaller --size" in chain.text
    )
    assert made.exit_code == 5
    assert one.outcome == "wrong"
    assert one.kind == "wrong factor"
    assert re.search(r"only process 1( on \S+)? has wrong blocks", one.text)
    (line,) = [one for one in capfd.readouterr().err.splitlines() if "wrong_on_one" in one]
    assert line.endswith(", WRONG on process 1")


def block_of(
    values: np.ndarray, bound: float | np.ndarray, first: int, device: int = 0, **more: Any
) -> BlockVerdict:
    """A right block of rows of an output with 16 columns."""
    got = more.get("got", values).astype(np.float32)
    bounds = np.broadcast_to(np.asarray(bound, float), values.shape)
    verdict = compare(got, Expected(values.astype(np.float64), bounds, last_rounding=True))
    place = [[first, first + len(values)], [0, 16]]
    return BlockVerdict("output 0", device, 0, place, place, replace(verdict, method="oracle"))


def seen_in(*blocks: BlockVerdict) -> Seen:
    plan = ArrayPlan((64, 16), "float32", pr.NamedSharding(MESH, ()))
    return seen(blocks, {"output 0": plan})


def test_elements_are_judged_by_themselves() -> None:
    numbers = np.random.default_rng(1).standard_normal((32, 16))
    fine = block_of(numbers, 1e-6, 0)
    assert not seen_in(fine, block_of(numbers, 1e-6, 32)).unchecked
    # Rows that are small have their tolerance beside that of their block.
    rows = numbers * np.where(np.arange(32) < 16, 1e-3, 1.0)[:, None]
    assert not seen_in(fine, block_of(rows, 1e-2, 32)).note
    bounds = np.where(np.arange(32) < 2, 2.0, 1e-6)[:, None]
    found = seen_in(fine, block_of(numbers, bounds, 32))
    assert found.unchecked.startswith(
        "32 of the 1024 elements of output 0 were not seen, most of them in block [32:64, 0:16], "
        "so wrong values pass there; only 1 % of the elements may be so"
    )
    few = np.where(np.arange(512).reshape(32, 16) < 10, 2.0, 1e-6)
    found = seen_in(fine, block_of(numbers, few, 32))
    assert not found.unchecked
    assert found.note.startswith("10 of the 1024 elements of output 0 were not seen")
    # Padding makes the ten more than 1 %.
    padded = np.where(np.arange(32) < 8, numbers.T, 0.0).T
    zeros = block_of(np.zeros((32, 16)), 0.0, 0)
    found = seen_in(zeros, block_of(padded, np.where(padded, few, 0.0), 32))
    assert "10 of the 128 elements of output 0 (896 more are constant)" in found.unchecked


def test_constants_of_a_mask_are_left_out() -> None:
    numbers = np.random.default_rng(2).standard_normal((32, 16))
    mask = np.arange(16) < 12
    # The size of a mask does not hide what is beside it.
    hidden = block_of(np.where(mask, -1e9, numbers), np.where(mask, 0.0, 8.0), 0)
    assert seen_in(hidden).sensitivity > 1
    assert hidden.values.sight.blind == 128
    found = seen_in(block_of(np.where(mask, -1e9, numbers), np.where(mask, 0.0, 1e-6), 0))
    assert not found.unchecked
    assert "384 of 512 elements of output 0 are the same constant in the oracle" in found.note
    values = np.where(mask, np.where(numbers > 0, -np.inf, np.nan), 1.0)
    assert seen_in(block_of(values, 0.0, 0)).sight.trivial == 512


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_what_is_computed_is_no_constant_though_it_has_few_values(dtype: str) -> None:
    """A number that is written has the error of its rounding, a product that of its own, too."""
    model, kind = Model.of(dtype), as_dtype(dtype)
    x = np.arange(-256, 256).reshape(64, 8) / 256
    for oracle, trivial in (
        (lambda x: np.where(x > 0, x, 0.3), 257),
        (lambda x: np.where(np.floor(3 * x) > 0, 0.7, 0.3) * 0.1, 0),
    ):
        results = tracked_results(oracle, (track(x, model),), model)
        assert not isinstance(results, str)
        (result,) = results
        expected = Expected(result.value, result.bound)
        assert compare(result.value.astype(kind), expected).sight.trivial == trivial


def test_copies_and_unbounded_elements_are_counted_as_the_user_does() -> None:
    numbers = np.random.default_rng(3).standard_normal((64, 16))
    numbers[:20] = np.inf
    bounds = np.where(np.arange(64) < 20, np.inf, 1e-6)[:, None]
    found = seen_in(*(block_of(numbers, bounds, 0, device) for device in range(4)))
    assert found.note.startswith("320 of 1024 elements of output 0 have no error bound")
    assert "320 of the 1024 elements of output 0 were not seen" in found.unchecked


def test_a_block_that_is_off_by_more_than_half_never_passes() -> None:
    """Few elements are blind, but their errors are large."""
    numbers = np.random.default_rng(4).standard_normal((32, 16))
    bounds, wrong = np.full((32, 16), 1e-6), numbers.copy()
    bounds[0, 0], wrong[0, 0] = 200.0, numbers[0, 0] + 100
    fine = block_of(np.random.default_rng(5).standard_normal((32, 16)), 1e-6, 0)
    assert not seen_in(fine, block_of(numbers, bounds, 32)).unchecked
    found = seen_in(fine, block_of(numbers, bounds, 32, got=wrong))
    assert found.unchecked.startswith("block [32:64, 0:16] of output 0 is off by 4")
    assert "only up to 50 % counts as right" in found.unchecked


def seen_of(program: pr.Program, **options: Any) -> tuple[bool, Seen]:
    """Whether a program's result passes its bounds, and what its check sees."""
    run = run_case(find_case(program), calls=1, **options)
    blocks = check_blocks(run)
    return all(block.values.passed for block in blocks), seen(blocks, run.plans)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", padded_programs.WRONG)
def test_padding_hides_no_wrong_values(name: str) -> None:
    passed, found = seen_of(padded_programs.WRONG[name]())
    assert passed  # within the bound, so no proof that it is wrong
    assert found.unchecked
    assert found.sight.seen < found.sight.elements - found.sight.trivial


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("program", padded_programs.RIGHT, ids=lambda program: program.name)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_right_programs_with_padding_stay_right(program: pr.Program, dtype: str) -> None:
    passed, found = seen_of(program, dtype=dtype)
    assert passed
    assert not found.unchecked
    assert 0 < found.sight.trivial < found.sight.elements == 64 * 64
