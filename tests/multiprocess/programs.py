"""Programs that every process of a run executes; tests.harness.run_program starts them."""

import itertools
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.collective import exchange, exchange_json, total
from pyreactant.arrays.runtimes.runtime import current

SPECS: list[tuple[Any, ...]] = [
    ("x", "y"),
    ("x", None),
    (None, "y"),
    ("y", "x"),
    (("x", "y"), None),
    (None, None),
]


def _mesh() -> pr.Mesh:
    return pr.Mesh((2, len(pr.devices()) // 2), ("x", "y"))


def _check_placement(c: pr.ShardedArray, expected: np.ndarray) -> None:
    """Every addressable block has the values and the place of the placement oracle."""
    oracle = c.sharding.devices_indices_map(c.shape)
    mine = [d.position for d in pr.local_devices()]
    assert [s.device.position for s in c.addressable_shards] == mine
    for shard in c.addressable_shards:
        assert shard.index == oracle[shard.device.position]
        np.testing.assert_array_equal(shard.data, expected[shard.index])


def matmul_pairs() -> None:
    """Products for every pair of specs."""
    _products(itertools.product(SPECS, SPECS))


def matmul_specs() -> None:
    """Products with every spec for each operand, which is a sixth of the pairs."""
    _products(zip(SPECS, SPECS[1:] + SPECS[:1], strict=True))


def _products(specs: Iterable[tuple[Any, Any]]) -> None:
    """The operands are integers, so the products are exact."""
    random = np.random.default_rng(0)
    x = random.integers(-8, 8, (16, 32)).astype(np.float32)
    y = random.integers(-8, 8, (32, 24)).astype(np.float32)
    for spec, y_spec in specs:
        c = pr.matmul_sharded(x, y, mesh=_mesh(), spec=spec, y_spec=y_spec)
        _check_placement(c, x @ y)
        np.testing.assert_array_equal(c.gather(), x @ y)


def permuted_devices() -> None:
    """Meshes whose order differs from that of the devices."""
    count = len(pr.devices())
    ids = [(3 * i + 1) % count for i in range(count)] if count % 3 else list(range(count))[::-1]
    mesh = pr.Mesh((count // 2, 2), ("x", "y"), ids)
    x = np.arange(count * count * 4, dtype=np.float64).reshape(2 * count, 2 * count)
    for spec in SPECS:
        a = pr.device_put(x, pr.NamedSharding(mesh, spec))
        _check_placement(a, x)
        np.testing.assert_array_equal(a.gather(), x)
        assert a.gather().flags.c_contiguous


def bodies() -> None:
    """Programs with several outputs and scalars, whose placement the compiler chooses."""
    from tests.backend.common import body

    mesh, n = _mesh(), len(pr.devices())
    x = (np.arange(4 * n * n) % 100).astype(np.float32).reshape(2 * n, 2 * n)
    three = pr.device_put(np.float32(3), pr.NamedSharding(mesh, ()))
    for spec in SPECS:
        a = pr.device_put(x, pr.NamedSharding(mesh, spec))
        found = [
            pr.compile(body("add_transposed"), a)(a),
            *pr.compile(body("sums"), a)(a),
            pr.compile(body("scaled"), a, three, static={"power": 2})(a, three),
        ]
        for c, expected in zip(found, (x + x.T, x.sum(1), x.sum(), 3 * x**2), strict=True):
            _check_placement(c, expected)
            np.testing.assert_array_equal(c.gather(), expected)


def arguments_stay() -> None:
    """A body that exchanges its arguments, of which two may be one array, changes none of them."""
    from tests.backend.bodies import moved
    from tests.backend.common import body, numbers

    sharding = pr.NamedSharding(_mesh(), ("x", "y"))
    xs = [numbers((8, 8)) + 100 * i for i in range(3)]
    arrays = [pr.device_put(x, sharding) for x in xs]
    swap, rotate = ((1, 0, 1),), ((1, 0, 1), (1, 1, 2))
    for steps, given in itertools.product((swap, rotate), ((0, 1, 2), (0, 0, 2))):
        these = [arrays[i] for i in given]
        found = pr.compile(body("moved"), *these, static={"steps": steps})(*these)
        for c, expected in zip(found, moved(*(xs[i] for i in given), steps=steps), strict=True):
            _check_placement(c, expected)
        for a, x in zip(arrays, xs, strict=True):
            _check_placement(a, x)
            assert a.gather().tobytes() == x.tobytes()


def dtypes() -> None:
    """Element types stay the same across processes, and all bits, also those of each short NaN."""
    from pyreactant.arrays.dtypes import NAMES, as_dtype

    sharding = pr.NamedSharding(_mesh(), ("x", "y"))
    turned = pr.NamedSharding(_mesh(), ("y", "x"))
    for name in NAMES:
        dtype = as_dtype(name)
        if "float" in name and dtype.itemsize <= 2:
            every = np.arange(256**dtype.itemsize, dtype=f"uint{8 * dtype.itemsize}")
            x = every.view(dtype).reshape(16, -1)
        else:
            x = np.arange(64).reshape(8, 8).astype(dtype)
        placed = pr.device_put(x, sharding)
        got = placed.gather()
        assert got.dtype == x.dtype, name
        assert got.tobytes() == x.tobytes(), name
        if "float" in name:
            for shard in pr.reshard(placed, turned).addressable_shards:
                assert shard.data.tobytes() == x[shard.index].tobytes(), name


def constructors() -> None:
    """from_callback and from_process_local; no process is asked for blocks of another."""
    mesh = _mesh()
    shape = (8, 4 * len(pr.devices()))
    whole = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    for spec in SPECS:
        sharding = pr.NamedSharding(mesh, spec)
        oracle = sharding.devices_indices_map(shape)
        mine = {str(oracle[d.position]) for d in pr.local_devices()}
        requested: list[str] = []

        def block(index: Any, requested: list[str] = requested) -> np.ndarray:
            requested.append(str(index))
            return whole[index]

        a = pr.from_callback(shape, np.int32, sharding, block)
        assert sorted(requested) == sorted(mine)
        _check_placement(a, whole)
        blocks = [oracle[d.position] for d in pr.local_devices()]
        rows, columns = ({(i[d].start, i[d].stop) for i in blocks} for d in (0, 1))
        local = np.concatenate(
            [
                np.concatenate([whole[r0:r1, c0:c1] for c0, c1 in sorted(columns)], axis=1)
                for r0, r1 in sorted(rows)
            ]
        )
        b = pr.from_process_local(local, sharding, shape)
        _check_placement(b, whole)
        np.testing.assert_array_equal(b.gather(), whole)


def unequal_copies() -> None:
    """Processes that hold copies of a block must give it the same values; gather shows one."""
    mesh, index = _mesh(), pr.process_index()
    copied = "y" if pr.num_processes() == 2 else "x"  # the other axis lies across processes
    sharding = pr.NamedSharding(mesh, (copied,))
    shape = (4 * len(pr.devices()),)
    whole = np.arange(shape[0], dtype=np.float32)

    def placed(values: np.ndarray) -> list[Any]:
        blocks = sharding.devices_indices_map(shape)
        mine = [blocks[d.position][0] for d in pr.local_devices()]
        local = values[min(s.start for s in mine) : max(s.stop for s in mine)]
        return [
            lambda: pr.from_callback(shape, np.float32, sharding, values.__getitem__),
            lambda: pr.from_process_local(local, sharding),
        ]

    for place in placed(whole):
        np.testing.assert_array_equal(place().gather(), whole)
    for place in placed(whole + (index == 1)):
        with pytest.raises(
            pr.MismatchError, match=r"processes 0 and 1 both hold block \[0:\d+\] of"
        ):
            place()


def not_addressable() -> None:
    """np.asarray suggests gather(); repr is not collective, so one process may call it alone."""
    a = pr.device_put(np.ones((8, 8)), pr.NamedSharding(_mesh(), ("x", "y")))
    if pr.process_index() == 0:
        assert "shape=(8, 8)" in repr(a)
        assert "process 1" in a._repr_html_()
        assert repr(a._value)
        assert len(a.addressable_shards) == len(pr.local_devices())
    with pytest.raises(pr.NotAddressableError, match=r"call gather\(\) on every process"):
        np.asarray(a)


def uneven() -> None:
    """A size without equal blocks raises on every process, and the run continues."""
    sharding = pr.NamedSharding(_mesh(), ("x", None))
    for _ in range(2):
        with pytest.raises(pr.ShardingError, match=r"dimension 0 of shape \(7, 8\) has size 7"):
            pr.device_put(np.ones((7, 8)), sharding)
    assert pr.device_put(np.ones((8, 8)), sharding).gather().sum() == 64


def mismatched() -> None:
    """The optional check names the process whose array differs."""
    sharding = pr.NamedSharding(_mesh(), ("x", "y"))
    x = np.ones((8, 8), np.float32)
    pr.device_put(x, sharding, check=True)
    odd = x.copy()
    odd[3, 3] += pr.process_index() == 1
    for wrong in (odd, x[:4] if pr.process_index() == 1 else x):
        with pytest.raises(pr.MismatchError, match="process 1 of 2 differs from process 0"):
            pr.device_put(wrong, sharding, check=True)


def barriers() -> None:
    """No process leaves a barrier before the last one reaches it."""
    import time

    for _ in range(3):
        time.sleep(0.3 * pr.process_index())
        came = time.time()
        pr.barrier("all")
        left = time.time()
        times = exchange_json(current().backend, current().group, [came, left])
        assert max(t[0] for t in times) <= min(t[1] for t in times) + 0.01


def listens_where_it_is_reached() -> None:
    """JAX's coordinator listens on process 0's address, and on no other of its networks."""
    if pr.process_index() > 0 or pr.backend_name() != "jax":
        return
    port = int(os.environ["PYREACTANT_COORDINATOR_ADDRESS"].rpartition(":")[2])
    lines = [x for v in ("", "6") for x in Path(f"/proc/net/tcp{v}").read_text().splitlines()[1:]]
    listening = [line.split()[1] for line in lines if line.split()[3] == "0A"]
    at = [where.partition(":")[0] for where in listening if where.endswith(f":{port:04X}")]
    assert at, listening
    assert all(int(address, 16) for address in at), at


def lonely_barrier() -> None:
    """A barrier that one process never reaches ends with DeadlineError on the others."""
    if pr.process_index() == 0:
        with pytest.raises(pr.DeadlineError, match=r"not every process came to barrier .*lonely"):
            pr.barrier("lonely", timeout=2)
    pr.barrier("together", timeout=60)


def exchange_and_total() -> None:
    """exchange and total, the collective operations that all checks use."""
    running = current()
    mine = np.array([pr.process_index(), 2**60 + pr.process_index()])
    rows = exchange(running.backend, running.group, mine)
    count = pr.num_processes()
    assert rows.tolist() == [[i, 2**60 + i] for i in range(count)]
    parts = total(running.backend, running.group, np.array([0.5, pr.process_index()]))
    assert parts.tolist() == [0.5 * count, count * (count - 1) / 2]
    assert total(running.backend, running.group, np.zeros((0, 3))).shape == (0, 3)


def device_ids() -> None:
    """Positions are consecutive, although XLA's CPU ids are not."""
    found = pr.devices()
    assert [d.position for d in found] == list(range(len(found)))
    assert [d.process_index for d in found] == sorted(d.process_index for d in found)
    assert len(pr.local_devices()) * pr.num_processes() == len(found)
    if found[0].platform == "cpu":
        assert found[len(pr.local_devices())].id != len(pr.local_devices())


def freivalds() -> None:
    """Freivalds' O(n^2) check across processes, for a right and a wrong product."""
    from pyreactant.arrays.source import RandomSource
    from pyreactant.check.product import check

    check.FULL_CHECK_WORK = 0
    mesh = _mesh()
    x, y = (RandomSource((64, 64), "float32", 5, stream) for stream in (0, 1))
    everything = (slice(0, 64), slice(0, 64))
    product = x.read(everything) @ y.read(everything)
    off = product.copy()
    off[40, 17] += 0.5
    for spec, wrong in itertools.product(SPECS, (False, True)):
        sharding = pr.NamedSharding(mesh, spec)
        c = pr.device_put(off if wrong else product, sharding)
        verdict = check.check_product(x, y, c, (sharding, sharding), "highest")
        assert verdict.method == "Freivalds"
        assert verdict.passed is not wrong, (spec, verdict)
        if wrong:
            assert verdict.worst == {"row": 40}
    if current().backend.name != "jax":
        return  # no other runtime has a check on the devices
    sharding = pr.NamedSharding(mesh, SPECS[0])
    placed = tuple(pr.from_callback(s.shape, s.dtype, sharding, s.read) for s in (x, y))
    for values, right in ((product, True), (off, False)):
        c = pr.device_put(values, sharding)
        verdict = check.check_product(x, y, c, (sharding, sharding), "highest", placed)
        assert (verdict.method, verdict.passed) == ("Freivalds on the devices", right)
        assert verdict.worst == (None if right else {"row": 40, "columns": "17:18"})
    verdict = check.check_product(y, x, c, (sharding, sharding), "highest", placed)
    assert verdict.worst is not None
    assert verdict.worst["operand"] == "x"


def raises_on_one() -> None:
    """One process fails outside a collective; the run must end immediately, not after 300 s."""
    pr.initialize(heartbeat_timeout=3)
    pr.barrier("start")
    if pr.process_index() == 1:
        raise RuntimeError("the user's own mistake")
    import time

    time.sleep(2)


def no_start(**arguments: Any) -> None:
    """initialize must raise; prints the message."""
    import os

    with pytest.raises(pr.PyReactantError) as caught:
        pr.initialize(**arguments)
    print(f"{caught.type.__name__}: {caught.value}\nprogram done", flush=True)
    os._exit(0)


def write_result(path: str) -> None:
    """Every process writes its blocks into one file; every process refuses a second write."""
    from pyreactant.check.product.report import write_npy

    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    for number, spec in enumerate(SPECS):
        target = Path(path).with_name(f"{number}.npy")
        c = pr.device_put(whole, pr.NamedSharding(_mesh(), spec))
        write_npy(target, c)
        np.testing.assert_array_equal(np.load(target), whole)
        pr.barrier("read")
        with pytest.raises(pr.FileError, match="exists already"):
            write_npy(target, c)


def fails_on_one(path: str) -> None:
    """A failure on one process raises on all of them and names the process."""
    from pyreactant.arrays.runtimes.collective import everywhere

    def action() -> None:
        if pr.process_index() == 1:
            raise pr.FileError(f"{path}: disk full")

    here = pr.process_index() == 1
    wanted = f"{path}: disk full" if here else f"writing failed on process 1: {path}: disk full"
    with pytest.raises(pr.FileError) as caught:
        everywhere(current().backend, current().group, "writing", action)
    assert str(caught.value) == wanted


def cuts_cable() -> None:
    """Process 0 cuts the network of its host; then both processes wait for each other."""
    import subprocess
    import time

    from tests.hosts import cable

    pr.initialize(heartbeat_timeout=3)
    pr.barrier("start")
    if pr.process_index() == 0:
        command = ["ip", "link", "set", cable(1), "down"]
        subprocess.run(command, check=True)
    else:  # after the cut, otherwise process 0 would pass the barrier
        show = ["ip", "link", "show", cable(0)]
        while "NO-CARRIER" not in subprocess.run(show, capture_output=True, text=True).stdout:
            time.sleep(0.05)
    pr.barrier("after", timeout=60)
    print("went on", flush=True)


if __name__ == "__main__":
    for name in sys.argv[1].split("+"):
        print(f"program {name}", flush=True)
        globals()[name](**json.loads(sys.argv[2]))
    pr.shutdown()
    print("program done", flush=True)
