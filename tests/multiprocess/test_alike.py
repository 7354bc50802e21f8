"""Processes that do the same are not refused, whatever their programs hold."""

import json
import sys
from pathlib import Path

import pytest

from tests.harness import logs, run_environments, spawn

pytestmark = pytest.mark.only("jax")

SAID = {
    "object": "program 'body': static value 'value' must be something that the processes can",
    "file": "static value 'value'[1] must be something that the processes can compare, got an "
    "object of type _io.StringIO, which equals only itself",
    "in a dataclass": "static value 'value'.scale must be",
    "in a tree": "program 'body': arguments: what Node holds['act'] must be something that the "
    "processes can compare, got an object of type __main__.Anonymous, which equals only itself",
}
"""What cannot be compared, and what is said of it."""


@pytest.mark.timeout(700)  # many programs are compiled
def test_equal_programs_are_not_refused(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.multiprocess.alike"]
    finished = spawn([argv] * 2, run_environments(2, 2), tmp_path, timeout=600)
    assert [process.code for process in finished] == [0, 0], logs(finished)
    said = [json.loads(p.log[p.log.index('{"flax') :].splitlines()[0]) for p in finished]
    assert said[0] == said[1]
    for name, text in SAID.items():
        message = said[0].pop(name)
        assert message.startswith("InvalidArgumentError: "), (name, message)
        assert text in message, (name, message)
    assert len(said[0]) >= 28
    assert {name: text for name, text in said[0].items() if text} == {}
