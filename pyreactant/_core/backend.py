"""What a runtime must do, stated as laws; tests/backend checks them for each runtime.

Arguments arrive here validated (`_runtime` does that once for all runtimes): shapes fit
their shardings, dtypes are ones the runtime holds, every process has a device in the mesh.
A runtime is a final subclass in a module of its own, and the only place that imports it.
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
    """How runtimes differ; asked instead of the runtime's name.

    Attributes:
        dtypes: Names of the element types that stay what they are.
        multi_process: Whether it runs over several processes.
    """

    dtypes: frozenset[str]
    multi_process: bool


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What `initialize` was asked for beyond who is in the run; None where nothing was said."""

    platform: str | None = None
    num_cpu_devices: int | None = None
    initialization_timeout: float = 60.0
    heartbeat_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Executable:
    """What `AbstractBackend.compile` gives back.

    Attributes:
        run: Takes and gives the runtime's own arrays; at most one program is in flight
            where the platform cannot take more.
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
        """Start, before any device is touched; collective where there are many processes.

        Afterwards the platform, the number of processes and of CPU devices are those asked
        for. Otherwise it raises, and nothing else of the runtime may be called.
        """

    @abc.abstractmethod
    def capabilities(self) -> Capabilities:
        """How this runtime, on this platform, differs from others."""

    @abc.abstractmethod
    def devices(self) -> tuple[Device, ...]:
        """All devices of the run, by process and then by the runtime's id.

        ``devices()[i].position == i``, and the tuple is equal on every process.
        """

    def versions(self) -> dict[str, str]:
        """Of what it runs that is no Python package, by name. Never communicates."""
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
        never changed, and later writes to the memory that `read` returned are not seen.
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
        """The blocks here, by device position, with the runtime's own idea of their index.

        Equal to the placement oracle. Never communicates.
        """

    @abc.abstractmethod
    def is_fully_addressable(self, mesh: Mesh) -> bool:
        """Whether all devices of a mesh belong to this process."""

    @abc.abstractmethod
    def gather(self, value: Any, sharding: NamedSharding) -> np.ndarray:
        """The whole array in C order on every process. Collective."""

    @abc.abstractmethod
    def block_until_ready(self, value: Any) -> None:
        """Wait until the blocks here are computed."""

    @abc.abstractmethod
    def barrier(self, name: str, timeout: float) -> None:
        """Wait until every process is here, at most `timeout` seconds. Collective.

        Raises:
            DeadlineError: Some process did not come.
        """

    @abc.abstractmethod
    def shutdown(self) -> None:
        """End cleanly or not at all. Collective."""
