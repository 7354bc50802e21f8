"""The JAX runtime: configured before it uses a device, and started as requested."""

import contextlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar, final

import jax
import numpy as np
from jax.sharding import NamedSharding as JaxNamedSharding

from ....base.counted import counted
from ....base.errors import DTypeError, InvalidArgumentError, RequirementError, StateError, argument
from ....base.facts import VISIBLE_GPUS, package_version, tpu_chips, usable_gpus
from ....base.packages import broken_package
from ....base.say import say
from ....base.settings import LOCAL_DEVICES
from ....process.group import ProcessGroup
from ....process.group.cloud_tpu import is_proxy
from ...array import ShardedArray
from ...backend import AbstractBackend, Call, Lowered, StartOptions, Store
from ...dtypes import ALIGNMENT, aligned
from ...mesh import Mesh
from ...program import Program
from ...sharding import Aval, Device, Index, NamedSharding, Shard
from ...tree import Trees
from . import compilations, digest, x64
from .convert import (
    Devices,
    hardware_order,
    jax_mesh,
    jax_sharding,
    our_mesh,
    our_sharding,
    plain_dtype,
)
from .distributed import (
    JaxStore,
    check_unused,
    connect,
    running_group,
    runtime_processes,
    wait_at_barrier,
)
from .lower import TREES, body_of, lower

_SETTINGS = (
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_debug_nans",
)
"""Settings of JAX that change what is traced; its own jit traces again after a change."""

_config: Any = jax.config  # its attributes are made at run time


@final
class JaxBackend(AbstractBackend):
    """JAX on CPU, GPU or TPU, in one process or many."""

    name: ClassVar[str] = "jax"

    def __init__(self) -> None:
        self._jax = Devices(())
        self._devices: tuple[Device, ...] = ()
        self._one_in_flight = False
        self._adopted = False

    def running_group(self) -> ProcessGroup | None:
        return running_group()

    def start(self, group: ProcessGroup, options: StartOptions) -> None:
        self.group = group
        _configure(group, options)
        self._adopted = jax.distributed.is_initialized()
        if group.num_processes > 1 and not self._adopted:
            check_unused(group)
            connect(group, options)
        compilations.install(options.compile_cache, several=group.num_processes > 1)
        owner = runtime_processes(group, options.platform)
        self._jax = Devices(_find_devices(group, options, owner))
        self._devices = tuple(
            Device(i, owner[d.process_index], d.id, _platform_of(d), d.device_kind)
            for i, d in enumerate(self._jax.all)
        )
        # Collectives on virtual CPU devices share one thread pool. Programs in flight together
        # can wait for each other's threads without end (seen in jax 0.10 with 300 products on 8
        # devices and 2 cores; XLA aborts after 60 s).
        self._one_in_flight = self._devices[0].platform == "cpu"

    def dtypes(self) -> frozenset[str]:
        return super().dtypes() - (frozenset() if x64.may_hold() else x64.WIDE)

    def store(self) -> Store | None:
        several = self.group.num_processes > 1
        return JaxStore(self.group.num_processes) if several else None

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
        *,
        owned: bool = False,
    ) -> Any:
        mine = sharding.mesh.positions_of(self.local_positions)
        holders = sharding.block_holders(mine, shape)
        placed = jax_sharding(self._jax, sharding)
        with x64.context(x64.is_wide(dtype)):
            if self._devices[0].platform == "cpu":
                # JAX takes over aligned host memory without a copy. This copy is its own, and all
                # devices that hold the block share it.
                copies = {
                    start: _aligned(read(index), owned) for start, (index, _) in holders.items()
                }
                value = jax.make_array_from_callback(
                    shape, placed, lambda index: copies[_start(index or ())], dtype=dtype
                )
            else:  # one block after the other, so that host memory need not hold all of them
                arrays: dict[int, Any] = {}
                for index, positions in holders.values():
                    block = read(index)
                    for position in positions:
                        arrays[position] = jax.device_put(block, self._jax.all[position])
                value = jax.make_array_from_single_device_arrays(
                    shape, placed, [arrays[position] for position in mine], dtype=dtype
                )
        # An accelerator may still be reading the memory that `read` returned.
        value.block_until_ready()
        return value

    def free_memory(self, position: int) -> int | None:
        stats = self._jax.all[position].memory_stats()
        return int(stats["bytes_limit"] - stats["bytes_in_use"]) if stats else None

    def block_digests(self, value: Any) -> Mapping[int, np.ndarray]:
        return digest.block_digests(self._jax, value)

    def copied(self, value: Any) -> Any:
        return digest.copied(value)

    @property
    def trees(self) -> Trees:
        return TREES

    def is_built_in(self, program: Program) -> bool:
        return isinstance(program.jax, str) and program.jax.startswith(("pyreactant.", "jax."))

    def body_of(self, program: Program) -> Any:
        return body_of(program)

    def settings(self) -> Any:
        return x64.is_on(), *(getattr(jax.config, name) for name in _SETTINGS)

    def number(self, value: bool | int | float | complex) -> np.ndarray:
        return x64.number(value)

    def lower(self, call: Call) -> Lowered:
        return lower(call, self._jax, self._one_in_flight)

    def expose(self, value: Any) -> Any:
        if x64.is_wide(value.dtype) and not x64.is_on():
            raise DTypeError(
                f"this array holds {value.dtype}, which JAX would truncate in the next operation "
                "because its x64 mode is off; take it and use it inside "
                "`with jax.enable_x64(True):`"
            )
        return value

    def to_jax(self, thing: Any) -> Any:
        if isinstance(thing, ShardedArray):
            return self.expose(thing._value)
        if isinstance(thing, Mesh):
            return jax_mesh(self._jax, thing)
        return jax_sharding(self._jax, thing)

    def from_jax(self, array: Any) -> tuple[Any, Aval]:
        if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
            raise InvalidArgumentError(
                f"from_jax takes a jax.Array that holds data, got {type(array).__name__}"
            )
        sharding = our_sharding(self._jax, array.sharding, (), "from_jax: the array")
        return array, Aval(array.shape, plain_dtype(array.dtype), sharding)

    def key_numbers(self, key: Any) -> tuple[Any, str]:
        return jax.random.key_data(key), str(jax.random.key_impl(key))

    def wrap_keys(self, numbers: Any, impl: str, sharding: NamedSharding | None) -> Any:
        wrap = partial(jax.random.wrap_key_data, impl=impl)
        if sharding is None:
            return wrap(numbers)
        return jax.jit(wrap, out_shardings=jax_sharding(self._jax, sharding))(numbers)

    def mesh_from_jax(self, mesh: Any) -> Mesh:
        return our_mesh(self._jax, mesh)

    def hardware_order(self, shape: tuple[int, ...], split: bool | None) -> tuple[int, ...]:
        return hardware_order(shape, self._jax.all, split)

    def addressable_shards(self, value: Any) -> list[Shard]:
        _check_readable(value)
        shards = []
        for shard in value.addressable_shards:
            index = tuple(
                slice(*s.indices(n)[:2]) for s, n in zip(shard.index, value.shape, strict=True)
            )
            device = self._devices[self._jax.position[shard.device]]
            read: Callable[[], np.ndarray] = partial(np.asarray, shard.data)
            if not value.size:
                # jax 0.10 gives each device the whole of an empty result.
                block = tuple(s.stop - s.start for s in index)
                read = partial(np.empty, block, value.dtype)
            shards.append(Shard(device, index, read))
        return sorted(shards, key=lambda s: s.device.position)

    def gather(self, value: Any, sharding: NamedSharding) -> np.ndarray:
        _check_readable(value)
        replicated = jax_sharding(self._jax, NamedSharding(sharding.mesh, ()))
        with x64.context(x64.is_wide(value.dtype)):
            whole = _replicator(replicated)(value)
            return np.array(whole.addressable_data(0), order="C").view(value.dtype)

    def block_until_ready(self, value: Any) -> None:
        value.block_until_ready()

    def barrier(self, name: str, timeout: float) -> None:
        wait_at_barrier(f"pyreactant/{name}", timeout)

    def shutdown(self) -> None:
        if self.group.num_processes > 1 and not self._adopted:
            jax.distributed.shutdown()


def _check_readable(value: Any) -> None:
    if not isinstance(value.dtype, np.dtype):
        raise DTypeError(
            f"an array of {value.dtype} has no elements that NumPy can hold; read "
            "jax.random.key_data of it, for instance in a program"
        )


def _start(index: Index) -> tuple[int, ...]:
    """The first element of a block; JAX writes a whole dimension as ``slice(None)``."""
    return tuple(s.start or 0 for s in index)


def _aligned(block: np.ndarray, owned: bool) -> np.ndarray:
    if owned and block.ctypes.data % ALIGNMENT == 0 and block.flags.c_contiguous:
        return block
    copy = aligned(block.shape, block.dtype)
    copy[...] = block
    return copy


@lru_cache(maxsize=64)
def _replicator(replicated: JaxNamedSharding) -> Any:
    def bits(a: Any) -> Any:
        # XLA's CPU backend sends short floats as float32, which makes signalling NaNs quiet.
        if a.dtype.itemsize > 2 or not jax.numpy.issubdtype(a.dtype, jax.numpy.floating):
            return a
        return jax.lax.bitcast_convert_type(a, f"uint{8 * a.dtype.itemsize}")

    return jax.jit(bits, out_shardings=replicated)


def _configure(group: ProcessGroup, options: StartOptions) -> None:
    """Configure JAX before it uses a device."""
    if is_proxy(_config.jax_platforms) and options.platform != "cpu":
        _register_proxy(group, options)
    elif options.platform == "cpu" or (options.platform is None and _only_a_cpu()):
        _update("jax_platforms", "cpu")
    if group.local_device_ids is not None:
        visible = ",".join(map(str, group.local_device_ids))
        _update("jax_cuda_visible_devices", visible)
        _update("jax_rocm_visible_devices", visible)
    count = options.cpu_devices(group.num_processes)
    if options.num_cpu_devices is not None or (count and _config.jax_num_cpu_devices < 1):
        _update("jax_num_cpu_devices", count)


def _register_proxy(group: ProcessGroup, options: StartOptions) -> None:
    """Let JAX know Pathways' proxy as a platform.

    Raises:
        InvalidArgumentError: Something is asked for that it does not have.
        RequirementError: Its package is absent.
    """
    wrong = {
        "platform": options.platform,
        "compile_cache": options.compile_cache,
        "num_processes": None if group.num_processes == 1 else group.num_processes,
    }
    for name, value in wrong.items():
        if value is not None:
            raise InvalidArgumentError(
                f"{argument(name, value)} does not go with Pathways (JAX_PLATFORMS=proxy), whose "
                "proxy gives one process all devices and caches what it compiles; leave it out"
            )
    try:
        import pathwaysutils
    except ImportError as error:
        broken = broken_package(error, "JAX_PLATFORMS=proxy", "pathwaysutils")
        assert broken is not None
        raise broken from error
    pathwaysutils.initialize()
    say("through Pathways this process has all devices: there is no roll-call and no guard")


def _only_a_cpu() -> bool:
    """Whether libtpu is installed only to compile: no TPU, and no GPU plugin.

    JAX would otherwise search the network for a TPU for seconds, and print why it found none.
    """
    if os.environ.get("JAX_PLATFORMS") or not importlib.util.find_spec("libtpu") or tpu_chips():
        return False
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return not plugins and not importlib.util.find_spec("jax_plugins")


def _update(name: str, value: Any) -> None:
    # It raises if JAX has devices already; `_find_devices` checks that they are as requested.
    with contextlib.suppress(RuntimeError):
        jax.config.update(name, value)


def _find_devices(
    group: ProcessGroup, options: StartOptions, owner: Mapping[int, int]
) -> tuple[Any, ...]:
    """JAX's devices of the run, by the launcher's process index and then by id. Collective.

    `owner` has the launcher's process index for each of JAX's.
    """
    try:
        devices = jax.devices(options.platform)
    except RuntimeError as error:
        raise _no_platform(options.platform, group.local_device_ids, error) from error
    local = sum(owner[d.process_index] == group.process_index for d in devices)
    cpus, own = options.num_cpu_devices, group.local_device_ids
    platform = _platform_of(devices[0])
    if cpus is not None and platform == "cpu" and local != cpus:
        raise StateError(
            f"{argument('num_cpu_devices', cpus)} was requested, but JAX had already started with "
            f"{local}; call pyreactant.initialize before anything uses JAX"
        )
    if own is not None and platform == "gpu" and local != len(own):
        raise StateError(
            f"local_device_ids={own} was requested, but JAX has {counted(local, 'GPU')} in this "
            "process; call pyreactant.initialize before anything uses JAX, and name GPUs of this "
            "machine"
        )
    return tuple(sorted(devices, key=lambda d: (owner[d.process_index], d.id)))


def _no_platform(
    platform: str | None, named: Sequence[int] | None, error: RuntimeError
) -> RequirementError:
    if platform is None:
        return RequirementError(f"JAX found no device: {error}")
    count = usable_gpus() if platform == "gpu" else 0
    if named and 0 < count <= max(named):
        return RequirementError(
            f"GPU {max(named)} was requested as one of this process's own (local_device_ids, or "
            f"{LOCAL_DEVICES}), but this process sees {count}; name GPUs from 0 to {count - 1}"
        )
    try:
        here = ", ".join(sorted({_platform_of(d) for d in jax.devices()}))
    except RuntimeError:
        here = "none"
    extra = {"gpu": "cuda13", "tpu": "tpu"}.get(platform)
    advice = (
        f"; run on a machine that has one, with: python -m pip install 'pyreactant[{extra}]'"
        if extra
        else ""
    )
    if platform == "gpu":
        advice += " (cuda12 for a driver older than 580)"
    limits = ["JAX_PLATFORMS"] if os.environ.get("JAX_PLATFORMS") else []
    if platform == "gpu":
        limits += [name for name in VISIBLE_GPUS if name in os.environ]  # empty hides all
    if limits:
        here += f" ({' and '.join(f'{name}={os.environ[name]}' for name in limits)} "
        here += f"{'is' if len(limits) == 1 else 'are'} set)"
    return RequirementError(f"platform {platform!r} was requested, but JAX has: {here}{advice}")


def _platform_of(device: Any) -> str:
    return "gpu" if device.platform in ("cuda", "rocm") else str(device.platform)
