"""Processes that do the same are not refused, whatever their programs hold."""

import json
import sys
from pathlib import Path

import pytest

from tests.harness import logs, run_environments, spawn

pytestmark = pytest.mark.only("jax")


@pytest.mark.timeout(700)  # many programs are compiled
def test_equal_programs_are_not_refused(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.multiprocess.alike"]
    finished = spawn([argv] * 2, run_environments(2, 2), tmp_path, timeout=600)
    assert [process.code for process in finished] == [0, 0], logs(finished)
    said = [json.loads(p.log[p.log.index('{"flax') :].splitlines()[0]) for p in finished]
    assert said[0] == said[1]
    assert len(said[0]) >= 20
    assert {name: text for name, text in said[0].items() if text} == {}
