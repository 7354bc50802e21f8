"""A second start of a run compiles nothing, on any process, also after SIGKILL."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness import REPOSITORY
from tests.launch.runs import Run, run_local, run_script, script

pytestmark = pytest.mark.slow

FSDP = REPOSITORY / "examples" / "fsdp" / "main.py"
FLAX = str(Path(__file__).with_name("plain") / "flax_style.py")
OPTIONS = ("--processes", "2", "--devices-per-process", "2")

KILLED = f"""
import os, runpy, signal
import pyreactant as pr
example = runpy.run_path({str(FSDP)!r})
pr.initialize()
example["main"]()
if os.environ["PYREACTANT_RESTART_COUNT"] == "0":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def programs(run: Run) -> list[dict[str, Any]]:
    assert run.code == 0, run
    return [row["programs"] for row in run.report["processes"]]


def test_an_example_that_is_killed_compiles_nothing_when_it_starts_again(tmp_path: Path) -> None:
    pytest.importorskip("optax")
    run = run_local(
        tmp_path,
        *OPTIONS,
        "--max-restarts",
        "1",
        "--",
        script(tmp_path, KILLED),
        settings={"PYREACTANT_COMPILE_CACHE": str(tmp_path / "cache")},
        timeout=300,
    )
    assert len(run.report["restarts"]) == 1, run
    assert run.report["restarts"][0]["cause"] in ("lost", "user"), run
    for row in programs(run):
        assert row["compiled"] == 0 < row["loaded"]
        assert row["compile_seconds"] == 0.0 < row["load_seconds"]
        assert row["cache"].startswith(f"{tmp_path}/cache/jax-")


def test_plain_jax(tmp_path: Path) -> None:
    """A relative folder is one of the current folder; damage is told, and compiled again."""
    starts = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        if number == 2:
            (kind,) = (tmp_path / "cache").glob("jax-*")
            for entry in kind.iterdir():
                entry.write_bytes(entry.read_bytes()[:-1])
        run = run_local(
            folder,
            *OPTIONS,
            "--",
            FLAX,
            settings={"PYREACTANT_COMPILE_CACHE": "../cache"},
            timeout=180,
        )
        starts.append((run, programs(run)))
    (_, first), (again, second), (run, third) = starts
    assert all(row["compiled"] > 0 for row in first), first
    assert all(row["compiled"] == 0 < row["loaded"] for row in second), second
    loaded = sum(row["loaded"] for row in second)
    note = f"compile cache: {loaded} of {loaded} programs of all processes loaded in "
    assert again.report["notes"][0].startswith(note), again
    assert note in again.finished[0].log, again
    for place, row in enumerate(third):
        assert row["compiled"] > 0, third
        assert run.log(place).count(b"an entry of the compile cache is dropped") == 1, run


def test_without_a_cache_compilations_are_counted(tmp_path: Path) -> None:
    text = "import jax\nprint(jax.jit(lambda x: x + 1)(1))\n"
    (row,) = programs(run_script(tmp_path, text))
    assert row["compiled"] > 0 == row["loaded"]
    assert row["cache"] == ""


def test_a_program_without_jax_has_no_count(tmp_path: Path) -> None:
    assert programs(run_script(tmp_path, "print(1)\n")) == [None]
