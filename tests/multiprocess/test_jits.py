"""What `jax.jit` compiles is compared between the processes."""

import sys
from pathlib import Path

import pytest

from tests.harness import logs, run_environments, spawn

pytestmark = pytest.mark.only("jax")

SAID = {
    "constant": "operation 1, compile of jit__lambda at jits.py:25: StableHLO line ",
    "collectives": "operation 1, compile of jit_shift at jits.py:37: StableHLO line ",
    "one_more": "operation 2: compile of jit__lambda at jits.py:48 on 0; end on 1. ",
}
"""Kinds of difference: in a value, in what waits, and in the number of programs."""


def argv(name: str) -> list[str]:
    return [sys.executable, "-m", "tests.multiprocess.jits", name]


@pytest.mark.parametrize("name", SAID)
def test_differences_end_every_process(tmp_path: Path, name: str) -> None:
    finished = spawn([argv(name)] * 2, run_environments(2, 2), tmp_path, timeout=200)
    assert [process.code for process in finished] == [5, 5], logs(finished)
    for process in finished:
        assert f"MismatchError: processes 0 and 1 differ at {SAID[name]}" in process.log


def test_programs_that_need_no_other_process(tmp_path: Path) -> None:
    finished = spawn([argv("same")] * 2, run_environments(2, 2), tmp_path, timeout=200)
    assert [process.code for process in finished] == [0, 0], logs(finished)
    assert "mean 7.0 8.0" in finished[0].log
