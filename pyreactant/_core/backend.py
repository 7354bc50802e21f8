"""What a runtime must do, stated as laws; tests/backend checks them for each runtime.

`_runtimes.operations` validates arguments once for all runtimes: shapes fit their shardings, the
runtime holds the dtypes, every process has a device in the mesh. A runtime is a final subclass
in a folder of its own, the only place that imports the runtime's package.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..process_group import ProcessGroup
from .array import Aval, ShardedArray
from .device import Device, Shard
from .mesh import Mesh
from .program import Program
from .sharding import Index, NamedSharding

PRECISIONS = ("default", "high", "highest")
"""Precision of products, as JAX and XLA name it; "highest" is float32 for float32 inputs."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """How runtimes differ. Code asks these fields, never the runtime's name.

    Attributes:
        dtypes: Names of the element types that the runtime holds unchanged.
        multi_process: Whether it runs over several processes.
    """

    dtypes: frozenset[str]
    multi_process: bool


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Arguments of `initialize` besides the process group; None if not given."""

    platform: str | None = None
    num_cpu_devices: int | None = None
    initialization_timeout: float = 60.0
    heartbeat_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Executable:
    """What `AbstractBackend.compile` returns.

    Attributes:
        run: Takes and returns the runtime's own arrays. It waits for the program before if the
            platform cannot have several in flight.
        avals: Shape, dtype and sharding of each output.
        single: Whether `run` returns one array rather than a tuple.
        text: StableHLO ("stablehlo") or optimised HLO ("hlo") of the program.
    """

    run: Callable[..., Any]
    avals: tuple[Aval, ...]
    single: bool
    text: Callable[[str], str]


class AbstractBackend(abc.ABC):
    """One runtime in this process, from `start` to `shutdown`."""

    name: ClassVar[str]

    @abc.abstractmethod
    def start(self, group: ProcessGroup, options: StartOptions) -> None:
        """Start before any device is used. Collective if there are several processes.

        Afterwards the platform and the numbers of processes and CPU devices are as requested.
        Otherwise it raises, and nothing else of the runtime may be called.
        """

    @abc.abstractmethod
    def capabilities(self) -> Capabilities:
        """How this runtime differs from others on this platform."""

    @abc.abstractmethod
    def devices(self) -> tuple[Device, ...]:
        """All devices of the run, by process and then by the runtime's id.

        ``devices()[i].position == i``, and the tuple is equal on every process.
        """

    def versions(self) -> dict[str, str]:
        """Versions of the runtime and its parts, by name. Never communicates.

        One is the runtime's own, under its name in upper or lower case.
        """
        return {}

    @abc.abstractmethod
    def from_blocks(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        sharding: NamedSharding,
        read: Callable[[Index], np.ndarray],
    ) -> Any:
        """Place an array, calling `read` once per distinct block of this process.

        Blocks lie where ``sharding.devices_indices_map(shape)`` says. Shape and dtype are
        never changed. Later writes to the memory that `read` returned have no effect.
        """

    @abc.abstractmethod
    def compile(
        self,
        program: Program,
        args: Sequence[ShardedArray],
        out_sharding: Any,
        precision: str | None,
        static: Mapping[str, Any],
    ) -> Executable:
        """Lower and compile for the arguments' shapes, dtypes and shardings; runs nothing.

        Collective in effect: every process must compile and call the same programs in the
        same order.
        """

    @abc.abstractmethod
    def addressable_shards(self, value: Any) -> list[Shard]:
        """The blocks on this process's devices by device position, with the runtime's own indices.

        The indices equal the placement oracle's. Never communicates.
        """

    @abc.abstractmethod
    def is_fully_addressable(self, mesh: Mesh) -> bool:
        """Whether all devices of a mesh belong to this process."""

    @abc.abstractmethod
    def gather(self, value: Any, sharding: NamedSharding) -> np.ndarray:
        """The whole array in C order on every process. Collective."""

    @abc.abstractmethod
    def block_until_ready(self, value: Any) -> None:
        """Wait until the blocks on this process's devices are computed."""

    @abc.abstractmethod
    def barrier(self, name: str, timeout: float) -> None:
        """Wait at most `timeout` seconds until every process has called this. Collective.

        Raises:
            DeadlineError: A process did not call it in time.
        """

    @abc.abstractmethod
    def shutdown(self) -> None:
        """End the runtime cleanly. Collective."""
