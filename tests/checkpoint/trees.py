"""Trees that the tests save, and processes that save and restore them on several meshes."""

import dataclasses
import gc
import itertools
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.checkpoint import write
from pyreactant.arrays.checkpoint.folder import parse
from pyreactant.arrays.dtypes import NAMES, as_dtype


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of a type whose bits differ everywhere, NaN and -0 among them."""
    dtype = as_dtype(name)
    random = np.random.default_rng(len(name))
    if dtype == np.bool_:
        return random.integers(0, 2, shape).astype(bool)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(random.bytes(size), dtype).reshape(shape)


def tree_of(sharding: pr.NamedSharding) -> dict[str, Any]:
    """Every element type over a mesh, and all else that a checkpoint holds."""
    whole = pr.NamedSharding(sharding.mesh, ())
    return {
        "typed": {n: pr.device_put(values(n, (8, 8)), sharding) for n in NAMES},
        "pair": Pair([pr.device_put(np.float32(3), whole)], ()),
        "layer": Layer(pr.device_put(np.arange(96.0).reshape(8, 12), sharding), None),
        "empty": pr.device_put(np.zeros((0, 8), np.int8), whole),
        "host": np.arange(5),
        "numbers": [3, 2.5, True, "text", {}],
    }


def meshes() -> list[pr.NamedSharding]:
    """Two partitions of matrices over all devices, in two meshes."""
    count = len(pr.devices())
    square = pr.Mesh((2, count // 2), ("x", "y"))
    line = pr.Mesh((count,), ("d",))
    return [pr.NamedSharding(square, ("y", "x")), pr.NamedSharding(line, (None, "d"))]


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def check(found: Any, sharding: pr.NamedSharding) -> None:
    """Every block that this process holds has the bits that were saved."""
    wanted: dict[str, np.ndarray] = {name: values(name, (8, 8)) for name in NAMES}
    for name, array in found["typed"].items():
        assert array.dtype.name == name
        assert array.sharding == sharding
        for shard in array.addressable_shards:
            assert bits(shard.data) == bits(wanted[name][shard.index]), name
    for shard in found["layer"].w.addressable_shards:
        assert bits(shard.data) == bits(np.arange(96.0).reshape(8, 12)[shard.index])
    assert found["layer"].b is None
    assert float(found["pair"].first[0].gather()) == 3
    assert found["pair"].second == ()
    assert "empty" not in found or found["empty"].shape == (0, 8)
    assert found["host"].tolist() == [0, 1, 2, 3, 4]
    assert found["numbers"] == [3, 2.5, True, "text", {}]


def save_all(folder: str) -> None:
    """Save the tree in both partitions, into folders named by processes and runtime."""
    made = f"{pr.num_processes()}-{os.environ['PYREACTANT_BACKEND']}"
    for number, sharding in enumerate(meshes()):
        pr.save(f"{folder}/{made}-{number}", tree_of(sharding))


def restore_all(folder: str, expected: int) -> None:
    """Restore every checkpoint there in both partitions."""
    saved = sorted(str(path) for path in parse(folder).iterdir() if path.name[0].isdigit())
    assert len(saved) == expected, saved
    for path, sharding in itertools.product(saved, meshes()):
        like = tree_of(sharding)
        if "orbax" in path:
            del like["empty"]
        check(pr.restore(path, like=like), sharding)


def copy_by_orbax(folder: str) -> None:
    """Orbax reads the last checkpoint there, and saves what it can: no array of size 0."""
    import orbax.checkpoint as ocp

    last = max(path for path in Path(folder).iterdir() if path.name[0].isdigit())
    with ocp.PyTreeCheckpointer() as orbax:  # StandardCheckpointer saves no text
        tree = orbax.restore(last / "state")
        del tree["empty"]
        orbax.save(Path(folder, "9-orbax"), tree)


def spread(folder: str) -> None:
    """A copy on every process is written once, by all of them."""
    sharding = pr.NamedSharding(pr.Mesh((-1,), ("d",)), ())
    tree = {str(i): pr.device_put(np.full(50_000, i, np.float32), sharding) for i in range(8)}
    pr.save(f"{folder}/spread", tree)


def differ(folder: str) -> None:
    """Trees that differ, then an error of one process, then a checkpoint all the same."""
    mine = pr.process_index()
    for tree, kind, words in (
        ({"n": mine}, pr.MismatchError, "process 1 differs from process 0"),
        ({"n": print if mine else 3}, pr.InvalidArgumentError, "['n']: a checkpoint holds arrays"),
    ):
        with pytest.raises(kind) as caught:
            pr.save(f"{folder}/differs", tree)
        assert words in str(caught.value)
    assert not Path(folder, "differs").exists()
    pr.save(f"{folder}/good", {"n": 5})
    with pytest.raises(pr.FileError, match="is no checkpoint"):
        pr.restore(f"{folder}/absent" if mine else f"{folder}/good", like={"n": 0})
    assert pr.restore(f"{folder}/good", like={"n": 0}) == {"n": 5}


def unshared(folder: str) -> None:
    """A folder of the same name that each process has for itself."""
    target = Path(folder, f"own-{pr.process_index()}")
    with pytest.raises(pr.FileError, match=r"must be one folder on all machines.*\(process 1\)"):
        pr.save(target / "checkpoint", {"n": 5})


def loop(folder: str) -> None:
    """Process 0 says when it is time, and all save the same steps; a failure is everybody's."""
    sharding = pr.NamedSharding(pr.Mesh((-1,), ("d",)), ("d",))
    mine = pr.process_index()
    saved: list[int] = []
    with pr.Checkpoints(f"{folder}/run", keep=2, every_seconds=0.3) as checkpoints:
        step = -1
        while len(saved) < 4:
            step += 1
            time.sleep(0.002 * (1 + mine))  # one is slower
            tree = {"w": pr.device_put(np.full(1000, step, np.float32), sharding), "step": step}
            if checkpoints.save(step, tree, now=step == 3):
                saved.append(step)
        like = {"w": tree["w"], "step": 0}
        assert checkpoints.restore(like)["step"] == saved[-1]
        assert checkpoints.restore(like, step=np.int64(saved[-2]))["step"] == saved[-2]
    kept = sorted(int(path.name) for path in Path(folder, "run").glob("[0-9]*"))
    assert kept == saved[-2:]
    for step in kept:
        found = pr.restore(f"{folder}/run/{step}", like)
        assert set(found["w"].gather().tolist()) == {step}

    def fails(*_: object, **__: object) -> Any:
        raise pr.FileError("no room")

    if mine:
        setattr(write, "write_arrays", fails)  # noqa: B010 - mypy knows another signature
    words = "no room" if mine else r"process 1 .*no room"
    checkpoints = pr.Checkpoints(f"{folder}/run")
    with pytest.raises(pr.FileError, match=words), checkpoints:
        checkpoints.save(10**6, tree)
    if not mine:  # which deletes it, while the others may go on
        assert not list(Path(folder, "run").glob("*tmp*"))


def narrow(folder: str) -> None:
    """No process has memory for the whole, beside a copy of its blocks and 256 MiB."""
    sharding = pr.NamedSharding(pr.Mesh((-1,), ("d",)), ("d",))
    shape = (2**13, 2**15)  # 1 GiB
    mine = 4 * shape[0] * shape[1] // pr.num_processes()

    def block(index: Any) -> np.ndarray:
        rows = np.arange(shape[0], dtype=np.float32)[index[0]]
        return np.repeat(rows[:, None], shape[1], axis=1)

    pr.save(f"{folder}/first", {"w": np.ones(3)})  # its threads take memory, too
    w = pr.from_callback(shape, np.float32, sharding, block)
    lines = Path("/proc/self/status").read_text().splitlines()
    (used,) = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData")]
    limit = used + mine + 256 * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    pr.save(f"{folder}/narrow", {"w": w})
    like = {"w": w.aval}
    del w
    gc.collect()  # when JAX gives back the memory of arrays that nobody has
    w = pr.restore(f"{folder}/narrow", like)["w"]
    for shard in w.addressable_shards:
        assert (shard.data[:: 2**9, ::4099] == block(shard.index)[:: 2**9, ::4099]).all()


if __name__ == "__main__":
    for name in sys.argv[1].split("+"):
        globals()[name](**json.loads(sys.argv[2]).get(name, {}), folder=sys.argv[3])
    pr.shutdown()
    print("program done", flush=True)
