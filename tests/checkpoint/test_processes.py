"""Checkpoints of several processes: any number of them restores what any number saved."""

import json
import sys
from pathlib import Path

import pytest

from tests.checkpoint import trees  # noqa: F401 - the program that the processes run
from tests.harness import check_all_passed, run_environments, spawn


def run(names: str, folder: Path, processes: int, **arguments: object) -> None:
    argv = [sys.executable, "-m", "tests.checkpoint.trees", names, json.dumps(arguments), folder]
    environments = run_environments(processes, 4 // processes)
    words = [str(word) for word in argv]
    check_all_passed(spawn([words] * processes, environments, folder, timeout=300))


def test_any_number_of_processes_restores_what_any_number_saved(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    run("save_all", shared, 1)
    run("save_all", shared, 2)
    run("save_all+restore_all", shared, 4, restore_all={"expected": 6})
    run("restore_all+spread+differ+unshared+loop", shared, 2, restore_all={"expected": 6})
    run("restore_all", shared, 1, restore_all={"expected": 6})
    assert not list(shared.glob("*orbax-checkpoint-tmp*"))
    sizes = [
        sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        for part in sorted((shared / "spread" / "state").glob("ocdbt.process_*"))
    ]
    assert len(sizes) == 2
    assert max(sizes) < 1_000_000  # 8 arrays of 200 kB, each in one place
    assert sum(sizes) < 1_700_000


@pytest.mark.slow
def test_no_process_holds_the_whole(tmp_path: Path) -> None:
    run("narrow", tmp_path, 2)
