"""Run one sharded product from its operands to the report of `pyreactant matmul`.

The product may be written as one .npy file; each process writes its own blocks.
"""

import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..._version import __version__
from ...arrays.array import ShardedArray
from ...arrays.dtypes import EXTENDED, as_dtype
from ...arrays.matmul import (
    Spec,
    check_operands,
    compile_matmul,
    default_mesh,
    default_out_spec,
    reference_operand,
)
from ...arrays.mesh import Mesh
from ...arrays.runtimes.collective import everywhere, exchange_json
from ...arrays.runtimes.mesh import check_mesh
from ...arrays.runtimes.operations import from_callback
from ...arrays.runtimes.runtime import current, devices
from ...arrays.sharding import NamedSharding, plain_index
from ...arrays.source import ArraySource, RandomSource, Source, open_npy
from ...base.errors import FileError, InvalidArgumentError, argument
from ...base.outputs import (
    check_output,
    copy_mode,
    is_stream,
    marked,
    opened,
    target_of,
)
from ...base.steps import step
from ..bounds.verdict import Verdict
from .check import check_product, is_large
from .on_devices import is_on_devices


def write_npy(path: str | Path, c: ShardedArray, *, overwrite: bool = False) -> None:
    """Write a sharded array as np.save would. Collective.

    Every process writes the blocks of its devices into one file, which gets its final name when
    all blocks are on disk. All processes must share the file system. To a device, a pipe or
    standard output the first process writes the whole array, which each process then holds.

    Raises:
        FileError: Any process cannot write; raised on every process.
    """
    running, named = current(), Path(path)
    first = running.group.process_index == 0

    def step(action: Callable[[], None]) -> None:
        def act() -> None:
            try:
                action()
            except OSError as error:
                raise FileError(f"{named}: cannot be written ({error.strerror})") from None

        everywhere(running.backend, running.group, f"writing {path}", act)

    step(lambda: check_output(named, overwrite=overwrite))
    mine = [os.urandom(6).hex(), is_stream(named)]
    token, through = exchange_json(running.backend, running.group, mine)[0]
    if through:
        whole = c.gather()
        step(lambda: _write_through(named, whole, overwrite) if first else None)
        return
    target = target_of(named)
    partial = target.with_name(f".{target.name[:50]}.{token}.partial")
    try:
        step(lambda: _create(partial, c) if first else None)
        step(lambda: _write_blocks(partial, c))
        step(lambda: _rename(partial, target, overwrite) if first else None)
    finally:
        if first:
            partial.unlink(missing_ok=True)


def _write_through(path: Path, whole: np.ndarray, overwrite: bool) -> None:
    with opened(path, overwrite=overwrite) as file:
        # With another object than a file, NumPy writes pieces and needs no position in the file.
        pieces = SimpleNamespace(write=file.write)
        np.lib.format.write_array(pieces, whole.view(_stored(whole.dtype)), allow_pickle=False)


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in the file, as for np.save: types that NumPy lacks become raw bytes."""
    return np.dtype(f"V{dtype.itemsize}") if dtype.name in EXTENDED else dtype


def _create(partial: Path, c: ShardedArray) -> None:
    np.lib.format.open_memmap(partial, "w+", _stored(c.dtype), c.shape).flush()
    # Allocate the file now: a full disk would otherwise cause a bus error on a mapped page.
    with partial.open("rb+") as file:
        size = partial.stat().st_size
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def _write_blocks(partial: Path, c: ShardedArray) -> None:
    if 0 in c.shape:
        return
    whole = np.load(partial, mmap_mode="r+").view(c.dtype)
    replicas = c.sharding.replica_ids(c.ndim)
    for shard in c.addressable_shards:
        if replicas[shard.device.position] == 0:
            whole[shard.index] = shard.data
    whole.flush()


def _rename(partial: Path, target: Path, overwrite: bool) -> None:
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    check_output(target, overwrite=overwrite)  # another program may have created it meanwhile
    copy_mode(target, partial)
    partial.replace(target)


@dataclass(frozen=True, slots=True)
class MatmulReport:
    """The product with its check and times.

    Attributes:
        c: The product.
        operands: Description of x and y.
        shardings: Shardings of x and y.
        precision: Requested precision; None if none was requested.
        inner: Length k of the sums.
        compile_seconds: Seconds for lowering and compiling.
        seconds: Seconds of each timed call until its result is ready.
        check: Verdict on the product.
        check_seconds: Seconds of the check.
    """

    c: ShardedArray
    operands: str
    shardings: tuple[NamedSharding, NamedSharding]
    precision: str | None
    inner: int
    compile_seconds: float
    seconds: tuple[float, ...]
    check: Verdict
    check_seconds: float

    @property
    def gflops(self) -> float | None:
        """10**9 operations per second in the median call; a call has 2 m k n (complex 8 m k n)."""
        if not self.seconds or not statistics.median(self.seconds):
            return None
        m, n = self.c.shape
        work = (8 if self.c.dtype.kind == "c" else 2) * m * self.inner * n
        return work / statistics.median(self.seconds) / 1e9

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        running = current()
        placement = self.c.sharding.devices_indices_map(self.c.shape)
        data = {
            "program": "matmul",
            "backend": running.backend.name,
            "platform": devices()[0].platform,
            "num_processes": running.group.num_processes,
            "versions": {
                "pyreactant": __version__,
                **running.backend.versions(),
                "numpy": np.__version__,
            },
            "operands": self.operands,
            "m": self.c.shape[0],
            "k": self.inner,
            "n": self.c.shape[1],
            "dtype": self.c.dtype.name,
            "precision": self.precision,
            "mesh": self.c.sharding.mesh.to_dict(),
            "specs": {
                name: sharding.to_dict()["spec"]
                for name, sharding in zip("xyc", (*self.shardings, self.c.sharding), strict=True)
            },
            "devices": [
                {**asdict(devices()[i]), "block": plain_index(index)}
                for i, index in placement.items()
            ],
            "compile_seconds": self.compile_seconds,
            "seconds": list(self.seconds),
            "seconds_median": statistics.median(self.seconds) if self.seconds else None,
            "gflops": self.gflops,
            "check": check_to_dict(self.check),
            "check_seconds": self.check_seconds,
        }
        return marked("matmul report", data)


def check_to_dict(check: Verdict) -> dict[str, Any]:
    """The check of a product as plain data for `json.dumps`; an infinite ratio is None."""
    return {
        "method": check.method,
        "passed": check.passed,
        "error": check.error,
        "tolerance": check.allowed,
        "ratio": check.ratio if math.isfinite(check.ratio) else None,
        "wrong": check.wrong,
        "non_finite": check.non_finite,
        "usual": check.usual,
        "note": check.note,
        "worst": check.worst,
    }


def run_matmul(
    *,
    size: tuple[int, int, int] | None = None,
    files: tuple[Path, Path] | None = None,
    dtype: str | None = None,
    seed: int = 0,
    mesh: Mesh | None = None,
    spec: Spec = ("x", "y"),
    y_spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
    repeat: int = 5,
    check: str | None = None,
    out: Path | None = None,
    overwrite: bool = False,
) -> MatmulReport:
    """Place the operands, compile, multiply, time, check and write. Collective.

    Each process reads or generates the operands' blocks of its own devices, and checks and writes
    their blocks of the product.

    Args:
        size: (m, k, n) of random operands; without size and files the reference case runs.
        files: .npy files of x and y.
        dtype: Element type; for files only needed if they contain raw bytes.
        seed: Seed of the random operands.
        mesh: Mesh of the devices; None means all devices.
        spec: Partition spec of x, and of y unless `y_spec` is given.
        y_spec: Partition spec of y.
        out_spec: Partition spec of the product; None as in `matmul_sharded`.
        precision: "default", "high" or "highest"; None means the runtime's default.
        repeat: Number of timed calls, after one untimed call.
        check: Where the product is checked: "device", "host", or None as in `is_on_devices`.
        out: .npy file for the product.
        overwrite: Whether `out` may replace a file.

    Raises:
        PyReactantError: As `matmul_sharded`, and FileError for the files.
    """
    running = current()
    if repeat < 0:
        raise InvalidArgumentError(f"{argument('repeat')} must be 0 or more, got {repeat}")

    def prepare() -> tuple[Source, Source, str]:
        if out is not None:
            check_output(out, overwrite=overwrite)
        return _operands(size, files, dtype, seed)

    step("reading the operands")
    x, y, operands = everywhere(running.backend, running.group, "reading the operands", prepare)
    check_operands(x.shape, x.dtype, y.shape, y.dtype)
    mesh = mesh or default_mesh(len(devices()))
    check_mesh(mesh)  # before sizes are asked to fit it
    shardings = NamedSharding(mesh, spec), NamedSharding(mesh, spec if y_spec is None else y_spec)
    out_spec = default_out_spec(*shardings) if out_spec is None else out_spec
    NamedSharding(mesh, out_spec).shard_shape((x.shape[0], y.shape[1]))
    step("placing the operands")
    a = from_callback(x.shape, x.dtype, shardings[0], x.read)
    b = from_callback(y.shape, y.dtype, shardings[1], y.read)
    step("compiling")
    compile_seconds, product = _timed(lambda: compile_matmul(a, b, out_spec, precision))
    c: ShardedArray = product(a, b).block_until_ready()
    seconds = []
    for call in range(repeat):
        step("multiplying", call + 1, repeat)
        seconds.append(_timed(lambda: product(a, b).block_until_ready())[0])
    step("checking the product")
    on_devices = is_on_devices(check, c.dtype, large=is_large(c, x.shape[1]))
    placed = (a, b) if on_devices else None
    check_seconds, verdict = _timed(lambda: check_product(x, y, c, shardings, precision, placed))
    if out is not None and verdict.passed:
        write_npy(out, c, overwrite=overwrite)
    return MatmulReport(
        c=c,
        operands=operands,
        shardings=shardings,
        precision=precision,
        inner=x.shape[1],
        compile_seconds=compile_seconds,
        seconds=tuple(seconds),
        check=verdict,
        check_seconds=check_seconds,
    )


def _operands(
    size: tuple[int, int, int] | None,
    files: tuple[Path, Path] | None,
    dtype: str | None,
    seed: int,
) -> tuple[Source, Source, str]:
    if files is not None:
        if size is not None:
            raise InvalidArgumentError("give sizes or files, not both; files determine the shapes")
        x, y = (open_npy(path, dtype) for path in files)
        return x, y, " @ ".join(map(str, files))
    dtype = dtype or "float32"
    if size is not None:
        m, k, n = size
        if min(size) < 0:
            raise InvalidArgumentError(f"sizes must be 0 or more, got m={m}, k={k}, n={n}")
        left = RandomSource((m, k), dtype, seed, stream=0)
        right = RandomSource((k, n), dtype, seed, stream=1)
        return left, right, f"random, seed {seed}"
    reference = ArraySource(reference_operand(as_dtype(dtype)))
    return reference, reference, "reference case, arange(1, 65) by columns"


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result
