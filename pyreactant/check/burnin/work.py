"""What a round does on the devices of this process, and what it measures.

Programs are compiled for single devices, and for the devices of some processes: the others neither
compile nor run them. So they come from the runtime itself, not from `pyreactant.compile`, which is
collective.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.backend import AbstractBackend, Call, Executable
from ...arrays.mesh import Mesh
from ...arrays.mixed import mixed
from ...arrays.program import Program
from ...arrays.sharding import Aval, NamedSharding
from ...base.counted import counted
from ...base.facts import available_memory
from ...process import progress
from ..product import whole
from .host import Gpus, segments
from .record import Measure, merged
from .rounds import Round, What

REPEATS = 5
"""Copies, and calls of a collective operation, in a round."""

MANY = 17
"""Calls of what is quick, and of products: after one that compiles, as many times as are kept."""

_QUICK = 2**16
"""Bytes from each device up to which a transfer is quick."""

_SPELLS, _SPELL, _PIECES = 16, 1 / 16, 1000
"""Spells of arithmetic on the host, the seconds of each, about a period of a quota, and the pieces
whose time is told."""

_BLOCK = 2**26
"""Words of a block of tested memory, at most."""

_SHARE = 0.5
"""Share of an accelerator's free memory that is tested."""

_PATTERNS = ((1, 0), (0, 0x55555555), (0, 0), (0, 0x33333333))
"""What a turn writes: the mixed place of each word, or a word; then the inverse."""

_WAIT = 0.5
"""Seconds that a pattern stays in memory before it is read."""

_AXIS = "device"
_CHAIN = Program("chains", jax="pyreactant.check.burnin.work:chain")
_DIGEST = Program("digest of a product", jax="pyreactant.arrays.runtimes.jax.digest:word")
_FILL = Program("memory", jax="pyreactant.check.burnin.work:filled")
_INVERT = Program("moving inversion", jax="pyreactant.check.burnin.work:inverted")


def chain(x: Any) -> Any:
    """The JAX body of a round of chains: elementwise functions, sums, a sort and an FFT."""
    import jax.numpy as jnp

    waves = jnp.exp(jnp.sin(x)) / (1 + x * x)
    spectrum = jnp.fft.fft(x)
    sums = x.sum(axis=0, keepdims=True)
    return jnp.concatenate([waves, sums, jnp.sort(waves, axis=1), spectrum.real, spectrum.imag])


def filled(key: Any, *, words: int) -> Any:
    """The JAX body that writes a pattern: key is uint32[1, 3], as `inverted` has it."""
    import jax.numpy as jnp
    from jax import lax

    places = lax.iota(np.uint32, words)
    return jnp.where(key[0, 0] > 0, mixed(places ^ key[0, 1]), key[0, 1]) ^ key[0, 2]


def inverted(block: Any, key: Any) -> Any:
    """The JAX body of a moving inversion: the inverse, how many words are wrong, and the first.

    Args:
        block: uint32[words]; the inverse takes its place in memory.
        key: uint32[1, 3]: 1 for mixed places, the seed or the word, and what all is inverted by.
    """
    import jax.numpy as jnp

    wrong = block != filled(key, words=block.shape[0])
    return ~block, wrong.sum(dtype=np.uint32), jnp.argmax(wrong)


def summed(x: Any, *, axis: int) -> Any:
    """The JAX body of an all-reduce along an axis, if the result is everywhere on it."""
    return x.sum(axis=axis)


def same(x: Any, *, axis: int) -> Any:
    """The JAX body of an all-gather, and of an all-to-all, by where the result is."""
    return x


def scattered(x: Any, *, axis: int) -> Any:
    """The JAX body of a reduce-scatter, which XLA would not always make of a sum."""
    import jax
    from jax import lax
    from jax.sharding import PartitionSpec

    def of_block(block: Any) -> Any:
        return lax.psum_scatter(block[0], _AXIS, tiled=True)

    spec = PartitionSpec(_AXIS)
    return jax.shard_map(of_block, in_specs=spec, out_specs=spec)(x)


def moved(x: Any, *, axis: int) -> Any:
    """The JAX body of a permute: each device's row goes to the next."""
    import jax.numpy as jnp

    return jnp.roll(x, 1, axis=axis)


_Names = tuple[str, ...]
_COLLECTIVES: Mapping[
    What, tuple[str, Callable[[_Names, int], Any], Callable[[np.ndarray, int], np.ndarray]]
] = {
    What.ALL_REDUCE: ("summed", lambda names, at: names[:at] + names[at + 1 :], np.sum),
    What.ALL_GATHER: (
        "same",
        lambda names, at: (*names[:at], None, *names[at + 1 :]),
        lambda parts, _: parts,
    ),
    What.REDUCE_SCATTER: ("scattered", lambda names, _: names, np.sum),
    What.ALL_TO_ALL: ("same", lambda names, _: (None, *names), lambda parts, _: parts),
    What.PERMUTE: ("moved", lambda names, _: names, lambda parts, at: np.roll(parts, 1, at)),
}
"""The body of each collective, the partition spec of its result by the names of the mesh's axes
and the number of the one that it is along, and NumPy's result."""


def _repeats(job: Round) -> int:
    """Calls of a collective operation in a round."""
    return MANY if job.nbytes <= _QUICK else REPEATS


class Work:
    """The rounds on this process's devices.

    Args:
        backend: The running runtime.
        size: Side of the matrices; None for 256 on CPU, 8192 on GPU and TPU.
        memory: Share of each device's free memory that is tested.
    """

    def __init__(
        self, backend: AbstractBackend, size: int | None, memory: float | None = None
    ) -> None:
        self._backend = backend
        self._mine = sorted(backend.local_positions)
        self._process = backend.group.process_index
        self._size = size or (256 if backend.devices()[0].platform == "cpu" else 8192)
        self._memory = _SHARE if memory is None else memory
        self.gpus = Gpus(self._mine if backend.devices()[0].platform == "gpu" else ())
        self._programs: dict[Any, Executable] = {}

    def run(self, job: Round, turn: int) -> list[Measure]:
        """Run a round; `turn` chooses its inputs, the same on every process."""
        measures: dict[Any, Measure] = {}
        merged(measures, self._calls(job, turn))
        return list(measures.values())

    def _calls(self, job: Round, turn: int) -> Iterable[Measure]:
        """What each call of a round measured."""
        match job.what:
            case What.HOST:
                return self._arithmetic(job)
            case What.PRODUCTS:
                return self._products(job, turn)
            case What.CHAINS:
                return self._chains(job)
            case What.COPIES:
                return self._copies(job, turn)
            case What.MEMORY:
                return self._patterns(job, turn)
            case What.COUNTERS:
                return self._counters(job)
        group = next((group for group in job.groups if self._process in group), None)
        if group is None:
            progress.collectives += _repeats(job)  # the others begin so many
            return ()
        return self._collective(job, group, turn)

    def _arithmetic(self, job: Round) -> Iterator[Measure]:
        """How long the same arithmetic takes on this host, on the average of each spell.

        A spell is as long on a slow host, and evens out that a processor is had by turns.
        """
        for _ in range(_SPELLS):
            began, pieces = time.perf_counter(), 0
            while (passed := time.perf_counter() - began) < _SPELL or not pieces:
                sum(range(2000))
                pieces += 1
            seconds = (passed / pieces * _PIECES,)
            yield Measure(job.name, self._process, None, (self._process,), seconds=seconds)

    def _counters(self, job: Round) -> Iterator[Measure]:
        for device, text in self.gpus.new_errors():
            yield self._measure(job, device, text)

    def _products(self, job: Round, turn: int) -> Iterator[Measure]:
        """Products of whole numbers, the same ones on each device; one device after the other."""
        n = self._size
        operands = whole.operands(job.dtype, (n, n, n), seed=turn)
        v = whole.weights(n, seed=turn)
        expected = whole.reference(*operands, v)
        held = {device: self._made(device, operands, job.dtype) for device in self._mine}
        right: dict[int, int] = {}  # digest of the first product that is right
        for repeat in range(MANY):
            for device, (x, y) in held.items():
                took, c = self._timed(device, whole.MULTIPLY, x, y)
                digest, where = int(self._read(self._on(device, _DIGEST, c))), ""
                if device not in right:
                    residues, strange = self._run(device, whole.CHECK, c, self._put(device, v))
                    read = self._read(residues), self._read(strange)
                    rows = whole.wrong_rows(*read, expected)
                    if rows.size:
                        where = f"{counted(rows.size, 'row')}, from {rows[0]} on"
                    else:
                        right[device] = digest
                elif digest != right[device]:
                    where = "other bits than before"
                yield self._measure(job, device, where, seconds=_of_warm(repeat, took))

    def _made(self, device: int, operands: Sequence[whole.Whole], dtype: str) -> list[Any]:
        made = []
        for matrix in operands:
            key = self._put(device, np.full((1, 1), whole.key_of(matrix), np.uint32))
            settings = {"shape": matrix.shape, "largest": matrix.largest, "dtype": dtype}
            made.append(self._on(device, whole.MAKE, key, **settings))
        return made

    def _chains(self, job: Round) -> Iterator[Measure]:
        """Floats without a reference: their bits are compared later, over time and devices."""
        n = min(self._size, 1024)
        x = np.random.Generator(np.random.Philox(key=n)).random((n, n), np.float32)
        placed = {device: self._put(device, x) for device in self._mine}
        for repeat in range(MANY):
            for device in self._mine:
                took, result = self._timed(device, _CHAIN, placed[device])
                digest = self._backend.block_digests(result)[device].tobytes().hex()
                seconds = _of_warm(repeat, took)
                yield self._measure(job, device, digests={digest: 1}, seconds=seconds)

    def _copies(self, job: Round, turn: int) -> Iterator[Measure]:
        """Copies to each device, and back to compare."""
        words = mixed(np.arange(job.nbytes // 4, dtype=np.uint32) + np.uint32(turn))
        for _ in range(REPEATS):
            for device in self._mine:
                began = time.perf_counter()
                placed = self._put(device, words)
                seconds = (time.perf_counter() - began,)
                same = np.array_equal(self._read(placed), words)
                where = "" if same else "other bytes came back"
                yield self._measure(job, device, where, seconds=seconds, nbytes=job.nbytes)

    def _patterns(self, job: Round, turn: int) -> Iterator[Measure]:
        """A pattern in the memory of each device, read and inverted in place, and read again."""
        mixes, word = _PATTERNS[turn % len(_PATTERNS)]
        keys = [np.array([[mixes, word or turn * mixes, by]], np.uint32) for by in (0, 2**32 - 1)]
        blocks = {d: self._filled(d, keys[0], self._free(d)) for d in self._mine}
        for key in keys:
            time.sleep(_WAIT)
            for device, held in blocks.items():
                placed = self._put(device, key)
                for number, block in enumerate(held):
                    held[number], *results = self._run(device, _INVERT, block, placed, donate=(0,))
                    wrong, first = (int(self._read(value)) for value in results)
                    where = f"word {first} of block {number} of {len(held)}" if wrong else ""
                    words = block.shape[0]
                    yield self._measure(job, device, where, checked=words, wrong=wrong)

    def _filled(self, device: int, key: np.ndarray, words: int) -> list[Any]:
        placed, sizes = self._put(device, key), [_BLOCK] * (words // _BLOCK) or [max(1, words)]
        return [self._on(device, _FILL, placed, words=size) for size in sizes]

    def _free(self, device: int) -> int:
        """Words of a device's memory that are tested; CPU devices share that of their host."""
        free = self._backend.free_memory(device)
        if free is None:
            free = (available_memory() or 0) // len(self._backend.devices())
        return int(self._memory * free) // 4

    def _collective(self, job: Round, group: tuple[int, ...], turn: int) -> Iterator[Measure]:
        """A collective operation, exact: of a group of processes, or along an axis of a mesh."""
        mesh = job.mesh
        if mesh is None:
            devices = [d.position for d in self._backend.devices() if d.process_index in group]
            mesh = Mesh((len(devices),), (_AXIS,), devices)
        columns = max(1, job.nbytes // 4 // mesh.size) * mesh.size
        matrix = whole.Whole((mesh.size, columns), turn, 3, 2**8)
        x = self._placed(mesh, matrix)
        body, spec_of, result_of = _COLLECTIVES[job.what]
        expected = result_of(matrix.rows(0, mesh.size).reshape(*mesh.shape, columns), job.axis)
        program = Program(job.what, jax=f"pyreactant.check.burnin.work:{body}")
        sharding = NamedSharding(mesh, spec_of(mesh.axis_names, job.axis))
        arguments = [(x, mesh.axis_names)]
        executable = self._executable(sharding, program, arguments, {"axis": job.axis})
        for repeat in range(_repeats(job)):
            before, began = segments(), time.perf_counter()
            with progress.collective():
                (result,) = executable.run(x)
                self._backend.block_until_ready(result)
            seconds, now = _of_warm(repeat, time.perf_counter() - began), segments()
            # A connection that closes takes its counters along.
            sent, lost = (max(0, b - a) if repeat else 0 for a, b in zip(before, now, strict=True))
            shards = self._backend.addressable_shards(result)
            wrong = [
                shard.device.position
                for shard in shards
                if not np.array_equal(shard.data, expected[shard.index])
            ]
            yield Measure(
                round=job.name,
                process=self._process,
                device=None,
                group=group,
                checked=len(shards),
                wrong=len(wrong),
                where=f"on device {wrong[0]}" if wrong else "",
                seconds=seconds,
                nbytes=4 * columns,
                sent=sent,
                lost=lost,
                lossy=int(lost > 0),
            )

    def _placed(self, mesh: Mesh, matrix: whole.Whole) -> Any:
        """A row of the matrix on each device."""
        columns = matrix.shape[1]

        def row(index: tuple[slice, ...]) -> np.ndarray:
            number = int(np.ravel_multi_index([s.start for s in index[:-1]], mesh.shape))
            return matrix.rows(number, number + 1).reshape(*(1 for _ in mesh.shape), columns)

        sharding = NamedSharding(mesh, mesh.axis_names)
        shape = (*mesh.shape, columns)
        return self._backend.from_blocks(shape, np.dtype(np.int32), sharding, row)

    def _measure(self, job: Round, device: int, where: str = "", **measured: Any) -> Measure:
        """What a call on one device measured; `where` says what is wrong, "" if nothing is."""
        given = {"checked": 1, "wrong": int(where != ""), "where": where, **measured}
        return Measure(job.name, self._process, device, (), **given)

    def _put(self, device: int, array: np.ndarray) -> Any:
        return self._backend.from_blocks(
            array.shape, array.dtype, NamedSharding(_alone(device), ()), array.__getitem__
        )

    def _read(self, value: Any) -> np.ndarray:
        data: np.ndarray = self._backend.addressable_shards(value)[0].data
        return data

    def _on(self, device: int, program: Program, *values: Any, **static: Any) -> Any:
        return self._run(device, program, *values, **static)[0]

    def _run(
        self,
        device: int,
        program: Program,
        *values: Any,
        donate: tuple[int, ...] = (),
        **static: Any,
    ) -> Sequence[Any]:
        arguments = [(value, ()) for value in values]
        everywhere = NamedSharding(_alone(device), ())
        return self._executable(everywhere, program, arguments, static, donate).run(*values)

    def _timed(self, device: int, program: Program, *values: Any) -> tuple[float, Any]:
        began = time.perf_counter()
        result = self._on(device, program, *values)
        self._backend.block_until_ready(result)
        return time.perf_counter() - began, result

    def _executable(
        self,
        result: NamedSharding,
        program: Program,
        arguments: Sequence[tuple[Any, Any]],
        static: Any,
        donate: tuple[int, ...] = (),
    ) -> Executable:
        """A program for arguments with these specs on the mesh of its results."""
        avals = tuple(
            Aval(tuple(value.shape), np.dtype(value.dtype), NamedSharding(result.mesh, spec))
            for value, spec in arguments
        )
        key = program, result, avals, tuple(static.items())
        if key not in self._programs:
            _, structure = self._backend.trees.flatten(tuple(range(len(avals))))
            call = Call(program, structure, avals, result, static=static, donate=donate)
            self._programs[key] = self._backend.lower(call).compile()
        return self._programs[key]


def _alone(device: int) -> Mesh:
    return Mesh((1,), (_AXIS,), (device,))


def _of_warm(repeat: int, seconds: float) -> tuple[float, ...]:
    """The time of a call, unless it is the first, which compiles."""
    return (seconds,) if repeat else ()
