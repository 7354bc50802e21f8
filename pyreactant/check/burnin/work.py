"""What a round does on the devices of this process, and what it measures.

Programs are compiled for single devices, and for the devices of some processes: the others neither
compile nor run them. So they come from the runtime itself, not from `pyreactant.compile`, which is
collective.
"""

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.backend import AbstractBackend, Call, Executable
from ...arrays.mesh import Mesh
from ...arrays.mixed import mixed
from ...arrays.program import Program
from ...arrays.sharding import Aval, NamedSharding
from ...base.counted import counted
from ..product import whole
from .record import Measure
from .rounds import Round, What

REPEATS = 5
"""Products of the same inputs in a round, and calls of each collective operation."""

_MOST = 2**23
"""Elements of a collective operation on all devices together: each host computes the result."""

_AXIS = "device"
_CHAIN = Program("chains", jax="pyreactant.check.burnin.work:chain")
_DIGEST = Program("digest of a product", jax="pyreactant.check.product.operands:digests")
_SUM = Program("all-reduce", jax="pyreactant.check.burnin.work:summed")
_SAME = Program("all-gather", jax="pyreactant.check.burnin.work:same")


def chain(x: Any) -> Any:
    """The JAX body of a round of chains: digests of elementwise functions, sums, a sort, an FFT."""
    import jax.numpy as jnp
    from jax import lax

    from ..product.operands import digests

    waves = jnp.exp(jnp.sin(x)) / (1 + x * x)
    spectrum = jnp.fft.fft(x)
    parts = [waves, x.sum(axis=0, keepdims=True), jnp.sort(waves, axis=1)]
    parts += [spectrum.real, spectrum.imag]
    # What is computed again within the digest could round otherwise.
    parts = lax.optimization_barrier(parts)
    return jnp.concatenate([digests(part, cuts=(1, 1)).ravel() for part in parts])


def summed(x: Any) -> Any:
    """The JAX body of an all-reduce, if the result is everywhere: the sum of the rows."""
    return x.sum(axis=0)


def same(x: Any) -> Any:
    """The JAX body of an all-gather, if the result is everywhere."""
    return x


class Work:
    """The rounds on this process's devices.

    Args:
        backend: The running runtime.
        size: Side of the matrices; None for 256 on CPU, 8192 on GPU and TPU.
    """

    def __init__(self, backend: AbstractBackend, size: int | None) -> None:
        self._backend = backend
        self._mine = sorted(backend.local_positions)
        self._process = backend.group.process_index
        self._size = size or (256 if backend.devices()[0].platform == "cpu" else 8192)
        self._programs: dict[Any, Executable] = {}

    def run(self, job: Round, turn: int) -> list[Measure]:
        """Run a round; `turn` chooses its inputs, the same on every process."""
        if job.what is What.PRODUCTS:
            return self._products(job, turn)
        if job.what is What.CHAINS:
            return [self._chain(job, device) for device in self._mine]
        if job.what is What.COPIES:
            return [self._copy(job, device, turn) for device in self._mine]
        group = next((group for group in job.groups if self._process in group), None)
        return [] if group is None else [self._collective(job, group, turn)]

    def _products(self, job: Round, turn: int) -> list[Measure]:
        """Products of whole numbers, the same ones on each device; one device after the other."""
        n = self._size
        operands = whole.operands(job.dtype, (n, n, n), seed=turn)
        v = whole.weights(n, seed=turn)
        expected = whole.reference(*operands, v)
        held = {device: self._made(device, operands, job.dtype) for device in self._mine}
        first: dict[int, str] = {}
        wrong: dict[int, list[str]] = {device: [] for device in self._mine}
        seconds: dict[int, list[float]] = {device: [] for device in self._mine}
        for repeat in range(REPEATS):
            for device, (x, y) in held.items():
                # The first call compiles.
                took, c = self._timed(device, whole.MULTIPLY, x, y)
                if repeat:
                    seconds[device].append(took)
                digest = f"{self._read(self._on(device, _DIGEST, c, cuts=(1, 1)))[0].item():08x}"
                if repeat == 0:
                    rows = self._wrong_rows(device, c, v, expected)
                    if rows.size:
                        wrong[device].append(f"{counted(rows.size, 'row')}, from {rows[0]} on")
                    else:
                        first[device] = digest
                elif digest != first.get(device, digest):
                    wrong[device].append("other bits than before")
                elif device not in first and self._wrong_rows(device, c, v, expected).size:
                    wrong[device].append("again")
        return [
            self._measure(
                job,
                device,
                checked=REPEATS,
                wrong=len(wrong[device]),
                where=wrong[device][0] if wrong[device] else "",
                seconds=tuple(seconds[device]),
            )
            for device in self._mine
        ]

    def _made(self, device: int, operands: Sequence[whole.Whole], dtype: str) -> list[Any]:
        made = []
        for matrix in operands:
            key = self._put(device, np.full((1, 1), whole.key_of(matrix), np.uint32))
            settings = {"shape": matrix.shape, "largest": matrix.largest, "dtype": dtype}
            made.append(self._on(device, whole.MAKE, key, **settings))
        return made

    def _wrong_rows(self, device: int, c: Any, v: np.ndarray, expected: np.ndarray) -> np.ndarray:
        residues, strange = self._run(device, whole.CHECK, c, self._put(device, v))
        return whole.wrong_rows(self._read(residues), self._read(strange), expected)

    def _chain(self, job: Round, device: int) -> Measure:
        """Floats without a reference: their bits are compared later, over time and devices."""
        n = min(self._size, 1024)
        x = np.random.Generator(np.random.Philox(key=n)).random((n, n), np.float32)
        placed, digests, seconds = self._put(device, x), [], []
        for _ in range(REPEATS):
            took, result = self._timed(device, _CHAIN, placed)
            seconds.append(took)
            digests.append(hashlib.sha256(self._read(result).tobytes()).hexdigest()[:16])
        counts = {digest: digests.count(digest) for digest in digests}
        return self._measure(
            job, device, checked=REPEATS, digests=counts, seconds=tuple(seconds[1:])
        )

    def _copy(self, job: Round, device: int, turn: int) -> Measure:
        """Copies to a device, and back to compare."""
        words = mixed(np.arange(job.nbytes // 4, dtype=np.uint32) + np.uint32(turn))
        began = time.perf_counter()
        placed = self._put(device, words)
        took = time.perf_counter() - began
        wrong = int(not np.array_equal(self._read(placed), words))
        return self._measure(
            job,
            device,
            checked=1,
            wrong=wrong,
            where="other bytes came back" if wrong else "",
            seconds=(took,),
            nbytes=job.nbytes,
        )

    def _collective(self, job: Round, group: tuple[int, ...], turn: int) -> Measure:
        """A collective operation among all devices of a group of processes, exact."""
        devices = [d.position for d in self._backend.devices() if d.process_index in group]
        mesh = Mesh((len(devices),), (_AXIS,), devices)
        columns = min(job.nbytes // 4, max(1, _MOST // len(devices)))
        matrix = whole.Whole((len(devices), columns), turn, 3, 2**8)
        x = self._placed(mesh, matrix)
        rows = matrix.rows(0, len(devices))
        reduces = job.what is What.ALL_REDUCE
        expected = rows.sum(axis=0) if reduces else rows
        program, wrong, seconds = _SUM if reduces else _SAME, [], []
        for repeat in range(REPEATS):
            began = time.perf_counter()
            (result,) = self._executable(mesh, program, [(x, (_AXIS,))], {}).run(x)
            self._backend.block_until_ready(result)
            if repeat:
                seconds.append(time.perf_counter() - began)
            wrong += [
                f"on device {shard.device.position}"
                for shard in self._backend.addressable_shards(result)
                if not np.array_equal(shard.data, expected)
            ]
        return Measure(
            round=job.name,
            process=self._process,
            device=None,
            group=group,
            checked=REPEATS * len(mesh.positions_of(self._backend.local_positions)),
            wrong=len(wrong),
            where=wrong[0] if wrong else "",
            seconds=tuple(seconds) if job.pairs else (),
            nbytes=4 * columns,
        )

    def _placed(self, mesh: Mesh, matrix: whole.Whole) -> Any:
        def row(index: tuple[slice, ...]) -> np.ndarray:
            return matrix.rows(index[0].start, index[0].stop)

        sharding = NamedSharding(mesh, (_AXIS,))
        return self._backend.from_blocks(matrix.shape, np.dtype(np.int32), sharding, row)

    def _measure(self, job: Round, device: int, **measured: Any) -> Measure:
        return Measure(job.name, self._process, device, (self._process,), **measured)

    def _put(self, device: int, array: np.ndarray) -> Any:
        return self._backend.from_blocks(
            array.shape, array.dtype, NamedSharding(_alone(device), ()), array.__getitem__
        )

    def _read(self, value: Any) -> np.ndarray:
        data: np.ndarray = self._backend.addressable_shards(value)[0].data
        return data

    def _on(self, device: int, program: Program, *values: Any, **static: Any) -> Any:
        return self._run(device, program, *values, **static)[0]

    def _run(self, device: int, program: Program, *values: Any, **static: Any) -> Sequence[Any]:
        arguments = [(value, ()) for value in values]
        return self._executable(_alone(device), program, arguments, static).run(*values)

    def _timed(self, device: int, program: Program, *values: Any) -> tuple[float, Any]:
        began = time.perf_counter()
        result = self._on(device, program, *values)
        self._backend.block_until_ready(result)
        return time.perf_counter() - began, result

    def _executable(
        self, mesh: Mesh, program: Program, arguments: Sequence[tuple[Any, Any]], static: Any
    ) -> Executable:
        """A program for arguments with these specs on a mesh, whose results are everywhere."""
        avals = tuple(
            Aval(tuple(value.shape), np.dtype(value.dtype), NamedSharding(mesh, spec))
            for value, spec in arguments
        )
        key = program, avals, tuple(static.items())
        if key not in self._programs:
            _, structure = self._backend.trees.flatten(tuple(range(len(avals))))
            everywhere = NamedSharding(mesh, ())
            call = Call(program, structure, avals, everywhere, static=static)
            self._programs[key] = self._backend.lower(call).compile()
        return self._programs[key]


def _alone(device: int) -> Mesh:
    return Mesh((1,), (_AXIS,), (device,))
