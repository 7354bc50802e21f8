"""The Reactant runtime: Reactant.jl through the Julia package PyReactant."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar, final

import numpy as np

from ..._core.array import Aval, ShardedArray
from ..._core.backend import AbstractBackend, Capabilities, Executable, StartOptions
from ..._core.device import Device, Shard
from ..._core.dtypes import EXTENDED, NAMES, as_dtype
from ..._core.mesh import Mesh
from ..._core.program import Program
from ..._core.sharding import Index, NamedSharding
from ..._errors import InvalidArgumentError, ShardingError
from ...process_group import ProcessGroup
from . import julia
from .julia import call
from .meeting import Meeting
from .setup import start


def find_sharding(
    meshes: Iterable[Mesh], shape: tuple[int, ...], placement: Mapping[int, Index]
) -> NamedSharding | None:
    """A sharding whose placement oracle equals a placement, on the first mesh that has one.

    Args:
        meshes: Where to look, in order of preference.
        shape: Global shape.
        placement: For each device position the block that it holds.

    Returns:
        The sharding with the fewest axes, or None where no partition spec says this.
    """
    for mesh in meshes:
        if set(mesh.device_ids) != set(placement):
            continue
        entries = [_axes(mesh, dimension, placement) for dimension in range(len(shape))]
        if None in entries:
            continue
        while entries and not entries[-1]:
            entries.pop()
        used = [axis for entry in entries for axis in entry or ()]
        if len(used) != len(set(used)):
            continue
        found = NamedSharding(mesh, entries)
        if _equals(found, shape, placement):
            return found
    return None


def _axes(mesh: Mesh, dimension: int, placement: Mapping[int, Index]) -> tuple[str, ...] | None:
    """The mesh axes that cut a dimension, major to minor; None if no axes explain its blocks."""
    starts = np.array([placement[d][dimension].start for d in mesh.device_ids])
    grid = np.searchsorted(np.unique(starts), starts).reshape(mesh.shape)
    steps = {}
    for number, (axis, size) in enumerate(zip(mesh.axis_names, mesh.shape, strict=True)):
        if size > 1:
            # The distance in blocks from the first device to the next along this axis.
            step = int(np.take(grid, 1, axis=number).flat[0] - grid.flat[0])
            if step:
                steps[axis] = step
    axes = sorted(steps, key=lambda axis: -steps[axis])
    sizes = [mesh.axis_size(axis) for axis in axes]
    strides = [*itertools.accumulate(reversed([*sizes, 1]), lambda a, b: a * b)][::-1][1:]
    return tuple(axes) if [steps[axis] for axis in axes] == strides else None


def _equals(
    sharding: NamedSharding, shape: tuple[int, ...], placement: Mapping[int, Index]
) -> bool:
    if any(size % cut for size, cut in zip(shape, sharding.cuts(len(shape)), strict=True)):
        return False
    return sharding.devices_indices_map(shape) == dict(placement)


_SHUTDOWN_TIMEOUT = 30.0


@final
class ReactantBackend(AbstractBackend):
    """Reactant on CPU, GPU or TPU, in one process or many."""

    name: ClassVar[str] = "reactant"

    def __init__(self) -> None:
        self._group = ProcessGroup()
        self._julia: Any = None
        self._meeting: Meeting | None = None
        self._devices: tuple[Device, ...] = ()
        self._position: dict[int, int] = {}
        self._barriers: dict[str, int] = {}

    def start(self, group: ProcessGroup, options: StartOptions) -> None:
        self._group = group
        self._julia, self._devices, self._meeting = start(group, options)
        self._position = {d.id: d.position for d in self._devices}

    def capabilities(self) -> Capabilities:
        held = set(NAMES)
        if self._devices[0].platform == "tpu":
            held -= {"complex128"}
        return Capabilities(dtypes=frozenset(held), multi_process=True)

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def versions(self) -> dict[str, str]:
        return {str(name): str(version) for name, version in call(self._julia.versions)}

    def from_blocks(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        sharding: NamedSharding,
        read: Callable[[Index], np.ndarray],
    ) -> Any:
        indices = sharding.devices_indices_map(shape)
        holders: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for position, index in indices.items():
            if self._is_local(position):
                holders.setdefault(tuple((s.start, s.stop) for s in index), []).append(position)
        blocks = tuple(as_bits(read(indices[positions[0]])) for positions in holders.values())
        ids = tuple(tuple(self._devices[p].id for p in positions) for positions in holders.values())
        placed = _placed(self, sharding)
        return call(self._julia.from_blocks, dtype.name, shape, placed, ids, *blocks)

    def compile(
        self,
        program: Program,
        args: Sequence[ShardedArray],
        out_sharding: Any,
        precision: str | None,
        static: Mapping[str, Any],
    ) -> Executable:
        name, project = _function(program)
        given, wanted = _listed(out_sharding), self._wanted(out_sharding)
        _check_static(program, static)
        compiled = call(
            self._julia.compile,
            name,
            project,
            tuple(a.value for a in args),
            wanted,
            precision or "",
            tuple(static.items()),
        )
        rows = call(self._julia.outputs, compiled)
        if out_sharding is None:
            meshes = list(dict.fromkeys(a.sharding.mesh for a in args))
            given = tuple(self._chosen(program, i, row, meshes) for i, row in enumerate(rows))
            call(self._julia.settle, compiled, tuple(_placed(self, s) for s in given))
        elif len(given) == 1:
            given *= len(rows)  # one sharding for all outputs, as in JAX
        avals = tuple(
            Aval(_whole_numbers(row[1]), as_dtype(str(row[0])), sharding)
            for row, sharding in zip(rows, given, strict=True)
        )
        text = partial(call, self._julia.text, compiled)
        run = partial(call, compiled)
        single = bool(call(self._julia.is_single, compiled))
        return Executable(run, avals, single, lambda stage: str(text(stage)))

    def lower(
        self,
        program: Program,
        args: Sequence[Aval],
        out_sharding: Any,
        precision: str | None,
        static: Mapping[str, Any],
    ) -> str:
        """StableHLO of a program for described arguments, which are never made."""
        name, project = _function(program)
        _check_static(program, static)
        inputs = tuple((a.dtype.name, a.shape, _placed(self, a.sharding)) for a in args)
        text = call(
            self._julia.lower,
            name,
            project,
            inputs,
            self._wanted(out_sharding),
            precision or "",
            tuple(static.items()),
        )
        return str(text)

    def _wanted(self, out_sharding: Any) -> tuple[Any, ...] | None:
        if out_sharding is None:
            return None
        return tuple(_placed(self, s) for s in _listed(out_sharding))

    def addressable_shards(self, value: Any) -> list[Shard]:
        dtype = as_dtype(str(call(self._julia.dtype_of, value)))
        shards = []
        for number, (device, starts, stops) in enumerate(call(self._julia.shards, value)):
            index = _index(starts, stops)
            into = partial(self._read_into, value, number)
            read = partial(_read, into, index, dtype)
            shards.append(Shard(self._devices[self._position[int(device)]], index, read, into))
        return sorted(shards, key=lambda s: s.device.position)

    def is_fully_addressable(self, mesh: Mesh) -> bool:
        return self._group.num_processes == 1 or all(map(self._is_local, mesh.device_ids))

    def gather(self, value: Any, sharding: NamedSharding) -> np.ndarray:
        dtype = as_dtype(str(call(self._julia.dtype_of, value)))
        whole = np.empty(_whole_numbers(call(self._julia.shape_of, value)), dtype)
        call(self._julia.gather, value, as_bits(whole))
        return whole

    def block_until_ready(self, value: Any) -> None:
        call(self._julia.wait, value)

    def barrier(self, name: str, timeout: float) -> None:
        if self._meeting is not None:
            # A name serves one barrier only, so each use adds its number.
            self._barriers[name] = self._barriers.get(name, 0) + 1
            self._meeting.barrier(f"{name}/{self._barriers[name]}", timeout)

    def shutdown(self) -> None:
        if self._meeting is not None:
            # Reactant ends with the process. By then no other process may wait for this one.
            self._meeting.barrier("pyreactant/shutdown", _SHUTDOWN_TIMEOUT)
            self._meeting.close()

    def _is_local(self, position: int) -> bool:
        return self._devices[position].process_index == self._group.process_index

    def _read_into(self, value: Any, number: int, out: np.ndarray) -> None:
        call(self._julia.read_shard, value, number, as_bits(out))

    def _chosen(
        self, program: Program, number: int, row: Any, meshes: Sequence[Mesh]
    ) -> NamedSharding:
        """The NamedSharding of a placement that the compiler chose."""
        shape = _whole_numbers(row[1])
        placement = {
            self._position[int(device)]: _index(starts, stops) for device, starts, stops in row[2]
        }
        found = find_sharding(meshes, shape, placement)
        if found is None:
            blocks = ", ".join(
                f"device {p}: {[f'{s.start}:{s.stop}' for s in placement[p]]}"
                for p in sorted(placement)[:8]
            )
            raise ShardingError(
                f"program {program.name!r}: the compiler placed output {number} of shape {shape} "
                f"in a way that no mesh of the arguments describes ({blocks}); give out_sharding="
            )
        return found


def _listed(out_sharding: Any) -> tuple[Any, ...]:
    return out_sharding if isinstance(out_sharding, tuple) else (out_sharding,)


def _function(program: Program) -> tuple[str, str]:
    """The name of a program's Julia body, and the folder of its project or ""."""
    if program.julia is None:
        raise InvalidArgumentError(
            f"Program {program.name!r} has no julia body; give julia='Module.function'"
        )
    if program.julia_project is None:
        return program.julia, ""
    what = f"Program {program.name!r}"
    return program.julia, str(julia.project_folder(program.julia_project, what))


@lru_cache(maxsize=256)
def _placed(backend: ReactantBackend, sharding: NamedSharding) -> Any:
    """Julia's form of a sharding. It has tuples only, because Reactant refuses lists in a spec."""
    julia, mesh = backend._julia, sharding.mesh
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


def _index(starts: Sequence[Any], stops: Sequence[Any]) -> Index:
    return tuple(slice(int(a), int(b)) for a, b in zip(starts, stops, strict=True))


def _whole_numbers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(n) for n in values)


def _check_static(program: Program, static: Mapping[str, Any]) -> None:
    for name, value in static.items():
        if not _is_plain(value):
            raise InvalidArgumentError(
                f"program {program.name!r}: static argument {name!r} must be a number, a text, "
                f"None or a tuple of these to reach Julia, got {type(value).__name__}"
            )


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, complex, str))
