"""Programs on several processes that only the JAX runtime has; test_jax.py starts them."""

import os
import sys
from typing import Any

import numpy as np
import pytest

import pyreactant as pr


def _mesh() -> pr.Mesh:
    return pr.Mesh((2, len(pr.devices()) // 2), ("x", "y"))


def functions_of_trees() -> None:
    """Functions, nested results, keys, 64 bits and donation over processes."""
    import jax

    rows, whole = pr.NamedSharding(_mesh(), ("x",)), pr.NamedSharding(_mesh(), ())
    state = pr.device_put(
        {"w": np.ones((8, 4), np.float32), "step": np.int64(2**40)}, {"w": rows, "step": whole}
    )
    key = pr.device_put(jax.random.key(3), whole)

    def step(state: Any, key: Any) -> Any:
        noise = jax.random.normal(key, state["w"].shape, np.float32)
        return {"w": state["w"] + noise, "step": state["step"] + 1}, jax.random.split(key)[0]

    f = pr.compile(step, state, key, donate=(0,), out_sharding=({"w": rows, "step": whole}, whole))
    for _ in range(3):
        state, key = f(state, key)
    found = pr.gather(state)
    assert found["step"] == 2**40 + 3
    assert int(state["step"]) == 2**40 + 3
    assert found["w"].dtype == np.float32
    local = pr.from_process_local(np.full((4, 4), pr.process_index(), np.int64) + 2**40, rows)
    assert local.shape == (8, 4)
    assert local.gather()[:, 0].tolist() == [2**40] * 4 + [2**40 + 1] * 4
    wide = pr.compile(lambda x: x.sum(), local)(local)
    assert int(wide.gather()) == 16 * 2**40 + 16 * 2**40 + 16
    moved = pr.reshard(local, pr.NamedSharding(_mesh(), (None, "y")))
    assert moved.gather()[:, 0].tolist() == [2**40] * 4 + [2**40 + 1] * 4


def places_arrays_of_jax() -> None:
    """device_put of an array of JAX that lies on both processes, as on one of them."""
    import jax

    rows, columns = pr.NamedSharding(_mesh(), ("x",)), pr.NamedSharding(_mesh(), (None, "y"))
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    everywhere = jax.make_array_from_callback((8, 8), rows.to_jax(), lambda index: values[index])
    assert not everywhere.is_fully_addressable
    for check in (False, True):
        placed = pr.device_put({"x": everywhere}, columns, check=check)["x"]
        assert placed.sharding == columns
        np.testing.assert_array_equal(placed.gather(), values)
    keys = jax.random.split(jax.random.key(3, impl="rbg"), 8)
    spread = pr.device_put(keys, rows).to_jax()
    assert not spread.is_fully_addressable
    again = pr.device_put(spread, pr.NamedSharding(_mesh(), ("y",))).to_jax()
    assert jax.random.key_impl(again) == "rbg"
    numbers = pr.gather(pr.from_jax(jax.random.key_data(again)))
    np.testing.assert_array_equal(numbers, jax.random.key_data(keys))
    alone = pr.device_put(jax.numpy.asarray(values), columns)
    np.testing.assert_array_equal(alone.gather(), values)


def started_by_jax() -> None:
    """pr.initialize takes over a jax.distributed that runs, and leaves it running."""
    import jax

    os.environ.pop("PYREACTANT_NUM_PROCESSES")
    index = int(os.environ.pop("PYREACTANT_PROCESS_INDEX"))
    address = os.environ.pop("PYREACTANT_COORDINATOR_ADDRESS")
    jax.config.update("jax_num_cpu_devices", int(os.environ.pop("PYREACTANT_NUM_CPU_DEVICES")))
    jax.distributed.initialize(address, 2, index)
    with pytest.raises(
        pr.StateError, match=r"num_processes=3, but jax\.distributed already runs w"
    ):
        pr.initialize(num_processes=3, coordinator_address=address, process_index=index)
    pr.initialize()
    assert (pr.num_processes(), pr.process_index()) == (2, index)
    c = pr.matmul_sharded(np.eye(8, dtype=np.float32), np.eye(8, dtype=np.float32))
    np.testing.assert_array_equal(c.gather(), np.eye(8))
    pr.shutdown()
    assert jax.distributed.is_initialized()
    jax.distributed.shutdown()


def numbered_otherwise() -> None:
    """JAX gives two of three processes other numbers than the launcher, as libtpu does on a TPU.

    Process 0 keeps its number, because JAX's coordinator runs there.
    """
    import jax

    count = int(os.environ["PYREACTANT_NUM_PROCESSES"])
    mine = int(os.environ["PYREACTANT_PROCESS_INDEX"])
    original = jax.distributed.initialize

    def permuted(address: str, count: int, index: int, **options: Any) -> None:
        original(address, count, -index % count, **options)

    jax.distributed.initialize = permuted  # type: ignore[assignment]
    pr.initialize()
    jax.distributed.initialize = original
    assert jax.process_index() == -mine % count
    assert pr.process_index() == mine
    assert [d.process_index for d in pr.devices()] == sorted([*range(count)] * 2)
    assert [d.process_index for d in pr.local_devices()] == [mine] * 2
    sharding = pr.NamedSharding(pr.Mesh((2 * count,), ("x",)), ("x",))
    local = np.full((2,), mine, np.float32)
    a = pr.from_process_local(local, sharding)
    assert a.gather().tolist() == sorted([*range(count)] * 2)
    assert [s.index[0].start for s in a.addressable_shards] == [2 * mine, 2 * mine + 1]
    x = np.arange(36, dtype=np.float32).reshape(6, 6)
    c = pr.matmul_sharded(x, x)
    np.testing.assert_array_equal(c.gather(), x @ x)


def used_before() -> None:
    """JAX that has used its devices cannot join other processes any more."""
    import jax

    jax.devices()
    with pytest.raises(pr.StateError) as caught:
        pr.initialize()
    assert "JAX already uses the devices of this process alone" in str(caught.value)
    assert "before anything that uses JAX, such as jax.devices()" in str(caught.value)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    if pr.is_initialized():
        pr.shutdown()
    print("program done", flush=True)
