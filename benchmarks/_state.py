"""Benchmarks of checkpoints, beside Orbax and beside plain files on the same disk."""

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.arrays.checkpoint import folder as folders
from pyreactant.arrays.checkpoint import store
from pyreactant.arrays.checkpoint.format import Array

from ._measure import Pair, interleave, timed

ARRAYS = 40
_numbers = itertools.count()


def checkpoints(mebibytes: int, repetitions: int) -> list[Pair]:
    """Save and restore 40 arrays on eight devices, and what the loop waits."""
    import jax
    import orbax.checkpoint as ocp

    sharding = pr.NamedSharding(pr.Mesh((8,), ("x",)), ("x",))
    other = pr.NamedSharding(pr.Mesh((2, 4), ("x", "y")), (("y", "x"),)).to_jax()
    rows = max(8, mebibytes * 2**20 // ARRAYS // 256 // 8 * 8)

    def block(index: Any) -> np.ndarray:
        random = np.random.default_rng(index[0].start)
        return random.standard_normal((index[0].stop - index[0].start, 64), np.float32)

    tree = {
        str(i): pr.from_callback((rows, 64), np.float32, sharding, block).to_jax()
        for i in range(ARRAYS)
    }
    orbax = ocp.StandardCheckpointer()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def ours(path: Path) -> None:
            pr.save(path, tree)

        def theirs(path: Path) -> None:
            orbax.save(path, tree)
            orbax.wait_until_finished()

        def plain(path: Path) -> None:
            with path.open("wb") as file:
                for array in tree.values():
                    for shard in array.addressable_shards:
                        file.write(np.asarray(shard.data).data)
                file.flush()
                os.fsync(file.fileno())

        def anew(write: Callable[[Path], None]) -> float:
            path = folder / str(next(_numbers))
            seconds = timed(lambda: write(path))
            path.unlink() if path.is_file() else shutil.rmtree(path)
            return seconds

        def like(placed: Any) -> Any:
            return {
                k: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=placed) for k, a in tree.items()
            }

        def restored(placed: Any, read: Callable[..., Any], path: Path) -> float:
            return timed(lambda: jax.block_until_ready(read(path, like(placed))))

        ours(folder / "ours")
        theirs(folder / "theirs")
        what = f"{ARRAYS} arrays, {mebibytes} MiB"
        saves = [
            Pair(
                f"save {what}, relative to {reference}",
                *interleave(partial(anew, ours), partial(anew, write), repetitions),
                bound,
            )
            for reference, write, bound in (("Orbax", theirs, 0.6), ("write and fsync", plain, 1.5))
        ]
        restores = [
            Pair(
                f"restore {what}, {mesh}, relative to Orbax",
                *interleave(
                    partial(restored, placed, pr.restore, folder / "ours"),
                    partial(restored, placed, orbax.restore, folder / "theirs"),
                    repetitions,
                ),
                0.8,
            )
            for mesh, placed in (("same mesh", sharding.to_jax()), ("another mesh", other))
        ]
        return [*saves, *restores, _waits(folder / "steps", tree, what, repetitions)]


def _waits(folder: Path, tree: Any, what: str, repetitions: int) -> Pair:
    seconds = []
    with pr.Checkpoints(folder, keep=1) as saved:
        for step in range(repetitions):
            seconds.append(timed(partial(saved.save, step, tree)))
            saved.restore({"0": tree["0"]})  # waits for the end of the save
    return Pair(f"the loop waits for a save in the background, {what}", seconds, None, 0.05)


def listed(steps: int, repetitions: int) -> Pair:
    """Time of `checkpoints list` without the start of Python."""
    with tempfile.TemporaryDirectory() as name:
        pr.save(Path(name, "0"), {"w": np.ones(3)})
        for step in range(1, steps):
            shutil.copytree(Path(name, "0"), Path(name, str(step)))
        seconds = [timed(partial(folders.list_steps, Path(name))) for _ in range(repetitions)]
    return Pair(f"list of {steps} steps", seconds, None, 0.5)


def merged(processes: int, repetitions: int) -> Pair:
    """Time in which process 0 makes one database of those of all processes, in simulation."""
    arrays = {str(i): Array((processes, 64), "float32", (1, 64)) for i in range(ARRAYS)}
    one = np.ones((1, 64), np.float32)
    seconds = []
    with tempfile.TemporaryDirectory() as name:
        parts = [Path(name, f"ocdbt.process_{i}") for i in range(processes)]
        for i, part in enumerate(parts):
            part.mkdir()
            place = (slice(i, i + 1), slice(0, 64))
            pieces = [(array, place, one) for array in arrays]
            store.write_arrays(part, arrays, pieces, describe=i == 0)
        for repetition in range(repetitions):
            whole = Path(name, f"whole-{repetition}")
            whole.mkdir()
            for part in parts:
                (whole / part.name).symlink_to(part)
            links = [whole / part.name for part in parts]
            start = time.perf_counter()
            store.merge(whole, links)
            seconds.append(time.perf_counter() - start)
    bound = 10 * processes / 4096
    return Pair(f"merge of {ARRAYS} arrays of {processes} processes", seconds, None, bound)
