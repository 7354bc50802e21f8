"""The typical limit of rounding: false alarms, faults that are seen, sensitivity and time.

`python -m benchmarks.typical [--only alarms|faults|sensitivity|time] [--runs N] [--seed S]
[--sizes 64,128] [--dtypes bfloat16]` runs the programs of `tests/crosscheck/networks.py` by JAX on
one CPU device and checks each result as the cross-check does. Seeds from 1000 were set aside until
the limits were fixed. The exit code is 1 for a false alarm.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence

import numpy as np

import pyreactant as pr
from pyreactant.arrays.source import ArraySource
from pyreactant.check.bounds.compare import compare
from pyreactant.check.bounds.expected import Expected
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.tracked import Tracked, UnknownOperationError
from pyreactant.check.bounds.verdict import Verdict
from pyreactant.check.programs import find_case
from pyreactant.check.report.results import percent
from tests.crosscheck.networks import (
    DTYPES,
    FAULTS_OF,
    KINDS,
    NAMES,
    Expectation,
    dtypes_of,
    inputs,
    program,
)

PARTS = ("alarms", "faults", "sensitivity", "time")


def _problems(sizes: Sequence[int], seed: int) -> Iterator[tuple[str, str, int, str, int]]:
    """Name, type, size, kind of inputs and seed, all kinds of all programs before the next seed."""
    for number in itertools.count(seed):
        for n, kind, name in itertools.product(sizes, KINDS, NAMES):
            for dtype in dtypes_of(name):
                yield name, dtype, n, kind, number


def alarms(runs: int, seed: int, sizes: Sequence[int]) -> int:
    """Right results that are called wrong."""
    wrong = skipped = 0
    sigmas = []
    for problem in itertools.islice(_problems(sizes, seed), runs):
        try:
            verdict = Expectation(*problem).verdict()
        except UnknownOperationError:
            skipped += 1
            continue
        assert verdict.typical is not None
        sigmas.append(verdict.typical.sigmas)
        if not verdict.passed:
            wrong += 1
            print("alarm", *problem, verdict.typical)
    print(
        f"alarms: {wrong} of {len(sigmas)} right results, {skipped} without a limit; largest error "
        f"{max(sigmas):.1f} sigma, median of the largest {statistics.median(sigmas):.1f}"
    )
    return wrong


def _size(expectation: Expectation, fault: str) -> float:
    assert expectation.expected.typical is not None
    error = expectation.result(fault).astype(np.float64) - expectation.expected.typical.value
    return float(np.sqrt(np.mean(error**2)))


def faults(runs: int, seed: int, sizes: Sequence[int], dtypes: Sequence[str]) -> None:
    """The faults that are seen, by how much they raise the root mean square of the error."""
    found: dict[tuple[str, str], list[bool]] = {}
    by_bound: dict[tuple[str, str], list[bool]] = {}
    tried = 0
    for name, dtype, n, kind, number in _problems(sizes, seed):
        if tried >= runs:
            break
        if kind != "normal" or dtype not in dtypes:
            continue
        expectation = Expectation(name, dtype, n, kind, number)
        right = _size(expectation, "") or 1e-300
        for fault in FAULTS_OF[name]:
            verdict, times = expectation.verdict(fault), _size(expectation, fault) / right
            size = "x 3 or more" if times >= 3 else "x 2 to 3" if times >= 2 else "less"
            found.setdefault((dtype, size), []).append(not verdict.passed)
            by_bound.setdefault((dtype, size), []).append(_by_bound(verdict))
            if verdict.passed and times >= 2:
                print("missed", name, dtype, n, number, fault, f"x {times:.2f}", verdict.typical)
            tried += 1
    for (dtype, size), seen in sorted(found.items()):
        own = by_bound[dtype, size]
        print(f"faults, {dtype}, error {size}: {sum(seen)} of {len(seen)}, by the bound {sum(own)}")


def _by_bound(verdict: Verdict) -> bool:
    assert verdict.typical is not None
    return not verdict.passed and not verdict.typical.only


def sensitivity(seed: int, sizes: Sequence[int]) -> None:
    """A table of what each program's check sees, by both bounds; float64 has the derived one."""
    types = (*DTYPES, "float64")
    print(f"| program | {' | '.join(types)} |\n|{'---|' * (len(types) + 1)}")
    for name in NAMES:
        cells = [_seen(name, dtype, sizes[0], seed) for dtype in types]
        print(f"| {name} | {' | '.join(cells)} |")


def _seen(name: str, dtype: str, n: int, seed: int) -> str:
    if dtype == "float64" and name != "mixed":
        arrays = inputs(name, n, "normal", seed)
        sources = tuple(map(ArraySource, arrays))
        right = find_case(program(name, arrays)).expected(0, (), sources, Model.of(dtype))
        assert isinstance(right, Tracked)
        return _shown(compare(right.value, Expected(right.value, right.bound)).sight.sensitivity)
    if dtype not in dtypes_of(name):
        return ""
    verdict = Expectation(name, dtype, n, "normal", seed).verdict()
    assert verdict.typical is not None
    both = verdict.sight.sensitivity, verdict.typical.derived.sensitivity
    return "{} ({})".format(*map(_shown, both))


def _shown(part: float) -> str:
    return "none" if part >= 1 else f"{part:.0e}" if part < 1e-3 else percent(part)


def times(sizes: Sequence[int]) -> None:
    """Processor time of all runs of an oracle, and of its plain one."""
    for name, n in itertools.product(("layer_norm", "gelu", "attention"), sizes):
        expectation = Expectation(name, "bfloat16", n, "normal", 0)
        assert expectation.case.runs is not None
        start = time.thread_time()
        expectation.case.runs(expectation.arrays, expectation.model)
        print(f"time, {name}, n = {n}: {time.thread_time() - start:.2f} s of one core")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--sizes", default="64")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    pr.initialize("jax", platform="cpu", num_cpu_devices=1)
    wanted = [options.only] if options.only else PARTS
    wrong = alarms(options.runs, options.seed, sizes) if "alarms" in wanted else 0
    if "faults" in wanted:
        faults(options.runs, options.seed, sizes, options.dtypes.split(","))
    if "sensitivity" in wanted:
        sensitivity(options.seed, sizes)
    if "time" in wanted:
        times(sizes)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
