"""What a runtime must do, stated as laws; tests/backend checks them for each runtime.

`arrays.runtimes.operations` validates arguments once for all runtimes: shapes fit their shardings,
the runtime holds the dtypes, every process has a device in the mesh. A runtime is a final subclass
in a folder of its own, the only place that imports the runtime's package.
"""

import abc
import functools
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from ..base.errors import DTypeError, InvalidArgumentError, ShardingError, StateError, argument
from ..process.group import ProcessGroup
from .dtypes import NAMES
from .mesh import Mesh
from .program import Program
from .sharding import Aval, Device, Index, NamedSharding, Shard
from .tree import OpTrees, Trees, broadcast


class Store(Protocol):
    """Keys are paths such as ``guard/main/12``. Every method may be called from any thread.

    Every method raises a PyReactantError if the store or the connection to it is lost.
    """

    def put(self, key: str, value: str) -> None:
        """Set a key; a value that it has is replaced."""

    def get(self, key: str, timeout: float) -> str | None:
        """Wait for a key's value; None if it has none within `timeout` seconds."""

    def delete(self, prefix: str) -> None:
        """Delete this key, and all keys that begin with it and a slash."""


PRECISIONS = ("default", "high", "highest")
"""Precision of products, as JAX and XLA name it; "highest" is float32 for float32 inputs."""


def check_precision(precision: str | None) -> None:
    """Check the name of a precision; InvalidArgumentError has the known ones."""
    if precision is not None and precision not in PRECISIONS:
        raise InvalidArgumentError(
            f"unknown precision {precision!r}; known are: {', '.join(PRECISIONS)}"
        )


DIGEST_WORDS = 4
"""Words of 32 bits of the digest of a block."""

FORCED_CPU_DEVICES = "xla_force_host_platform_device_count"
"""XLA's flag for the number of CPU devices."""

_DEFAULT_CPU_DEVICES = 8


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Arguments of `initialize` besides the process group; None if not given."""

    platform: str | None = None
    num_cpu_devices: int | None = None
    initialization_timeout: float = 60.0
    heartbeat_timeout: float = 30.0
    compile_cache: str | None = None

    def cpu_devices(self, num_processes: int) -> int | None:
        """Number of CPU devices to request from XLA; None to leave it to XLA.

        Raises:
            StateError: XLA_FLAGS sets the number too.
        """
        forced = FORCED_CPU_DEVICES in os.environ.get("XLA_FLAGS", "")
        if self.num_cpu_devices is not None and forced:
            raise StateError(
                f"{argument('num_cpu_devices', self.num_cpu_devices)} was requested, but XLA_FLAGS "
                f"sets {FORCED_CPU_DEVICES} too; keep one of them"
            )
        if self.num_cpu_devices is None and num_processes == 1 and not forced:
            return _DEFAULT_CPU_DEVICES  # beside a GPU or TPU they cost nothing
        return self.num_cpu_devices


@dataclass(frozen=True, slots=True)
class Call:
    """A program and the arguments to lower it for; validated.

    Attributes:
        program: The program.
        structure: Structure of the tuple of arguments (`Trees.flatten`).
        avals: Description of each array of the arguments.
        out_sharding: Sharding of all results, a tree of them that is a prefix of the results'
            structure, or None for the compiler's choice; None may also stand in the tree.
        precision: Precision of products; None is the runtime's default.
        static: Keyword arguments of the body.
        donate: Numbers of the arguments whose memory the program may reuse.
        x64: Whether 64-bit types are asked for although no argument has one.
    """

    program: Program
    structure: Any
    avals: tuple[Aval, ...]
    out_sharding: Any = None
    precision: str | None = None
    static: Mapping[str, Any] = field(default_factory=dict)
    donate: tuple[int, ...] = ()
    x64: bool = False

    @property
    def meshes(self) -> tuple[Mesh, ...]:
        """The different meshes of the arguments."""
        return tuple(dict.fromkeys(aval.sharding.mesh for aval in self.avals))

    def donated(self, trees: Trees) -> tuple[int, ...]:
        """Numbers of the arrays that are donated."""
        numbers = trees.unflatten(self.structure, range(len(self.avals)))
        return tuple(n for position in self.donate for n in trees.flatten(numbers[position])[0])

    def result_shardings(
        self, trees: Trees, results: Any, shapes: Sequence[tuple[int, ...]]
    ) -> list[NamedSharding | None]:
        """The sharding that is asked for each result; None leaves it to the compiler.

        Args:
            trees: How the runtime flattens trees.
            results: The tree of results.
            shapes: Shape of each result.

        Raises:
            InvalidArgumentError: `out_sharding` has another structure than the results.
            ShardingError: A sharding does not fit the shape of its result.
        """
        if self.out_sharding is None:
            return [None] * len(shapes)
        what = f"program {self.program.name!r}: out_sharding"
        shardings: list[NamedSharding | None] = broadcast(
            trees, self.out_sharding, results, is_out_sharding, what, "the result"
        )
        for number, (shape, sharding) in enumerate(zip(shapes, shardings, strict=True)):
            try:
                if sharding is not None:
                    sharding.shard_shape(shape)
            except ShardingError as error:
                raise ShardingError(
                    f"{what} does not fit output {number} of shape {shape}: {error}"
                ) from None
        return shardings


def is_out_sharding(node: object) -> bool:
    """Whether a node of a tree of output shardings is an entry: a sharding, or None."""
    return node is None or isinstance(node, NamedSharding)


@dataclass(frozen=True, slots=True)
class Executable:
    """A compiled program.

    Attributes:
        run: Takes and returns lists of the runtime's own arrays. It waits for the program before
            if the platform cannot have several in flight.
        structure: Structure of the results.
        avals: Shape, dtype and sharding of each result.
        text: StableHLO ("stablehlo") or optimised HLO ("hlo") of the program.
        memory: The runtime's own analysis of memory, or None.
    """

    run: Callable[..., Sequence[Any]]
    structure: Any
    avals: tuple[Aval, ...]
    text: Callable[[str], str]
    memory: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program before XLA compiles it.

    Attributes:
        text: Its StableHLO.
        structure: Structure of the results.
        reusable: Whether an equal text computes the same. Python callbacks are not in the text.
        compile: Compile it; collective in effect.
    """

    text: str
    structure: Any
    reusable: bool
    compile: Callable[[], Executable]


_TREES = OpTrees()


class AbstractBackend(abc.ABC):
    """One runtime in this process, from `start` to `shutdown`.

    Attributes:
        group: The processes; `start` sets it.
    """

    name: ClassVar[str]
    group = ProcessGroup()

    def running_group(self) -> ProcessGroup | None:
        """The processes that the runtime has joined before `start`, without our help."""
        return None

    @abc.abstractmethod
    def start(self, group: ProcessGroup, options: StartOptions) -> None:
        """Start before any device is used. Collective if there are several processes.

        Afterwards the platform and the numbers of processes and CPU devices are as requested.
        Otherwise it raises, and nothing else of the runtime may be called.
        """

    def dtypes(self) -> frozenset[str]:
        """Names of the element types that the runtime holds unchanged on this platform."""
        on_tpu = self.devices()[0].platform == "tpu"
        return frozenset(NAMES) - ({"complex128"} if on_tpu else set())

    def store(self) -> Store | None:
        """Where the processes keep small texts for each other; None for a single process."""
        return None

    @abc.abstractmethod
    def devices(self) -> tuple[Device, ...]:
        """All devices of the run, by process and then by the runtime's id.

        ``devices()[i].position == i``, and the tuple is equal on every process.
        """

    @functools.cached_property
    def local_positions(self) -> frozenset[int]:
        """Positions of this process's devices."""
        mine = self.group.process_index
        return frozenset(d.position for d in self.devices() if d.process_index == mine)

    def hardware_order(self, shape: tuple[int, ...], split: bool | None) -> tuple[int, ...] | None:
        """Positions of all devices, row-major over a mesh of this shape, as the network suits.

        Args:
            shape: Number of devices along each mesh axis; their product is the number of devices.
            split: As `allow_split_physical_axes` of `make_mesh`.

        Returns:
            None if the runtime does not know where its devices are.

        Raises:
            ShardingError: There is no order for this shape.
        """
        return None

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
        *,
        owned: bool = False,
    ) -> Any:
        """Place an array, calling `read` once per distinct block of this process.

        Blocks lie where ``sharding.devices_indices_map(shape)`` says. Shape and dtype are
        never changed. Later writes to the memory that `read` returned have no effect; with `owned`
        there are none, and the memory may become the array's.
        """

    @property
    def trees(self) -> Trees:
        """How arguments and results are flattened."""
        return _TREES

    def free_memory(self, position: int) -> int | None:
        """Bytes that are free on a device of this process; None if it shares the host's memory."""
        return None

    def block_digests(self, value: Any) -> Mapping[int, np.ndarray]:
        """A digest, uint32[4], of the bits of each block of this process, by device position.

        Here the host reads the blocks; where the runtime can, the device that holds one digests it.
        """
        return {
            shard.device.position: np.frombuffer(
                hashlib.blake2b(shard.data.tobytes(), digest_size=4 * DIGEST_WORDS).digest(),
                np.uint32,
            )
            for shard in self.addressable_shards(value)
        }

    def copied(self, value: Any) -> Any:
        """The same array, in memory that a program to which it is donated may take.

        It is the array itself where programs do not take the memory of their arguments.
        """
        return value

    @abc.abstractmethod
    def is_built_in(self, program: Program) -> bool:
        """Whether a program's body cannot change while this process runs."""

    @abc.abstractmethod
    def body_of(self, program: Program) -> Any:
        """What a program's name leads to now; another value after a redefinition."""

    def settings(self) -> Any:
        """The runtime's own settings that change what a program computes, as part of a key."""
        return None

    def number(self, value: bool | int | float | complex) -> np.ndarray:
        """A number of Python as an array of the dtype that the runtime's users expect."""
        return np.asarray(value)

    @abc.abstractmethod
    def lower(self, call: Call) -> Lowered:
        """Lower a program for the arguments' shapes, dtypes and shardings; runs nothing.

        The body is traced anew at every call. Every process must lower, compile and call the
        same programs in the same order.
        """

    def expose(self, value: Any) -> Any:
        """The runtime's own array for its user, who works outside of this package."""
        return value

    def to_jax(self, thing: Any) -> Any:
        """JAX's form of an array, a mesh or a sharding."""
        raise StateError(
            f"to_jax needs the runtime 'jax', but this process runs {self.name!r}; one process has "
            "one runtime for its whole life"
        )

    def from_jax(self, array: Any) -> tuple[Any, Aval]:
        """The runtime's own array and its description, for a `jax.Array`."""
        raise StateError(
            f"from_jax needs the runtime 'jax', but this process runs {self.name!r}; give "
            "device_put a NumPy array"
        )

    def key_numbers(self, key: Any) -> tuple[Any, str]:
        """The numbers in typed PRNG keys as a `jax.Array`, and the keys' implementation."""
        raise self._no_keys()

    def wrap_keys(self, numbers: Any, impl: str, sharding: NamedSharding | None) -> Any:
        """Typed PRNG keys with these numbers: placed ones, or from the host if None is given."""
        raise self._no_keys()

    def _no_keys(self) -> DTypeError:
        return DTypeError(
            f"keys of jax.random are arrays of JAX's own, and this process runs {self.name!r}; "
            "place jax.random.key_data of it, or an integer seed"
        )

    def mesh_from_jax(self, mesh: Any) -> Mesh:
        """Our form of a `jax.sharding.Mesh`."""
        raise StateError(
            f"a mesh of JAX needs the runtime 'jax', but this process runs {self.name!r}; use "
            "pyreactant.Mesh"
        )

    @abc.abstractmethod
    def addressable_shards(self, value: Any) -> list[Shard]:
        """The blocks on this process's devices by device position, with the runtime's own indices.

        The indices equal the placement oracle's. Never communicates.
        """

    def is_fully_addressable(self, mesh: Mesh) -> bool:
        """Whether all devices of a mesh belong to this process."""
        return (
            self.group.num_processes == 1
            or len(mesh.positions_of(self.local_positions)) == mesh.size
        )

    @abc.abstractmethod
    def gather(self, value: Any, sharding: NamedSharding) -> np.ndarray:
        """The whole array in C order on every process. Collective."""

    @abc.abstractmethod
    def block_until_ready(self, value: Any) -> None:
        """Wait until the blocks on this process's devices are computed."""

    @abc.abstractmethod
    def barrier(self, name: str, timeout: float) -> None:
        """Wait at most `timeout` seconds until every process has called this. Collective.

        A name serves one barrier only.

        Raises:
            DeadlineError: A process did not call it in time.
        """

    @abc.abstractmethod
    def shutdown(self) -> None:
        """End the runtime cleanly. Collective."""
