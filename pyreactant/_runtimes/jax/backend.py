"""The JAX runtime."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar, final

import jax
import numpy as np
from jax.sharding import NamedSharding as JaxNamedSharding
from jax.sharding import PartitionSpec

from ..._core.array import Aval, ShardedArray
from ..._core.backend import AbstractBackend, Capabilities, Executable, StartOptions
from ..._core.device import Device, Shard
from ..._core.dtypes import NAMES
from ..._core.mesh import Mesh
from ..._core.program import Program, load
from ..._core.sharding import Axes, Index, NamedSharding
from ..._errors import ShardingError
from ..._system.facts import package_version
from ...process_group import ProcessGroup
from .setup import configure, find_devices, holds_64_bits, platform_of


@final
class JaxBackend(AbstractBackend):
    """JAX on CPU, GPU or TPU, in one process or many."""

    name: ClassVar[str] = "jax"

    def __init__(self) -> None:
        self._group = ProcessGroup()
        self._jax_devices: tuple[Any, ...] = ()
        self._devices: tuple[Device, ...] = ()
        self._position: dict[Any, int] = {}
        self._one_in_flight = False
        self._barriers: dict[str, int] = {}

    def start(self, group: ProcessGroup, options: StartOptions) -> None:
        self._group = group
        configure(group, options)
        if group.num_processes > 1:
            from .distributed import connect

            connect(group, options)
        self._jax_devices = find_devices(group, options)
        self._position = {d: i for i, d in enumerate(self._jax_devices)}
        self._devices = tuple(
            Device(i, d.process_index, d.id, platform_of(d), d.device_kind)
            for i, d in enumerate(self._jax_devices)
        )
        # Collectives on virtual CPU devices share one thread pool. Programs in flight together
        # can wait for each other's threads without end (seen in jax 0.10 with 300 products on 8
        # devices and 2 cores; XLA aborts after 60 s).
        self._one_in_flight = self._devices[0].platform == "cpu"

    def capabilities(self) -> Capabilities:
        held = set(NAMES)
        if not holds_64_bits():
            held -= {"int64", "uint64", "float64", "complex128"}
        if self._devices[0].platform == "tpu":
            held -= {"complex128"}
        return Capabilities(dtypes=frozenset(held), multi_process=True)

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def versions(self) -> dict[str, str]:
        return {name: package_version(name) or "unknown" for name in ("jax", "jaxlib")}

    def from_blocks(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        sharding: NamedSharding,
        read: Callable[[Index], np.ndarray],
    ) -> Any:
        holders: dict[tuple[int, ...], list[int]] = {}
        indices = sharding.devices_indices_map(shape)
        for position, index in indices.items():
            if self._is_local(position):
                holders.setdefault(tuple(s.start for s in index), []).append(position)
        placed: dict[int, Any] = {}
        for positions in holders.values():
            block = read(indices[positions[0]])
            if self._devices[0].platform == "cpu":
                # JAX takes over aligned host memory without a copy. This copy is its own, and
                # all devices that hold the block share it.
                block = _aligned_copy(block)
            for position in positions:
                placed[position] = jax.device_put(block, self._jax_devices[position])
        value = jax.make_array_from_single_device_arrays(
            shape, self._to_jax(sharding), [placed[p] for p in indices if p in placed], dtype=dtype
        )
        # An accelerator may still be reading the memory that `read` returned.
        value.block_until_ready()
        return value

    def compile(
        self,
        program: Program,
        args: Sequence[ShardedArray],
        out_sharding: Any,
        precision: str | None,
        static: Mapping[str, Any],
    ) -> Executable:
        function = partial(load(program, "jax"), **static)
        shardings = None
        if out_sharding is not None:
            shardings = jax.tree.map(self._to_jax, out_sharding, is_leaf=_is_sharding)
        jitted = jax.jit(function, out_shardings=shardings)
        chosen = contextlib.nullcontext() if precision is None else _precision(precision)
        with chosen:
            lowered = jitted.lower(*(a.value for a in args))
            compiled = lowered.compile()
        outs, tree = jax.tree.flatten(lowered.out_info)
        single = jax.tree_util.treedef_is_leaf(tree)
        given = jax.tree.leaves(out_sharding, is_leaf=_is_sharding)
        if len(given) == 1:
            given *= len(outs)  # one sharding for all outputs, as in JAX
        meshes = [a.sharding.mesh for a in args]
        chosen_shardings = given or [
            self._from_jax(program, s, meshes) for s in jax.tree.leaves(compiled.output_shardings)
        ]
        avals = tuple(
            Aval(tuple(o.shape), np.dtype(o.dtype), s)
            for o, s in zip(outs, chosen_shardings, strict=True)
        )
        wait = self._one_in_flight

        def text(stage: str) -> str:
            return str(lowered.as_text() if stage == "stablehlo" else compiled.as_text())

        def run_one(*values: Any) -> Any:
            out = compiled(*values)
            if wait:
                out.block_until_ready()
            return out

        def run_several(*values: Any) -> Any:
            out = jax.tree.leaves(compiled(*values))
            if wait:
                jax.block_until_ready(out)
            return out

        return Executable(run_one if single else run_several, avals, single, text)

    def addressable_shards(self, value: Any) -> list[Shard]:
        shards = []
        for shard in value.addressable_shards:
            index = tuple(
                slice(*s.indices(n)[:2]) for s, n in zip(shard.index, value.shape, strict=True)
            )
            device = self._devices[self._position[shard.device]]
            read: Callable[[], np.ndarray] = partial(np.asarray, shard.data)
            if not value.size:
                # jax 0.10 gives each device the whole of an empty result.
                block = tuple(s.stop - s.start for s in index)
                read = partial(np.empty, block, value.dtype)
            shards.append(Shard(device, index, read))
        return sorted(shards, key=lambda s: s.device.position)

    def is_fully_addressable(self, mesh: Mesh) -> bool:
        return self._group.num_processes == 1 or all(map(self._is_local, mesh.device_ids))

    def gather(self, value: Any, sharding: NamedSharding) -> np.ndarray:
        replicated = self._to_jax(NamedSharding(sharding.mesh, ()))
        whole = _replicator(replicated)(value)
        return np.array(whole.addressable_data(0), order="C")

    def block_until_ready(self, value: Any) -> None:
        value.block_until_ready()

    def barrier(self, name: str, timeout: float) -> None:
        from .distributed import wait_at_barrier

        # A name serves one barrier only, so each use adds its number.
        self._barriers[name] = self._barriers.get(name, 0) + 1
        wait_at_barrier(f"pyreactant/{name}/{self._barriers[name]}", timeout)

    def shutdown(self) -> None:
        if self._group.num_processes > 1:
            jax.distributed.shutdown()

    def _is_local(self, position: int) -> bool:
        return self._devices[position].process_index == self._group.process_index

    def _to_jax(self, sharding: NamedSharding) -> JaxNamedSharding:
        return JaxNamedSharding(_jax_mesh(self, sharding.mesh), PartitionSpec(*sharding.spec))

    def _from_jax(self, program: Program, sharding: Any, meshes: Sequence[Mesh]) -> NamedSharding:
        """The NamedSharding of an output for which JAX's compiler chose the sharding."""
        if not isinstance(sharding, JaxNamedSharding):
            raise ShardingError(
                f"program {program.name!r}: the compiler chose {sharding} for an output, which no "
                "mesh and spec describe; give out_sharding="
            )
        found = sharding.mesh
        ids = [self._position[d] for d in found.devices.flat]
        ours = Mesh(found.devices.shape, found.axis_names, ids)
        same = (m for m in meshes if _names_and_places(m) == _names_and_places(ours))
        mesh = next(same, ours)
        spec: list[Axes] = [
            e if e is None or isinstance(e, (str, tuple)) else None for e in sharding.spec
        ]
        return NamedSharding(mesh, spec)


def _names_and_places(mesh: Mesh) -> tuple[object, ...]:
    return mesh.shape, mesh.axis_names, mesh.device_ids


_ALIGNMENT = 64  # bytes; XLA's CPU client takes over memory with this alignment only


def _aligned_copy(block: np.ndarray) -> np.ndarray:
    memory = np.empty(block.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    copy = memory[start : start + block.nbytes].view(block.dtype).reshape(block.shape)
    copy[...] = block
    return copy


def _is_sharding(node: object) -> bool:
    return isinstance(node, NamedSharding)


@lru_cache(maxsize=64)
def _jax_mesh(backend: JaxBackend, mesh: Mesh) -> Any:
    devices = np.array([backend._jax_devices[i] for i in mesh.device_ids], dtype=object)
    return jax.sharding.Mesh(devices.reshape(mesh.shape), mesh.axis_names)


@lru_cache(maxsize=64)
def _replicator(replicated: JaxNamedSharding) -> Any:
    return jax.jit(lambda a: a, out_shardings=replicated)


def _precision(name: str) -> Any:
    return jax.default_matmul_precision(name)
