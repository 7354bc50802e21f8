"""`python -m benchmarks.crosscheck`: measure the cross-check, as tables and as JSON.

`[--only mutants,draws,cost,memory,all,sensitivity] [--draws N] [--meshes N] [--layouts N]
[--programs A,B] [--dtypes A,B] [--size N] [--seed N] [--platform cpu|gpu] [--quick] [--json FILE]`.
`--dtypes` selects element types for the mutants; each program ignores those that it does not take,
and the default is its first one. On GPUs only draws and sensitivity are measured. The mutants are
defined in `tests/crosscheck`. The exit code is 1 if a mutant is missed or a healthy run fails;
exceeding a time bound does not change it.
"""

import argparse
import collections
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyreactant as pr
from pyreactant.check.check import check_all, check_blocks
from pyreactant.check.execute import CaseRun, run_case
from pyreactant.check.programs import CASES, find_case
from pyreactant.check.programs.case import Case
from pyreactant.check.report.results import seen
from tests.crosscheck.draws import draws
from tests.crosscheck.mutants import mutants
from tests.crosscheck.trials import Trial, attempts, diagnosis_of

from ._measure import machine, quartiles

PARTS = ("mutants", "draws", "cost", "memory", "all", "sensitivity")
COST, MEMORY, ALL = 0.25, 1.5, 90.0
"""Bounds: time of checks over time of the run, peak memory over size of the shards, seconds.

The run is what `run_case` does: it makes and places inputs (twice, because the calls before the
last use other inputs), compiles the program and calls it. It excludes the start of Python and of
the runtime.
"""

ELEMENTS = 4096**2
_SLOW = 30.0
"""Seconds; a check that takes longer is measured once."""

MESHES = (
    pr.Mesh((2, 4), ("x", "y")),
    pr.Mesh((2, 2, 2), ("x", "y", "z")),
    pr.Mesh((4, 2), ("x", "y"), [3, 1, 4, 0, 5, 7, 2, 6]),
    pr.Mesh((8,), ("x",)),
)
_SMALL = {"batched_matmul": 16, "attention": 16, "perceptron_gradient": 16, "sgd_step": 16}


@dataclass
class Row:
    """Counts for one mutant."""

    mutant: str
    tried: int = 0
    caught: int = 0
    named: int = 0
    shared: int = 0


def main() -> None:
    """Run the selected measurements."""
    args = _arguments()
    # The checks use their own threads, which BLAS threads would compete with. NumPy reads the
    # variable when it loads, so a new process is needed.
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.crosscheck", *sys.argv[1:]])
    if args.child:
        print(json.dumps(_child(args.child, args.programs, args.quick)))
        return
    found: dict[str, Any] = machine()
    print(", ".join(f"{name} {value}" for name, value in found.items()), end="\n\n")
    bad = 0
    names = args.programs or list(CASES)
    if {"mutants", "draws", "sensitivity"} & args.only:
        if args.platform == "cpu":
            os.environ.setdefault("JAX_PLATFORMS", "cpu")
        pr.initialize(platform=args.platform, num_cpu_devices=8)
    if "mutants" in args.only:
        found["mutants"], missed = _mutants(_trials(names, args))
        bad += missed
    if "draws" in args.only:
        found["draws"] = _draws(args.seed, args.draws)
        bad += len(found["draws"]["alarms"])
    if "sensitivity" in args.only:
        found["sensitivity"] = _sensitivities(names)
    if {"cost", "memory"} & args.only:
        found["cost"] = _costs(names, args.quick)
    if "all" in args.only:
        found["all"] = _whole(args.quick)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))
    sys.exit(1 if bad else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crosscheck", description=__doc__)
    parser.add_argument("--only", type=lambda text: {*text.split(",")}, default={*PARTS})
    parser.add_argument("--draws", type=int)
    parser.add_argument("--meshes", type=int)
    parser.add_argument("--layouts", type=int)
    parser.add_argument("--programs", type=lambda text: text.split(","))
    parser.add_argument("--dtypes", type=lambda text: text.split(","))
    parser.add_argument("--size", type=int)
    parser.add_argument("--seed", type=int, default=2026, help="seed of the draws")
    parser.add_argument("--platform", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.only <= {*PARTS}:
        parser.error(f"--only takes some of {','.join(PARTS)}")
    if args.platform == "gpu":
        args.only &= {"draws", "sensitivity"}
    args.draws = args.draws or (20 if args.quick else 1000)
    args.meshes = args.meshes or (1 if args.quick else len(MESHES))
    args.layouts = args.layouts or (1 if args.quick else 2)
    return args


def _mutants(trials: Iterator[Trial]) -> tuple[list[dict[str, Any]], int]:
    rows = {name: Row(name) for name in ("none", *(mutant.name for mutant in mutants()))}
    kinds = {"none": None, **{mutant.name: mutant.kind for mutant in mutants()}}
    missed = 0
    for trial in trials:
        row = rows[trial.mutant]
        row.tried += 1
        row.caught += not trial.diagnosis.passed
        row.named += trial.right
        row.shared += bool(trial.diagnosis.also)
        if not trial.right:
            missed += 1
            print(f"MISSED {trial}", flush=True)
    print("\n| mutant | tried | caught | named correctly | other names fit too |")
    print("|---|---|---|---|---|")
    for row in rows.values():
        note = "" if kinds[row.mutant] else " (must pass, except for exact results)"
        print(f"| {row.mutant}{note} | {row.tried} | {row.caught} | {row.named} | {row.shared} |")
    return [asdict(row) for row in rows.values()], missed


def _trials(names: Sequence[str], args: argparse.Namespace) -> Iterator[Trial]:
    for name, mesh in itertools.product(names, MESHES[: args.meshes]):
        case = find_case(name)
        size = args.size or _SMALL.get(name, 32)
        dtypes = [one for one in args.dtypes or case.dtypes[:1] if one in case.dtypes]
        layouts = case.layouts(mesh, size)[: args.layouts]
        for dtype, layout in itertools.product(dtypes, layouts):
            healthy = run_case(case, size=size, dtype=dtype, mesh=mesh, layout=layout, calls=1)
            found = diagnosis_of(healthy)
            yield Trial("none", name, dtype, layout, False, found.passed, found)
            yield from attempts(case, healthy, mutants())


def _draws(seed: int, count: int) -> dict[str, Any]:
    """Count the alarms of programs without a fault, on each set of inputs that they define."""
    start, alarms = time.perf_counter(), []
    per_program: collections.Counter[str] = collections.Counter()
    per_set: collections.Counter[str] = collections.Counter()
    for draw in itertools.islice(draws(seed, len(pr.devices())), count):
        per_program[draw.case.name] += 1
        for name, found in draw.run_all():
            per_set[name] += 1
            if not found.passed:
                alarms.append(f"{draw}, {name} inputs: {found.text}")
                print(f"FALSE ALARM {alarms[-1]}", flush=True)
    seconds = time.perf_counter() - start
    sets = ", ".join(f"{number} {name}" for name, number in per_set.items())
    print(
        f"\n{count} healthy draws of {len(per_program)} programs, on {sets} inputs: {len(alarms)} "
        f"false alarms in {seconds:.0f} s"
    )
    return {
        "draws": count,
        "alarms": alarms,
        "programs": per_program,
        "sets": per_set,
        "seconds": seconds,
    }


def _sensitivities(names: Sequence[str]) -> dict[str, dict[str, float]]:
    """The table of docs/checks.md: what a check sees of each program and element type."""
    found: dict[str, dict[str, float]] = {}
    for case in map(find_case, names):
        for dtype in (one for one in case.dtypes if not case.is_exact(one)):
            run = run_case(case, dtype=dtype, calls=1)
            blocks = check_blocks(run)
            found.setdefault(case.name, {})[dtype] = seen(blocks, run.plans).sensitivity
        if case.name in found:
            row = (f"{dtype} {value:.2g}" for dtype, value in found[case.name].items())
            print(f"| {case.name} | {', '.join(row)} |", flush=True)
    return found


def _measured(name: str, quick: bool) -> dict[str, Any]:
    """Measure one program in a separate process, so that its memory is separate too."""
    argv = [sys.executable, "-m", "benchmarks.crosscheck", "--child", "cost", "--programs", name]
    done = subprocess.run(argv + ["--quick"] * quick, capture_output=True, text=True)
    if done.returncode:
        return {"program": name, "error": done.stderr.strip().splitlines()[-1]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _child(what: str, names: Sequence[str], quick: bool) -> dict[str, Any]:
    assert what == "cost"
    os.environ["JAX_PLATFORMS"] = "cpu"
    pr.initialize(platform="cpu", num_cpu_devices=8)
    case = find_case(names[0])
    size = _size_of(case, 256**2 if quick else ELEMENTS)
    start, cpu = time.perf_counter(), time.process_time()
    run = run_case(case, size=size, calls=2 if quick else 3)
    whole = time.perf_counter() - start, time.process_time() - cpu
    shards = sum(s.data.nbytes for a in run.arrays.values() for s in a.addressable_shards)
    # Loops that numba has compiled take memory once, whatever a process checks.
    _check(run_case(case, size=_size_of(case, 512**2), calls=1))
    # Memory that the checks add to the blocks: NumPy reports its allocations to tracemalloc.
    tracemalloc.start()
    first = _timed_check(run)
    added = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    slow = first[0] > _SLOW
    timed = [first] if slow else [_timed_check(run) for _ in range(2 if quick else 3)]
    checks, processor = [one[0] for one in timed], [one[1] for one in timed]
    passed, method = first[2:]
    return {
        "program": case.name,
        "size": size,
        "method": method,
        "passed": passed,
        "calls": run.seconds["calls"],
        "whole": whole[0],
        "whole_processor": whole[1],
        "checks": checks,
        "checks_processor": processor,
        "shards": shards,
        "added": added,
    }


def _timed_check(run: CaseRun) -> tuple[float, float, bool, str]:
    """Check a run; return wall seconds, processor seconds, whether it passed, and the method."""
    start, cpu = time.perf_counter(), time.process_time()
    passed, method = _check(run)
    return time.perf_counter() - start, time.process_time() - cpu, passed, method


def _check(run: CaseRun) -> tuple[bool, str]:
    blocks = check_all(run)
    return all(block.passed for block in blocks), blocks[-1].values.method


def _size_of(case: Case, elements: int) -> int:
    """Largest power of two for which every array has at most `elements` elements."""
    size = 8
    while _largest(case, 2 * size) <= elements:
        size *= 2
    return size


def _largest(case: Case, size: int) -> int:
    dtype = case.dtypes[0]
    assert case.outputs is not None
    shapes = [one.shape for one in case.inputs(size, dtype)]
    shapes += [one.shape for one in case.outputs(size, dtype)]
    return max(map(math.prod, shapes))


def _costs(names: Sequence[str], quick: bool) -> list[dict[str, Any]]:
    print(
        "\n| program | n | method | call (quartiles) | checks (quartiles) | checks / call "
        f"| checks / run (bound {COST:.0%}) | checks / run, processor time "
        f"| peak / shards (bound {MEMORY}) |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for name in names:
        row = _measured(name, quick)
        rows.append(row)
        if "error" in row:
            print(f"| {name} | failed: {row['error']} |", flush=True)
            continue
        call, checks = quartiles(row["calls"]), quartiles(row["checks"])
        row["ratio"] = checks[1] / call[1]
        spent = quartiles(row["checks_processor"])[1]
        row["of_the_run"] = checks[1] / row["whole"], spent / row["whole_processor"]
        row["peak"] = 1 + row["added"] / max(row["shards"], 1)
        method = row["method"] + ("" if row["passed"] else " WRONG")
        print(
            f"| {name} | {row['size']} | {method} | {_spread(call)} | {_spread(checks)} "
            f"| {row['ratio']:.2f} | {row['of_the_run'][0]:.2f} | {row['of_the_run'][1]:.2f} "
            f"| {row['peak']:.2f} |",
            flush=True,
        )
    return rows


def _spread(values: tuple[float, float, float]) -> str:
    low, middle, high = (f"{value * 1e3:.3g}" for value in values)
    return f"{middle} ms ({low} to {high})"


def _whole(quick: bool) -> dict[str, Any]:
    """Time `pyreactant crosscheck --all` at its default sizes."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1 if quick else 3):
            argv = [
                sys.executable,
                "-m",
                "pyreactant",
                "crosscheck",
                "--all",
                "--backends",
                "jax",
                "--processes",
                "2",
                "--devices-per-process",
                "4",
                "--platform",
                "cpu",
                "--out",
                str(Path(folder) / str(number)),
            ]
            start = time.perf_counter()
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            seconds.append(time.perf_counter() - start)
            if done.returncode:
                print(done.stdout)
                return {"failed": done.returncode, "seconds": seconds}
    low, middle, high = quartiles(seconds)
    print(
        f"\ncrosscheck --all, JAX, 2 processes x 4 devices: {middle:.1f} s "
        f"({low:.1f} to {high:.1f}), bound {ALL:.0f} s"
    )
    return {"seconds": seconds, "bound": ALL}


if __name__ == "__main__":
    main()
