"""A deliberately broken runtime: the real one with one fault."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

import pyreactant as pr
from pyreactant.arrays import backend
from pyreactant.arrays.array import ShardedArray
from pyreactant.arrays.backend import AbstractBackend, Executable, StartOptions
from pyreactant.arrays.program import Program
from pyreactant.arrays.runtimes.runtime import Recent, current
from pyreactant.arrays.sharding import Index, NamedSharding, Shard
from pyreactant.arrays.tree import Trees
from pyreactant.base.errors import ShardingError
from pyreactant.check.programs.case import Case
from pyreactant.check.records.verdict import Kind
from pyreactant.process.group import ProcessGroup

Blocks = dict[int, np.ndarray]
"""What each device of this process holds, by position."""


class NotApplicableError(Exception):
    """The mutant does not apply to this program in this layout."""


@dataclass(frozen=True)
class Call:
    """One call of a program by the broken runtime.

    Attributes:
        case: The program.
        args: Arguments of the program.
        shardings: Requested shardings of the outputs.
        shapes: Shapes of the outputs.
        program: The program that is compiled.
        static: Static arguments of the program.
        outs: Outputs of the real runtime.
        run: Calls the real runtime and returns its arrays. Collective.
        shards: Reads the real runtime's arrays.
        place: Places other host arrays with the shardings of the arguments.
        previous: Blocks of each output from the previous call; None for the first call.
    """

    case: Case
    args: Sequence[ShardedArray]
    shardings: Sequence[NamedSharding]
    shapes: Sequence[tuple[int, ...]]
    program: Program
    static: Mapping[str, Any]
    outs: Sequence[Any]
    run: Callable[..., list[Any]]
    shards: Callable[[Any], list[Shard]]
    place: Callable[[Sequence[np.ndarray]], list[Any]]
    previous: list[Blocks] | None

    def blocks(self, values: Sequence[Any]) -> list[Blocks]:
        """Blocks of the arrays of the real runtime."""
        return [
            {shard.device.position: np.array(shard.data) for shard in self.shards(value)}
            for value in values
        ]

    def right(self) -> list[Blocks]:
        """The right blocks of the outputs."""
        return self.blocks(self.outs)

    def again(self, args: Sequence[np.ndarray]) -> list[Blocks]:
        """Blocks of the outputs for other arguments. Collective."""
        return self.blocks(self.run(*self.place(args)))

    def whole(self) -> list[np.ndarray]:
        """The arguments as whole arrays. Collective."""
        return [arg.gather() for arg in self.args]


class Mutant:
    """One fault; this base class changes nothing."""

    kind: ClassVar[Kind | None] = None
    honest = True
    """Whether the arrays report the sharding of the real runtime, not the requested one."""

    def __init__(self, name: str) -> None:
        self.name = name

    def mesh(self, mesh: pr.Mesh) -> pr.Mesh:
        """The mesh that the real runtime gets for the outputs."""
        return mesh

    def blocks(self, call: Call) -> list[Blocks] | None:
        """The blocks that are returned; None for those of the real runtime."""
        return None


@dataclass(frozen=True, slots=True)
class _Value:
    """An output of the broken runtime: the real output, and the blocks that replace its own."""

    real: Any
    sharding: NamedSharding
    shape: tuple[int, ...]
    blocks: Blocks | None


class Broken(AbstractBackend):
    """A runtime that differs from the real one only in what the mutant changes."""

    name = "jax"

    def __init__(self, real: AbstractBackend, case: Case, mutant: Mutant) -> None:
        self._real, self.group = real, real.group
        self._case = case
        self._mutant = mutant
        self._previous: list[Blocks] | None = None

    def start(self, group: ProcessGroup, options: StartOptions) -> None:
        raise NotImplementedError

    def dtypes(self) -> frozenset[str]:
        return self._real.dtypes()

    def devices(self) -> tuple[pr.Device, ...]:
        return self._real.devices()

    def from_blocks(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        sharding: NamedSharding,
        read: Callable[[Index], np.ndarray],
        *,
        owned: bool = False,
    ) -> Any:
        return self._real.from_blocks(shape, dtype, sharding, read, owned=owned)

    @property
    def trees(self) -> Trees:
        return self._real.trees

    def is_built_in(self, program: Program) -> bool:
        return self._real.is_built_in(program)

    def body_of(self, program: Program) -> Any:
        return self._real.body_of(program)

    def lower(self, call: backend.Call) -> backend.Lowered:
        requested = self._shardings(call)
        real = [NamedSharding(self._mutant.mesh(s.mesh), s.spec) for s in requested]
        executable = self._compile(call, real)
        run = partial(self._run, call, requested, executable)
        avals = tuple(
            replace(aval, sharding=sharding)
            for aval, sharding in zip(executable.avals, requested, strict=True)
        )
        broken = replace(executable, run=run, avals=avals)
        return backend.Lowered("", executable.structure, False, lambda: broken)

    def _shardings(self, call: backend.Call) -> list[NamedSharding]:
        found = self.trees.flatten(call.out_sharding, lambda s: isinstance(s, NamedSharding))[0]
        return list(found)

    def _run(
        self,
        lowered: backend.Call,
        requested: Sequence[NamedSharding],
        executable: Executable,
        *values: Any,
    ) -> list[Any]:
        args = [ShardedArray(v, aval, self) for v, aval in zip(values, lowered.avals, strict=True)]

        def place(arrays: Sequence[np.ndarray]) -> list[Any]:
            return [
                self._real.from_blocks(a.shape, a.dtype, arg.sharding, a.__getitem__)
                for a, arg in zip(arrays, args, strict=True)
            ]

        shapes = [aval.shape for aval in executable.avals]
        outs = list(executable.run(*values))
        call = Call(
            self._case,
            args,
            requested,
            shapes,
            lowered.program,
            lowered.static,
            outs,
            lambda *those: list(executable.run(*those)),
            self._real.addressable_shards,
            place,
            self._previous,
        )
        blocks = self._mutant.blocks(call)
        self._previous = call.blocks(outs)
        return [
            _Value(out, sharding, shape, blocks[number] if blocks else None)
            for number, (out, sharding, shape) in enumerate(
                zip(outs, requested, shapes, strict=True)
            )
        ]

    def _compile(self, call: backend.Call, real: Sequence[NamedSharding]) -> Executable:
        """Compile for the mutant's meshes, and cache compiled programs for other mutants."""
        key = (call.program, call.avals, tuple(real), call.precision, tuple(call.static.items()))
        mesh = real[0].mesh
        if key not in _compiled:
            avals = tuple(
                replace(aval, sharding=NamedSharding(mesh, aval.sharding.spec))
                for aval in call.avals
            )
            _, structure = self.trees.flatten(
                call.out_sharding, lambda s: isinstance(s, NamedSharding)
            )
            there = replace(
                call,
                avals=avals,
                out_sharding=self.trees.unflatten(structure, real),
            )
            _compiled[key] = self._real.lower(there).compile()
        executable = _compiled[key]

        def run(*values: Any) -> Any:
            arrays = [
                ShardedArray(v, aval, self) for v, aval in zip(values, call.avals, strict=True)
            ]
            return executable.run(*(self._moved(a, mesh)._value for a in arrays))

        return replace(executable, run=run)

    def _moved(self, array: ShardedArray, mesh: pr.Mesh) -> ShardedArray:
        """The array on the mutant's mesh, as if it had been placed there originally."""
        sharding = array.sharding
        if (mesh.device_ids, mesh.axis_names) == (
            sharding.mesh.device_ids,
            sharding.mesh.axis_names,
        ):
            return array
        whole, sharding = array.gather(), NamedSharding(mesh, sharding.spec)
        value = self._real.from_blocks(whole.shape, whole.dtype, sharding, whole.__getitem__)
        return ShardedArray(value, replace(array.aval, sharding=sharding), self._real)

    def addressable_shards(self, value: Any) -> list[Shard]:
        if not isinstance(value, _Value):
            return self._real.addressable_shards(value)
        shards = self._real.addressable_shards(value.real)
        if not self._mutant.honest:
            requested = value.sharding.devices_indices_map(value.shape)
            shards = [Shard(s.device, requested[s.device.position], s._read) for s in shards]
        if value.blocks is None:
            return shards
        blocks = value.blocks
        return [_with(shard, blocks[shard.device.position]) for shard in shards]

    def gather(self, value: Any, sharding: NamedSharding) -> np.ndarray:
        return self._real.gather(value, sharding)

    def block_until_ready(self, value: Any) -> None:
        self._real.block_until_ready(value.real if isinstance(value, _Value) else value)

    def barrier(self, name: str, timeout: float) -> None:
        self._real.barrier(name, timeout)

    def shutdown(self) -> None:
        self._real.shutdown()


_compiled: dict[Any, Executable] = {}


@contextlib.contextmanager
def broken(case: Case, mutant: Mutant) -> Iterator[None]:
    """Replace the process's runtime by a broken one within the block."""
    running = current()
    real, cache = running.backend, running.cache
    running.backend, running.cache = Broken(real, case, mutant), Recent()
    try:
        yield
    except ShardingError as error:
        raise NotApplicableError(str(error)) from error
    finally:
        running.backend, running.cache = real, cache


def _with(shard: Shard, block: np.ndarray) -> Shard:
    return Shard(shard.device, shard.index, lambda: block)
