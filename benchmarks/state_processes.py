"""Program for the benchmarks of checkpoints: `pyreactant run -- state_processes.py FOLDER MIB N`.

It saves 40 arrays, restores them and measures both in turns with Orbax and plain files on the same
disk. In a FOLDER that has them it only restores. Process 0 writes FOLDER/PROCESSES.json.
"""

import gc
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

import pyreactant as pr
from benchmarks._measure import added_memory, interleave, timed

ARRAYS = 40
folder, mebibytes, repetitions = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
numbers = itertools.count()
figures: dict[str, Any] = {}


def wait() -> None:
    """Wait for all processes."""
    multihost_utils.sync_global_devices("benchmark")


def together(action: Callable[[], object]) -> float:
    """Seconds until every process has done it, on a disk that is idle."""
    # A virtual machine gives free memory back to its host; the next to write there waits for it.
    np.ones(mebibytes * 2**21 // pr.num_processes(), np.uint8)
    gc.collect()
    if pr.process_index() == 0:
        os.sync()
    wait()

    def act() -> None:
        action()
        wait()

    return timed(act)


def measure(name: str, ours: Callable[[], float], reference: Callable[[], float]) -> None:
    """Measure both in turns."""
    figures[name] = interleave(ours, reference, repetitions)


def memory_of(action: Callable[[], object]) -> int:
    """Bytes that a process takes for it at most; of all processes the most."""
    return int(multihost_utils.process_allgather(np.int64(added_memory(action))).max())


pr.initialize()
mesh = pr.Mesh((8,), ("x",))
rows = max(8, mebibytes * 2**20 // ARRAYS // 256 // 8 * 8)
same = pr.NamedSharding(mesh, ("x",)).to_jax()
other = pr.NamedSharding(pr.Mesh((2, 4), ("x", "y")), (("y", "x"),)).to_jax()
orbax = ocp.StandardCheckpointer()


def like(placed: Any) -> Any:
    leaf = jax.ShapeDtypeStruct((rows, 64), np.dtype(np.float32), sharding=placed)
    return {str(i): leaf for i in range(ARRAYS)}


def restored(placed: Any, read: Callable[..., Any], path: Path) -> float:
    forget(file for file in path.rglob("*") if file.is_file())
    return together(lambda: jax.block_until_ready(read(path, like(placed))))


def read_files() -> float:
    path = folder / f"plain-{pr.process_index()}"
    forget([path])
    return together(lambda: np.fromfile(path, np.float32))


def forget(files: Iterable[Path]) -> None:
    """Let every read come from the disk, as after a restart, and not from the system's cache."""
    os.sync()
    for file in files:
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_files(tree: Any, path: Path) -> None:
    with path.with_name(f"{path.name}-{pr.process_index()}").open("wb") as file:
        for array in tree.values():
            for shard in array.addressable_shards:
                file.write(np.asarray(shard.data).data)
        file.flush()
        os.fsync(file.fileno())


def write_orbax(tree: Any, path: Path) -> None:
    orbax.save(path, tree)
    orbax.wait_until_finished()


def anew(write: Callable[[Any, Path], object], tree: Any) -> float:
    """Write a new folder or new files, which are deleted afterwards."""
    path = folder / f"new-{next(numbers)}"
    seconds = together(lambda: write(tree, path))
    if pr.process_index() == 0:
        for written in folder.glob(f"{path.name}*"):
            written.unlink() if written.is_file() else shutil.rmtree(written)
    wait()
    return seconds


def save() -> None:
    """Measure how the tree is saved, and leave it there in all three forms."""

    def block(index: Any) -> np.ndarray:
        random = np.random.default_rng(index[0].start)
        return random.standard_normal((index[0].stop - index[0].start, 64), np.float32)

    tree = {
        str(i): pr.from_callback((rows, 64), np.float32, same, block).to_jax()
        for i in range(ARRAYS)
    }

    def ours(tree: Any, path: Path) -> None:
        pr.save(path, tree)

    mine = sum(shard.data.nbytes for a in tree.values() for shard in a.addressable_shards)
    write_orbax(tree, folder / "theirs")
    write_files(tree, folder / "plain")
    figures["memory of a save"] = memory_of(lambda: pr.save(folder / "ours", tree)), mine
    for reference, write in (("write and fsync", write_files), ("Orbax", write_orbax)):
        measure(
            f"save, relative to {reference}",
            partial(anew, ours, tree),
            partial(anew, write, tree),
        )
    waits = []
    with pr.Checkpoints(folder / "steps", keep=1) as saved:
        for step in range(repetitions):
            wait()
            waits.append(timed(partial(saved.save, step, tree)))
            saved.restore({"0": tree["0"]})  # waits for the end of the save
    figures["the loop waits for a save in the background"] = waits, None


if not (folder / "ours").exists():
    save()
    like_same = like(same)
    figures["memory of a restore"] = (
        memory_of(lambda: jax.block_until_ready(pr.restore(folder / "ours", like_same))),
        mebibytes * 2**20 // pr.num_processes(),
    )
for name, placed in (("the same mesh", same), ("another mesh", other)):
    ours = partial(restored, placed, pr.restore, folder / "ours")
    theirs = partial(restored, placed, orbax.restore, folder / "theirs")
    measure(f"restore, {name}, relative to Orbax", ours, theirs)
    if pr.num_processes() == 2:
        measure(f"restore, {name}, relative to reading the files", ours, read_files)
if pr.process_index() == 0:
    (folder / f"{pr.num_processes()}.json").write_text(json.dumps(figures))
wait()
