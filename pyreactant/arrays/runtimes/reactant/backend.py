"""The Reactant runtime: Reactant.jl through the Julia package PyReactant."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, ClassVar, final

import numpy as np

from ....base.errors import ShardingError
from ....julia.place import describe_libtpu
from ....process import compilations
from ....process.group import ProcessGroup
from ...backend import AbstractBackend, Call, Lowered, StartOptions, Store
from ...dtypes import EXTENDED, as_dtype
from ...program import Program
from ...sharding import Device, Index, NamedSharding, Shard
from .julia import call
from .lower import Runtime, as_index, function_of, lower, whole_numbers, write
from .meeting import Meeting
from .setup import start

_SHUTDOWN_TIMEOUT = 30.0


@final
class ReactantBackend(AbstractBackend):
    """Reactant on CPU, GPU or TPU, in one process or many.

    Donated arrays cannot be used again, but programs do not reuse their memory: Julia's collector
    frees it. That runs after each GiB that programs computed, or sooner.
    """

    name: ClassVar[str] = "reactant"

    def __init__(self) -> None:
        self._julia: Any = None
        self._meeting: Meeting | None = None
        self._devices: tuple[Device, ...] = ()
        self._position: dict[int, int] = {}

    def start(self, group: ProcessGroup, options: StartOptions) -> None:
        if options.compile_cache is not None:
            compilations.switch_off("Reactant keeps the tuning of its kernels, but no programs")
        self._use(group, *start(group, options))

    def _use(
        self, group: ProcessGroup, julia: Any, devices: tuple[Device, ...], meeting: Meeting | None
    ) -> None:
        self.group, self._julia, self._devices, self._meeting = group, julia, devices, meeting
        self._position = {d.id: d.position for d in devices}

    def store(self) -> Store | None:
        return self._meeting

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def versions(self) -> dict[str, str]:
        versions = {str(name): str(version) for name, version in call(self._julia.versions)}
        if self._devices[0].platform == "tpu":
            versions["libtpu"] = describe_libtpu()
        return versions

    def from_blocks(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        sharding: NamedSharding,
        read: Callable[[Index], np.ndarray],
        *,
        owned: bool = False,  # its memory is never the host's
    ) -> Any:
        mine = sharding.mesh.positions_of(self.local_positions)
        holders = sharding.block_holders(mine, shape).values()
        blocks = tuple(as_bits(read(index)) for index, _ in holders)
        ids = tuple(tuple(self._devices[p].id for p in positions) for _, positions in holders)
        placed = julia_sharding(self, sharding)
        return call(self._julia.from_blocks, dtype.name, shape, placed, ids, *blocks)

    def is_built_in(self, program: Program) -> bool:
        body = program.julia
        return body is not None and ("." not in body or body.startswith(("PyReactant.", "Base.")))

    def body_of(self, program: Program) -> Any:
        if self.is_built_in(program):
            return program.julia
        return tuple(map(int, call(self._julia.body_of, *function_of(program))))

    def lower(self, call: Call) -> Lowered:
        return lower(call, self._runtime())

    def write(self, call: Call) -> tuple[str, Any]:
        """A program's StableHLO, and the structure of its results as plain data; see `write`."""
        return write(call, self._runtime())

    def _runtime(self) -> Runtime:
        def place(sharding: NamedSharding) -> Any:
            return julia_sharding(self, sharding)

        return Runtime(self._julia, place, self._position)

    def addressable_shards(self, value: Any) -> list[Shard]:
        dtype = as_dtype(str(call(self._julia.dtype_of, value)))
        shards = []
        for number, (device, starts, stops) in enumerate(call(self._julia.shards, value)):
            index = as_index(starts, stops)
            into = partial(self._read_into, value, number)
            read = partial(_read, into, index, dtype)
            shards.append(Shard(self._devices[self._position[int(device)]], index, read, into))
        return sorted(shards, key=lambda s: s.device.position)

    def gather(self, value: Any, sharding: NamedSharding) -> np.ndarray:
        dtype = as_dtype(str(call(self._julia.dtype_of, value)))
        whole = np.empty(whole_numbers(call(self._julia.shape_of, value)), dtype)
        call(self._julia.gather, value, as_bits(whole))
        return whole

    def block_until_ready(self, value: Any) -> None:
        call(self._julia.wait, value)

    def barrier(self, name: str, timeout: float) -> None:
        if self._meeting is not None:
            self._meeting.barrier(name, timeout)

    def shutdown(self) -> None:
        if self._meeting is not None:
            # Reactant ends with the process. By then no other process may wait for this one.
            self._meeting.barrier("pyreactant/shutdown", _SHUTDOWN_TIMEOUT)
            self._meeting.close()

    def _read_into(self, value: Any, number: int, out: np.ndarray) -> None:
        call(self._julia.read_shard, value, number, as_bits(out))


@lru_cache(maxsize=256)
def julia_sharding(backend: ReactantBackend, sharding: NamedSharding) -> Any:
    """Julia's form of a sharding. It has tuples only, because Reactant refuses lists in a spec."""
    julia, mesh = backend._julia, sharding.mesh
    if "explicit" in mesh.axis_types:
        raise ShardingError(
            f"Reactant takes Auto mesh axes only, got {mesh!r}; leave axis_types out, or give "
            "'auto' for each axis"
        )
    ids = tuple(backend._devices[i].id for i in mesh.device_ids)
    return call(julia.sharding, call(julia.mesh, ids, mesh.shape, mesh.axis_names), sharding.spec)


def as_bits(array: np.ndarray) -> np.ndarray:
    """The same memory as integers if the type is from ml_dtypes, which juliacall does not know."""
    if array.dtype.name in EXTENDED:
        return array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    return array


def _read(into: Callable[[np.ndarray], None], index: Index, dtype: np.dtype[Any]) -> np.ndarray:
    # In Julia's order, which takes one copy from the device; C order would take two.
    block = np.empty(tuple(s.stop - s.start for s in index), dtype, order="F")
    into(block)
    return block
