"""Checkpoints of several processes: any number of them restores what any number saved."""

import json
import re
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.checkpoint import trees  # noqa: F401 - the program that the processes run
from tests.harness import check_all_passed, run_environments, spawn
from tests.julia import place
from tests.launch.runs import run_local, script


def run(
    names: str,
    folder: Path,
    processes: int,
    runtime: str = "jax",
    *,
    bucket: str = "",
    more: Mapping[str, str] = MappingProxyType({}),
    **arguments: object,
) -> None:
    at = bucket or folder
    argv = [sys.executable, "-m", "tests.checkpoint.trees", names, json.dumps(arguments), at]
    settings = {"PYREACTANT_BACKEND": runtime, **more}
    if runtime == "reactant":
        settings |= place.settings()
    environments = run_environments(processes, 4 // processes, settings)
    words = [str(word) for word in argv]
    timeout = 300 if runtime == "jax" else 1800
    check_all_passed(spawn([words] * processes, environments, folder, timeout))


def test_any_number_of_processes_restores_what_any_number_saved(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    run("save_all", shared, 1)
    run("save_all", shared, 2)
    run("save_all+restore_all", shared, 4, restore_all={"expected": 6})
    run("copy_by_orbax", shared, 1)
    run("restore_all+spread+differ+unshared+loop", shared, 2, restore_all={"expected": 7})
    run("restore_all", shared, 1, restore_all={"expected": 7})
    assert not list(shared.glob("*orbax-checkpoint-tmp*"))
    sizes = [
        sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        for part in sorted((shared / "spread" / "state").glob("ocdbt.process_*"))
    ]
    assert len(sizes) == 2
    assert max(sizes) < 1_000_000  # 8 arrays of 200 kB, each in one place
    assert sum(sizes) < 1_700_000


WAITS = """
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
import pyreactant as pr
from pyreactant.arrays.runtimes import agree
from pyreactant.process import supervised
from pyreactant.process.events import WaitsFor

tell = supervised.tell

def telling(event):
    tell(event)
    if isinstance(event, WaitsFor) and event.what == "save 900":
        Path("told").touch()

agree._SLICE, agree._TOLD, supervised.tell = 0.1, 0.2, telling
pr.initialize()
with pr.Checkpoints("steps") as checkpoints:
    while pr.process_index() == 1 and not Path("told").exists():
        time.sleep(0.05)
    checkpoints.save(900, {"n": 3})
"""


def test_the_report_says_for_whom_all_waited(tmp_path: Path) -> None:
    program = ("--platform=cpu", "--processes=2", "--", script(tmp_path, WAITS))
    run = run_local(tmp_path, *program)
    assert run.code == 0, run
    # Where other programs keep the machine busy, the processes may have waited elsewhere, too.
    sentence = r"process 0 on \S+ has waited \d+ s in save 900 for process 1 on \S+"
    assert re.search(sentence, run.finished[0].log)
    assert any(" s in save 900 for process " in note for note in run.report["notes"])


@pytest.mark.julia
@pytest.mark.timeout(0)
def test_each_start_restores_what_any_start_saved(tmp_path: Path) -> None:
    """12 saves and a copy by Orbax; 12 restores of all of them, every bit of every type."""
    shared = tmp_path / "shared"
    shared.mkdir()
    starts = [(runtime, processes) for runtime in ("jax", "reactant") for processes in (1, 2, 4)]
    for runtime, processes in starts:
        run("save_all", shared, processes, runtime)
    run("copy_by_orbax", shared, 1)
    for runtime, processes in starts:
        run("restore_all", shared, processes, runtime, restore_all={"expected": 13})


@pytest.mark.slow
def test_no_process_holds_the_whole(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_STACK)
    # Stacks count, too, and where other programs keep the machine busy there are more threads.
    resource.setrlimit(resource.RLIMIT_STACK, (2 * 2**20, limits[1]))
    try:
        run("narrow", tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, limits)
