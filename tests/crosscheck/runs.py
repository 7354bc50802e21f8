"""Finished cross-checks of small programs, and a stand-in for a second runtime."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyreactant.arrays.runtimes import runtime
from pyreactant.check.records.records import ShardWriter, sealed
from pyreactant.check.report.report import Report
from pyreactant.check.run import crosscheck
from tests import harness

STAND_IN = "standin"
"""The JAX runtime under another name: what is tested is the comparison, not a second runtime."""

PROGRAMS = ["matmul", "row_sum", "transpose", "full_sum"]


@contextmanager
def second_runtime(folder: Path) -> Iterator[None]:
    """Register the stand-in in this process and in the processes that it starts."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'pyreactant' in ' '.join(sys.orig_argv):\n"
        "    from pyreactant.arrays.runtimes import runtime\n"
        f"    runtime.BACKENDS[{STAND_IN!r}] = {runtime.BACKENDS['jax']}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setitem(runtime.BACKENDS, STAND_IN, runtime.BACKENDS["jax"])
        yield


def small(program: Any, **options: Any) -> Report:
    """Options for two processes with two CPU devices each, and small arrays."""
    usual = {"processes": 2, "devices_per_process": 2, "platform": "cpu", "backends": "jax"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", harness.QUICK_COMPILING)
        return crosscheck(program, **{**usual, **options})


def copy(runs: Path, folder: Path) -> Path:
    """Copy finished runs, so that a test can damage them."""
    return Path(shutil.copytree(runs, folder / "copy"))


def change_record(run: Path, process: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit the record of a process."""
    path = run / f"process-{process}.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(sealed(record)))


def change_blocks(
    run: Path, process: int, change: Callable[[dict[str, np.ndarray]], object]
) -> None:
    """Edit the blocks that a process has written, and their checksums."""
    path = run / f"shards-{process}.npz"
    with np.load(path) as found:
        blocks = dict(found)
    change(blocks)
    shards = ShardWriter(path)
    for key, block in blocks.items():
        shards.add(key, block)
    shards.close()
    change_record(run, process, lambda record: record.update(checksums=shards.checksums))
