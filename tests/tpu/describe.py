"""libtpu's descriptions of slices, in a separate process: JSON in, JSON out.

Reads a list of {"options": ..., "memory": bool} and prints one description each: the devices as
[process, slice, x, y, z, core, id], and with "memory" the memory of a device in GiB, taken from
the compiler's refusal of a program of 512 GiB. "meshes" lists meshes as {"shape": ..., "outer":
..., "split": ...}, for which it prints the ids of the devices in JAX's order, or JAX's error; with
"outer", the shape over several slices, "shape" is the one within a slice.
"""

import json
import os
import re
import sys
from typing import Any

os.environ.update(
    TPU_SKIP_MDS_QUERY="1",  # do not search for a metadata server
    TPU_ACCELERATOR_TYPE="v6e-16",
    TPU_WORKER_HOSTNAMES="localhost",
    TPU_WORKER_ID="0",
    JAX_PLATFORMS="cpu",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # no device is opened, so no lock is needed
)


def describe(options: dict[str, Any], memory: bool, meshes: list[dict[str, Any]]) -> dict[str, Any]:
    from jax.experimental import topologies

    try:
        found = topologies.get_topology_desc(platform="tpu", **options)
    except Exception as error:
        return {"error": str(error)}
    devices = [
        [d.process_index, getattr(d, "slice_index", 0), *d.coords, d.core_on_chip, d.id]
        for d in found.devices
    ]
    kind = found.devices[0].device_kind
    hbm = compiler_hbm(found.devices) if memory else None
    orders = [jax_order(found.devices, **mesh) for mesh in meshes]
    return {"devices": devices, "kind": kind, "hbm_gib": hbm, "orders": orders}


def jax_order(
    devices: Any, shape: list[int], outer: list[int] | None, split: bool | None
) -> list[int] | str:
    import jax
    from jax.experimental import mesh_utils

    try:
        if outer:
            found = mesh_utils.create_hybrid_device_mesh(
                shape, outer, devices, allow_split_physical_axes=bool(split)
            )
        elif split is None:
            names = tuple("abc"[: len(shape)])
            found = jax.make_mesh(shape, names, devices=devices).devices
        else:
            found = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=split)
    except Exception as error:
        return str(error)
    return [device.id for device in found.flat]


def compiler_hbm(devices: Any) -> float:
    import jax
    import numpy as np

    everywhere = jax.sharding.NamedSharding(
        jax.sharding.Mesh(np.array(devices), ("x",)), jax.sharding.PartitionSpec()
    )
    large = jax.ShapeDtypeStruct((2**19, 2**19), np.int8, sharding=everywhere)
    try:
        jax.jit(lambda x: x + 1).lower(large).compile()
    except Exception as error:
        return float(re.findall(r"exceeds available HBM \(([0-9.]+)G\)", str(error))[0])
    raise AssertionError("a program of 512 GiB a device was accepted")


if __name__ == "__main__":
    rows = [
        describe(row["options"], row["memory"], row.get("meshes", []))
        for row in json.load(sys.stdin)
    ]
    json.dump(rows, sys.stdout)
