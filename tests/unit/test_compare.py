"""Two finished runs: what agrees, and what each kind of difference is called."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyreactant import FileError
from pyreactant._compare import compare_products
from tests.harness import REPOSITORY, environment

VERDICT = str(REPOSITORY / "slurm" / "verdict.py")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs a and b of one problem."""
    folder = tmp_path_factory.mktemp("runs")
    for name in "ab":
        subprocess.run(
            [sys.executable, "-m", "pyreactant", "matmul", "--size", "64", "--platform", "cpu",
             "--cpu-devices", "4", "--out", f"{name}.npy", "--report", f"{name}.json"],
            cwd=folder, env=environment(), check=True, capture_output=True,
        )  # fmt: skip
    return folder


def changed(
    runs: Path,
    folder: Path,
    report: Callable[[dict[str, Any]], object] = lambda _: None,
    product: Callable[[np.ndarray], object] = lambda _: None,
) -> Path:
    """Run b with something changed."""
    found, array = json.loads((runs / "b.json").read_text()), np.load(runs / "b.npy")
    report(found)
    product(array)
    (folder / "c.json").write_text(json.dumps(found))
    np.save(folder / "c.npy", array)
    return folder / "c"


def test_agree(runs: Path) -> None:
    found = compare_products(runs / "a", runs / "b")
    assert found.passed
    assert "agree: relative difference 0.00e+00" in found.text
    assert "the same blocks on 4 devices" in found.text


def test_rounding_agrees(runs: Path, tmp_path: Path) -> None:
    def round_off(array: np.ndarray) -> None:
        array *= np.float32(1 + 2e-7)

    found = compare_products(runs / "a", changed(runs, tmp_path, product=round_off))
    assert found.passed


@pytest.mark.parametrize("wrong", [
    lambda a: a.__setitem__((slice(0, 32), slice(0, 32)), a[0:32, 0:32].T.copy()),
    lambda a: a.__imul__(np.float32(1.001)),
    lambda a: a.__setitem__((5, 7), np.nan),
    lambda a: a.__setitem__((slice(32, 64), slice(None)), 0),
])  # fmt: skip
def test_wrong_values_differ(
    wrong: Callable[[np.ndarray], object], runs: Path, tmp_path: Path
) -> None:
    found = compare_products(runs / "a", changed(runs, tmp_path, product=wrong))
    assert not found.passed
    assert "DIFFER" in found.text


def test_placement_differs(runs: Path, tmp_path: Path) -> None:
    def swap(report: dict[str, Any]) -> None:
        one, two = report["devices"][1:3]
        one["block"], two["block"] = two["block"], one["block"]

    found = compare_products(runs / "a", changed(runs, tmp_path, report=swap))
    assert not found.passed
    assert "placement differs: device 1 of process 0 holds [[0, 32], [32, 64]]" in found.text


def test_different_problems(runs: Path, tmp_path: Path) -> None:
    other = changed(runs, tmp_path, report=lambda r: r.update(operands="random, seed 1"))
    found = compare_products(runs / "a", other)
    assert not found.passed
    assert "operands: random, seed 0 and random, seed 1" in found.text


def test_files_that_are_missing_or_no_reports(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        compare_products(runs / "a", tmp_path / "c")
    for text in ("", "[]", "{}", "{"):
        (tmp_path / "c.json").write_text(text)
        with pytest.raises(FileError, match="is not a report of pyreactant matmul"):
            compare_products(runs / "a", tmp_path / "c")


def test_verdict(runs: Path, tmp_path: Path) -> None:
    wrong = changed(runs, tmp_path, product=lambda a: a.__imul__(2))
    for names, code, words in (
        ([runs / "a"], 0, "nothing to compare it with"),
        ([runs / "a", runs / "b"], 0, "verdict: a and b: agree"),
        ([runs / "a", runs / "b", wrong], 5, "verdict: a and c: DIFFER"),
    ):
        done = subprocess.run([sys.executable, VERDICT, *map(str, names)], env=environment(),
                              capture_output=True, text=True)  # fmt: skip
        assert (done.returncode, words in done.stdout) == (code, True), done.stdout + done.stderr
