"""StableHLO files in a cross-check: several processes read them by their path."""

from typing import Any

import numpy as np

import pyreactant as pr
from tests.crosscheck.runs import small
from tests.harness import REPOSITORY

DATA = REPOSITORY / "tests" / "data"


def product(x: np.ndarray, y: np.ndarray) -> Any:
    return x @ y


def reversed_product(x: np.ndarray, y: np.ndarray) -> Any:
    return y @ x


def layer(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Any:
    return np.tanh(x @ w) + b  # wrong: the file adds before


def test_files_are_checked_on_two_processes() -> None:
    files = {"matmul_shardy": product, "matmul_mhlo": reversed_product, "tanh_layer": layer}
    programs = [
        pr.Program(name, stablehlo=str(DATA / f"{name}.mlir"), oracle=oracle)
        for name, oracle in files.items()
    ]
    report = small(programs, devices_per_process=4, coverage="quick")
    found = {row.program: row.results[0] for row in report.rows}
    assert [found[name].outcome for name in files] == ["right", "right", "wrong"], report.to_text()
    assert report.exit_code == 5
