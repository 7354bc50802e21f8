"""`python -m benchmarks.julia`: measure the overhead of Python over Julia against its bounds.

It needs the real-Julia level of the tests (PYREACTANT_TEST_JULIA, PYREACTANT_TEST_JULIA_PROJECT)
and runs over the stand-in for Reactant, so it measures the bridge, not Reactant. `--json FILE`
writes the figures; `--quick` uses few repetitions and small arrays.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.arrays.runtimes.reactant import julia
from tests.harness import environment
from tests.julia.place import absent, stand_in, without_workload

from ._measure import Pair, interleave, keeping_bytecode, machine, timed

FOLDER = str(Path(__file__).parent / "Timing")
# The reference imports NumPy too, because the bound is on the cost of Julia. Warnings are off:
# Reactant's extension takes as long to warn that it cannot import jax as to load.
JULIACALL = (
    "import numpy, juliacall\n"
    "juliacall.Base.CoreLogging.disable_logging(juliacall.Base.CoreLogging.Warn)\n"
    "for name in ('Preferences', 'PythonCall', 'Reactant'):\n"
    "    juliacall.Base.require(juliacall.Main, juliacall.Base.Symbol(name))"
)
OURS = "from pyreactant.arrays.runtimes.reactant import julia; julia.start()"


def start(repetitions: int, folder: Path) -> Pair:
    """Time a process that starts Julia with our package, and one with its dependencies alone."""
    reactant = without_workload(folder)

    def run(code: str) -> float:
        settings = keeping_bytecode(environment(**stand_in(reactant)))
        settings["PYTHON_JULIACALL_HANDLE_SIGNALS"] = "no"
        # Our package blocks jax; in the reference, Reactant's extension would import it.
        blocked = f"import sys; sys.modules['jax'] = sys.modules['tensorflow'] = None\n{code}"
        command = [sys.executable, "-c", blocked]
        return timed(
            lambda: subprocess.run(command, check=True, env=settings, stderr=subprocess.DEVNULL)
        )

    run(OURS)  # precompile the packages
    ours, reference = interleave(lambda: run(OURS), lambda: run(JULIACALL), repetitions)
    return Pair("start Julia with our package, against its packages alone", ours, reference, 1.10)


def call(repetitions: int, calls: int = 200) -> list[Pair]:
    """Time a call of a compiled program from Python, and of its thunk from Julia."""
    module = julia.start()
    mesh = pr.Mesh((8,), ("i",))
    x = pr.device_put(np.ones(8, np.float32), pr.NamedSharding(mesh, ("i",)))
    thunk = julia.call(module.find_function, "Timing.thunk", FOLDER)
    found = []
    for count in (1, 4):
        f = pr.compile(pr.Program("add", julia="+"), *[x] * count, out_sharding=x.sharding)
        handle = f._executable.run.args[0]  # type: ignore[attr-defined]
        held = (x.value,) * count

        def ours(f: Any = f, count: int = count) -> float:
            return statistics.median(timed(lambda: f(*[x] * count)) for _ in range(calls))

        def reference(handle: Any = handle, held: Any = held) -> float:
            return statistics.median(julia.call(thunk, handle, held, calls))

        name = f"call of a compiled program of {count}, over its thunk from Julia"
        found.append(Pair(name, *interleave(ours, reference, repetitions), 50e-6, difference=True))
    return found


def copies(repetitions: int, side: int) -> list[Pair]:
    """Time copies of a NumPy matrix to a Julia array and back, and np.copy."""
    import juliacall

    module = julia.start()
    found = []
    orders: list[tuple[Any, float]] = [("C", 1.5), ("F", 1.05)]
    for order, bound in orders:
        x = np.zeros((side, side), np.float32, order=order)
        x[...] = np.arange(side, dtype=np.float32)
        held = module.to_julia(x, juliacall.Base.Float32)

        def into(x: Any = x) -> float:
            return _collecting(lambda: module.to_julia(x, juliacall.Base.Float32))

        def back(held: Any = held, x: Any = x) -> float:
            return _collecting(lambda: module.to_numpy_b(np.empty_like(x), held))

        for what, ours in (("into Julia", into), ("back", back)):
            pair = interleave(ours, partial(timed, partial(np.copy, x)), repetitions)
            size = f"{x.nbytes / 2**30:.3g} GiB float32"
            found.append(Pair(f"{size} {order} order {what}, against np.copy", *pair, bound))
    return found


def _collecting(f: Callable[[], Any]) -> float:
    import juliacall

    seconds = timed(f)
    juliacall.Base.GC.gc(False)  # otherwise the arrays of all repetitions stay in memory
    return seconds


def read(repetitions: int, side: int) -> Pair:
    """Time the read of a block from its device, and np.copy."""
    x = np.zeros((side, side), np.float32, order="F")
    x[...] = np.arange(side, dtype=np.float32)
    placed = pr.device_put(x, pr.NamedSharding(pr.Mesh((1,), ("i",), [0]), ()))
    [shard] = placed.addressable_shards
    copy = partial(np.copy, x)  # not x.copy, which turns F order into C order
    pair = interleave(lambda: timed(lambda: shard.data), partial(timed, copy), repetitions)
    return Pair(f"{x.nbytes / 2**30:.3g} GiB float32 Shard.data, against np.copy", *pair, 1.05)


MEMORY = """
import sys
import numpy as np
from pyreactant.arrays.runtimes.reactant import julia as _julia
side, order = int(sys.argv[1]), sys.argv[2]
m = _julia.start()
import juliacall as j
status = lambda k: int(next(l for l in open('/proc/self/status') if l.startswith(k)).split()[1])
small = np.ones((64, 64), np.float32, order=order)
m.to_numpy_b(np.empty_like(small), m.to_julia(small, j.Base.Float32))
x = np.ones((side, side), np.float32, order=order)
before = status('VmRSS')
held = m.to_julia(x, j.Base.Float32)
print((status('VmHWM') - before) * 1024)
out = np.empty_like(x)
before = status('VmRSS')
m.to_numpy_b(out, held)
print((status('VmHWM') - before) * 1024)
"""


def memory(side: int) -> list[Pair]:
    """Measure the peak memory that copying a matrix to Julia and back adds."""
    found = []
    for order in "CF":
        argv = [sys.executable, "-c", MEMORY, str(side), order]
        ran = subprocess.run(
            argv, env=environment(**stand_in()), check=True, capture_output=True, text=True
        )
        size = 4.0 * side * side
        for what, extra in zip(("into Julia", "back"), ran.stdout.split(), strict=True):
            name = f"peak memory, {size / 2**30:.3g} GiB {order} order {what}, over its size"
            found.append(Pair(name, [float(extra)], [size], 1.05, unit="B"))
    return found


def _row(pair: Pair) -> str:
    found = pair.to_dict()
    scale, unit = (2**20, "MiB") if pair.unit == "B" else (1e-6, "us")
    if pair.unit == "s" and found["ours_median"] > 0.01:
        scale, unit = 1e-3, "ms"
    ratio = pair.kind == "ratio"
    ours, reference = (f"{found[k] / scale:.4g} {unit}" for k in ("ours_median", "theirs_median"))
    low, middle, high, bound = (
        f"{v:.3f}" if ratio else f"{v / scale:.4g} {unit}"
        for v in (*(found[k] for k in ("lower_quartile", "median", "upper_quartile")), pair.bound)
    )
    verdict = "within" if found["within"] else "**missed**"
    return (
        f"| {pair.name} | {ours} | {reference} | {middle} ({low} to {high}) | {bound} | {verdict} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.julia", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if why := absent():
        parser.error(why)
    os.environ.update(stand_in())
    few, many, side = (2, 2, 1024) if args.quick else (7, 15, 16384)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        pairs = [start(few, Path(folder)), *memory(side)]
    pr.initialize("reactant", platform="cpu", num_cpu_devices=8)
    pairs += [*call(many), *copies(few, side), read(few, side)]
    here = machine()
    here["load"] = os.getloadavg()
    here["julia"] = ", ".join(" ".join(row) for row in julia.call(julia.start().versions))
    print(", ".join(f"{name} {value}" for name, value in here.items() if name != "versions"))
    print("\n| what | ours, median | reference, median | compared, median (quartiles) | bound | |")
    print("|---|---|---|---|---|---|")
    print(*map(_row, pairs), sep="\n")
    print(f"\ntook {time.monotonic() - began:.0f} s")
    if args.json:
        figures = [p.to_dict() for p in pairs]
        args.json.write_text(json.dumps({**here, "figures": figures}, indent=2))


if __name__ == "__main__":
    main()
