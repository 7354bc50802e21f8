"""Processes that diverge: every kind is named, on every process, and none hangs."""

import json
import sys
from pathlib import Path

import pytest

from tests import harness
from tests.harness import logs, run_environments, spawn

SAID = {
    "shape": "shape (16, 16) on {0}; (32, 32) on 1. ",
    "dtype": "dtype float32 on {0}; int32 on 1. ",
    "spec": "spec ('i',) on {0}; () on 1. ",
    "mesh": "mesh Mesh(",
    "constant": "StableHLO line ",
    "branch": "StableHLO line ",
    "values": "digest of the values ",
    "static": "static values n=2 on {0}; n=3 on 1. ",
    "version": "StableHLO line ",
    "precision": "precision default on {0}; highest on 1. ",
    "missing placement": "shape (8, 8) on {0}; (24, 24) on 1. ",
    "another array": "takes array 1 on {0}; array 2 on 1. ",
    "gathered": "takes array 1 on {0}; array 2 on 1. ",
    "replicated": "digest of the values ",
    "thread": "operation 4 of thread 'prefetch': device_put at diverging.py:",
}
"""Kinds that are found while the processes are in Python, and what is said."""

ENDING = {
    "order": ": run of total (compiled at diverging.py:",
    "one more": "run of total (compiled at diverging.py:",
    "one fewer": ": run of total (compiled at diverging.py:",
}
"""Kinds that leave processes in a collective."""

COLLECTIVE = [
    ("jax", 4, "order"),
    ("jax", 2, "one more"),
    ("jax", 2, "one fewer"),
    ("numpy", 2, "order"),
    ("numpy", 4, "one more"),
    ("numpy", 2, "one fewer"),
]


def _run(folder: Path, backend: str, count: int, kinds: list[str]) -> list[harness.Finished]:
    argv = [sys.executable, "-m", "tests.multiprocess.diverging", backend, *kinds]
    return spawn([argv] * count, run_environments(count, 2), folder, 100)


@pytest.mark.parametrize(
    ("backend", "count"),
    [("jax", 2), ("numpy", 4)],
)
def test_divergence_is_named(tmp_path: Path, backend: str, count: int) -> None:
    finished = _run(tmp_path, backend, count, ["same", *SAID])
    assert [process.code for process in finished] == [0] * count, logs(finished)
    said = [json.loads(p.log[p.log.index('{"same"') :].splitlines()[0]) for p in finished]
    assert all(each == said[0] for each in said), logs(finished)
    assert said[0].pop("same") is None
    assert said[0].pop("interrupted") is True
    others = "0" if count == 2 else "0, 2, 3"
    who = "processes 0 and 1 differ" if count == 2 else "process 1 differs from"
    for kind, text in SAID.items():
        assert said[0][kind].startswith(who), (kind, said[0][kind])
        assert text.format(others) in said[0][kind], (kind, said[0][kind])


@pytest.mark.parametrize(("backend", "count", "kind"), COLLECTIVE)
def test_divergence_in_a_collective_ends_every_process(
    tmp_path: Path, backend: str, count: int, kind: str
) -> None:
    finished = _run(tmp_path, backend, count, [kind])
    assert [process.code for process in finished] == [5] * count, logs(finished)
    for process in finished:
        assert "MismatchError: process" in process.log, logs(finished)
        assert ENDING[kind] in process.log, logs(finished)
