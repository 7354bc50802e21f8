"""The comparison of two finished runs: what agrees, and the name of each kind of difference."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyreactant.check.compare import close, difference, guess
from pyreactant.check.records.verdict import Pair
from pyreactant.check.report.report import Report
from pyreactant.check.run import compare
from tests.crosscheck.runs import PROGRAMS, change_blocks, change_record, copy

Blocks = dict[str, np.ndarray]


def pair(report: Report, program: str) -> Pair:
    (row,) = (row for row in report.rows if row.program == program)
    (found,) = row.pairs
    return found


def compared(runs: Path, folder: Path, change: Callable[[Path], object]) -> Report:
    """Compare the jax run with a changed copy of the other run."""
    changed = copy(runs, folder) / "standin"
    change(changed)
    return compare(runs / "jax", changed)


def test_agree(runs: Path) -> None:
    report = compare(runs / "jax", runs / "standin")
    assert report.passed
    assert report.exit_code == 0
    assert [row.program for row in report.rows] == PROGRAMS
    assert pair(report, "transpose").text == "agree to the last bit in 4 blocks"
    assert pair(report, "matmul").blocks == 4
    assert "right on jax and standin" in report.verdict
    assert "agree with each other" in report.verdict


def test_one_run_alone(runs: Path) -> None:
    report = compare(runs / "jax")
    assert report.passed
    assert "Only jax ran, so there was nothing to compare it with" in report.verdict


def test_two_runs_of_one_runtime(runs: Path, tmp_path: Path) -> None:
    report = compare(runs / "jax", copy(runs, tmp_path) / "jax")
    assert report.passed
    names = [run.name for run in report.runs]
    assert len(set(names)) == 2
    assert all(name.endswith("/jax") for name in names)


def _one_element(blocks: Blocks) -> None:
    blocks["matmul/output 0/3"][5, 7] += 1


def _two_blocks_swapped(blocks: Blocks) -> None:
    one, two = "matmul/output 0/2", "matmul/output 0/3"
    blocks[one], blocks[two] = blocks[two], blocks[one]


def _a_transposed_block(blocks: Blocks) -> None:
    blocks["matmul/output 0/2"] = blocks["matmul/output 0/2"].T.copy()


def _nan(blocks: Blocks) -> None:
    blocks["matmul/output 0/2"][0, 0] = np.nan


def _another_dtype(blocks: Blocks) -> None:
    blocks["matmul/output 0/2"] = blocks["matmul/output 0/2"].astype(np.float64)


def _another_shape(blocks: Blocks) -> None:
    blocks["matmul/output 0/2"] = blocks["matmul/output 0/2"][:4]


def _last_bit_of_an_exact_one(blocks: Blocks) -> None:
    block = blocks["transpose/output 0/3"]
    block[1, 1] = np.nextafter(block[1, 1], np.float32(9))


CHANGED_BLOCKS = [
    (
        _one_element,
        "matmul",
        "different values",
        "DIFFER (different values): device 3 (process 1), block [8:16, 8:16] of output 0, element "
        "[13, 15]: ",
    ),
    (_two_blocks_swapped, "matmul", "permuted blocks", " has this block of jax on device "),
    (_a_transposed_block, "matmul", "transposed block", "device 2 (process 1), block [8:16, 0:8]"),
    (_nan, "matmul", "different values", "element [8, 0]: "),
    (
        _another_dtype,
        "matmul",
        "different outputs",
        "output 0 of standin, device 2 (process 1): its file must hold the block [8:16, 0:8] that "
        "was checked, float32[8, 8], got float64[8, 8]; copy the file again",
    ),
    (_another_shape, "matmul", "different outputs", "float32[8, 8], got float32[4, 8]"),
    (_last_bit_of_an_exact_one, "transpose", "different values", "element [9, 9]: "),
]


@pytest.mark.parametrize(("change", "program", "kind", "text"), CHANGED_BLOCKS)
def test_blocks_that_are_not_those_that_were_checked(
    change: Callable[[Blocks], object],
    program: str,
    kind: str,
    text: str,
    runs: Path,
    tmp_path: Path,
) -> None:
    report = compared(runs, tmp_path, lambda run: change_blocks(run, 1, change))
    found = pair(report, program)
    assert not found.passed
    assert found.kind == kind
    assert text in found.text
    assert report.exit_code == 5
    assert f"{program}, jax and standin: " in report.to_text(width=1000)
    others = [p for row in report.rows if row.program != program for p in row.pairs]
    assert all(p.passed for p in others)


def _program(record: dict[str, Any], name: str = "matmul") -> dict[str, Any]:
    return next(program for program in record["programs"] if program["program"] == name)


def _in_both(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    for process in range(2):
        change_record(run, process, lambda record: change(_program(record)))


def _index_of_device_0(program: dict[str, Any]) -> None:
    for block in program["blocks"]:
        if block["array"] == "output 0" and block["device"] == 0:
            block["index"] = [[0, 8], [8, 16]]


def _without_device_3(program: dict[str, Any]) -> None:
    program["blocks"] = [b for b in program["blocks"] if b["device"] != 3]


def _two_outputs(program: dict[str, Any]) -> None:
    program["plans"]["output 1"] = program["plans"]["output 0"]


CHANGED_RECORDS: list[tuple[Callable[[dict[str, Any]], object], str, str]] = [
    (lambda p: p["problem"].update(seed=1), "different problems", "(seed: 0 and 1)"),
    (
        lambda p: p["problem"].update(size=32, dtype="float64"),
        "different problems",
        "(size: 16 and 32; dtype: float32 and float64)",
    ),
    (lambda p: p["problem"]["mesh"].update(shape=[4, 1]), "different problems", "(mesh: {'shape'"),
    (
        lambda p: p["inputs"]["input 1"].update(dict.fromkeys(p["inputs"]["input 1"], "0bad")),
        "different problems",
        "of input 1 has other bytes although the seeds are equal",
    ),
    (
        lambda p: p["plans"]["output 0"].update(dtype="float64"),
        "different outputs",
        "output 0 is float32[16, 16] on jax and float64[16, 16] on standin; make both bodies",
    ),
    (
        lambda p: p["plans"]["output 0"].update(shape=[16, 32]),
        "different outputs",
        "output 0 is float32[16, 16] on jax and float32[16, 32] on standin",
    ),
    (_two_outputs, "different outputs", "different numbers of outputs: 1 on jax, 2 on standin"),
    (
        _index_of_device_0,
        "placement differs",
        "device 0 holds [0:8, 0:8] of output 0 on jax "
        "(process 0) and [0:8, 8:16] on standin (process 0); the right block is [0:8, 0:8]",
    ),
    (
        _without_device_3,
        "placement differs",
        "blocks on devices [0, 1, 2, 3] on jax and on [0, 1, 2] on standin",
    ),
]


@pytest.mark.parametrize(("change", "kind", "text"), CHANGED_RECORDS)
def test_records_that_differ(
    change: Callable[[dict[str, Any]], object], kind: str, text: str, runs: Path, tmp_path: Path
) -> None:
    found = pair(compared(runs, tmp_path, lambda run: _in_both(run, change)), "matmul")
    assert not found.passed
    assert found.kind == kind
    assert text in found.text


def test_a_program_that_one_run_has_not(runs: Path, tmp_path: Path) -> None:
    def without(record: dict[str, Any]) -> None:
        record["programs"] = [p for p in record["programs"] if p["program"] != "row_sum"]

    def change(run: Path) -> None:
        for process in range(2):
            change_record(run, process, without)

    report = compared(runs, tmp_path, change)
    assert pair(report, "row_sum").text == "not compared: no complete result on standin"
    assert not report.passed
    assert pair(report, "matmul").passed


def test_a_run_that_broke_off_has_no_blocks(runs: Path, tmp_path: Path) -> None:
    """The file of blocks appears at the end of a run; its finished programs are reported."""

    def broke_off(run: Path) -> None:
        for process in range(2):
            (run / f"shards-{process}.npz").unlink()
            change_record(run, process, lambda record: record.update(finished=False))
        report = json.loads((run / "report.json").read_text())
        (run / "report.json").write_text(json.dumps(report | {"exit_code": 6, "cause": "lost"}))

    report = compared(runs, tmp_path, broke_off)
    found = pair(report, "matmul")
    assert found.text == "not compared: the run on standin was broken off"
    assert [result.outcome for result in report.rows[0].results] == ["right", "right"]


def test_difference() -> None:
    one = np.array([1.0, 0.0, np.inf, np.nan, -2.0], np.float32)
    two = one.copy()
    assert difference(one, two, 0.0).passed
    two[0] = np.nextafter(np.float32(1), np.float32(2))
    found = difference(one, two, 0.0)
    assert (found.passed, found.ulps, found.worst and found.worst["element"]) == (False, 1, [0])
    for place, value in ((2, -np.inf), (2, 1.0), (3, 1.0), (1, np.nan)):
        other = one.copy()
        other[place] = value
        found = difference(one, other, 1.0)
        assert (found.error, found.worst and found.worst["element"]) == (np.inf, [place])
    assert not difference(np.array([2**63 - 1, 0]), np.array([2**63 - 2, 0]), 0.0).passed
    assert difference(np.array([True]), np.array([False]), 0.0).error == 1
    empty = np.empty((0, 3), np.float32)
    assert difference(empty, empty, 0.0).passed
    assert difference(np.array([1 + 1j, 2]), np.array([1 - 1j, 2]), 0.0).error == 2


def test_what_is_guessed_without_an_oracle() -> None:
    """The estimated tolerance accepts rounding of long sums, not half precision."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (64, 4096)).astype(np.float32)
    one, two = x @ x.T, (x[:, ::-1].copy() @ x.T[::-1].copy())
    allowed = guess(one, one.dtype, x.size)
    assert 0 < difference(one, two, allowed).ratio < 0.1
    half = (x.astype(np.float16) @ x.T.astype(np.float16)).astype(np.float32)
    assert not difference(one, half, allowed).passed
    assert close(one, two)
    assert not close(one, one.T + 1)
