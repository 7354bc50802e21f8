"""The guard over the stores of both runtimes, between real processes."""

import json
import sys
from pathlib import Path

import pytest

from tests.harness import logs, run_environments, spawn

SAID = {
    "shape": "operation 3, device_put at train.py:7: shape (8, 8) on {0}; (16, 16) on 1. ",
    "values": "operation 3, device_put at train.py:1: digest of the values False on {0}; "
    "True on 1. ",
    "program": "StableHLO line 2 `stablehlo.constant dense<2>` on {0}; "
    "`stablehlo.constant dense<3>` on 1. ",
    "ran": "operation 3: run of f at train.py:99 on {0}; run of g at train.py:99 on 1. ",
    "order": "operation 3: run of f at train.py:99 on {0}; run of g at train.py:99 on 1. ",
    "one fewer": "operation 3: run of last at train.py:99 on {0}; end on 1. ",
    "missing placement": "operation 3: device_put at train.py:7 on {0}; "
    "device_put at train.py:8 on 1. ",
    "thread": "operation 3 of thread 'prefetch': device_put at train.py:1 on {0}; nothing on 1. ",
}


@pytest.mark.parametrize(("runtime", "count"), [("jax", 2), ("reactant", 4)])
def test_every_kind_is_named_on_every_process(tmp_path: Path, runtime: str, count: int) -> None:
    argv = [sys.executable, "-m", "tests.unit.guard_processes", runtime]
    finished = spawn([argv] * count, run_environments(count, 1), tmp_path, 120)
    assert [process.code for process in finished] == [0] * count, logs(finished)
    said = [json.loads(process.log.rstrip().rsplit("\n", 1)[-1]) for process in finished]
    assert all(each == said[0] for each in said), logs(finished)
    assert said[0].pop("equal") is None
    assert said[0].pop("interrupted") == "yes"
    assert said[0].keys() == SAID.keys()
    others = "0" if count == 2 else "0, 2, 3"
    for kind, text in SAID.items():
        assert text.format(others) in said[0][kind], said[0][kind]
