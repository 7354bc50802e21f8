"""A runtime of the tests: arrays are NumPy blocks, and processes meet as those of Reactant do.

Programs are lowered by calling their body with arrays that note each operation, and run on gathered
arrays. Gathering goes through the run's store and waits for every process, as collectives do.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from pyreactant.arrays.backend import (
    AbstractBackend,
    Call,
    Executable,
    Lowered,
    StartOptions,
    Store,
)
from pyreactant.arrays.program import Program, load
from pyreactant.arrays.runtimes import runtime
from pyreactant.arrays.runtimes.reactant.meeting import Meeting, meet
from pyreactant.arrays.sharding import Aval, Device, Index, NamedSharding, Shard
from pyreactant.base.process import end_at_once_on_error
from pyreactant.process.group import ProcessGroup

DEVICES = 2  # of each process, unless num_cpu_devices says otherwise
_COLLECTIVE = 3600.0  # seconds that a collective waits, as that of a real runtime


def add() -> None:
    """From now on `pyreactant.initialize("numpy")` starts this runtime."""
    runtime.BACKENDS["numpy"] = ("tests.numpy_backend:NumpyBackend", "numpy")


class Blocks(NamedTuple):
    """An array: the blocks on this process's devices, by the positions of these."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sharding: NamedSharding
    blocks: dict[int, np.ndarray]


@final
class NumpyBackend(AbstractBackend):
    """NumPy, in one process or many."""

    name: ClassVar[str] = "numpy"

    def __init__(self) -> None:
        self._devices: tuple[Device, ...] = ()
        self._meeting: Meeting | None = None
        self._collectives = 0

    def start(self, group: ProcessGroup, options: StartOptions) -> None:
        self.group = group
        count = options.num_cpu_devices or DEVICES
        if group.num_processes > 1:
            end_at_once_on_error()
            self._meeting = meet(group, options.initialization_timeout, options.heartbeat_timeout)
        self._devices = tuple(
            Device(i, i // count, i, "cpu", "NumPy") for i in range(count * group.num_processes)
        )

    def store(self) -> Store | None:
        return self._meeting

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def versions(self) -> dict[str, str]:
        return {"numpy": np.__version__}

    def from_blocks(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        sharding: NamedSharding,
        read: Callable[[Index], np.ndarray],
        *,
        owned: bool = False,
    ) -> Blocks:
        blocks: dict[int, np.ndarray] = {}
        mine = sharding.mesh.positions_of(self.local_positions)
        for index, positions in sharding.block_holders(mine, shape).values():
            blocks |= dict.fromkeys(positions, np.array(read(index), dtype, order="C"))
        return Blocks(shape, dtype, sharding, blocks)

    def is_built_in(self, program: Program) -> bool:
        return False

    def body_of(self, program: Program) -> Any:
        return load(program, "jax")

    def lower(self, call: Call) -> Lowered:
        body = load(call.program, "jax")
        noted = [f"module @{call.program.name} {{"]
        traced = [
            Traced(np.zeros(aval.shape, aval.dtype), f"%arg{number}", noted)
            for number, aval in enumerate(call.avals)
        ]
        results = body(*self.trees.unflatten(call.structure, traced), **call.static)
        leaves, structure = self.trees.flatten(results, lambda node: isinstance(node, Traced))
        noted += [f"return {', '.join(leaf.name for leaf in leaves)}", "}"]
        replicated = NamedSharding(call.meshes[0], ())
        given = call.out_sharding
        shardings = [given if isinstance(given, NamedSharding) else replicated for _ in leaves]
        avals = tuple(
            Aval(leaf.value.shape, leaf.value.dtype, sharding)
            for leaf, sharding in zip(leaves, shardings, strict=True)
        )

        def run(*values: Blocks) -> list[Blocks]:
            whole = [self.gather(value, value.sharding) for value in values]
            tree = body(*self.trees.unflatten(call.structure, whole), **call.static)
            return [
                self.from_blocks(aval.shape, aval.dtype, aval.sharding, np.asarray(x).__getitem__)
                for x, aval in zip(self.trees.flatten(tree)[0], avals, strict=True)
            ]

        text = "\n".join(noted)
        executable = Executable(run, structure, avals, lambda stage: text, lambda: None)
        return Lowered(text, structure, True, lambda: executable)

    def addressable_shards(self, value: Blocks) -> list[Shard]:
        indices = self._mine(value.sharding, value.shape)
        return [
            Shard(self._devices[position], indices[position], lambda block=block: block)  # type: ignore[misc]
            for position, block in sorted(value.blocks.items())
        ]

    def gather(self, value: Blocks, sharding: NamedSharding) -> np.ndarray:
        whole = np.empty(value.shape, value.dtype)
        for parts in self._exchange(value):
            for index, data in parts:
                place = tuple(slice(*ends) for ends in index)
                whole[place] = np.frombuffer(base64.b64decode(data), value.dtype).reshape(
                    whole[place].shape
                )
        return whole

    def block_until_ready(self, value: Blocks) -> None:
        """Blocks are computed at once."""

    def barrier(self, name: str, timeout: float) -> None:
        if self._meeting is not None:
            self._meeting.barrier(name, timeout)

    def shutdown(self) -> None:
        if self._meeting is not None:
            self._meeting.barrier("shutdown", 30)
            self._meeting.close()

    def _exchange(self, value: Blocks) -> list[Any]:
        """The blocks of every process, as places and texts. Collective."""
        indices = self._mine(value.sharding, value.shape)
        distinct = {str(indices[position]): position for position in value.blocks}
        mine = [
            (
                [(s.start, s.stop) for s in indices[position]],
                base64.b64encode(value.blocks[position].tobytes()).decode(),
            )
            for position in distinct.values()
        ]
        if self._meeting is None:
            return [mine]
        self._collectives += 1
        return self._meeting.exchange(f"gather/{self._collectives}", mine, _COLLECTIVE)

    def _mine(self, sharding: NamedSharding, shape: Sequence[int]) -> dict[int, Index]:
        return sharding.indices_of(sharding.mesh.positions_of(self.local_positions), shape)


class Traced(NDArrayOperatorsMixin):
    """An array that notes what is done with it."""

    def __init__(self, value: np.ndarray, name: str, noted: list[str]) -> None:
        self.value = value
        self.name = name
        self.noted = noted

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.dtype

    @property
    def T(self) -> "Traced":
        return self._note("transpose", (self,), {}, self.value.T)

    def sum(self, axis: int | None = None) -> Any:
        return np.sum(self, axis=axis)  # type: ignore[call-overload]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> "Traced":
        result = getattr(ufunc, method)(*map(_plain, inputs), **options)
        return self._note(f"{ufunc.__name__}.{method}", inputs, options, result)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> "Traced":
        kept = {name: value for name, value in options.items() if value is not np._NoValue}
        result = function(*map(_plain, args), **{n: _plain(v) for n, v in kept.items()})
        return self._note(function.__name__, args, kept, result)

    def _note(self, what: str, inputs: Any, options: Any, result: Any) -> "Traced":
        name = f"%{len(self.noted)}"
        words = [x.name if isinstance(x, Traced) else repr(x) for x in inputs]
        words += [f"{key}={value!r}" for key, value in options.items()]
        value = np.asarray(result)
        self.noted.append(f"  {name} = {what}({', '.join(words)}) : {value.dtype}{value.shape}")
        return Traced(value, name, self.noted)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Traced) else value
