"""A runtime with any number of processes and devices, which places nothing and needs no device."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, final
from unittest import mock

import numpy as np

from pyreactant.arrays.backend import AbstractBackend, Call, Lowered, StartOptions
from pyreactant.arrays.program import Program
from pyreactant.arrays.runtimes import runtime
from pyreactant.arrays.sharding import Device, Index, NamedSharding, Shard
from pyreactant.process.group import ProcessGroup


@final
class NothingBackend(AbstractBackend):
    """Process 0 of a run; an array is the blocks that a runtime would place.

    Attributes:
        asked: How often the devices were asked for.
    """

    name: ClassVar[str] = "nothing"

    def __init__(self, processes: int, per_process: int, platform: str = "cpu") -> None:
        self.asked = 0
        self.group = ProcessGroup(processes, 0, "localhost:1" if processes > 1 else None)
        self._devices = tuple(
            Device(i, i // per_process, i, platform, "none") for i in range(processes * per_process)
        )

    def start(self, group: ProcessGroup, options: StartOptions) -> None:
        raise NotImplementedError

    def devices(self) -> tuple[Device, ...]:
        self.asked += 1
        return self._devices

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
        return {start: read(index) for start, (index, _) in holders.items()}

    def is_built_in(self, program: Program) -> bool:
        raise NotImplementedError

    def body_of(self, program: Program) -> Any:
        raise NotImplementedError

    def lower(self, call: Call) -> Lowered:
        raise NotImplementedError

    def addressable_shards(self, value: Any) -> list[Shard]:
        raise NotImplementedError

    def gather(self, value: Any, sharding: NamedSharding) -> np.ndarray:
        raise NotImplementedError

    def block_until_ready(self, value: Any) -> None:
        pass

    def barrier(self, name: str, timeout: float) -> None:
        pass

    def shutdown(self) -> None:
        pass


@contextlib.contextmanager
def running_nothing(
    processes: int, per_process: int, platform: str = "cpu"
) -> Iterator[NothingBackend]:
    """This process is process 0 of a run on that runtime, instead of what runs in it."""
    backend = NothingBackend(processes, per_process, platform)
    running = runtime.Running(backend, backend.group, StartOptions())
    with mock.patch.object(runtime, "_running", running):
        yield backend
